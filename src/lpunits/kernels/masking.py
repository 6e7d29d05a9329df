"""Dropout in one pass: the mask is a function of a seed and of where an entry is, and never stored.

A generator that goes from state to state yields one number after the other; a hash of the entry's
position yields as many at once as a vector has lanes, and the same ones again for the gradient.
"""

import struct
from functools import cache
from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from lpunits.kernels import simd
from lpunits.kernels.simd import F32, I32, I64, Code, Value

SMALLEST_PARALLEL = 1 << 15  # values; below, waking threads costs more than they save
_arguments = struct.Struct("3qIIIf").pack


def supports(x: Tensor) -> bool:
    """Whether the compiled mask takes this tensor."""
    return (
        type(x) in (Tensor, torch.nn.Parameter)
        and x.dtype is torch.float32
        and x.device.type == "cpu"
        and x.numel() < 1 << 31
    )


def masked(x: Tensor, rate: float, seed: int) -> Tensor:
    """Set entries to 0 with the given probability, and scale the others to keep the mean."""
    x = x.contiguous()
    y = torch.empty_like(x)
    threads = torch.get_num_threads() if simd.PARALLEL and x.numel() >= SMALLEST_PARALLEL else 1
    low, high = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    threshold = min(round(rate * 2**32), 2**32 - 1)
    addresses = (x.data_ptr(), y.data_ptr())
    _function(threads)(_arguments(*addresses, x.numel(), low, high, threshold, 1 / (1 - rate)))
    return y


@cache
def _function(threads: int) -> Any:
    return simd.compiled(f"masking {threads > 1}", lambda: _module(threads > 1), threads)


def _module(parallel: bool) -> ir.Module:
    made = ir.Module("lpunits")
    code = Code(made, "run", [I64])
    (arguments,) = code.parameters
    x, y, size = (code.load(arguments, i, I64) for i in range(3))
    width = simd.lanes()
    low, high, threshold = (code.load(arguments + 24, i, I32).spread(width) for i in range(3))
    scale = code.load(arguments + 24, 3, F32).spread(width)
    kind = ir.VectorType(F32, width)
    numbers = Value(code.builder, ir.Constant(ir.VectorType(I32, width), list(range(width))))
    thread, threads = code.team(parallel)
    blocks = (size + (width - 1)) // width
    with code.loop(thread * blocks // threads, (thread + 1) * blocks // threads) as block:
        j = block * width
        mask = code.first_lanes(simd.smaller(size - j, width))
        random = _hash((numbers + j.to(I32).spread(width)) * -1640531535 + low) ^ high
        dropped = _hash(random).unsigned_less(threshold)
        kept = code.load(x, j, kind, mask) * scale
        code.store(simd.pick(dropped, code.number(kind, 0.0), kept), y, j, mask)
    code.finish()
    return made


def _hash(x: Value) -> Value:
    """Spread a difference in any bit over all of them (the constants are Chris Wellons')."""
    x = (x ^ x.shifted_right(16)) * 0x7FEB352D
    x = (x ^ x.shifted_right(15)) * -2073254261
    return x ^ x.shifted_right(16)
