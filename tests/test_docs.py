"""The documentation: the length and the numbers of the README, links, names of files."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lpunits

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts),
]
# What the README calls an alternative, and what bench.json does.
RIVALS = {
    "the formula": "naive",
    "`amax` maxout": "maxout, amax",
    "ReLU": "ReLU",
    "ReLU with as many weights": "ReLU, 780 units",
    "the GeM formula": "GeM",
    "`nn.AdaptiveMaxPool2d`": "nn.AdaptiveMaxPool2d",
    "`nn.LPPool2d`": "nn.LPPool2d",
    "`nn.MaxPool2d`": "nn.MaxPool2d",
    "`nn.GRU`": "nn.GRU",
    "`nn.LSTM`": "nn.LSTM",
    "`nn.RNN`": "nn.RNN",
}


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 110


def speed_claims() -> list[tuple[str, str, float]]:
    """Layer and layout, alternative, ratio: every number of the table of speed."""
    _, _, section = README.partition("## Speed")
    rows = re.findall(r"^\| (.+) \| (.+) \|$", section, re.MULTILINE)[1:]
    return [
        (layer, rival, float(ratio))
        for layer, cell in rows
        for rival, ratio in re.findall(r"(\S.*?) (\d+\.\d\d)(?:, |$)", cell)
    ]


def test_the_speed_of_the_readme_is_what_was_measured():
    results = json.loads((ROOT / "results" / "bench.json").read_text())["results"]
    times = {
        (f"{r['group']} {r['case']}", r["contestant"]): r["timing"]["best"]
        for r in results
        if r["mode"] == "forward + backward"
    }
    cases = {
        "`lp_pool`, (100, 5, 240)": "over the filters (100, 5, 240)",
        "`lp_pool`, (4096, 2, 512)": "over the filters (4096, 2, 512)",
        "`GlobalLpPool`, 7x7, channels first": "GlobalLpPool, channels first 32x256x7x7",
        "`LpPool2d`, 3x3, channels first": "LpPool2d, channels first k=3 s=2 p=1",
        "`LpPool2d`, 3x3, channels last": "LpPool2d, channels last k=3 s=2 p=1",
        "training step of the paper's MNIST net": (
            "step of MLP(784, [240, 240], 10, filters=5) batch 100"
        ),
        "`DTRNN`, batch 64, 400 steps": "batch 64 400 steps",
    }
    claims = speed_claims()
    assert {layer for layer, _, _ in claims} == set(cases)
    for layer, rival, ratio in claims:
        ours, theirs = times[cases[layer], "ours"], times[cases[layer], RIVALS[rival]]
        assert ratio == pytest.approx(ours / theirs, abs=0.0051), layer


@pytest.mark.parametrize(
    "number", sorted(set(re.findall(r"\d+\.\d+ ± \d+\.\d+", README.partition("## Speed")[0])))
)
def test_the_results_of_the_readme_are_those_of_the_results_page(number):
    results = (ROOT / "docs" / "results.md").read_text()
    mean, spread = number.split(" ± ")
    assert number in results or f"{mean}% ± {spread}%" in results


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and MyST name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "csrc"])
def test_files_that_the_code_names_exist(folder):
    """Docstrings send readers to pages of docs/: these must not move away from under them."""
    for file in (ROOT / folder).rglob("*"):
        if file.suffix in {".py", ".h", ".cpp"}:
            for page in re.findall(r"\bdocs/[\w/]+\.md", file.read_text()):
                assert (ROOT / page).exists(), f"{file.relative_to(ROOT)} names {page}"


def test_the_map_of_the_repository_names_what_there_is():
    for page in ("docs/where.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text()
        paths = re.findall(r"`((?:src|csrc|tests|docs|benchmarks|results)/[\w/.]*)`", text)
        assert paths
        for path in paths:
            assert (ROOT / path).exists(), f"{page} names {path}"


def test_the_site_is_built_without_a_warning(tmp_path):
    """Pages in no table of contents, links, anchors and names in docstrings that lead nowhere."""
    pytest.importorskip("furo", reason="needs lpunits[dev]")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_the_library_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "core.md").read_text()
    missing = {name for name in lpunits.__all__ if not re.search(rf"lpunits\.{name}\b", page)}
    assert not missing
