"""What the parameters of both estimators may be, as scikit-learn checks them."""

from numbers import Integral, Real
from typing import Any

import torch
from sklearn.utils._param_validation import Hidden, Interval, StrOptions

from lpunits.sklearn.training import SCHEDULES
from lpunits.units import ACTIVATIONS

_AT_LEAST_1 = Interval(Integral, 1, None, closed="left")
_NOT_NEGATIVE = Interval(Real, 0, None, closed="left")

CONSTRAINTS: dict[str, list[Any]] = {
    "hidden_layer_sizes": ["array-like", _AT_LEAST_1],
    "activation": [StrOptions(set(ACTIVATIONS))],
    "filters": ["array-like", _AT_LEAST_1, None],
    "order": ["array-like", Real],
    "learn_order": ["boolean"],
    "order_scale": [_NOT_NEGATIVE],
    "dropout": [Interval(Real, 0, 1, closed="left")],
    "solver": [StrOptions({"adamw", "sgd"})],
    "learning_rate": [StrOptions(set(SCHEDULES))],
    "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
    "weight_decay": [StrOptions({"auto"}), _NOT_NEGATIVE],
    "batch_size": [StrOptions({"auto"}), _AT_LEAST_1],
    "max_iter": [StrOptions({"auto"}), _AT_LEAST_1],
    "early_stopping": [StrOptions({"auto"}), "boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "n_iter_no_change": [_AT_LEAST_1, None],
    "standardize": ["boolean"],
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
    "device": [str, Hidden(torch.device)],
    "verbose": ["verbose"],
}

# Those that a network is made of: they cannot change while it stays.
NETWORK = ("hidden_layer_sizes", "activation", "filters", "learn_order", "dropout")
