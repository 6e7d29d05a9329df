"""What torch has to know of the operators: shapes of results, and derivatives."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lpunits.ops import layouts, plain
from lpunits.ops.schemas import library, ops

# ---------------------------------------------------------------- shapes of results


def _maybe(like: Tensor, needed: bool) -> Tensor:
    return (
        torch.empty_like(like, memory_format=torch.contiguous_format)
        if needed
        else like.new_empty(0)
    )


def _by_weight(z: Tensor, p: Tensor, weight: Tensor | None = None, needed: bool = False) -> Tensor:
    """One for each entry of z."""
    work = torch.float64 if z.dtype == torch.float64 else torch.float32
    return p.new_empty(z.shape if needed and weight is not None else 0, dtype=work)


def _shape_of_pool(z: Tensor, p: Tensor, center: Tensor | None, dim: int, *_: Any) -> Tensor:
    return z.new_empty(z.shape[:dim] + z.shape[dim + 1 :])


def _shape_of_pool_backward(
    grad: Tensor, z: Tensor, p: Tensor, center: Tensor | None, dim: int, *rest: Any
) -> tuple[Tensor, ...]:
    need_p, need_center, *weight = rest
    dcenter = p.new_empty(0) if center is None else _maybe(center, need_center)
    return torch.empty_like(z), _maybe(p, need_p), dcenter, _by_weight(z, p, *weight)


def _shape_of_pool_nd(z: Tensor, p: Tensor, *windows: Any) -> Tensor:
    shape = (*z.shape[:2], *layouts.window_counts(z.shape[2:], *windows[:5]))
    return z.new_empty(shape).contiguous(memory_format=layouts.memory_format(z))


def _shape_of_pool_nd_backward(
    grad: Tensor, z: Tensor, p: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), _maybe(p, rest[-1])


def _shape_of_group_rows(index: Tensor, num_segments: int) -> tuple[Tensor, Tensor]:
    return index.new_empty(num_segments + 1), torch.empty_like(index)


def _shape_of_pool_segments(z: Tensor, p: Tensor, offsets: Tensor, *_: Any) -> Tensor:
    return z.new_empty((offsets.shape[0] - 1, *z.shape[1:]))


def _shape_of_pool_segments_backward(
    grad: Tensor, z: Tensor, p: Tensor, offsets: Tensor, need_p: bool, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(z), _maybe(p, need_p), _by_weight(z, p, *rest[1:])


def _shape_of_dropout(x: Tensor, rate: float, seed: int) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _shape_of_descend(*_: Any) -> None:
    return None


for _name, _shapes in (
    ("lp_pool", _shape_of_pool),
    ("lp_pool_backward", _shape_of_pool_backward),
    ("lp_pool_nd", _shape_of_pool_nd),
    ("lp_pool_nd_backward", _shape_of_pool_nd_backward),
    ("group_rows", _shape_of_group_rows),
    ("lp_pool_segments", _shape_of_pool_segments),
    ("lp_pool_segments_backward", _shape_of_pool_segments_backward),
    ("dropout", _shape_of_dropout),
    ("descend_", _shape_of_descend),
):
    torch.library.register_fake(f"lpunits::{_name}", _shapes, lib=library)

# ---------------------------------------------------------------- derivatives


def _summed(by_weight: Tensor, weight: Tensor | None, needed: bool) -> Tensor | None:
    """The gradient of the weights from that of each entry's weight."""
    if weight is None or not needed:
        return None
    return by_weight.sum_to_size(weight.shape).to(weight.dtype)


def _differentiable(
    function: Any, inputs: Sequence[Tensor | None], needs: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """Gradients that can be differentiated again, of a function of ordinary operations."""
    with torch.enable_grad():
        wanted = [t for t, need in zip(inputs, needs, strict=True) if need]
        found = iter(torch.autograd.grad(function(*inputs), wanted, grad, create_graph=True))  # type: ignore[arg-type]
    return [next(found) if need else None for need in needs]


def save_pool(ctx: Any, inputs: tuple[Any, ...], output: Any = None) -> None:
    """What the gradients of ``lp_pool`` need: its inputs, and nothing else."""
    z, p, center, ctx.dim, weight = inputs
    ctx.save_for_backward(z, p, center, weight)


def pool_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of ``lp_pool`` that are needed, as an autograd function returns them."""
    z, p, center, weight = ctx.saved_tensors
    given = ctx.needs_input_grad  # shorter where the weight is left to its default
    need_z, need_p, need_center, _, need_weight = (*given, False)[:5]
    if torch.is_grad_enabled():  # create_graph=True

        def function(z: Tensor, p: Tensor, center: Tensor | None, w: Tensor | None) -> Tensor:
            return plain.differentiable(z, p, center, ctx.dim, w)

        needs = need_z, need_p, need_center, need_weight
        *found, dweight = _differentiable(function, (z, p, center, weight), needs, grad)
        return (*found, None, dweight)[: len(given)]
    # Where there is nothing to add up the operator need not make sums.
    alone = need_center and center.shape == z.shape
    dz, dp, dcenter, by_weight = ops.lp_pool_backward.default(
        grad.contiguous(), z, p, center, ctx.dim, need_p, need_center and not alone, weight,
        need_weight,
    )  # fmt: skip
    if alone:
        dcenter = -dz.to(center.dtype)
    found = [dz if need_z else None, dp if need_p else None, dcenter if need_center else None]
    return (*found, None, _summed(by_weight, weight, need_weight))[: len(given)]


def _save_nd(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    z, p, *ctx.windows = inputs
    ctx.save_for_backward(z, p)


def _nd_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    z, p = ctx.saved_tensors
    needs, rest = ctx.needs_input_grad[:2], (None,) * len(ctx.windows)
    if torch.is_grad_enabled():
        return *_differentiable(
            lambda z, p: layouts.pool_nd(z, p, *ctx.windows), (z, p), needs, grad
        ), *rest
    dz, dp = ops.lp_pool_nd_backward(grad, z, p, *ctx.windows, needs[1])
    return dz if needs[0] else None, dp if needs[1] else None, *rest


def _save_segments(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _segments_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    z, p, offsets, rows_at, weight = ctx.saved_tensors
    given = ctx.needs_input_grad
    need_z, need_p, _, _, need_weight = (*given, False, False)[:5]
    if torch.is_grad_enabled():

        def function(z: Tensor, p: Tensor, weight: Tensor | None) -> Tensor:
            return layouts.pool_segments(z, p, offsets, rows_at, weight)

        dz, dp, dw = _differentiable(function, (z, p, weight), (need_z, need_p, need_weight), grad)
        return (dz, dp, None, None, dw)[: len(given)]
    dz, dp, by_weight = ops.lp_pool_segments_backward(
        grad.contiguous(), z, p, offsets, need_p, rows_at, weight, need_weight
    )
    dw = _summed(by_weight, weight, need_weight)
    found = dz if need_z else None, dp if need_p else None, None, None, dw
    return found[: len(given)]


for _name, _vjp, _save in (
    ("lp_pool", pool_vjp, save_pool),
    ("lp_pool_nd", _nd_vjp, _save_nd),
    ("lp_pool_segments", _segments_vjp, _save_segments),
):
    torch.library.register_autograd(f"lpunits::{_name}", _vjp, setup_context=_save, lib=library)

# ---------------------------------------------------------------- decompositions

#: What the operators of an exported program are made of, for ``program.run_decompositions``.
#: torch's global table would be the wrong place: Inductor and fake tensors read it too.
decompositions = {
    ops.lp_pool.default: plain.differentiable,
    ops.lp_pool_nd.default: layouts.pool_nd,
}
