"""LpClassifier and LpRegressor: a network of norms behind ``fit`` and ``predict``."""

from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Hidden, Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor, nn

from lpunits.mlp import MLP
from lpunits.orders import orders
from lpunits.sklearn import display, storage
from lpunits.sklearn.tables import (
    Restore,
    Standardize,
    check_finite,
    chunks,
    dense,
    hold_out,
    scaled,
)
from lpunits.sklearn.training import (
    SCHEDULES,
    Examples,
    History,
    accuracy,
    cross_entropies,
    epoch,
    make_optimizer,
    r2,
    squared_errors,
    train,
)
from lpunits.units import ACTIVATIONS

Weights = npt.NDArray[np.float64]

DOUBLE_UP_TO = 1000  # rows: so few are trained in float64, which costs nothing there
HOLD_OUT_FROM = 300  # rows, with early_stopping="auto"


class _LpEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters, training, prediction, files, plots."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "filters": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "order": ["array-like", Real],
        "learn_order": ["boolean"],
        "order_scale": [Interval(Real, 0, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "solver": [StrOptions({"adamw", "sgd"})],
        "learning_rate": [StrOptions(set(SCHEDULES))],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "early_stopping": [StrOptions({"auto"}), "boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left"), None],
        "standardize": ["boolean"],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "device": [str, Hidden(torch.device)],
        "verbose": ["verbose"],
    }

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
        weight_decay: float = 0.01,
        batch_size: int | str = "auto",
        max_iter: int | str = "auto",
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        standardize: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool | int = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.filters = filters
        self.order = order
        self.learn_order = learn_order
        self.order_scale = order_scale
        self.dropout = dropout
        self.solver = solver
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.standardize = standardize
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # What the two do in their own way.

    def _learn_targets(self, y: Any, first: bool, weights: Weights) -> npt.NDArray[Any]:
        """Check the targets, and return them as the loss takes them, before scaling."""
        raise NotImplementedError

    def _class_weights(self, target: npt.NDArray[Any], weights: Weights) -> Weights:
        return weights

    # ------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on a table; with ``warm_start``, from the weights of the last fit.

        Args:
            X: ``(rows, columns)``: an array, a sparse matrix, a pandas or polars frame.
            y: The targets, one for each row.
            sample_weight: How much each row counts; 2 is as if it was there twice.
        """
        self._validate_params()
        again = self.warm_start and hasattr(self, "model_")
        X, target, weights = self._table(X, y, sample_weight, first=not again)
        rows = np.flatnonzero(weights)
        rng = self._generator()
        if not again:
            self._build(X, rows, target, weights, rng)
        target = self._scaled_target(target)
        held = np.zeros(len(rows), np.bool_)
        stop = self.early_stopping
        if stop is True or (stop == "auto" and len(rows) >= HOLD_OUT_FROM):
            key = target[rows] if target.ndim == 1 else target[rows, 0]
            held = hold_out(key, self.validation_fraction, rng, classes=target.ndim == 1)
        training = self._examples(X, rows[~held], target, weights)
        validation = self._examples(X, rows[held], target, weights) if held.any() else None
        net = self.model_[1]
        batch = self._batch(len(training))
        epochs = self._epochs(len(training), batch)
        epochs_done = train(
            net,
            training,
            validation,
            cross_entropies if target.ndim == 1 else squared_errors,
            accuracy if target.ndim == 1 else r2,
            self._new_optimizer(net),
            self._history,
            rng,
            batch=batch,
            epochs=epochs,
            schedule=self.learning_rate,
            patience=self.n_iter_no_change or epochs,
        )
        with self._own_randomness(rng), display.progress(self.verbose, epochs) as show:
            for number in epochs_done:
                show(number, self._history)
        self._optimizer = None
        return self._publish(validation is not None)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, first: bool) -> Self:
        """One epoch over some rows, at a constant rate; the optimiser remembers the last call."""
        X, target, weights = self._table(X, y, sample_weight, first=first)
        rows = np.flatnonzero(weights)
        if first:
            self._random = self._generator()
            self._build(X, rows, target, weights, self._random)
        rng = self._random = getattr(self, "_random", None) or self._generator()
        net = self.model_[1]
        if getattr(self, "_optimizer", None) is None:
            self._optimizer = self._new_optimizer(net)
        target = self._scaled_target(target)
        training = self._examples(X, rows, target, weights)
        loss = cross_entropies if target.ndim == 1 else squared_errors
        with self._own_randomness(rng):
            batch = self._batch(len(training))
            mean = epoch(net, training, loss, self._optimizer, batch, rng)
        self._history.add(mean, net)
        net.eval()
        return self._publish(False)

    def _table(
        self, X: Any, y: Any, sample_weight: Any, first: bool
    ) -> tuple[Any, npt.NDArray[Any], Weights]:
        """Inputs, targets and weights, checked."""
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            multi_output=True,
            y_numeric=isinstance(self, RegressorMixin),
            reset=first,
        )
        check_finite(X, self)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight must have weights above zero, got all zero")
        target = self._learn_targets(y, first, weights)
        return X, target, self._class_weights(target, weights)

    def _generator(self) -> np.random.Generator:
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return np.random.default_rng(seed)

    def _own_randomness(self, rng: np.random.Generator) -> Any:
        """What draws from torch's generator inside leaves the generator as it was."""
        return display.forked_rng(self.device, int(rng.integers(2**62)))

    def _build(
        self,
        X: Any,
        rows: npt.NDArray[np.intp],
        target: npt.NDArray[Any],
        weights: Weights,
        rng: np.random.Generator,
    ) -> None:
        """A new network, with the scaling of these rows."""
        dtype = torch.float64 if len(rows) <= DOUBLE_UP_TO else torch.float32
        inputs = self._scaling(X, rows, weights, dtype)
        parts: list[nn.Module] = [inputs]
        if target.ndim == 1:
            count = len(self.classes_)
        else:
            count = target.shape[1]
            parts.append(Restore(self._scaling(target, rows, weights, dtype)))
        with self._own_randomness(rng):
            parts.insert(1, self._network(X.shape[1], count, dtype))
        self.model_ = nn.Sequential(*parts).to(self.device)
        self._history = History()

    def _rebuild(
        self, columns: int, targets: int | None, dtype: torch.dtype, tensors: dict[str, Tensor]
    ) -> None:
        """The network of a file."""
        inputs = _unscaled(columns, dtype)
        parts: list[nn.Module] = [inputs]
        with self._own_randomness(np.random.default_rng(0)):
            parts.append(self._network(columns, targets or len(self.classes_), dtype))
        if targets is not None:
            parts.append(Restore(_unscaled(targets, dtype)))
        self.model_ = nn.Sequential(*parts)
        self.model_.load_state_dict(tensors)
        self.model_.to(self.device).eval()

    def _scaling(
        self, X: Any, rows: npt.NDArray[np.intp], weights: Weights, dtype: torch.dtype
    ) -> Standardize:
        if self.standardize:
            return Standardize.of(X, rows, weights[rows], dtype)
        return _unscaled(X.shape[1], dtype)

    def _network(self, columns: int, count: int, dtype: torch.dtype) -> MLP:
        sizes = self.hidden_layer_sizes
        return MLP(
            columns,
            [int(sizes)] if isinstance(sizes, Integral) else [int(size) for size in sizes],
            count,
            activation=self.activation,
            filters=self.filters,
            order=self.order,
            learn_order=self.learn_order,
            dropout=self.dropout,
            dtype=dtype,
        )

    def _scaled_target(self, target: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if target.ndim == 1:
            return target
        restore: Any = self.model_[2]
        scale = torch.where(restore.scale == 0, torch.inf, restore.scale).cpu().numpy()
        return np.asarray((target - restore.mean.cpu().numpy()) / scale)

    def _examples(
        self, X: Any, rows: npt.NDArray[np.intp], target: npt.NDArray[Any], weights: Weights
    ) -> Examples:
        inputs = self.model_[0]
        chosen = torch.from_numpy(target[rows]).to(self.device)
        some = weights[rows]
        equal = bool((some == some[0]).all())
        return Examples(
            scaled(X, rows, inputs),
            chosen if target.ndim == 1 else chosen.to(inputs.dtype),
            None
            if equal
            else torch.from_numpy(some / some.mean()).to(inputs.dtype).to(self.device),
        )

    def _batch(self, rows: int) -> int:
        if self.batch_size != "auto":
            return int(self.batch_size)
        return int(np.clip(2 ** round(np.log2(max(rows, 1) / 32)), 64, 512))

    def _epochs(self, rows: int, batch: int) -> int:
        if self.max_iter != "auto":
            return int(self.max_iter)
        return int(np.clip(20_000 * batch / rows, 20, 100))

    def _new_optimizer(self, net: nn.Module) -> torch.optim.Optimizer:
        return make_optimizer(
            self.solver, net, self.learning_rate_init, self.order_scale, self.weight_decay
        )

    def _publish(self, validated: bool) -> Self:
        """The attributes that scikit-learn's users expect after a fit."""
        history = self._history
        self.loss_curve_ = history.loss
        self.validation_scores_ = history.scores if validated else None
        self.best_validation_score_ = max(history.scores) if validated else None
        self.n_iter_ = len(history.loss)
        return self

    @property
    def orders_(self) -> list[npt.NDArray[Any]]:
        """The learned orders, an array for each hidden layer; empty if the units have none."""
        check_is_fitted(self)
        return [p.cpu().numpy() for p in orders(self.model_).values()]

    # ------------------------------------------------------------ predict

    def _outputs(self, X: Any) -> npt.NDArray[np.float64]:
        """What the network gives, row by row: scores of classes, or targets."""
        check_is_fitted(self)
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            reset=False,
        )
        check_finite(X, self)
        self.model_.eval()
        with torch.inference_mode():
            parts = [self.model_(dense(X, some).to(self.device)).cpu() for some in chunks(X)]
            return np.asarray(torch.cat(parts).double().numpy())

    # ------------------------------------------------------------ files, plots, tags

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file: safetensors, with the rest as JSON in its head.

        At any moment the path holds all of the old or the new file. :meth:`load` reads it, and
        nothing in it is ever unpickled.
        """
        check_is_fitted(self)
        storage.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that :meth:`save` wrote; it predicts the same, bit by bit."""
        return storage.load(path, cls)

    def plot_loss(self, ax: Any = None) -> Any:
        """The loss of each epoch, and the validation score; returns matplotlib's axes."""
        check_is_fitted(self)
        return display.plot_loss(self, ax)

    def plot_orders(self, ax: Any = None) -> Any:
        """The learned orders of each layer, sorted; returns matplotlib's axes."""
        check_is_fitted(self)
        return display.plot_orders(self, ax)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _unscaled(columns: int, dtype: torch.dtype) -> Standardize:
    ones = torch.ones(columns, dtype=torch.float64)
    return Standardize(0 * ones, ones, dtype)


class LpClassifier(ClassifierMixin, _LpEstimator):  # type: ignore[misc]
    """A classifier for tables: a network of Lp units, with scaling of the inputs inside.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LpClassifier(random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).round().tolist()
    [[1.0, 0.0, 0.0]]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_LpEstimator._parameter_constraints,
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

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
        weight_decay: float = 0.01,
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

    def _learn_targets(self, y: Any, first: bool, weights: Weights) -> npt.NDArray[Any]:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if first and not hasattr(self, "_told_classes"):
            present = np.unique(y[weights > 0])
            self.classes_ = present
            if len(present) < 2:
                raise ValueError(f"y must have at least two classes, got one class: {present[0]!r}")
        places = np.searchsorted(self.classes_, y)
        places = np.minimum(places, len(self.classes_) - 1)
        unknown = (self.classes_[places] != y) & (weights > 0)
        if unknown.any():
            raise ValueError(
                f"y must have the classes {self.classes_.tolist()}, "
                f"got {np.unique(y[unknown]).tolist()}"
            )
        return places.astype(np.int64)

    def _class_weights(self, target: npt.NDArray[Any], weights: Weights) -> Weights:
        count = len(self.classes_)
        if self.class_weight is None:
            return weights
        if self.class_weight == "balanced":
            totals = np.bincount(target, weights, count)
            factors = totals.sum() / count / np.where(totals > 0, totals, 1)
        else:
            labels = self.classes_.tolist()
            unknown = set(self.class_weight) - set(labels)
            if unknown:
                raise ValueError(
                    f"class_weight must name classes of y, {labels}, got {sorted(unknown)}"
                )
            factors = np.array([self.class_weight.get(label, 1.0) for label in labels])
        return np.asarray(weights * factors[target])

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch on some rows of a table that does not fit into memory.

        Inputs are scaled by what the first call saw.

        Args:
            X: Some rows.
            y: Their classes.
            classes: All classes; needed in the first call.
            sample_weight: How much each row counts.
        """
        self._validate_params()
        first = not hasattr(self, "model_")
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit, got None")
        if classes is not None:
            told = np.unique(classes)
            if first:
                self.classes_ = told
            elif not np.array_equal(told, self.classes_):
                raise ValueError(
                    f"classes must be the same in every call of partial_fit, "
                    f"{self.classes_.tolist()}, got {told.tolist()}"
                )
        self._told_classes = True
        try:
            return self._partial_fit(X, y, sample_weight, first)
        finally:
            del self._told_classes

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


class LpRegressor(RegressorMixin, _LpEstimator):  # type: ignore[misc]
    """A regressor for tables, of one target or several; inputs and targets are scaled inside.

    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(300, random_state=0)
    >>> LpRegressor(random_state=0).fit(X, y).score(X, y) > 0.9
    True
    """

    def _learn_targets(self, y: Any, first: bool, weights: Weights) -> npt.NDArray[Any]:
        y = np.asarray(y, np.float64)
        if first:
            self._flat = y.ndim == 1
        y = y[:, None] if y.ndim == 1 else y
        if not first and y.shape[1] != len(self.model_[2].mean):
            raise ValueError(
                f"y must have {len(self.model_[2].mean)} targets as before, got {y.shape[1]}"
            )
        return y

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one epoch on some rows of a table that does not fit into memory.

        Inputs and targets are scaled by what the first call saw.

        Args:
            X: Some rows.
            y: Their targets.
            sample_weight: How much each row counts.
        """
        self._validate_params()
        return self._partial_fit(X, y, sample_weight, not hasattr(self, "model_"))

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The target of each row, or its targets."""
        found = self._outputs(X)
        return found[:, 0] if self._flat else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
