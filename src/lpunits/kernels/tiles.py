"""What a compiled pooling works on: tiles, where they are in memory, logarithm and power.

:mod:`lpunits.kernels.pooling` says what is done with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from llvmlite import ir

from lpunits.kernels.simd import (
    F16,
    F32,
    F64,
    I16,
    I32,
    I64,
    Code,
    Value,
    Variable,
    lanes,
    larger,
    pick,
)

HUGE = 1e30
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
SQRT_HALF = 0.7071067811865476
MOST_UNROLLED = 9  # rows of a tile that are kept in registers
INF = float("inf")

# The integers that describe a call, by their place in the list that the compiled function takes.
ARGUMENTS = (
    "z", "center", "p", "u", "dz", "dp", "dc", "scratch", "bases", "offsets",  # addresses
    "n", "inner", "groups", "centers", "orders", "order_step", "image", "positions", "chunk",
    "dp_row", "dc_row", "scratch_row",  # distances between the tables of two threads
)  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """What is known when the code is written."""

    layout: str  # rows, packed or long
    n: int  # entries of a group, or 0: known at run time only
    dtype: str  # float, half or bfloat
    center: bool
    splat: bool  # whether all groups of a tile have the same order
    parallel: bool  # whether it runs in a team of threads
    windows: bool = False  # whether the rows of a tile are where a table says, and may overlap
    stride: int = 1  # the distance of the lanes of a window's row
    backward: bool = False
    center_grad: bool = False


# ---------------------------------------------------------------- logarithm and power


@dataclass(frozen=True)
class Precision:
    """How a floating-point type is built, and polynomials good enough for it."""

    kind: Any
    integer: Any
    digits: int  # bits of the mantissa
    lowest: float  # 2^lowest becomes 0
    exp2: tuple[float, ...]  # 2^f on [-1/2, 1/2], behind the constant 1

    @property
    def magic(self) -> float:
        """What rounds to a whole number when it is added, and leaves it in the lowest bits."""
        return 1.5 * 2.0**self.digits


SINGLE = Precision(
    F32,
    I32,
    23,
    -127.0,
    (0.6931471805599453, 0.24022648692131042, 0.05550340563058853, 0.009618354961276054,
     0.0013395279645919800, 0.00015402942895889282),
)  # fmt: skip
DOUBLE = Precision(
    F64,
    I64,
    52,
    -1023.0,
    tuple(
        LN_2**k / f for k, f in enumerate((1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800), 1)
    ),
)


def polynomial(x: Value, coefficients: tuple[float, ...], stride: int = 4) -> Value:
    """c0 + c1 x + c2 x^2 + ..., some terms at a time, as a chain of products is waited for.

    No power beyond the stride is formed: the eighth power of a small x would be a denormal number,
    at which processors stop for a hundred cycles.
    """
    powers = {1: x}
    while max(powers) < stride:
        powers[2 * max(powers)] = powers[max(powers)] * powers[max(powers)]

    def block(terms: tuple[float, ...], size: int) -> Any:
        if len(terms) == 1:
            return terms[0]
        half = size // 2
        if len(terms) <= half:
            return block(terms, half)
        return powers[half] * block(terms[half:], half) + block(terms[:half], half)

    blocks = [coefficients[i : i + stride] for i in range(0, len(coefficients), stride)]
    y = block(blocks[-1], stride)
    for terms in reversed(blocks[:-1]):
        y = powers[stride] * y + block(terms, stride)
    return y  # type: ignore[no-any-return]


# log2(1 + v) / v for v from 1/sqrt 2 - 1 to sqrt 2 - 1: minimax, relative error 3e-8.
_LOG2 = (
    1.4426950036520814, -0.7213473468016658, 0.48091064303096026, -0.36070368303068034,
    0.28791624507083174, -0.2389448138582872, 0.2157156309784507, -0.20726981566798947,
    0.1258370368985811,
)  # fmt: skip
# The same as an odd function of v / (2 + v).
_LOG2_ODD = tuple(2 * LOG2_E / (2 * k + 1) for k in range(9))


def log2_1p(v: Value) -> Value:
    """log2(1 + v) for v from 1/sqrt 2 - 1 to sqrt 2 - 1."""
    if v.element == F32:
        return polynomial(v, _LOG2) * v
    odd = v / (v + 2.0)
    return polynomial(odd * odd, _LOG2_ODD) * odd


def exp2(whole: Value, part: Value | None, precision: Precision) -> Value:
    """2^(whole + part) for exponents of at most 0; ``whole`` may be large, ``part`` is small."""
    whole = larger(whole, precision.lowest)
    rounded = (whole if part is None else whole + part) + precision.magic
    f = whole - (rounded - precision.magic)
    if part is not None:
        f = f + part
    y = f * polynomial(f, precision.exp2, stride=2) + 1.0
    return (y.bits + (rounded.bits << precision.digits)).as_float


def log2_parts(a: Value, m: Value, inverse: Value, low: Value, precision: Precision) -> Any:
    """log2(a / m) as (whole, part), where low is the bits of m / sqrt 2 and inverse is 1 / m.

    a is brought between m / sqrt 2 and m sqrt 2 by a power of two; there its difference to m is
    exact.
    """
    shift = (a.bits - low) >> precision.digits
    near = (a.bits - (shift << precision.digits)).as_float
    return shift.to(precision.kind), log2_1p((near - m) * inverse)


# ---------------------------------------------------------------- a tile

# What a tile hands on from step to step: vectors in the scratch memory of its thread.
LARGEST, SUM, MOMENT, FACTOR, SLOTS = range(5)


@dataclass(frozen=True)
class Place:
    """Where a tile begins in z, the centres, the orders and the groups; how many groups it has."""

    z: Value
    center: Value
    p: Value
    group: Value
    count: Value
    index: Value  # its number among the tiles that are worked on together


class Tile:
    """Groups in the lanes of a vector: reads and writes what belongs to them."""

    def __init__(
        self, code: Code, spec: Spec, precision: Precision, call: dict[str, Value], at: Place
    ) -> None:
        self.code, self.spec, self.precision, self.call, self.at = code, spec, precision, call, at
        self.lanes = lanes()
        self.vector = ir.VectorType(precision.kind, self.lanes)
        self.long = spec.layout == "long"
        self.rows = -(-spec.n // self.lanes) if self.long else spec.n
        self._known: dict[Any, Any] = {}

    def each(self, body: Callable[[Any], None]) -> None:
        """Do something for every row: unrolled if their number is known, or in a loop."""
        if self.rows:
            for i in range(self.rows):
                body(i)
            return
        with self.code.loop(self.code.number(I64, 0), self._row_count()) as row:
            body(row)

    def _row_count(self) -> Value:
        n = self.call["n"]
        return (n + (self.lanes - 1)) // self.lanes if self.long else n

    def _remember(self, key: Any, make: Callable[[], Value]) -> Value:
        """Rows of a known number stay in registers; others are read again."""
        if not self.rows:
            return make()
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]  # type: ignore[no-any-return]

    def number(self, value: float) -> Value:
        """A constant in every lane."""
        return self.code.number(self.vector, value)

    def variable(self, value: float) -> Variable:
        """A vector that changes from row to row."""
        return Variable(self.code, self.number(value))

    def size(self) -> Value:
        """N, the number of entries of a group, in every lane."""
        if self.spec.n:
            return self.number(float(self.spec.n))
        return self.call["n"].to(self.precision.kind).spread(self.lanes)

    # Memory

    def lanes_of_row(self, i: Any) -> Value | None:
        """The lanes of row i that exist, or None: all of them."""
        if not self.long:
            return self.code.first_lanes(self.at.count)
        if self.rows and (i + 1) * self.lanes <= self.spec.n:
            return None
        return self.code.first_lanes(self.call["n"] - i * self.lanes)

    def _row(self, i: Any) -> Any:
        """The distance of row i from the first."""
        if self.spec.windows:
            return self.code.load(self.call["offsets"], i, I64)
        return i * self.lanes if self.long else self.call["inner"] * i

    def _spaced(self, j: int, spacing: int) -> Value:
        """The lanes that exist in vector j of those that hold every lane and what lies between."""
        return self.code.first_lanes((self.at.count - 1) * spacing + (1 - j * self.lanes))

    def _load_row(self, table: str, at: Value, i: Any, dtype: str) -> Value:
        """Row i of z or of the centres."""
        base, spec = self.call[table], self.spec
        if spec.layout == "packed":

            def load(j: int) -> Value:
                return self._load(base, at + j * self.lanes, self._packed(j), dtype)

            parts = [self._remember((table, j), partial(load, j)) for j in range(spec.n)]
            return _every(spec.n, i, parts)
        at = at + self._row(i)
        if spec.stride == 1:
            return self._load(base, at, self.lanes_of_row(i), dtype)
        masks = [self._spaced(j, spec.stride) for j in range(spec.stride)]
        parts = [self._load(base, at + j * self.lanes, m, dtype) for j, m in enumerate(masks)]
        return _every(spec.stride, 0, parts)

    def _packed(self, j: int) -> Value:
        """The entries that exist in vector j of those that hold a packed tile."""
        return self.code.first_lanes(self.at.count * self.spec.n - j * self.lanes)

    def _load(self, base: Value, at: Any, mask: Value | None, dtype: str = "float") -> Value:
        code, kind = self.code, self.precision.kind
        if dtype == "float":
            return code.load(base, at, ir.VectorType(F32, self.lanes), mask).to(kind)
        bits = code.load(base, at, ir.VectorType(I16, self.lanes), mask)
        if dtype == "bfloat":
            return (bits.to(I32) << 16).as_float.to(kind)
        return bits.cast(F16).to(F32).to(kind)

    def _store(self, value: Value, base: Value, at: Any, mask: Value | None) -> None:
        value, dtype = value.to(F32), self.spec.dtype
        if dtype == "half":
            value = value.to(F16).cast(I16)
        elif dtype == "bfloat":
            bits = value.bits
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            value = pick(value != value, rounded.constant(0x7FC0), rounded).to(I16)
        self.code.store(value, base, at, mask)

    def _add(self, value: Value, base: Value, at: Any, mask: Value | None) -> None:
        sums = self.code.load(base, at, ir.VectorType(F32, self.lanes), mask)
        self.code.store(sums + value.to(F32), base, at, mask)

    # What a tile reads

    def value(self, i: Any) -> Value:
        """Row i of z - center."""

        def make() -> Value:
            z = self._load_row("z", self.at.z, i, self.spec.dtype)
            if not self.spec.center:
                return z
            return z - self._load_row("center", self.at.center, i, "float")

        return self._remember(("value", i), make)

    def magnitude(self, i: Any) -> Value:
        """Row i of |z - center|."""
        positive = self.number(-0.0).bits ^ -1
        return self._remember(("magnitude", i), lambda: (self.value(i).bits & positive).as_float)

    def order(self, shared: bool = False) -> Value:
        """The orders of the groups, or of the one group that all lanes share; 1e30 for infinity."""
        base = self.call["p"]
        if self.spec.splat or shared:
            p = self.code.load(base, self.at.p, F32).spread(self.lanes).to(self.precision.kind)
        else:
            mask = self.code.first_lanes(self.at.count)
            p = self._load(base, self.at.p, mask)
            p = pick(mask, p, 1.0)  # lanes without a group should not divide by zero
        return pick(p > HUGE, self.number(HUGE), p)

    def grad(self) -> Value:
        """The gradient that arrives at each group."""
        mask = self.code.first_lanes(self.at.count)
        return self._load(self.call["u"], self.at.group, mask, self.spec.dtype)

    # What it writes

    def put(self, u: Value) -> None:
        """The pooled values."""
        self._store(u, self.call["u"], self.at.group, self.code.first_lanes(self.at.count))

    def put_gradient(self, gradient: Callable[[Any], Value]) -> None:
        """The gradient of every row in z, which is subtracted from that in the centres."""
        spec = self.spec
        # A vector of the gradient, its distance from the first, and the lanes that exist.
        if spec.layout == "packed":
            rows = [gradient(i) for i in range(spec.n)]
            parts = [(_interleaved(spec.n, j, rows), j * self.lanes) for j in range(spec.n)]
            self._write([(part, at, self._packed(j)) for j, (part, at) in enumerate(parts)])
        elif spec.windows:
            self.each(lambda i: self._add_window(i, gradient(i)))
        elif self.rows:
            self._write(
                [(gradient(i), self._row(i), self.lanes_of_row(i)) for i in range(self.rows)]
            )
        else:
            self.each(lambda i: self._write([(gradient(i), self._row(i), self.lanes_of_row(i))]))

    def _write(self, parts: list[tuple[Value, Any, Value | None]]) -> None:
        """Read everything before anything is written.

        A processor waits before it reads from a place that looks like one it has just written.
        """
        kind, at = ir.VectorType(F32, self.lanes), self.at
        dz, dc, sums = self.call["dz"], self.call["dc"], []
        if self.spec.center_grad:
            sums = [self.code.load(dc, at.center + step, kind, mask) for _, step, mask in parts]
        for part, step, mask in parts:
            self._store(part, dz, at.z + step, mask)
        for sum_, (part, step, mask) in zip(sums, parts, strict=False):
            self.code.store(sum_ - part.to(F32), dc, at.center + step, mask)

    def _add_window(self, i: Any, part: Value) -> None:
        """Windows overlap; what lies between the lanes of a row stays as it is."""
        stride, at = self.spec.stride, self.at.z + self._row(i)
        spaced = [part] + [self.number(0.0)] * (stride - 1)
        for j in range(stride):
            piece = _interleaved(stride, j, spaced)
            self._add(piece, self.call["dz"], at + j * self.lanes, self._spaced(j, stride))

    def add_order_gradient(self, value: Value) -> None:
        """Add to the sums of the orders; an order of all lanes has a vector of sums."""
        at = self.at.p * self.lanes if self.spec.splat else self.at.p
        self._add(value, self.call["dp"], at, self.code.first_lanes(self.at.count))

    # What it hands on

    def _entry(self, i: Any, which: int) -> Value:
        """Where the scratch memory has what is kept of row i: its slope, or its logarithm."""
        rows = self._row_count()
        first: Value = self.call["chunk"] * SLOTS + (self.at.index * 2 + which) * rows + i
        return first * self.lanes

    def keep(self, i: Any, slope: Value, log: Value) -> None:
        """Keep two numbers per entry."""
        self.code.store(slope.to(F32), self.call["scratch"], self._entry(i, 0))
        self.code.store(log.to(F32), self.call["scratch"], self._entry(i, 1))

    def kept_slope(self, i: Any) -> Value:
        """The slope of row i."""
        return self._load(self.call["scratch"], self._entry(i, 0), None)

    def kept_log(self, i: Any) -> Value:
        """The logarithm of row i."""
        return self._load(self.call["scratch"], self._entry(i, 1), None)

    def _slot(self, slot: int) -> Value:
        """Vectors of the tiles, one after the other; the groups of long ones fill one vector."""
        first = self.call["chunk"] * (slot * self.lanes)
        return first + (self.at.index if self.long else self.at.index * self.lanes)

    def hand_on(self, slot: int, value: Value) -> None:
        """Write a number per group."""
        if self.long:
            value = value[0]
        self.code.store(value, self.call["scratch"], self._slot(slot))

    def handed(self, slot: int, shared: bool = False) -> Value:
        """Read a number per group, or that of the one group that all lanes share."""
        base = self.call["scratch"]
        if shared:
            return self.code.load(base, self._slot(slot), F32).spread(self.lanes)
        return self.code.load(base, self._slot(slot), ir.VectorType(F32, self.lanes))

    def join(self, value: Value, how: Callable[[Value, Value], Value]) -> Value:
        """One number for all lanes of a long group."""
        return value.joined(how) if self.long else value


def _every(n: int, first: int, parts: list[Value]) -> Value:
    """The entries first, first + n, first + 2n, ... of the vectors one after the other."""
    width = parts[0].type.count
    if n == 1:
        return parts[0]
    wanted = [first + n * lane for lane in range(width)]
    result = parts[0].shuffle([w if w < width else 0 for w in wanted])
    for j in range(1, n):
        choice = [
            width + w - j * width if j * width <= w < (j + 1) * width else lane
            for lane, w in enumerate(wanted)
        ]
        result = result.shuffle(choice, parts[j])
    return result


def _interleaved(n: int, j: int, rows: list[Value]) -> Value:
    """Vector j of those that hold the rows' first entries, then their second ones, and so on."""
    width = rows[0].type.count
    if n == 1:
        return rows[0]
    wanted = [divmod(j * width + lane, n) for lane in range(width)]  # (lane, row)
    result = rows[0].shuffle([lane if row == 0 else 0 for lane, row in wanted])
    for i in range(1, n):
        choice = [width + lane if row == i else k for k, (lane, row) in enumerate(wanted)]
        result = result.shuffle(choice, rows[i])
    return result
