"""Scores: scikit-learn's numbers, and comparisons row by row."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import balanced_accuracy_score, log_loss, mean_absolute_error, r2_score

from lpunits.paper.fitting.scores import Score, Split, classification, compare, paired, regression


def split(classes, rows=60, scale=1.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    y = np.where(X[:, 0] > 0, "b", "a").astype(object) if classes else scale * X[:, 0]
    return Split(X[:40], y[:40], X[40:], y[40:])


def test_the_scores_are_those_of_scikit_learn():
    some = split(True)
    model = DummyClassifier(strategy="stratified", random_state=0).fit(some.X, some.y)
    values, wrong = classification(DummyClassifier().fit(some.X, some.y), some.X_test, some.y_test)
    model = DummyClassifier().fit(some.X, some.y)
    predicted = model.predict(some.X_test)
    assert values["accuracy"] == pytest.approx(1 - wrong.mean())
    assert values["accuracy"] == pytest.approx(model.score(some.X_test, some.y_test))
    assert values["balanced accuracy"] == balanced_accuracy_score(some.y_test, predicted)
    expected = log_loss(list(some.y_test), model.predict_proba(some.X_test), labels=["a", "b"])
    assert values["log loss"] == pytest.approx(expected)


@pytest.mark.parametrize("scale", [1.0, 1e200])
def test_scores_of_numbers_do_not_overflow(scale):
    some = split(False, scale=scale)
    model = DummyRegressor().fit(some.X, some.y / scale)

    class Scaled:
        def predict(self, X):
            return scale * model.predict(X)

    values, _ = regression(Scaled(), some.X_test, some.y_test)
    predicted, true = model.predict(some.X_test), some.y_test / scale
    assert values["R²"] == pytest.approx(r2_score(true, predicted))
    assert values["MAE"] == pytest.approx(scale * mean_absolute_error(true, predicted))
    assert values["RMSE"] == pytest.approx(scale * np.sqrt(((true - predicted) ** 2).mean()))


def test_rivals_are_compared_row_by_row():
    some = split(True)
    ours = Score("Lp units", {"accuracy": 1.0})
    found = list(compare(ours, np.zeros(20), "classification", some, 0))
    assert [s.name for s in found[:2]] == ["Lp units", "the majority"]
    assert len(found) == 4
    assert found[1].against == "worse"
    assert all(s.values and s.against for s in found[1:])


def test_a_class_of_one_row_stops_no_rival():
    some = split(True)
    some.y[0] = "rare"
    found = list(compare(Score("Lp units"), np.zeros(20), "classification", some, 0))
    assert not any(s.failed for s in found)


def test_a_rival_that_cannot_be_fitted_says_why():
    some = split(False, scale=1e300)
    some.X[:, 0] *= 1e300
    found = list(compare(Score("Lp units"), np.zeros(20), "regression", some, 0))
    assert [s.name for s in found] == [
        "Lp units",
        "the mean",
        "HistGradientBoosting",
        "MLP of scikit-learn",
    ]
    assert all(s.values or s.failed for s in found[1:])


def test_differences_within_two_standard_errors_are_undecided():
    ours = np.zeros(100)
    assert paired(ours + 1, ours) == "worse"
    assert paired(ours - 1, ours) == "better"
    assert paired(np.r_[np.ones(3), -np.ones(3)], np.zeros(6)) == "undecided"
    assert paired(ours, ours) == "undecided"
