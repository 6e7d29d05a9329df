"""The reproduction of the paper: data, training, experiments, records, report.

Nothing outside this package imports it, and it needs the extra ``lpunits[paper]``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpunits.paper.training.models import load_model, pretrained

__all__ = ["load_model", "pretrained"]


def __getattr__(name: str) -> Any:
    """Import the functions when they are used: most commands need none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lpunits.paper.training import models

    return getattr(models, name)
