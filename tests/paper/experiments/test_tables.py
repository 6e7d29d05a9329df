"""The experiment ``tables``: its tables, its search, its ranks."""

from types import SimpleNamespace

import numpy as np
import pytest

from lpunits.paper.experiments import tables
from lpunits.paper.experiments.tables import MODELS, TABLES, Tabular, build, draw, table, trials
from lpunits.paper.training.trial import Result, Trial

JOB = SimpleNamespace(epoch=lambda *values: None)


@pytest.mark.parametrize("name", [name for name in TABLES if name != "covertype"])
def test_the_tables(name):
    X, y = table(name, 200, 0)
    assert X.shape == (len(y), X.shape[1])
    assert 100 < len(y) <= 200
    assert np.isfinite(X).all()
    assert (len(set(y.tolist())) <= 10) == TABLES[name]
    again = table(name, 200, 0)
    assert np.array_equal(again[0], X)
    assert np.array_equal(again[1], y)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # two epochs are few
@pytest.mark.parametrize("model", MODELS)
def test_what_is_drawn_builds_an_estimator(model):
    rng = np.random.default_rng(0)
    drawn = [draw(model, rng) for _ in range(3)]
    assert drawn[0] != drawn[1]
    for name in ("wine", "diabetes"):
        config = Tabular(name, model, epochs=2, trees=2)
        X, y = table(name, 60, 0)
        estimator = build(config, 0, drawn[0])
        assert np.isfinite(estimator.fit(X, y).score(X, y))


def test_a_trial_tests_each_row_once_and_repeats():
    config = Tabular("wine", "boosting", rows=90, folds=3, trees=5)
    outcome = config.run(0, JOB)
    assert len(outcome["errors"]) == len(outcome["chosen"]) == 3
    assert all(0 <= error < 0.5 for error in outcome["errors"])
    assert (outcome["rows"], outcome["columns"]) == (90, 13)
    again = config.run(0, JOB)
    assert [again[k] for k in ("errors", "chosen")] == [outcome[k] for k in ("errors", "chosen")]


def test_the_search_takes_what_is_best_on_the_inner_folds(monkeypatch):
    monkeypatch.setattr(tables, "draw", lambda model, rng: {"min_samples_leaf": 1000})
    config = Tabular("wine", "boosting", rows=90, folds=2, trees=5, trials=3)
    assert config.run(0, JOB)["chosen"] == [{}, {}]  # trees that never split are worse


def made(name, model, errors):
    outcome = {"errors": errors, "chosen": [{}], "rows": 100, "columns": 3}
    return Result(Trial(Tabular(name, model), 0), {"outcome": outcome})


def test_ranks_and_comparisons_are_computed():
    results = [made("wine", "lp", [0.1, 0.11]), made("wine", "relu", [0.3, 0.31])]
    results += [made("diabetes", "lp", [0.5, 0.7]), made("diabetes", "relu", [0.5, 0.6])]
    section = tables.section(results)
    assert section.verdict == (
        "Mean ranks over 2 tables, the best first: Lp 1.50, ReLU 1.50. Against ReLU, Lp's error is "
        "lower on 1, higher on 0 and not significantly different on 1."
    )
    assert section.tables[0].rows[-1] == ["mean rank", "1.50", "1.50"]
    assert section.tables[0].rows[0] == ["wine (100 x 3)", "10.50% ± 0.71%", "30.50% ± 0.71%"]


def test_a_table_without_all_models_has_no_rank():
    results = [made("wine", "lp", [0.1, 0.2]), made("diabetes", "relu", [0.1, 0.2])]
    assert tables.section(results).verdict == "No table has the results of all models yet."


def test_ten_tables_and_covertype_at_full_size():
    assert {t.config.table for t in trials("quick")} == set(TABLES) - {"covertype"}
    assert len({t.config.table for t in trials("quick")}) == 10
    assert {t.config.table for t in trials("paper")} == set(TABLES)
    assert len(trials("quick")) == 10 * len(MODELS)
