"""What both estimators share: parameters, training, prediction, files and plots."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import nn

from lpunits.mlp import MLP
from lpunits.orders import orders
from lpunits.sklearn import display, storage
from lpunits.sklearn.backpropagation import Backpropagation
from lpunits.sklearn.parameters import CONSTRAINTS, NETWORK
from lpunits.sklearn.tables import (
    Restore,
    Rows,
    Standardize,
    Weights,
    check_finite,
    chunks,
    dense,
    hold_out,
    moments,
    scaled,
    scaling,
    unscaled,
)
from lpunits.sklearn.training import (
    Examples,
    History,
    Step,
    by_autograd,
    epoch,
    forked_rng,
    make_optimizer,
    train,
    usable,
)

Targets = npt.NDArray[Any]  # class numbers (rows,), or numbers (rows, targets)

# What "auto" means, in rows; the reasons are in docs/explanation/tables.md.
ONE_BATCH = 100  # so few are a single batch, in float64: a row of weight 2 then counts as two rows
HOLD_OUT = 200  # from here on a part is held out for validation
DECAYED = 2000  # up to here the weight decay is 1; with more rows it falls as their number grows


class TableEstimator(BaseEstimator):  # type: ignore[misc]
    """A network behind ``fit`` and ``predict``; the parameters are those of LpClassifier."""

    model_: Any  # Standardize, MLP and, in a regression, Restore
    _optimizer: torch.optim.Optimizer | None = None  # of the last partial_fit
    _random: np.random.Generator | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS

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

    # ------------------------------------------------------------ what the two do in their own way

    def _encode(self, y: Any, weights: Weights, first: bool) -> Targets:
        """Check the targets, and return them as the loss takes them, before scaling."""
        raise NotImplementedError

    def _class_weights(self, target: Targets, weights: Weights) -> Weights | float:
        """By what the weight of each row is multiplied in the loss."""
        return 1.0

    # ------------------------------------------------------------ fit

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on a table; with ``warm_start``, from the weights of the last fit.

        Args:
            X: ``(rows, columns)``: an array, a sparse matrix, a frame of pandas or polars.
            y: The targets, one for each row.
            sample_weight: How much each row counts; 2 is as if it was there twice.
        """
        self._validate_params()
        again = self.warm_start and hasattr(self, "model_")
        if again:
            self._check_network()
        X, y, weights = self._checked(X, y, sample_weight, first=not again)
        target = self._encode(y, weights, first=not again)
        rows = np.flatnonzero(weights)
        rng = self._generator()
        if not again:
            self._build(X, rows, target, weights, rng)
        held = np.zeros(len(rows), np.bool_)
        if self.early_stopping is True or (self.early_stopping == "auto" and len(rows) >= HOLD_OUT):
            key = target[rows] if target.ndim == 1 else target[rows, 0]
            held = hold_out(key, self.validation_fraction, rng, classes=target.ndim == 1)
            if held.all():
                raise ValueError(
                    f"validation_fraction must leave rows to train on, got "
                    f"{self.validation_fraction} of {len(rows)} rows"
                )
        training = self._examples(X, rows[~held], target, weights)
        validation = self._examples(X, rows[held], target, weights) if held.any() else None
        net = self.model_[1]
        batch = self._batch(len(training.target))
        epochs = self._epochs(len(training.target), batch)
        trained = train(
            net,
            training,
            validation,
            self._step(net),
            self._new_optimizer(net, len(training.target)),
            self._history,
            rng,
            batch=batch,
            epochs=epochs,
            schedule=self.learning_rate,
            patience=self.n_iter_no_change or epochs,
        )
        with self._own_randomness(rng), display.progress(self.verbose, epochs) as show:
            for number in trained:
                show(number, self._history)
        self._optimizer = None
        return self._publish()

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """One epoch over some rows, at a constant rate; the optimiser remembers the last call."""
        self._validate_params()
        first = not hasattr(self, "model_")
        if not first:
            self._check_network()
        X, y, weights = self._checked(X, y, sample_weight, first)
        target = self._encode(y, weights, first=first and not hasattr(self, "classes_"))
        rows = np.flatnonzero(weights)
        if self._random is None:
            self._random = self._generator()
        if first:
            self._build(X, rows, target, weights, self._random)
        net = self.model_[1]
        if self._optimizer is None:
            self._optimizer = self._new_optimizer(net, len(rows))
        training = self._examples(X, rows, target, weights)
        batch = self._batch(len(rows))
        with self._own_randomness(self._random):
            mean = epoch(net, training, self._step(net), self._optimizer, batch, self._random)
        self._history.add(mean, net)
        return self._publish()

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, first: bool
    ) -> tuple[Any, npt.NDArray[Any], Weights]:
        """Inputs, targets and weights."""
        X, y = self._numbers(X, y, first, multi_output=True)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():
            raise ValueError("sample_weight must have weights above zero, got all zero")
        return X, y, weights

    def _numbers(self, X: Any, y: Any, first: bool, **options: Any) -> Any:
        """X, or X and y, as scikit-learn checks them; X must have finite numbers only."""
        try:
            found = validate_data(
                self,
                X,
                y,
                accept_sparse="csr",
                dtype=(np.float64, np.float32),
                ensure_all_finite=False,
                reset=first,
                **options,
            )
        except (ValueError, TypeError) as error:  # text; dates, of which numpy makes a TypeError
            if not any(words in str(error) for words in ("could not convert", "be promoted")):
                raise
            raise ValueError(
                f"X must have numbers only, got others ({error}): encode such columns in front, as "
                f"in make_pipeline(make_column_transformer((OneHotEncoder(), columns), "
                f"remainder='passthrough'), {type(self).__name__}())"
            ) from error
        check_finite(found[0] if isinstance(found, tuple) else found, self)
        return found

    def _generator(self) -> np.random.Generator:
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return np.random.default_rng(seed)

    def _own_randomness(self, rng: np.random.Generator) -> Any:
        return forked_rng(usable(self.device), int(rng.integers(2**62)))

    def _check_network(self) -> None:
        """Raise ValueError if the parameters are not those of the network any more."""
        for name in NETWORK:
            value, made = getattr(self, name), self._made_of[name]
            if repr(value) != repr(made):
                raise ValueError(
                    f"{name} must stay what the network was made of, {made!r}, got {value!r}"
                )

    # ------------------------------------------------------------ the network and its data

    def _build(
        self, X: Any, rows: Rows, target: Targets, weights: Weights, rng: np.random.Generator
    ) -> None:
        """A new network, with the scaling of these rows."""
        dtype = torch.float64 if len(rows) <= ONE_BATCH else torch.float32
        inputs, targets, outputs = unscaled(X.shape[1], dtype), None, 0
        if self.standardize:
            inputs = scaling(X, rows, weights[rows], dtype)
        if target.ndim == 2:
            outputs = target.shape[1]
            targets = unscaled(outputs, dtype)
            if self.standardize:
                targets = Standardize(*moments(target, rows, weights[rows]), dtype)
        self._assemble(inputs, targets, rng)
        self._history = History()

    def _assemble(
        self, inputs: Standardize, targets: Standardize | None, rng: np.random.Generator
    ) -> None:
        with self._own_randomness(rng):
            model = self._network(inputs, targets)
        self.model_ = model.to(self.device).eval()
        self._made_of = {name: getattr(self, name) for name in NETWORK}

    def _network(self, inputs: Standardize, targets: Standardize | None) -> nn.Sequential:
        """The model: scaling, network and, in a regression, the way back to the targets."""
        sizes: Any = np.asarray(self.hidden_layer_sizes).tolist()  # a search may give numpy's
        filters: Any = None if self.filters is None else np.asarray(self.filters).tolist()
        net = MLP(
            len(inputs.mean),
            sizes if isinstance(sizes, list) else [sizes],
            len(self.classes_) if targets is None else len(targets.mean),
            activation=self.activation,
            filters=filters,
            order=self.order,
            learn_order=self.learn_order,
            dropout=self.dropout,
            dtype=inputs.dtype,
        )
        return nn.Sequential(inputs, net, *([] if targets is None else [Restore(targets)]))

    def _examples(self, X: Any, rows: Rows, target: Targets, weights: Weights) -> Examples:
        inputs = self.model_[0]
        weights = (weights * self._class_weights(target, weights))[rows]
        if not weights.any():
            raise ValueError("class_weight must leave a row a weight above 0, got zeros alone")
        chosen = torch.from_numpy(target[rows]).to(self.device)
        if target.ndim == 2:
            chosen = self.model_[2].inverse(chosen).to(inputs.dtype)
        weight = None
        if (weights != weights[0]).any():
            weight = torch.from_numpy(weights / weights.mean()).to(self.device, inputs.dtype)
        return Examples(scaled(X, rows, inputs), chosen, weight)

    def _batch(self, rows: int) -> int:
        if self.batch_size != "auto":
            return int(self.batch_size)
        return rows if rows <= ONE_BATCH else int(np.clip(2 ** round(np.log2(rows / 32)), 64, 512))

    def _epochs(self, rows: int, batch: int) -> int:
        if self.max_iter != "auto":
            return int(self.max_iter)
        return int(np.clip(20_000 * batch / rows, 20, 100))

    def _new_optimizer(self, net: nn.Module, rows: int) -> torch.optim.Optimizer:
        decay = min(1, DECAYED / rows) if self.weight_decay == "auto" else float(self.weight_decay)
        return make_optimizer(self.solver, net, self.learning_rate_init, self.order_scale, decay)

    def _step(self, net: MLP) -> Step:
        """Without autograd where that serves: it is faster."""
        simple = not self.dropout and torch.device(self.device).type == "cpu"
        return Backpropagation(net, self.activation) if simple else by_autograd(net)

    # ------------------------------------------------------------ after fit

    def _publish(self) -> Self:
        """The attributes that scikit-learn's users expect after a fit."""
        history = self._history
        self.n_iter_ = len(history.loss)
        self.loss_curve_ = history.loss
        self.validation_scores_ = history.scores or None
        self.best_validation_score_ = max(history.scores) if history.scores else None
        return self

    @property
    def orders_(self) -> list[npt.NDArray[Any]]:
        """The orders, an array for each hidden layer; empty if its units have none."""
        check_is_fitted(self)
        return [p.cpu().numpy() for p in orders(self.model_).values()]

    def _outputs(self, X: Any) -> npt.NDArray[np.float64]:
        """What the model gives, row by row: scores of the classes, or targets."""
        check_is_fitted(self)
        X = self._numbers(X, "no_validation", first=False)
        with torch.inference_mode():
            device = self.model_[0].mean.device  # not self.device, which may have changed
            parts = [self.model_(dense(X, some).to(device)).cpu() for some in chunks(X)]
            return np.asarray(torch.cat(parts).double().numpy())

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file: safetensors, with the rest as JSON in its head.

        At any moment the path holds all of the old or the new file. :meth:`load` reads it; nothing
        in it is ever unpickled. What ``partial_fit`` keeps of its optimiser is not saved.
        """
        check_is_fitted(self)
        self._check_network()
        storage.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that :meth:`save` wrote; it predicts the same, bit by bit."""
        found: Self = storage.load(path, cls)
        return found

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
