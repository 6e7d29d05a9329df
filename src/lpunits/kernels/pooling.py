r"""The CPU kernel as a program for :mod:`lpunits.kernels.simd`: one lane of a vector is one group.

A tile is a vector of groups and the rows of their entries. Groups lie side by side
(``(batch, filters, units)``, pooled over the middle: "rows"), one after the other ("packed", which
are transposed by shuffles), or one after the other and long ("long": the lanes share one group).
The rows of windows that slide over an image are "rows" too, in places of their own. In the notation
of :mod:`lpunits.kernels.plain`, with :math:`L_i = \log_2 r_i`:

.. math::

    s = \sum_i 2^{p L_i}, \qquad u = m \, 2^{\log_2(s / N) / p}, \qquad r_i^{p-1} = 2^{(p-1) L_i} .

A few tiles at a time go through three steps: sums over the entries, the root, the gradients. In one
step after the other the processor works on several tiles at once; in a tile from beginning to end
it would wait for every result.

How single precision keeps its digits:

- :math:`L_i` comes from an exact difference of two mantissas and a difference of two exponents, so
  its relative error stays small where r is near 1 and p is large.
- A tile that single precision cannot serve (denormal or infinite entries, NaN, orders beyond 64 in
  the gradient of a centre) is done again in double precision; its neighbours are not.
- p = inf is an order of 1e30 in the exponent, with 1/p = 0: no case of its own.
- The order's gradient is a sum of terms that are never negative where a group is nearly tied.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llvmlite import ir

from lpunits.kernels.simd import I64, Code, Value, Variable, lanes, larger, pick, smaller
from lpunits.kernels.tiles import (
    ARGUMENTS,
    DOUBLE,
    FACTOR,
    HUGE,
    INF,
    LARGEST,
    LN_2,
    MOMENT,
    SINGLE,
    SQRT_HALF,
    SUM,
    Place,
    Spec,
    Tile,
    exp2,
    log2_1p,
    log2_parts,
    polynomial,
)

# ---------------------------------------------------------------- the three steps


class Ratios:
    """The logarithms of the ratios of a tile's entries to the largest of their group."""

    def __init__(self, tile: Tile, m: Value) -> None:
        self.tile, self.unit = tile, m
        if tile.precision is DOUBLE:
            self.infinite = m == INF
            self.unit = pick(self.infinite, tile.number(1.0), m)
        self.inverse = pick(self.unit == 0.0, tile.number(0.0), self.unit.reciprocal())
        self.low = (self.unit * SQRT_HALF).bits

    def magnitude(self, i: Any) -> Value:
        """Row i of |z - center|; beside an infinite entry, 1 for infinity and 0 for the rest."""
        a, tile = self.tile.magnitude(i), self.tile
        if tile.precision is DOUBLE:
            a = pick(self.infinite, pick(a == INF, tile.number(1.0), 0.0), a)
        return a

    def ratio(self, i: Any) -> Value:
        """Row i of the ratios, exactly 1 for the largest."""
        a = self.magnitude(i)
        return pick(a == self.unit, self.tile.number(1.0), a * self.inverse)

    def log2(self, i: Any) -> Value:
        """Row i of the logarithms."""
        a, precision = self.magnitude(i), self.tile.precision
        whole, part = log2_parts(a, self.unit, self.inverse, self.low, precision)
        return whole + part  # type: ignore[no-any-return]


def find_largest(tile: Tile) -> tuple[Value, Value]:
    """The largest entry of each group, and the lanes that single precision cannot serve."""
    precision, integer = tile.precision, ir.VectorType(tile.precision.integer, tile.lanes)
    most = Variable(tile.code, tile.code.number(integer, 0))
    least = Variable(tile.code, tile.code.number(integer, -1))
    watch = tile.spec.backward and precision is SINGLE

    def row(i: Any) -> None:
        # Bits of non-negative numbers are in the order of the numbers; NaN is beyond infinity.
        bits = tile.magnitude(i).bits
        most.set(larger(bits, most.get()))
        if watch:  # denormal entries; 0 becomes the largest of all
            low = bits - 1
            least.set(pick(low.unsigned_less(least.get()), low, least.get()))

    tile.each(row)
    bits = tile.join(most.get(), larger)
    care = (bits != 0) & bits.outside(0x17800000, 0x67800000)  # 2^-80 and 2^80
    if watch:
        care = care | (least.get().outside(0x7FFFFF, 0xFFFFFFFF))
        if tile.spec.center:
            # Beyond an order of 64 the rounding of z - center would show in the gradient.
            care = care | (tile.order(shared=tile.long) > 64.0)
    return bits.as_float, care


def sum_powers(tile: Tile, m: Value) -> Value:
    """The sums s = sum_i r_i^p."""
    ratios = Ratios(tile, m)
    p = _order(tile, ratios, shared=tile.long)
    total, lost = tile.variable(0.0), tile.variable(0.0)

    def row(i: Any) -> None:
        power = exp2(p * ratios.log2(i), None, tile.precision)
        if tile.rows:
            total.set(total.get() + power)
            return
        # A long sum keeps what each addition loses.
        part = power - lost.get()
        after = total.get() + part
        lost.set((after - total.get()) - part)
        total.set(after)

    tile.each(row)
    return tile.join(total.get(), Value.__add__)


def sum_slopes(tile: Tile, m: Value) -> tuple[Value, Value]:
    """The sums s = sum_i r_i^p and sum_i r_i^p log2 r_i; the slopes r_i^(p-1) are kept."""
    ratios = Ratios(tile, m)
    less_1 = _order(tile, ratios, shared=tile.long) - 1.0
    total, moment = tile.variable(0.0), tile.variable(0.0)

    def row(i: Any) -> None:
        log_r = ratios.log2(i)
        slope = exp2(less_1 * log_r, None, tile.precision)
        power = ratios.ratio(i) * slope
        tile.keep(i, slope, log_r)
        total.set(total.get() + power)
        moment.set(moment.get() + power * log_r)

    tile.each(row)
    return tile.join(total.get(), Value.__add__), tile.join(moment.get(), Value.__add__)


def _order(tile: Tile, ratios: Ratios, shared: bool = False) -> Value:
    """The orders; an infinite entry is the maximum."""
    p = tile.order(shared)
    return pick(ratios.infinite, tile.number(HUGE), p) if tile.precision is DOUBLE else p


class Root:
    """(s / N)^(1/p), and what it is made of."""

    def __init__(self, tile: Tile, p: Value, s: Value) -> None:
        precision = tile.precision
        # 1/p as a sum of which the first part has few digits.
        inverse = p.reciprocal()
        few = -(1 << 12) if precision is SINGLE else -(1 << 28)
        first = (inverse.bits & few).as_float
        finite = p < HUGE
        high = pick(finite, first, 0.0)
        low = pick(finite, (1.0 - first * p) * inverse, 0.0)
        self.order_inverse = high + low
        mean = s * (1.0 / tile.size())
        one = tile.number(1.0)
        whole, part = log2_parts(mean, one, one, tile.number(SQRT_HALF).bits, precision)
        self.log_mean = whole + part
        root = exp2(whole * high, whole * low + part * self.order_inverse, precision)
        self.value = root + p * 0.0  # an order that is not a number makes everything so


def finish_forward(tile: Tile, m: Value, s: Value) -> None:
    """The values u = m (s / N)^(1/p)."""
    p = _order(tile, Ratios(tile, m))
    tile.put(m * Root(tile, p, s).value)


# (1 - (1 + d) exp(-d)) / d^2
_SERIES = tuple((-1) ** k * (k + 1) / math.factorial(k + 2) for k in range(8))


def finish_sums(tile: Tile, m: Value, s: Value, moment: Value) -> tuple[Value, Value]:
    """Add to the orders' gradients; the factor of the slopes, and lanes that need more digits."""
    ratios = Ratios(tile, m)
    p = _order(tile, ratios)
    s = pick(ratios.unit == 0.0, tile.size(), s)  # the weights of zeros are equal
    root, inverse, grad = Root(tile, p, s), s.reciprocal(), tile.grad()
    mean = moment * inverse
    factor = grad * root.value * inverse
    if tile.precision is DOUBLE:
        factor = factor + ratios.unit * 0.0  # NaN goes everywhere
    # du/dp = u / p^2 times the divergence of the weights from equal ones, here in bits.
    divergence = Variable(tile.code, p * mean - root.log_mean)
    scale = LN_2 * root.value * root.order_inverse * root.order_inverse * grad * ratios.unit
    tied = (divergence.get() < 0.01) & (ratios.unit > 0.0)
    if tile.long and tile.precision is SINGLE:
        scale = pick(tied, tile.number(0.0), scale)
    else:
        with tile.code.when(tied, likely=False):
            exact, near = tied_divergence(tile, ratios, p, mean, divergence.get())
            divergence.set(pick(tied & near, exact, divergence.get()))
    tile.add_order_gradient(scale * divergence.get())
    return factor, tied


def tied_divergence(
    tile: Tile, ratios: Ratios, p: Value, mean: Value, roughly: Value
) -> tuple[Value, Value]:
    """The divergence without cancellation, and the lanes that are near enough for a series.

    With d_i the mean of ln(r^p) minus ln(r_i^p), the weights are exp(D - d_i) / N, and D itself is
    log(1 + sum_i w_i (exp(d_i) - 1 - d_i)), where no term is negative.
    """
    scale = p * LN_2
    spread, widest = tile.variable(0.0), tile.variable(0.0)

    def row(i: Any) -> None:
        log_r = tile.kept_log(i) if tile.precision is SINGLE else ratios.log2(i)
        d = scale * mean - scale * log_r
        square = d * d
        term = polynomial(d, _SERIES) * square
        lanes_left = tile.lanes_of_row(i)
        if tile.long and lanes_left is not None:
            term, square = pick(lanes_left, term, 0.0), pick(lanes_left, square, 0.0)
        spread.set(spread.get() + term)
        widest.set(larger(square, widest.get()))

    tile.each(row)
    nats = roughly * LN_2
    weight = (1.0 + nats + nats * nats * 0.5) * (1.0 / tile.size())
    total = tile.join(spread.get(), Value.__add__) * weight
    return log2_1p(total), tile.join(widest.get(), larger) < 0.5


def write_gradient(tile: Tile, factor: Value) -> None:
    """du/dz_i = sign(z_i - c_i) r_i^(p-1) times the factor."""

    def gradient(i: Any) -> Value:
        size, b = tile.kept_slope(i) * factor, tile.value(i)
        signed = (size.bits ^ (b.bits & tile.number(-0.0).bits)).as_float
        return pick(b == 0.0, tile.number(0.0), signed)

    tile.put_gradient(gradient)


# ---------------------------------------------------------------- the whole call


def module(spec: Spec) -> ir.Module:
    """The function ``run(arguments)``, one member of a team of threads."""
    made = ir.Module("lpunits")
    careful = _careful(made, spec)
    code = Code(made, "run", [I64])
    (pointer,) = code.parameters
    call = {name: code.load(pointer, k, I64) for k, name in enumerate(ARGUMENTS)}
    zero, one = code.number(I64, 0), code.number(I64, 1)
    thread, threads = code.team(spec.parallel)
    for table in ("dp", "dc", "scratch"):
        call[table] = call[table] + thread * call[f"{table}_row"] * 4
    width = lanes()
    n, inner, groups, chunk = call["n"], call["inner"], call["groups"], call["chunk"]

    def share(count: Value) -> tuple[Value, Value]:
        return thread * count // threads, (thread + one) * count // threads

    def work(start: Value, stop: Value, place: Callable[[Value, Value], Place]) -> None:
        """Do the tiles from start to stop, a few of them at a time."""
        with code.loop(start, stop, chunk) as first:
            _chunk(code, spec, call, careful, pointer, first, smaller(first + chunk, stop), place)

    if spec.layout == "rows":
        blocks = (inner + (width - 1)) // width
        if spec.windows:  # a thread has whole images, as windows of one image overlap
            start, stop = (x * call["positions"] * blocks for x in share(call["centers"]))
        else:
            start, stop = share(groups // inner * blocks)
        with code.loop(start // blocks, (stop + (blocks - one)) // blocks) as outer:
            if spec.splat:
                p_row = outer // call["order_step"] % call["orders"]
            else:
                p_row = outer % call["orders"] * inner
            if spec.windows:
                image, position = outer // call["positions"], outer % call["positions"]
                z_row = image * call["image"] + code.load(call["bases"], position, I64)
            else:
                z_row = outer * n * inner
            c_row = outer % call["centers"] * n * inner if spec.center else zero

            def place_in_row(block: Value, index: Value) -> Place:
                j = block * width
                return Place(
                    z_row + j * spec.stride,
                    c_row + j,
                    p_row if spec.splat else p_row + j,
                    outer * inner + j,
                    smaller(inner - j, width),
                    index,
                )

            first = larger(start - outer * blocks, zero)
            work(first, smaller(stop - outer * blocks, blocks), place_in_row)
    else:
        size = width if spec.layout == "packed" else 1

        def place(block: Value, index: Value) -> Place:
            g = block * size
            c_at = g % call["centers"] * n if spec.center else zero
            p_at = zero if spec.splat else g % call["orders"]
            return Place(g * n, c_at, p_at, g, smaller(groups - g, width), index)

        work(*share((groups + (size - 1)) // size), place)
    code.finish()
    return made


def _chunk(
    code: Code,
    spec: Spec,
    call: dict[str, Value],
    careful: Code,
    pointer: Value,
    start: Value,
    stop: Value,
    place: Callable[[Value, Value], Place],
) -> None:
    """Some tiles, step by step; those that need more digits are then done again."""
    zero, one = code.number(I64, 0), code.number(I64, 1)
    left_over = Variable(code, zero)

    def tile(block: Value) -> Tile:
        return Tile(code, spec, SINGLE, call, place(block, block - start))

    def leave(block: Value) -> None:
        code.store(block, call["scratch"] + call["scratch_row"] * 4 - 8, left_over.get() * -1)
        left_over.set(left_over.get() + one)

    with code.loop(start, stop) as block:
        here = tile(block)
        m, care = find_largest(here)
        with code.either(care) as (rare, common):
            with rare:  # leave zeros for the other steps
                leave(block)
                here.hand_on(LARGEST, here.number(0.0))
                here.hand_on(SUM, here.number(1.0))
                if spec.backward:
                    here.hand_on(MOMENT, here.number(0.0))
                    here.each(lambda i: here.keep(i, here.number(0.0), here.number(0.0)))
            with common:
                here.hand_on(LARGEST, m)
                if spec.backward:
                    s, moment = sum_slopes(here, m)
                    here.hand_on(MOMENT, moment)
                else:
                    s = sum_powers(here, m)
                here.hand_on(SUM, s)

    # Long groups, one per tile, have their roots taken side by side.
    long = spec.layout == "long"
    with code.loop(start, smaller(start + one, stop) if long else stop) as block:
        here = tile(block)
        if long:
            count = smaller(stop - start, here.at.count)
            here = Tile(code, spec, SINGLE, call, replace(here.at, count=count))
        m, s = here.handed(LARGEST), here.handed(SUM)
        if spec.backward:
            factor, tied = finish_sums(here, m, s, here.handed(MOMENT))
            code.store(factor, call["scratch"], here._slot(FACTOR))
            if long:
                code.store(pick(tied, here.number(1.0), 0.0), call["scratch"], here._slot(MOMENT))
        else:
            finish_forward(here, m, s)
    if spec.backward:
        with code.loop(start, stop) as block:
            here = tile(block)
            factor = here.handed(FACTOR, shared=long)
            if long:
                with code.when(here.handed(MOMENT, shared=True)[0] > 0.0, likely=False):
                    leave(block)
                    here.each(lambda i: here.keep(i, here.number(0.0), here.number(0.0)))
            write_gradient(here, factor)

    with code.loop(zero, left_over.get()) as k:
        block = code.load(call["scratch"] + call["scratch_row"] * 4 - 8, k * -1, I64)
        at = place(block, zero)
        tables = (call["dp"], call["dc"], call["scratch"])
        code.call(careful, pointer, *tables, at.z, at.center, at.p, at.group, at.count)


def _careful(made: ir.Module, spec: Spec) -> Code:
    """A tile in double precision, in a function of its own because it is rarely needed."""
    code = Code(made, "careful", [I64] * 9, internal=True)
    pointer, dp, dc, scratch, z, center, p, group, count = code.parameters
    call = {name: code.load(pointer, k, I64) for k, name in enumerate(ARGUMENTS)}
    call |= {"dp": dp, "dc": dc, "scratch": scratch}
    if spec.layout == "long":
        count = code.number(I64, 1)
    here = Tile(code, spec, DOUBLE, call, Place(z, center, p, group, count, code.number(I64, 0)))
    m, _ = find_largest(here)
    if spec.backward:
        factor, _ = finish_sums(here, m, *sum_slopes(here, m))
        if here.long:
            factor = factor.shuffle([0] * here.lanes)
        write_gradient(here, factor)
    else:
        finish_forward(here, m, sum_powers(here, m))
    code.finish()
    return code
