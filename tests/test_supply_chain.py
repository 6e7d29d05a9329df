"""Nothing that a file holds is run as a program, and every download has a checksum."""

import ast
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "benchmarks").rglob("*.py"),
    *(ROOT / "docs").glob("*.py"),
    ROOT / "hatch_build.py",
]
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {
    *("os.system", "os.popen", "pickle.load", "pickle.loads", "joblib.load", "joblib.dump"),
    *("yaml.load", "yaml.unsafe_load", "torch.load", "pd.read_pickle", "pandas.read_pickle"),
    *("np.load", "numpy.load", "subprocess.getoutput", "subprocess.getstatusoutput"),
}
SAFE = {
    "torch.load": {"weights_only": True},
    "np.load": {"allow_pickle": False},
    "numpy.load": {"allow_pickle": False},
}
# The restricted unpickler, which finds two names, both stubs of its own file.
EXCEPTIONS = {"src/lpunits/paper/data/untrusted.py": {"pickle"}}


def dangers(source: str) -> Iterator[str]:
    """What in a text of Python may run what a file holds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in MODULES:
                yield str(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            options = {
                k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)
            }
            if name in CALLS or (
                name in ATTRIBUTES and options != options | SAFE.get(name, {0: 0})
            ):
                yield f"{name}()"
            if options.get("shell") is True or options.get("weights_only") is False:
                yield f"{name}(shell=True or weights_only=False)"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_can_run_a_program(path):
    name = path.relative_to(ROOT).as_posix()
    assert set(dangers(path.read_text(encoding="utf-8"))) == EXCEPTIONS.get(name, set())


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "eval(text)",
        "subprocess.run(line, shell=True)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "np.load(path)",
        "yaml.load(text)",
        "os.system(line)",
    ],
)
def test_what_would_be_found(line):
    assert list(dangers(line))


def test_what_is_harmless():
    harmless = (
        "torch.load(p, weights_only=True); np.load(p, allow_pickle=False); net.eval(); json.load(f)"
    )
    assert not list(dangers(harmless))


def test_every_download_has_a_checksum():
    data = pytest.importorskip("lpunits.paper.data", reason="needs lpunits[paper]")
    sources = [source for name in data.DATASETS for source in data.info(name).files]
    assert any(source.url for source in sources)
    for source in sources:
        assert source.url is None or source.known_hash, source
    with pytest.raises(ValueError, match="known_hash must be given where url is"):
        data.Source("a", "a", ("a",), print, "ask", url="https://example.org/a")


def test_every_dependency_has_a_lower_bound_and_a_version_of_development():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = chain.from_iterable(project["optional-dependencies"].values())
    bounds = [*project["dependencies"], *extras]
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    for bound in bounds:
        name, _, version = bound.partition(">=")
        assert version[:1].isdigit(), bound
        assert name.partition("[")[0].lower().replace("_", "-") in pinned, bound
