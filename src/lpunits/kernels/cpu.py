"""The kernel for CPUs: brings tensors into the form that the compiled code in ``tiles.py`` takes.

It reads z once forward and once backward, and makes no temporary of its size.
"""

import ctypes
import math
import operator
import os
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numba
import torch
from llvmlite import binding as llvm
from numpy.typing import NDArray
from torch import Tensor

# LLVM avoids the widest vectors of some processors, which are a third faster here. Numba reads this
# once, when it compiles its first function; if it has done so already, nothing changes.
_FEATURES = llvm.get_host_cpu_features()
if _FEATURES.get("avx512f") and numba.config.CPU_FEATURES is None:
    numba.config.CPU_FEATURES = _FEATURES.flatten() + ",-prefer-256-bit"

from lpunits.kernels import tiles
from lpunits.kernels.plain import Gradients

LONGEST_COLUMN = 512  # longer groups are cut into columns
SMALLEST_PARALLEL = 1 << 15  # values; below, starting threads costs more than they save

# One pool of threads for torch and Numba: two would spin on the same cores, waiting for work.
# Numba's OpenMP layer, loaded later, takes the OpenMP library that came with torch if it is global.
for library in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
if "NUMBA_THREADING_LAYER" not in os.environ:
    numba.config.THREADING_LAYER = "omp"
try:
    import numba.np.ufunc.omppool

    _MOST_THREADS = numba.config.NUMBA_NUM_THREADS
except ImportError:  # a platform without OpenMP
    _MOST_THREADS = 1

# How Numba, which has no half precision, sees the numbers of a tensor.
_STORAGE = {torch.float32: torch.float32, torch.bfloat16: torch.int16, torch.float16: torch.uint16}


def supports(z: Tensor) -> bool:
    """Whether this kernel serves z; double precision has no faster way than plain torch."""
    return z.dtype in _STORAGE


def forward(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    """The pooled values, in the dtype of z."""
    plan, z, orders, centers = _prepare(z, p, center, dim)
    u = torch.empty(plan.out_shape, dtype=z.dtype)
    if u.numel():
        tiles.forward(_array(z), centers, orders, _array(u), plan.call, _threads(z))
    return u if plan.in_order else u.permute(plan.order_of_out)


def backward(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    needs: tuple[bool, bool, bool],
) -> Gradients:
    """The gradients in z, p and center; sums over the batch run per thread, then in order."""
    plan, z, orders, centers = _prepare(z, p, center, dim)
    if not plan.in_order:
        grad = grad.permute(plan.memory_order_of_out)
    grad = grad.to(z.dtype).contiguous()
    threads = _threads(z)
    dz = torch.empty(plan.shape, dtype=z.dtype)
    dp = torch.zeros(threads, orders.size)
    dc = None
    if centers is not None and needs[2] and centers.size < max(z.numel(), 1 << 20):
        dc = torch.zeros(threads, centers.size)
    if dz.numel():
        tiles.backward(
            _array(grad),
            _array(z),
            centers,
            orders,
            _array(dz),
            dp.numpy(),
            None if dc is None else dc.numpy(),
            plan.call,
            threads,
        )

    def finished(parts: Tensor, shape: tuple[int, ...], like: Tensor) -> Tensor:
        total = parts.sum(0) if len(parts) > 1 else parts[0]
        if plan.in_order and total.numel() == like.numel():
            return total.view(like.shape).to(like.dtype)
        total = total.reshape(shape)
        total = total if plan.in_order else total.permute(plan.order_of_z)
        return total.sum_to_size(like.shape).to(like.dtype)

    dcenter = None
    if center is not None and needs[2]:
        parts = -dz.float().unsqueeze(0) if dc is None else dc
        dcenter = finished(parts, plan.center_shape, center)
    return (
        (dz if plan.in_order else dz.permute(plan.order_of_z)) if needs[0] else None,
        finished(dp, plan.p_shape, p) if needs[1] else None,
        dcenter,
    )


class _Plan(NamedTuple):
    """How a call looks in the order of z's memory: z as (outer, N, inner), flat orders and centres.

    The order of group g is ``p[g // step % len(p)]``; the centres repeat after some outer rows.
    Broadcasts that do not fit into this are written out.
    """

    contiguous: bool  # whether z's memory is dense, in whatever order
    in_order: bool  # whether that is the order of its dimensions
    order: list[int]
    order_of_z: list[int]
    memory_order_of_out: list[int]
    order_of_out: list[int]
    shape: list[int]
    out_shape: list[int]
    p_shape: tuple[int, ...]
    center_shape: tuple[int, ...]
    center_size: int
    call: tuple[int, ...]  # the numbers that tiles.py names LAYOUT to CENTERS


@lru_cache(maxsize=1024)
def _plan(
    z_shape: torch.Size,
    stride: tuple[int, ...],
    p_shape: torch.Size,
    center_shape: torch.Size | None,
    dim: int,
) -> _Plan:
    rank = len(z_shape)
    order = sorted(range(rank), key=lambda d: -stride[d])
    dense = list(accumulate((z_shape[d] for d in reversed(order)), operator.mul, initial=1))
    steps = zip(reversed(order), dense, strict=False)
    contiguous = all(z_shape[d] == 1 or stride[d] == step for d, step in steps)
    if not contiguous:
        order.sort()
    shape = [z_shape[d] for d in order]
    pooled = order.index(dim)
    n, inner = shape[pooled], math.prod(shape[pooled + 1 :])
    others = [d for d in order if d != dim]
    memory_order_of_out = [d - (d > dim) for d in others]

    p_full = _permuted(p_shape, order)
    varying = [d for d in range(rank) if p_full[d] != 1]
    out = [*shape[:pooled], 1, *shape[pooled + 1 :]]
    first, last = (varying[0], varying[-1]) if varying else (0, rank - 1)
    if varying and p_full[first : last + 1] != out[first : last + 1]:
        p_full, first, last = out, 0, rank - 1

    c_full, centers = [], 1
    if center_shape is not None:
        c = _permuted(center_shape, order)
        start = next((d for d in range(pooled) if c[d] != 1), pooled)
        c_full, centers = [1] * start + shape[start:], math.prod(shape[start:pooled])

    layout = tiles.SIDE_BY_SIDE
    if inner == 1:
        layout = tiles.IN_A_ROW if n <= LONGEST_COLUMN else tiles.LONG
    return _Plan(
        contiguous=contiguous,
        in_order=order == list(range(rank)),
        order=order,
        order_of_z=_inverse(order),
        memory_order_of_out=memory_order_of_out,
        order_of_out=_inverse(memory_order_of_out),
        shape=shape,
        out_shape=[z_shape[d] for d in others],
        p_shape=tuple(p_full),
        center_shape=tuple(c_full),
        center_size=math.prod(c_full),
        call=(
            layout,
            math.prod(out),
            n,
            inner,
            math.prod(p_full),
            math.prod(out[last + 1 :]),
            centers,
        ),
    )


def _prepare(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int
) -> tuple[_Plan, Tensor, NDArray[Any], NDArray[Any] | None]:
    """The plan, z in the order of its memory, and orders and centres as flat arrays."""
    plan = _plan(z.shape, z.stride(), p.shape, None if center is None else center.shape, dim)
    z = z.detach()
    if not plan.contiguous:
        z = z.contiguous()
    if not plan.in_order:
        z = z.permute(plan.order)

    def flat(t: Tensor, shape: tuple[int, ...], size: int) -> NDArray[Any]:
        t = t.detach().float()
        if not plan.in_order:
            t = t[(None,) * (z.ndim - t.ndim)].permute(plan.order)
        if t.numel() != size:
            t = t.expand(shape)
        array: NDArray[Any] = t.reshape(-1).numpy()
        return array

    orders = flat(p, plan.p_shape, plan.call[tiles.ORDERS])
    if center is None:
        return plan, z, orders, None
    return plan, z, orders, flat(center, plan.center_shape, plan.center_size)


def _permuted(shape: torch.Size, order: list[int]) -> list[int]:
    full = [1] * (len(order) - len(shape)) + list(shape)
    return [full[d] for d in order]


def _inverse(order: list[int]) -> list[int]:
    return [order.index(d) for d in range(len(order))]


def _threads(z: Tensor) -> int:
    """As many as torch is set to, and one where starting them would cost more than they save."""
    threads: int = min(torch.get_num_threads(), _MOST_THREADS)
    if threads == 1 or z.numel() < SMALLEST_PARALLEL:
        return 1
    numba.set_num_threads(threads)
    return threads


def _array(t: Tensor) -> NDArray[Any]:
    if t.dtype != torch.float32:
        t = t.view(_STORAGE[t.dtype])
    array: NDArray[Any] = t.reshape(-1).numpy()
    return array
