"""The estimators under scikit-learn's own checks."""

import pytest

pytest.importorskip("sklearn", reason="needs lpunits[sklearn]")

from sklearn.utils.estimator_checks import parametrize_with_checks

from lpunits.sklearn import LpClassifier, LpRegressor


@parametrize_with_checks([LpClassifier((32,), max_iter=40), LpRegressor((32,), max_iter=40)])
def test_what_scikit_learn_asks_of_an_estimator(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # otherwise the checks of array namespaces skip
    check(estimator)
