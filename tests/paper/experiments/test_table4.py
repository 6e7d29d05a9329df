"""Table 4, from its trials to its section."""

from dataclasses import replace

import numpy as np
import pytest

from lpunits.paper.experiments import get, table4
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Result, Trial


@pytest.fixture
def results(smoke):
    found = Records(smoke / "records").results(get("table4").trials("smoke"))
    assert len(found) == 3
    return found


def test_the_section_of_the_smoke_run(results):
    section = table4.section(results)
    assert section.verdict.startswith("Lp units reach ")
    assert "better than" in section.verdict
    table, orders = section.tables
    assert [row[1] for row in table.rows] == ["DOT-RNN, Lp", "RNN", "GRU"]
    assert orders.rows[0][0] == "chords"
    assert {picture.name for picture in section.pictures} == {"table4-roll", "table4-orders"}
    without = table4.section([r for r in results if r.config.model != "lp"])
    assert without.verdict == "Lp units have not been run yet."


def test_the_roll_shows_truth_and_probability(results):
    result = results[0]
    panels = table4.roll(result).axes[:2]
    truth, probability = (np.asarray(axes.images[0].get_array()) for axes in panels)
    assert truth.shape == probability.shape
    assert set(np.unique(truth)) == {0.0, 1.0}
    assert len(np.unique(probability)) > 10


def paper_results(results, test, transpose=0):
    """The records of the smoke run, as if they were of the full scale."""
    lp, _, gru = results
    chosen = [
        t
        for t in table4.trials("paper")
        if t.config.data == "jsb"
        and t.config.model in ("lp", "gru")
        and t.config.transpose == transpose
    ]
    found = []
    for trial in chosen:
        nll = test if trial.config.model == "lp" else 8.0
        outcome = (lp if trial.config.model == "lp" else gru).outcome
        found.append(Result(trial, {"outcome": outcome | {"nll": {"test": nll, "valid": nll}}}))
    return found


def test_the_verdict_is_computed(results):
    good = table4.section(paper_results(results, 7.9))
    assert "the paper's 7.92 is reproduced" in good.verdict
    assert "better than 1 of 1 others" in good.verdict
    assert [h.verdict for h in good.headlines] == ["reproduced"]
    assert any("7.92" in row for row in good.tables[0].rows)
    bad = table4.section(paper_results(results, 8.4))
    assert "the paper's 7.92 is not reproduced" in bad.verdict
    assert "better than 0 of 1" in bad.verdict
    assert [h.verdict for h in bad.headlines] == ["not reproduced"]
    (thresholds,) = good.details
    assert [row[0] for row in thresholds.rows] == ["0.3", "1", "3"]
    assert "(n = 3)" in good.tables[0].rows[0][4], "other thresholds are no further seeds"
    alone = [r for r in paper_results(results, 7.9) if r.config.model == "lp"]
    assert table4.section(alone).verdict == (
        "Lp units reach 7.90 on JSB Chorales (the paper's 7.92 is reproduced)."
    )


def test_augmentation_is_a_row_of_its_own_and_says_so(results):
    both = paper_results(results, 8.1) + paper_results(results, 7.0, transpose=6)
    section = table4.section(both)
    rows = {row[1]: row for row in section.tables[0].rows}
    assert rows["DOT-RNN, Lp, transposed by up to 6 semitones, 200 epochs"][3] == ""
    assert "8.10" in section.verdict
    assert any("the paper has no augmentation" in note for note in section.notes)


def test_every_network_stands_beside_lp_units_on_every_set():
    trials = table4.trials("paper")
    models = {}
    for trial in trials:
        models.setdefault(trial.config.data, set()).add(trial.config.model)
    assert models.pop("jsb") == {*table4.MODELS, "lstm"}
    assert list(models.values()) == [{"lp", "sigmoid", "tanh", "gru"}] * 2
    labels = [trial.label for trial in trials]
    assert len(set(labels)) == len(labels) == 3 + 4 * 3 + 3 + 6 * 3 + 3 + 2 * (2 + 4)


def test_networks_are_compared_on_one_budget(results):
    lp, _, gru = results
    brief, full = table4.MUSIC_BRIEF["nottingham"], table4.MUSIC["nottingham"]
    found = []
    for config, outcome, nll in (
        (full, lp.outcome, 2.94),
        (brief, lp.outcome, 3.2),
        (replace(brief, model="gru"), gru.outcome, 3.1),
        (replace(brief, model="sigmoid", lr=brief.lr / 2), gru.outcome, 3.3),
    ):
        outcome = outcome | {"nll": {"test": nll, "valid": nll}}
        found.append(Result(Trial(config, 0), {"outcome": outcome}))
    section = table4.section(found)
    assert section.verdict == (
        "Lp units reach 2.94 on Nottingham (the paper's 2.95 is reproduced). Beside other networks "
        "they have 3.20 on Nottingham in 40 epochs, better than 1 of 2 others."
    )
    assert [row[1:4:2] for row in section.tables[0].rows] == [
        ["DOT-RNN, Lp", "2.95"],
        ["DOT-RNN, Lp, 40 epochs", ""],
        ["GRU, 40 epochs", ""],
        ["DOT-RNN, sigmoid, 40 epochs", "3.22"],
    ]
    assert "networks on a smaller budget" in section.notes[-1]
    assert "in 40 epochs" not in table4.section(found[:2]).verdict, "alone it compares nothing"
