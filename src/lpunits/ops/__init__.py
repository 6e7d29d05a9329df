"""The operators ``torch.ops.lpunits.*``, and who implements them.

==============  ====================================================================
``schemas.py``  their names and arguments
``plain.py``    plain torch, for every device and dtype
``layouts.py``  windows and segments in plain torch
``cpu.py``      loads the compiled library (``csrc/``), which takes its place on CPUs
``cuda.py``     Triton, for CUDA
``rules.py``    what torch has to know: shapes of results, derivatives
``batching.py`` and how ``vmap`` batches them
==============  ====================================================================

A target is one file with the two functions ``forward`` and ``backward`` of ``plain.py``, and a line
at the end of this one. Everything here works on tensors that were checked:
:mod:`lpunits.functional` does that.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lpunits.ops import batching, layouts, plain, rules
from lpunits.ops.cpu import compiled, status
from lpunits.ops.rules import decompositions
from lpunits.ops.schemas import library, ops

__all__ = ["batching", "compiled", "decompositions", "layouts", "ops", "plain", "rules", "status"]


def _implement(target: Callable[[], Any], key: str) -> None:
    """Register the functions of a target, which is not imported before it is needed."""

    def forward(*arguments: Any) -> Tensor:
        # Contiguous whatever z is, like the result of the compiled library.
        return target().forward(*arguments).contiguous()  # type: ignore[no-any-return]

    def forward_out(*arguments: Any, out: Tensor) -> Tensor:
        return out.copy_(target().forward(*arguments))

    def backward(
        grad: Tensor, z: Tensor, p: Tensor, center: Tensor | None, dim: int, *rest: Any
    ) -> tuple[Tensor, ...]:
        need_p, need_center, weight, need_weight, *_ = *rest, None, False  # or their defaults
        needs = (True, need_p, need_center, need_weight)
        dz, *found = target().backward(grad, z, p, center, dim, needs, weight)
        return torch.empty_like(z).copy_(dz), *(p.new_empty(0) if t is None else t for t in found)

    def backward_into(
        grad: Tensor, z: Tensor, p: Tensor, dim: int, need_p: bool, dz: Tensor
    ) -> Tensor:
        found, dp, *_ = backward(grad, z, p, None, dim, need_p, False)
        dz.copy_(found)
        return dp

    library.impl("lp_pool", forward, key)
    library.impl("lp_pool.out", forward_out, key)
    library.impl("lp_pool_backward", backward, key)
    library.impl("lp_pool_backward_into_", backward_into, key)


def _triton() -> Any:
    try:
        from lpunits.ops import cuda
    except ImportError:  # Triton is not installed
        return plain
    return cuda


_implement(lambda: plain, "CompositeExplicitAutograd")
_implement(_triton, "CUDA")
for _name, _function in (
    ("lp_pool_nd", layouts.pool_nd),
    ("lp_pool_nd_backward", layouts.pool_nd_backward),
    ("group_rows", layouts.group_rows),
    ("lp_pool_segments", layouts.pool_segments),
    ("lp_pool_segments_backward", layouts.pool_segments_backward),
):
    library.impl(_name, _function, "CompositeExplicitAutograd")
