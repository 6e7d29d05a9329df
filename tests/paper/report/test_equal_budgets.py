"""Equal budgets: which kind is better, by how much, and where there is no difference."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from lpunits.paper.report.equal_budgets import Contest, section
from lpunits.paper.search.study import open_storage, studies
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Trial

RESULTS = Path(__file__).parents[3] / "results"

ERRORS = {"lp": [0.20, 0.22, 0.21], "relu": [0.10, 0.12, 0.12], "maxout": [0.30, 0.31, 0.31]}
NATS = {"lp": [8.0, 8.1], "tanh": [8.05, 8.07]}


@pytest.fixture
def shown():
    return section(
        [
            Contest("A", "8 trials", "error", ".1%", ERRORS),
            Contest("B", "8 trials", "NLL", ".2f", NATS),
            Contest("C", "9 trials", "error", ".1%", {"lp": [0.1], "l2": [0.2]}),
        ]
    )


def test_the_best_of_the_others_decides(shown):
    assert shown.verdict == (
        "Lp units against the best other kind on the test set: no significant difference on "
        "B (tanh), C (L2); worse on A (ReLU)."
    )


def test_a_table_for_each_metric(shown):
    errors, nats, _ = shown.tables
    assert errors.head == ["data", "search", "Lp", "L2 (p = 2)", "maxout", "ReLU"]
    assert [row[0] for row in errors.rows] == ["A", "C"]
    assert errors.rows[0][3] == ""  # not searched
    assert errors.rows[1][2:] == ["10.0% (n = 1)", "20.0% (n = 1)", "", ""]
    assert nats.rows == [["B", "8 trials", "8.05 ± 0.07 (n = 2)", "8.06 ± 0.01 (n = 2)"]]


def test_differences_have_intervals_by_seed(shown):
    *_, differences = shown.tables
    assert differences.rows == [
        ["A", "ReLU", "+9.67 points", "+8.23 to +11.10", "0.0012"],
        ["B", "tanh", "-0.010 nats", "-0.518 to +0.498", "0.84"],
        ["C", "L2", "", "", "one seed"],
    ]


def test_the_figure_is_relative_to_lp_units(shown):
    errors, nats = shown.pictures[0].figure.axes
    drawn = [list(line.get_xdata()) for line in errors.lines if line.get_marker() == "o"]
    relu = [100 * (value / 0.21 - 1) for value in ERRORS["relu"]]
    assert any(values == pytest.approx(relu) for values in drawn)
    assert [text.get_text() for text in errors.get_yticklabels()] == ["A", "C"]
    assert [text.get_text() for text in nats.get_yticklabels()] == ["B"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_script_repeats_every_search_of_the_storage_and_its_winner_over_three_seeds(tmp_path):
    script = (
        f'lpunits() {{ echo "lpunits $@"; }}; . {shlex.quote(str(RESULTS / "equal_budgets.sh"))}'
    )
    printed = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True)
    commands = {frozenset(line.split()) for line in printed.stdout.splitlines()}
    shutil.copy(RESULTS / "search" / "studies.db", tmp_path)
    store = Records(RESULTS, RESULTS / "search")
    with open_storage(f"sqlite:///{tmp_path / 'studies.db'}") as storage:
        known = set()
        for study in studies(storage):
            assert study.complete
            config = study.winner().config
            assert not store.missing(Trial(config, seed) for seed in range(3))
            repetition = f"{study.plan.repetition} --seeds 3"
            known |= {frozenset(shlex.split(words)) for words in (study.plan.command, repetition)}
    assert commands == known
