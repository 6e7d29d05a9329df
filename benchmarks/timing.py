"""The method of all timings.

The contestants of a case take turns (A B C A B C ...) with the same number of repeats, so that a
slow moment of the machine affects all of them. The result is the best repeat, because noise only
adds time. A repeat is as many calls as fill a few milliseconds, with the garbage collector off.
The results of each contestant are checked before it is timed.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

FORWARD = "forward"
BOTH = "forward + backward"
OURS = "ours"


@dataclass(frozen=True)
class Settings:
    """The extent and the length of a run."""

    seconds: float  # of timed calls per contestant and mode, unless `rounds` repeats take longer
    rounds: int  # repeats at least
    slice: float = 4e-3  # seconds that one repeat should fill
    shrink: int = 1  # batches are divided by this: for a quick look, and for the tests
    compile: bool = True  # whether every contestant competes under torch.compile, too


@dataclass(frozen=True)
class Timing:
    """Seconds per call."""

    best: float
    median: float
    rounds: int
    calls: int  # per round


@dataclass(frozen=True)
class Result:
    """One contestant, timed in one case."""

    question: str
    group: str
    case: str
    contestant: str
    mode: str
    values: int | None  # of the input; None where a time per value would mean nothing
    timing: Timing
    saved_bytes: int | None = None

    @property
    def shown(self) -> float:
        """Nanoseconds per value, or microseconds per call where there are no values to count."""
        return self.timing.best * 1e6 if self.values is None else self.ns_per_value

    @property
    def ns_per_value(self) -> float:
        """Nanoseconds per value of the input."""
        assert self.values is not None
        return self.timing.best * 1e9 / self.values


@dataclass
class Contestant:
    """A function of ``inputs`` to time, with its expected result.

    The backward pass differentiates the inputs (data first) and parameters that require a gradient.
    A contestant without any, such as a copy of the tensor, has no backward pass: the same time in
    both modes. ``expected`` is the result, followed by the gradients if they are to be checked: see
    :func:`truth`.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...] = ()
    parameters: tuple[Tensor, ...] = ()
    upstream: Tensor | None = None
    expected: tuple[Tensor, ...] = ()
    compiled: bool = False
    eager_only: bool = False
    learned: tuple[Tensor, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.learned = tuple(t for t in (*self.inputs, *self.parameters) if t.requires_grad)

    def forward(self) -> Any:
        """What inference costs: no graph is recorded."""
        with torch.no_grad():
            return self.function(*self.inputs)

    def both(self) -> tuple[Any, ...]:
        """The result and all gradients."""
        u = self.function(*self.inputs)
        if not self.learned:
            return (u,)
        return u, *torch.autograd.grad(u, self.learned, self.upstream)

    def under_compile(self) -> "Contestant":
        """The same function, compiled for these shapes without a graph break."""
        function = compile_whole(self.function)
        return replace(self, name=compiled(self.name), function=function, compiled=True)


def compiled(name: str) -> str:
    """The name of a contestant under torch.compile."""
    return f"{name}, compiled"


def compile_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile to one graph, or raise. A new function each time: guards are not shared."""
    return torch.compile(function, fullgraph=True, dynamic=False, isolate_recompiles=True)


@dataclass(frozen=True)
class Case:
    """Contestants on the same data."""

    question: str
    group: str
    name: str
    values: int | None
    contestants: Sequence[Contestant]
    modes: tuple[str, ...] = (FORWARD, BOTH)


def measure(case: Case, settings: Settings) -> list[Result]:
    """Check every contestant, then time all of them in each mode.

    Compiled ones in forward + backward only: each mode costs another compilation.
    """
    contestants = list(case.contestants)
    if settings.compile:
        contestants += [c.under_compile() for c in contestants if c.learned and not c.eager_only]
    contestants = list(checked(case.name, contestants))
    saved = {c.name: saved_bytes(c) for c in contestants if c.learned and not c.compiled}
    results = []
    for mode in case.modes:
        calls = {
            c.name: c.forward if mode == FORWARD else c.both
            for c in contestants
            if mode == BOTH or not c.compiled
        }
        for name, timing in compare(calls, settings).items():
            kept = saved.get(name) if mode == BOTH else None
            place = (case.question, case.group, case.name, name, mode)
            results.append(Result(*place, case.values, timing, kept))
    return results


def compare(calls: Mapping[str, Callable[[], object]], settings: Settings) -> dict[str, Timing]:
    """Time the calls, in turns."""
    inner = {name: _warm_up(call, settings.slice) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    rounds, end = 0, time.perf_counter() + settings.seconds * len(calls)
    while rounds < settings.rounds or time.perf_counter() < end:
        for name, call in calls.items():
            samples[name].append(_seconds(call, inner[name]))
        rounds += 1
    return {
        name: Timing(min(taken), statistics.median(taken), rounds, inner[name])
        for name, taken in samples.items()
    }


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run with this many threads of torch, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.enable_grad()
def truth(
    formula: Callable[..., Tensor], inputs: Sequence[Tensor], upstream: Tensor
) -> tuple[Tensor, ...]:
    """The value of a formula and its gradients by ``inputs``, in double precision."""
    doubles = [t.detach().double().requires_grad_(t.requires_grad) for t in inputs]
    u = formula(*doubles)
    learned = [t for t in doubles if t.requires_grad]
    return u.detach(), *torch.autograd.grad(u, learned, upstream.double())


def check(contestant: Contestant, *, value: float = 1e-5, gradient: float = 1e-4) -> None:
    """Raise AssertionError unless the contestant computes the expected results.

    A value is compared entry by entry, relative to the entry plus the mean size of all of them. A
    gradient is compared as a whole, by the norm of the difference: a norm has a kink where all of
    a group is 0, and a group that comes near it changes single entries by far more than rounding.
    One entry of 320,000 that is wrong by its own size is still 18 times too much.
    """
    for index, (got, want) in enumerate(zip(contestant.both(), contestant.expected, strict=False)):
        got = got.detach().to(want.dtype)
        if index == 0:
            torch.testing.assert_close(
                got,
                want,
                rtol=value,
                atol=value * want.abs().mean().item(),
                msg=lambda text: f"{contestant.name}, value: {text}",
            )
            continue
        assert got.shape == want.shape, f"{contestant.name}, gradient {index}: {got.shape}"
        off = (torch.dist(got, want) / want.norm()).item()
        assert off <= gradient, f"{contestant.name}, gradient {index}: off by {off:.1e}"


def saved_bytes(contestant: Contestant) -> int:
    """What the forward keeps for the backward: each storage once, the parameters not counted."""
    behind_data = (*contestant.inputs[1:], *contestant.parameters)
    parameters = {t.untyped_storage().data_ptr() for t in behind_data}
    sizes = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        u = contestant.function(*contestant.inputs)
    assert u.requires_grad  # the graph has to live until here, or a storage could be used again
    return sum(size for address, size in sizes.items() if address not in parameters)


def checked(case: str, contestants: Iterable[Contestant]) -> Iterator[Contestant]:
    """Those that are right; without the compiled ones that cannot be compiled here."""
    for contestant in contestants:
        try:
            check(contestant)
        except Exception as error:
            if not contestant.compiled or isinstance(error, AssertionError):
                raise
            reason = str(error).strip().partition("\n")[0]
            print(f"{case}: left out {contestant.name}: {type(error).__name__}: {reason}")
        else:
            contestant.expected = ()  # no memory is held through the timing that it does not need
            yield contestant


def _warm_up(call: Callable[[], object], slice_: float) -> int:
    """Warm up, and return the number of calls that fill a repeat."""
    call()
    taken = _seconds(call, 1)
    if taken < slice_:
        taken = min(taken, _seconds(call, 3))
    return max(1, math.ceil(slice_ / taken))


def _seconds(call: Callable[[], object], calls: int) -> float:
    """Seconds per call."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in repeat(None, calls):
            call()
        return (time.perf_counter() - start) / calls
    finally:
        if enabled:
            gc.enable()
