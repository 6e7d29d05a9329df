r"""One step of momentum descent for all parameters in one call, with a bound on the filters' norms.

.. math::

    v \leftarrow \mu v + g + \lambda w, \qquad w \leftarrow w - \eta v, \qquad
    w_f \leftarrow w_f \min(1, c / \lVert w_f \rVert) \text{ for every filter } w_f .

A filter is in the nearest cache when it is scaled, so that memory is read and written once.
"""

import math
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from llvmlite import ir

from lpunits.kernels import simd
from lpunits.kernels.simd import F32, I64, Code, Value, Variable

SMALLEST_PARALLEL = 1 << 14  # values; below, waking threads costs more than they save


_record = struct.Struct("5q4f")
_WORDS = _record.size // 8


def descend(updates: Sequence[Any]) -> bool:
    """Make all the updates, as :mod:`lpunits.optim.sgd` describes them, in place.

    Returns False, and does nothing, if a tensor is not what the compiled step takes.
    """
    records, values = [], 0
    for weight, velocity, grad, size, *numbers in updates:
        tensors = weight, velocity, grad
        if not all(t.dtype is torch.float32 and t.is_cpu for t in tensors):
            return False
        bounded = numbers[-1] != math.inf  # then a filter has to lie in one piece
        if not all(t.is_contiguous() for t in tensors) and (bounded or not _alike(*tensors)):
            return False
        if count := weight.numel():
            addresses = (t.data_ptr() for t in tensors)
            records.append(_record.pack(*addresses, count // size, size, *numbers))
            values += count
    threads = torch.get_num_threads() if simd.PARALLEL and values >= SMALLEST_PARALLEL else 1
    _function(threads)(struct.pack("q", len(records)) + b"".join(records))
    return True


def _alike(first: torch.Tensor, *others: torch.Tensor) -> bool:
    """Whether all values lie side by side in the same order, whatever that of the dimensions."""
    order = sorted(range(first.ndim), key=first.stride, reverse=True)
    same = all(t.stride() == first.stride() for t in others)
    return same and first.permute(order).is_contiguous()


@cache
def _function(threads: int) -> Any:
    return simd.compiled(f"descent {threads > 1}", lambda: _module(threads > 1), threads)


def _module(parallel: bool) -> ir.Module:
    made = ir.Module("lpunits")
    code = Code(made, "run", [I64])
    (table,) = code.parameters
    zero, one = code.number(I64, 0), code.number(I64, 1)
    thread, threads = code.team(parallel)
    with code.loop(zero, code.load(table, 0, I64)) as k:
        record = table + 8 + k * (8 * _WORDS)
        w, v, g, filters, size = (code.load(record, i, I64) for i in range(5))
        numbers = [code.load(record + 40, i, F32) for i in range(4)]
        with code.loop(thread * filters // threads, (thread + one) * filters // threads) as f:
            addresses = [base + f * size * 4 for base in (w, v, g)]
            _update_filter(code, addresses, size, numbers)
    code.finish()
    return made


def _update_filter(code: Code, addresses: list[Value], size: Value, numbers: list[Value]) -> None:
    w, v, g = addresses
    width = simd.lanes()
    kind = ir.VectorType(F32, width)
    lr, momentum, decay, bound = (x.spread(width) for x in numbers)
    zero = code.number(I64, 0)
    square = Variable(code, code.number(kind, 0.0))
    with code.loop(zero, size, width) as j:
        mask = code.first_lanes(simd.smaller(size - j, width))
        weight = code.load(w, j, kind, mask)
        velocity = code.load(v, j, kind, mask) * momentum
        velocity = velocity + (code.load(g, j, kind, mask) + weight * decay)
        weight = weight - velocity * lr
        code.store(velocity, v, j, mask)
        code.store(weight, w, j, mask)
        square.set(square.get() + weight * weight)
    total = square.get().joined(Value.__add__)
    norm = code.intrinsic("llvm.sqrt", kind, [kind], total)
    with code.when((norm > bound)[0]):
        scale = bound / norm
        with code.loop(zero, size, width) as j:
            mask = code.first_lanes(simd.smaller(size - j, width))
            code.store(code.load(w, j, kind, mask) * scale, w, j, mask)
