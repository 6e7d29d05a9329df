"""The operators ``torch.ops.lpunits.*``: their schemas, and who implements them.

Plain torch (``plain.py``) serves every device and dtype. On CPUs the compiled library (``csrc/``)
takes its place where it could be built, on CUDA the Triton kernel (``cuda.py``). Everything here
works on tensors that were checked: :mod:`lpunits.functional` does that.

In ``lp_pool`` the orders ``p`` broadcast against z, with size 1 along ``dim``. In ``lp_pool_nd`` z is
``(batch, channels, *space)`` and p has one order per channel. ``lp_pool_segments`` pools the rows
``offsets[g]`` to ``offsets[g + 1]`` of z. Gradients that are not needed come back empty.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lpunits.ops import plain

_WINDOWS = (
    "Tensor z, Tensor p, int[] kernel, int[] stride, int[] padding, int[] dilation, "
    "bool ceil_mode, bool count_include_pad"
)
_library = torch.library.Library("lpunits", "DEF")
for _schema in (
    "lp_pool(Tensor z, Tensor p, Tensor? center, int dim) -> Tensor",
    "lp_pool.out(Tensor z, Tensor p, Tensor? center, int dim, *, Tensor(a!) out) -> Tensor(a!)",
    "lp_pool_backward(Tensor grad, Tensor z, Tensor p, Tensor? center, int dim, bool need_p, "
    "bool need_center) -> (Tensor, Tensor, Tensor)",
    "lp_pool_backward_into_(Tensor grad, Tensor z, Tensor p, int dim, bool need_p, "
    "Tensor(a!) dz) -> Tensor",
    f"lp_pool_nd({_WINDOWS}) -> Tensor",
    f"lp_pool_nd_backward(Tensor grad, {_WINDOWS}, bool need_p) -> (Tensor, Tensor)",
    "lp_pool_segments(Tensor z, Tensor p, Tensor offsets) -> Tensor",
    "lp_pool_segments_backward(Tensor grad, Tensor z, Tensor p, Tensor offsets, bool need_p) "
    "-> (Tensor, Tensor)",
    "dropout(Tensor x, float rate, int seed) -> Tensor",
    "descend_(Tensor(a!)[] weights, Tensor(b!)[] velocities, Tensor[] grads, int[] filter_sizes, "
    "float lr, float momentum, float weight_decay, float[] max_norms) -> ()",
    "instruction_set() -> str",
):
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
ops = torch.ops.lpunits

# ---------------------------------------------------------------- the compiled library


def _load() -> str:
    """Load the compiled library; the reason if that is not possible, or nothing."""
    folder = Path(__file__).parent
    if not (folder / "_cpu.so").exists():
        reason = folder / "_build_error.txt"
        if reason.exists():
            return reason.read_text().strip()
        return "it is not built: install lpunits once more, beside torch and a C++ compiler"
    try:
        torch.ops.load_library(folder / "_cpu.so")
    except OSError as error:  # another torch, another processor, a file that is not whole
        return str(error)
    return ""


_why_not = _load()
compiled = not _why_not  # whether the library serves CPU tensors


def status() -> str:
    """Which implementation serves CPU tensors, and why not a faster one.

    >>> status().startswith(("compiled for", "plain torch"))
    True
    """
    if compiled:
        return f"compiled for {ops.instruction_set()}"
    return f"plain torch, as the compiled library could not be loaded: {_why_not}"


# ---------------------------------------------------------------- plain torch, and CUDA


def _given(gradient: Tensor | None, like: Tensor) -> Tensor:
    """Operators cannot return None: a gradient that is not needed is empty."""
    return like.new_empty(0) if gradient is None else gradient


def _pool(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    # Contiguous whatever z is, like the result of the compiled library.
    return plain.forward(z, p, center, dim).contiguous()


def _pool_out(z: Tensor, p: Tensor, center: Tensor | None, dim: int, *, out: Tensor) -> Tensor:
    return out.copy_(plain.forward(z, p, center, dim))


def _pool_backward(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    need_p: bool,
    need_center: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    needs = (True, need_p, need_center)
    dz, dp, dcenter = plain.backward(grad, z, p, center, dim, needs)
    assert dz is not None
    dcenter = _given(dcenter, p if center is None else center)
    return torch.empty_like(z).copy_(dz), _given(dp, p), dcenter


def _pool_backward_into(
    grad: Tensor, z: Tensor, p: Tensor, dim: int, need_p: bool, dz: Tensor
) -> Tensor:
    found, dp, _ = _pool_backward(grad, z, p, None, dim, need_p, False)
    dz.copy_(found)
    return dp


def _nd(z: Tensor, p: Tensor, *windows: Any) -> Tensor:
    return plain.pool_nd(z, p, *windows).contiguous(memory_format=_memory_format(z))


def _nd_backward(grad: Tensor, z: Tensor, p: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    *windows, need_p = rest
    return _by_autograd(lambda z, p: plain.pool_nd(z, p, *windows), grad, z, p, need_p)


def _segments_backward(
    grad: Tensor, z: Tensor, p: Tensor, offsets: Tensor, need_p: bool
) -> tuple[Tensor, Tensor]:
    return _by_autograd(lambda z, p: plain.pool_segments(z, p, offsets), grad, z, p, need_p)


def _by_autograd(
    function: Any, grad: Tensor, z: Tensor, p: Tensor, need_p: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of a function that is made of ordinary operations."""
    with torch.enable_grad():
        z, p = z.detach().requires_grad_(), p.detach().requires_grad_()
        dz, dp = torch.autograd.grad(function(z, p), (z, p), grad)
    return torch.empty_like(z).copy_(dz), dp if need_p else p.new_empty(0)


def _memory_format(z: Tensor) -> torch.memory_format:
    """The order in memory that the windows of z are written in."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if not z.is_contiguous() and z.ndim in formats:
        format_: torch.memory_format = formats[z.ndim]
        if z.is_contiguous(memory_format=format_):
            return format_
    return torch.contiguous_format


for _name, _function in (
    ("lp_pool", _pool),
    ("lp_pool.out", _pool_out),
    ("lp_pool_backward", _pool_backward),
    ("lp_pool_backward_into_", _pool_backward_into),
    ("lp_pool_nd", _nd),
    ("lp_pool_nd_backward", _nd_backward),
    ("lp_pool_segments", plain.pool_segments),
    ("lp_pool_segments_backward", _segments_backward),
):
    _library.impl(_name, _function, "CompositeExplicitAutograd")


def _on_cuda(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    try:
        from lpunits.ops import cuda
    except ImportError:  # Triton is not installed
        return _pool(z, p, center, dim)
    return cuda.forward(z, p, center, dim).contiguous()


def _backward_on_cuda(
    grad: Tensor, z: Tensor, p: Tensor, center: Tensor | None, dim: int, *needs: bool
) -> tuple[Tensor, Tensor, Tensor]:
    try:
        from lpunits.ops import cuda
    except ImportError:
        return _pool_backward(grad, z, p, center, dim, *needs)
    dz, dp, dcenter = cuda.backward(grad, z, p, center, dim, (True, *needs))
    dcenter = _given(dcenter, p if center is None else center)
    return torch.empty_like(z).copy_(dz), _given(dp, p), dcenter


_library.impl("lp_pool", _on_cuda, "CUDA")
_library.impl("lp_pool_backward", _backward_on_cuda, "CUDA")

# ---------------------------------------------------------------- shapes for the compiler


def _maybe(like: Tensor, needed: bool) -> Tensor:
    return (
        torch.empty_like(like, memory_format=torch.contiguous_format)
        if needed
        else like.new_empty(0)
    )


@torch.library.register_fake("lpunits::lp_pool", lib=_library)
def _(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    return z.new_empty(z.shape[:dim] + z.shape[dim + 1 :])


@torch.library.register_fake("lpunits::lp_pool_backward", lib=_library)
def _(
    grad: Tensor, z: Tensor, p: Tensor, center: Tensor | None, dim: int, need_p: bool, need_c: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dcenter = p.new_empty(0) if center is None else _maybe(center, need_c)
    return torch.empty_like(z), _maybe(p, need_p), dcenter


@torch.library.register_fake("lpunits::lp_pool_nd", lib=_library)
def _(z: Tensor, p: Tensor, *windows: Any) -> Tensor:
    shape = (*z.shape[:2], *plain.window_counts(z.shape[2:], *windows[:5]))
    return z.new_empty(shape).contiguous(memory_format=_memory_format(z))


@torch.library.register_fake("lpunits::lp_pool_nd_backward", lib=_library)
def _(grad: Tensor, z: Tensor, p: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), _maybe(p, rest[-1])


@torch.library.register_fake("lpunits::lp_pool_segments", lib=_library)
def _(z: Tensor, p: Tensor, offsets: Tensor) -> Tensor:
    return z.new_empty((offsets.shape[0] - 1, *z.shape[1:]))


@torch.library.register_fake("lpunits::lp_pool_segments_backward", lib=_library)
def _(grad: Tensor, z: Tensor, p: Tensor, offsets: Tensor, need_p: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), _maybe(p, need_p)


@torch.library.register_fake("lpunits::dropout", lib=_library)
def _(x: Tensor, rate: float, seed: int) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.register_fake("lpunits::descend_", lib=_library)
def _(*_: Any) -> None:
    return None


# ---------------------------------------------------------------- derivatives


def pool_gradients(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    needs: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients in z, p and center that are needed, by ``lp_pool_backward``."""
    # A center of nearly as many values as z has: not worth sums of its own for every thread.
    many = center is not None and 4 * center.numel() > z.numel()
    need_center = needs[2] and center is not None
    dz, dp, dc = ops.lp_pool_backward(grad, z, p, center, dim, needs[1], need_center and not many)
    if center is not None and many and need_center:
        dc = -dz.sum_to_size(center.shape).to(center.dtype)
    return dz if needs[0] else None, dp if needs[1] else None, dc if need_center else None


def again(
    function: Any, inputs: Sequence[Tensor | None], needs: Sequence[bool], *grads: Tensor
) -> list[Tensor | None]:
    """Gradients that can be differentiated again, of a function of ordinary operations."""
    with torch.enable_grad():
        wanted = [t for t, need in zip(inputs, needs, strict=True) if need]
        found = iter(torch.autograd.grad(function(*inputs), wanted, grads, create_graph=True))  # type: ignore[arg-type]
    return [next(found) if need else None for need in needs]


def _save_pool(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.dim = inputs
    ctx.save_for_backward(*tensors)


def _pool_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    z, p, center = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    if torch.is_grad_enabled():  # create_graph=True

        def function(z: Tensor, p: Tensor, center: Tensor | None) -> Tensor:
            return plain.differentiable(z, p, center, ctx.dim)

        return *again(function, (z, p, center), needs, grad), None
    return *pool_gradients(grad.contiguous(), z, p, center, ctx.dim, needs), None


def _save_nd(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    z, p, *ctx.windows = inputs
    ctx.save_for_backward(z, p)


def _nd_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    z, p = ctx.saved_tensors
    needs, rest = ctx.needs_input_grad[:2], (None,) * len(ctx.windows)
    if torch.is_grad_enabled():
        return *again(lambda z, p: plain.pool_nd(z, p, *ctx.windows), (z, p), needs, grad), *rest
    dz, dp = ops.lp_pool_nd_backward(grad, z, p, *ctx.windows, needs[1])
    return dz if needs[0] else None, dp if needs[1] else None, *rest


def _save_segments(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _segments_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    z, p, offsets = ctx.saved_tensors
    needs = ctx.needs_input_grad[:2]
    if torch.is_grad_enabled():
        return *again(lambda z, p: plain.pool_segments(z, p, offsets), (z, p), needs, grad), None
    dz, dp = ops.lp_pool_segments_backward(grad.contiguous(), z, p, offsets, needs[1])
    return dz if needs[0] else None, dp if needs[1] else None, None


for _name, _vjp, _save in (
    ("lp_pool", _pool_vjp, _save_pool),
    ("lp_pool_nd", _nd_vjp, _save_nd),
    ("lp_pool_segments", _segments_vjp, _save_segments),
):
    torch.library.register_autograd(f"lpunits::{_name}", _vjp, setup_context=_save, lib=_library)
