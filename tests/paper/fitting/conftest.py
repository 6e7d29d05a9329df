"""A small table on disk, and a model of it."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs lpunits[paper]")

HOSTILE = '<script>alert("1")</script>[/]$x^{$'
SETTINGS = {"max_iter": 3, "hidden_layer_sizes": (8, 4)}


def rows(count, classes, seed=0):
    """Lines of a table: two numbers, a category, an id, and a target."""
    rng = np.random.default_rng(seed)
    lines = [f'number,id,"{HOSTILE.replace(chr(34), chr(34) * 2)}",city,y']
    for i in range(count):
        x, z = rng.normal(size=2)
        city = rng.choice(["Rome", "Oslo", "NA", "<b>Bern"])
        y = x + (city == "Rome") + 0.1 * rng.normal()
        label = ("<i>low", "mid", "high")[int(np.digitize(y, [-0.3, 0.8]))] if classes else y
        number = "" if i % 9 == 0 else f"{x:.4f}"
        lines.append(f"{number},{i + 1},{z:.4f},{city},{label}")
    return "\n".join(lines) + "\n"


@pytest.fixture(params=["classification", "regression"], scope="session")
def task(request):
    return request.param


@pytest.fixture(scope="session")
def source(task, tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "ta<b>le.csv"
    path.write_text(rows(120, task == "classification"))
    return path


@pytest.fixture(scope="session")
def fitted(source):
    from lpunits.paper.fitting.fit import fit, prepare
    from lpunits.paper.fitting.reading import read

    return fit(prepare(read(source), "y", seed=3), SETTINGS)


@pytest.fixture(scope="session")
def facts(fitted):
    return {
        **fitted.facts(),
        "folder": "model",
        "made": "2026-01-01T00:00:00+00:00",
        "versions": {"torch": "2"},
    }
