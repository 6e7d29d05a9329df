"""Estimators for tables, as scikit-learn has them (extra ``sklearn``).

>>> from sklearn.datasets import load_iris
>>> from lpunits.sklearn import LpClassifier
>>> X, y = load_iris(return_X_y=True)
>>> LpClassifier(random_state=0).fit(X, y).score(X, y) > 0.9
True
"""

from lpunits.sklearn.estimators import LpClassifier, LpRegressor
from lpunits.sklearn.storage import load

__all__ = ["LpClassifier", "LpRegressor", "load"]
