"""The benchmarks run, check what they time, and write what they found. No time is asserted."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import lpunits

pytest.importorskip("matplotlib", reason="needs lpunits[paper]")
pytest.importorskip("torch_geometric", reason="needs lpunits[pyg]")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """The modules of the folder, which import one another by their bare names."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import run
    import timing

    run.timing = timing
    return run


def test_a_run_prints_its_tables_and_writes_its_files(bench, tmp_path, capsys):
    settings = bench.Settings(seconds=0, rounds=1, slice=0, shrink=1000, compile=False)
    files = tmp_path / "new" / "bench.json", tmp_path / "new" / "speed.svg"
    bench.run(settings, bench.QUESTIONS, *files)

    printed = capsys.readouterr().out
    for title in (
        "Pooling",
        "Growing b",
        "Spatial",
        "Segments and masks",
        "Training",
        "Where a step's",
        "Recurrent",
        "First use",
        "What was required",
    ):
        assert re.search(f"^{title}", printed, re.MULTILINE)
    found = json.loads(files[0].read_text())
    assert found["environment"]["versions"]["torch"]
    assert found["environment"]["operator"] == lpunits.ops.status()
    assert {r["question"] for r in found["results"]} == {
        "pooling",
        "spatial",
        "segments and masks",
        "training step",
        "recurrent",
        "first use",
    }
    assert all(0 < r["timing"]["best"] <= r["timing"]["median"] for r in found["results"])
    # At most (filters + 1) values per unit and sample; here the unit has 5 filters.
    saved = [
        r for r in found["results"] if r["contestant"] == "ours" and r["case"] == "(1, 5, 240)"
    ]
    assert [r["saved_bytes"] <= 4 * 6 * 240 for r in saved if r["saved_bytes"]] == [True]
    against = {r["requirement"]["against"] for r in found["requirements"]}
    eager = {r.against for r in bench.requirements.REQUIREMENTS if "compiled" not in r.against}
    assert against == eager
    assert "<svg" in files[1].read_text()


def test_the_optimizers_alone(bench, tmp_path, capsys):
    settings = bench.Settings(seconds=0, rounds=1, slice=0, shrink=1000)
    bench.run(settings, ["optimizers"], tmp_path / "bench.json", tmp_path / "speed.svg")
    assert "Fitting the curve" in capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert len(found["optimizers"]) == 6 * len(bench.optimizers.CASES)
    assert not (tmp_path / "speed.svg").exists()


def test_a_contestant_that_is_wrong_is_not_timed(bench):
    timing = bench.timing
    wrong = timing.Contestant("wrong", lambda: torch.ones(3), expected=(torch.zeros(3),))
    settings = bench.Settings(seconds=0, rounds=1, slice=0)
    with pytest.raises(AssertionError, match="wrong, value"):
        timing.measure(timing.Case("q", "g", "case", 3, [wrong]), settings)


def test_a_contestant_that_cannot_be_compiled_here_is_left_out(bench, capsys, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no compiler")

    timing = bench.timing
    monkeypatch.setattr(timing, "compile_whole", lambda function: fail)
    z = torch.ones(3, requires_grad=True)
    runs = timing.Contestant("runs", torch.square, (z,), upstream=z, expected=(torch.ones(3),))
    case = timing.Case("q", "g", "case", 3, [runs], modes=(timing.BOTH,))
    settings = bench.Settings(seconds=0, rounds=1, slice=0)
    assert [r.contestant for r in timing.measure(case, settings)] == ["runs"]
    assert "left out runs, compiled: RuntimeError: no compiler" in capsys.readouterr().out


def test_under_compile_the_same_numbers_are_expected(bench):
    timing = bench.timing
    z = torch.ones(3, requires_grad=True)
    square = timing.Contestant("z^2", torch.square, (z,), upstream=z, expected=(torch.ones(3),))
    case = timing.Case("q", "g", "case", 3, [square])
    settings = bench.Settings(seconds=0, rounds=1, slice=0)
    found = [(r.contestant, r.mode) for r in timing.measure(case, settings)]
    assert found == [
        ("z^2", timing.FORWARD),
        ("z^2", timing.BOTH),
        ("z^2, compiled", timing.BOTH),
    ]


@pytest.mark.parametrize(
    ("faster", "measured", "met"),
    [
        (True, 9.9, "falls short"),
        (True, 10, "pass"),
        (True, 15, "pass, and the aim"),
        (False, 15.1, "falls short"),
        (False, 15, "pass, and the aim"),
    ],
)
def test_verdicts(bench, faster, measured, met):
    requirements = bench.requirements
    required, aim = (10, 15) if faster else (15, 15)
    requirement = requirements.Requirement("x", (), (), required, aim, faster)
    assert requirements.Verdict(requirement, "group", "case", measured).met == met


def test_the_plan_of_a_search_follows_from_what_was_measured(bench):
    import scale

    rates = {"1": {"trials": 10.0, "reports": 100.0}}
    epochs = {"MNIST, small": {"epochs": 50, "seconds": 10.0, "checkpoint": 2_000_000}}
    found = {"cpu": "a", "cores": 1, "load": 0.0, "versions": {}, "disk": 1e8, "epochs": epochs}
    found |= {"storage": {"SQLite": rates}, "ray": {"1": 2000.0, "16": 1000.0}}
    # A worker: 0.1 epochs a second. SQLite: 0.1 / 100 + 0.1 / 50 / 10 of its time, and so on.
    assert scale.busy(found, epochs["MNIST, small"]) == pytest.approx(
        {"SQLite": 1.2e-3, "Ray": 1e-4, "one disk": 2e-3}
    )
    rows = [line.strip("| ").split(" | ") for line in scale.tables(found).splitlines()]
    assert rows[-9][:8] == ["MNIST", "1", "5.8 days", "0.1", "0 MB/s", "0.12%", "0.01%", "0.2%"]
    assert rows[-7][1:3] == ["256", "33.3 min"]  # four rounds of 500 s
    assert rows[-7][5:] == ["31%", "2.6%", "51%", "one disk"]
    assert rows[-1] == ["MNIST", "833", "10,000", "500"]


def test_the_page_has_the_tables_of_the_measurements(bench):
    import scale

    assert scale.tables(json.loads(scale.RESULTS.read_text())) in scale.PAGE.read_text()


def test_every_network_of_the_study_of_starts_trains_and_its_runs_are_found_again(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    start = pytest.importorskip("start", reason="needs lpunits[paper]")
    x, y, *_ = start.folds("iris", 0, 0)
    for kind in (*start.STARTS, *start.MEANS):
        net = start.network(kind, x, 3, depth=2, dropout=0.0, units=8)
        start.train(net, kind, x, y, optimizer="adamw", epochs=1)
        assert cross_entropy(net(x), y).isfinite(), kind
    monkeypatch.setattr(start, "RECORDS", tmp_path / "start.json")
    runs = {start.key(run): {"error": 1 / 3} for run in start.questions()["sgd"]}
    start.write(runs)
    assert start.stored().keys() == runs.keys()
    assert "| iris | 0.3 ± 0.0 | 0.3 ± 0.0 | 0.3 ± 0.0 |" in start.tables()
