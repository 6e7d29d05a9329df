"""Learned-norm pooling for PyTorch: exact at every input, the norm's order learned per unit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lpunits import optim
from lpunits.diagnosis import diagnose
from lpunits.dotrnn import DOTRNN
from lpunits.dropout import Dropout
from lpunits.functional import lp_pool, maxout
from lpunits.layers import LpLinear, MaxoutLinear
from lpunits.mlp import MLP
from lpunits.orders import freeze_orders, orders, param_groups
from lpunits.pooling import (
    AdaptiveLpPool1d,
    AdaptiveLpPool2d,
    AdaptiveLpPool3d,
    GlobalLpPool,
    LpPool,
    LpPool1d,
    LpPool2d,
    LpPool3d,
    SegmentLpPool,
)
from lpunits.rnn import DTRNN
from lpunits.segments import segment_lp_pool
from lpunits.windows import (
    adaptive_lp_pool1d,
    adaptive_lp_pool2d,
    adaptive_lp_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
)

if TYPE_CHECKING:
    from lpunits import geometry
else:

    def __getattr__(name: str) -> Any:
        """Import ``lpunits.geometry`` at its first use: it needs numpy, the rest torch alone."""
        if name == "geometry":
            return import_module("lpunits.geometry")
        raise AttributeError(f"module 'lpunits' has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "DOTRNN",
    "DTRNN",
    "MLP",
    "AdaptiveLpPool1d",
    "AdaptiveLpPool2d",
    "AdaptiveLpPool3d",
    "Dropout",
    "GlobalLpPool",
    "LpLinear",
    "LpPool",
    "LpPool1d",
    "LpPool2d",
    "LpPool3d",
    "MaxoutLinear",
    "SegmentLpPool",
    "adaptive_lp_pool1d",
    "adaptive_lp_pool2d",
    "adaptive_lp_pool3d",
    "diagnose",
    "freeze_orders",
    "geometry",
    "lp_pool",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "maxout",
    "optim",
    "orders",
    "param_groups",
    "segment_lp_pool",
]
