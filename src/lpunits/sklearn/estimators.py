"""LpClassifier and LpRegressor: a network of norms behind ``fit`` and ``predict``."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from lpunits.sklearn.base import TableEstimator, Targets
from lpunits.sklearn.tables import Weights


class LpClassifier(ClassifierMixin, TableEstimator):  # type: ignore[misc]
    r"""A classifier for tables: a network of Lp units, with the scaling of its inputs inside.

    .. math:: P(k \mid x) = \mathrm{softmax}_k \, \mathrm{MLP} ( \mathrm{scale} (x) )

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LpClassifier(random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).round().tolist()
    [[1.0, 0.0, 0.0]]

    Where scikit-learn's ``MLPClassifier`` has a parameter too, it has the same name here.

    Args:
        hidden_layer_sizes: Units of each hidden layer, or a number for one layer.
        activation: The kind of the units: ``"lp"``, or a baseline of :class:`lpunits.MLP`.
        filters: Projections per unit; 2 by default.
        order: The orders to start from, as in :class:`lpunits.MLP`.
        learn_order: Whether the orders are learned.
        order_scale: By how much orders learn faster than weights.
        dropout: The probability to drop a hidden unit.
        solver: ``"adamw"``, or ``"sgd"`` with a momentum of 0.9.
        learning_rate: Its schedule: ``"one-cycle"`` rises for a fifth of the time and then falls to
            zero, ``"cosine"`` falls, ``"constant"`` stays.
        learning_rate_init: The largest learning rate.
        weight_decay: The decay of the weights per unit of the learning rate. ``"auto"``: 1 up to
            2,000 rows, then 2,000 by the rows (of ``partial_fit``, those of the first call).
        batch_size: Rows of a batch. ``"auto"``: a 32nd of the table, from 64 to 512; up to 100
            rows, all of them.
        max_iter: Epochs. ``"auto"``: from 20 for a large table to 100 for a small one.
        early_stopping: Whether a part of the table is held out, to return to the epoch that had the
            smallest loss there. ``"auto"``: from 200 rows on.
        validation_fraction: How large this part is.
        n_iter_no_change: After how many epochs without a better one to stop; by default none, as
            the last epochs, in which the rate goes to zero, are usually the best.
        class_weight: A weight for each class, ``{label: weight}``, or ``"balanced"``.
        standardize: Whether inputs (and the targets of a regression) are scaled. The scaling is
            robust: wild values do not hurt, and a constant column is ignored.
        warm_start: Whether ``fit`` continues from the last one.
        random_state: A seed. The same one gives the same model, bit by bit.
        device: Where to train and predict.
        verbose: Whether to show a progress bar with loss, validation score and orders.

    Attributes:
        classes_: The labels.
        model_: The torch module: scaling, :class:`lpunits.MLP`. It maps rows of X to scores.
        orders_: The learned orders, an array for each layer.
        loss_curve_: The training loss of each epoch.
        validation_scores_: The accuracy after each epoch on the rows held out, or None.
        best_validation_score_: The largest of them, or None.
        n_iter_: How many epochs were trained.
        n_features_in_: How many columns X had.
        feature_names_in_: Their names, if X was a frame.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TableEstimator._parameter_constraints,
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    classes_: npt.NDArray[Any]

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int = (128, 128),
        activation: str = "lp",
        *,
        filters: int | Sequence[int] | None = None,
        order: Any = 3.0,
        learn_order: bool = True,
        order_scale: float = 5.0,
        dropout: float = 0.0,
        solver: str = "adamw",
        learning_rate: str = "one-cycle",
        learning_rate_init: float = 2e-3,
        weight_decay: float | str = "auto",
        batch_size: int | str = "auto",
        max_iter: int | str = "auto",
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        class_weight: Any = None,
        standardize: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool | int = False,
    ) -> None:
        super().__init__(
            hidden_layer_sizes,
            activation,
            filters=filters,
            order=order,
            learn_order=learn_order,
            order_scale=order_scale,
            dropout=dropout,
            solver=solver,
            learning_rate=learning_rate,
            learning_rate_init=learning_rate_init,
            weight_decay=weight_decay,
            batch_size=batch_size,
            max_iter=max_iter,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            standardize=standardize,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def _encode(self, y: Any, weights: Weights, first: bool) -> Targets:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if first:
            classes = np.unique(y[weights > 0])
            if len(classes) < 2:
                raise ValueError(
                    f"y must have at least two classes, got one class: {classes.tolist()}"
                )
            self.classes_ = classes
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = (self.classes_[places] != y) & (weights > 0)
        if unknown.any():
            raise ValueError(
                f"y must have the classes {self.classes_.tolist()} as before, got also "
                f"{np.unique(y[unknown]).tolist()}"
            )
        return np.asarray(places, np.int64)

    def _class_weights(self, target: Targets, weights: Weights) -> Weights | float:
        if self.class_weight is None:
            return 1.0
        labels = self.classes_.tolist()
        if self.class_weight == "balanced":
            totals = np.bincount(target, weights, len(labels))
            factors = weights.sum() / len(labels) / np.where(totals > 0, totals, 1)
        else:
            if unknown := set(self.class_weight) - set(labels):
                raise ValueError(
                    f"class_weight must name classes of y, {labels}, got {sorted(unknown)}"
                )
            for label, factor in self.class_weight.items():
                if not (isinstance(factor, Real) and 0 <= float(factor) < math.inf):
                    raise ValueError(
                        f"class_weight must be numbers of at least 0, got {factor!r} for {label!r}"
                    )
            factors = np.array([float(self.class_weight.get(label, 1)) for label in labels])
        return np.asarray(factors[target])

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch on some rows of a table that does not fit into memory.

        Inputs are scaled by what the first call saw.

        Args:
            X: Some rows.
            y: Their classes.
            classes: All classes; needed in the first call.
            sample_weight: How much each row counts.
        """
        first = not hasattr(self, "model_")
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit, got None")
        if first:
            if len(known := np.unique(classes)) < 2:
                raise ValueError(f"classes must be at least two, got {known.tolist()}")
            self.classes_ = known
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes must be the same in every call of partial_fit, "
                f"{self.classes_.tolist()}, got {np.unique(classes).tolist()}"
            )
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of each row."""
        scores = self._outputs(X)
        return np.asarray(self.classes_[scores.argmax(1)])

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``."""
        return np.asarray(torch.from_numpy(self._outputs(X)).softmax(1).numpy())

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The logarithm of the probability of each class."""
        return np.asarray(torch.from_numpy(self._outputs(X)).log_softmax(1).numpy())


class LpRegressor(RegressorMixin, TableEstimator):  # type: ignore[misc]
    r"""A regressor for tables, of one target or several; inputs and targets are scaled inside.

    .. math:: y = \mathrm{scale}^{-1} \, \mathrm{MLP} ( \mathrm{scale} (x) )

    It minimises the squared error of the scaled targets.

    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(300, random_state=0)
    >>> LpRegressor(random_state=0).fit(X, y).score(X, y) > 0.9
    True

    Parameters and attributes are those of :class:`LpClassifier`, but for classes and their weights.
    ``validation_scores_`` are coefficients of determination.
    """

    _flat = True  # whether y had one dimension

    def _encode(self, y: Any, weights: Weights, first: bool) -> Targets:
        try:
            y = np.asarray(y, np.float64)
        except ValueError as error:
            raise ValueError(f"y must be numbers, got others ({error})") from error
        assert_all_finite(y, input_name="y")  # of objects, it was not checked before
        if first:
            self._flat = y.ndim == 1
        targets: Targets = y.reshape(len(y), -1)
        if not first and targets.shape[1] != len(self.model_[2].mean):
            raise ValueError(
                f"y must have {len(self.model_[2].mean)} targets as before, got {targets.shape[1]}"
            )
        return targets

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one epoch on some rows of a table that does not fit into memory.

        Inputs and targets are scaled by what the first call saw.

        Args:
            X: Some rows.
            y: Their targets.
            sample_weight: How much each row counts.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The target of each row, or its targets."""
        found = self._outputs(X)
        return found[:, 0] if self._flat else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
