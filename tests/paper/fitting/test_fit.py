"""The split and the training: which rows are used for what."""

from pathlib import Path

import numpy as np
import pytest

from lpunits.paper.fitting.fit import fit, prepare
from lpunits.paper.fitting.reading import Table, read
from lpunits.sklearn import LpClassifier, LpRegressor


def table(count=100):
    rng = np.random.default_rng(0)
    labels = ["a"] * (count * 7 // 10) + ["b"] * (count - count * 7 // 10 - 1) + ["rare"]
    values = {"x": [f"{v:.6f}" for v in rng.normal(size=count)], "y": labels}
    return Table(Path("t.csv"), values)


def test_classes_are_split_in_their_shares_and_a_rare_one_stays_to_train_on():
    split = prepare(table(), "y").split
    a, b, rare = (int((split.y_test == c).sum()) for c in ("a", "b", "rare"))
    assert a in (13, 14)
    assert b in (5, 6)
    assert rare == 0
    assert "rare" in split.y
    rows = np.concatenate([split.X, split.X_test])[:, 0]
    assert sorted(rows) == sorted(float(x) for x in table().columns["x"])


def test_the_seed_decides_the_split_and_the_training():
    first, same, other = (prepare(table(), "y", seed=s).split for s in (0, 0, 1))
    assert np.array_equal(first.X_test, same.X_test)
    assert not np.array_equal(first.X_test, other.X_test)
    prepared = prepare(table(), "y")
    a, b = (fit(prepared, {"max_iter": 2}, compare=False).estimator for _ in range(2))
    assert np.array_equal(a.predict_proba(first.X_test), b.predict_proba(first.X_test))


def test_medians_and_categories_are_of_the_rows_to_train_on(source):
    prepared = prepare(read(source), "y")
    (column,) = [c for c in prepared.columns if c.name == "number"]
    places = prepared.features.index("number"), prepared.features.index("number is missing")
    x, flags = prepared.split.X[:, places[0]], prepared.split.X[:, places[1]]
    assert column.fill == np.median(x[flags == 0])


def test_the_estimator_is_that_of_the_task(fitted, task):
    kind = LpClassifier if task == "classification" else LpRegressor
    assert type(fitted.estimator) is kind
    assert fitted.estimator.random_state == 3
    split = fitted.prepared.split
    alone = kind(random_state=3, max_iter=3, hidden_layer_sizes=(8, 4)).fit(split.X, split.y)
    assert np.array_equal(alone.predict(split.X_test), fitted.predicted)
    assert fitted.scores[0].name == "Lp units"
    assert len(fitted.scores) == 4
    first = next(iter(fitted.scores[0].values.values()))
    assert first == pytest.approx(alone.score(split.X_test, split.y_test))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"test": 1.5}, "test must be a fraction between 0 and 1, got 1.5"),
        ({"seed": -1}, "seed must be a number from 0 to 4294967295, got -1"),
        ({"kinds": {"z": "out"}}, "there is no column 'z' to learn from"),
        ({"kinds": {"y": "out"}}, "there is no column 'y' to learn from"),
        ({"kinds": {"x": "text"}}, r"must be NAME=number\|category\|out, got x=text"),
        ({"kinds": {"x": "out"}}, r"no column is left to predict from \(x: as chosen\)"),
    ],
)
def test_mistakes_are_sentences(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        prepare(table(), "y", **options)


def test_parameters_that_the_estimator_does_not_have():
    with pytest.raises(ValueError, match="no parameter 'max_iters': did you mean 'max_iter'"):
        fit(prepare(table(), "y"), {"max_iters": 1})
    with pytest.raises(ValueError, match="no parameter 'random_state'"):
        fit(prepare(table(), "y"), {"random_state": 1})
    with pytest.raises(ValueError, match="max_iter"):
        fit(prepare(table(), "y"), {"max_iter": "many"})
