"""How everything here is timed, said once.

The contestants of a case take turns (A B C A B C ...), so that a slow moment of the machine meets
all of them, and each is judged by the best of its repeats: noise only ever adds time. A repeat is
as many calls as fill a few milliseconds, with the garbage collector off. Before any of that, each
contestant's numbers are checked.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

FORWARD = "forward"
BOTH = "forward + backward"
OURS = "ours"


@dataclass(frozen=True)
class Effort:
    """How long each contestant is looked at."""

    seconds: float  # of timed calls per contestant, unless `rounds` repeats take longer
    rounds: int  # repeats at least
    slice: float = 4e-3  # seconds that one repeat should fill


@dataclass(frozen=True)
class Settings:
    """What a run covers."""

    threads: tuple[int, ...]  # the largest is what the requirements are judged at
    effort: Effort
    shrink: int = 1  # batches are divided by this: for a quick look, and for the tests
    compile: bool = True


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
    threads: int
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
    """A function to time, with what its result has to be.

    ``inputs`` is what the backward differentiates, the data first and the parameters behind it; a
    contestant without inputs (a copy of the tensor) has no backward and counts the same in both
    modes. ``expected`` is the result, and then, for those that must agree on them, the gradients.
    """

    name: str
    function: Callable[[], Tensor]
    inputs: tuple[Tensor, ...] = ()
    upstream: Tensor | None = None
    expected: tuple[Tensor, ...] = ()
    may_fail: bool = False  # left out with a message, if it does: torch.compile needs a compiler

    def forward(self) -> Tensor:
        """What inference costs: no graph is recorded."""
        with torch.no_grad():
            return self.function()

    def both(self) -> tuple[Tensor, ...]:
        """The result and all gradients."""
        u = self.function()
        if not self.inputs:
            return (u,)
        return u, *torch.autograd.grad(u, self.inputs, self.upstream)

    def run(self, mode: str) -> Callable[[], object]:
        """The call that is timed."""
        return self.forward if mode == FORWARD else self.both


@dataclass(frozen=True)
class Case:
    """The contestants that meet on the same data."""

    question: str
    group: str
    name: str
    values: int | None
    contestants: Sequence[Contestant]
    modes: tuple[str, ...] = (FORWARD, BOTH)


def measure(case: Case, settings: Settings) -> list[Result]:
    """Check every contestant, then time all of them at each number of threads in each mode."""
    with threads(max(settings.threads)):
        contestants = list(_usable(case))
        saved = {c.name: saved_bytes(c) for c in contestants if c.inputs}
    results = []
    for count in settings.threads:
        with threads(count):
            for mode in case.modes:
                calls = {c.name: c.run(mode) for c in contestants}
                for name, timing in compare(calls, settings.effort).items():
                    kept = saved.get(name) if mode == BOTH else None
                    place = (case.question, case.group, case.name, name, mode, count)
                    results.append(Result(*place, case.values, timing, kept))
    return results


def compare(calls: Mapping[str, Callable[[], object]], effort: Effort) -> dict[str, Timing]:
    """Time the calls in turns. One that has had its seconds, and its rounds, sits out."""
    inner = {name: _warm_up(call, effort.slice) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    playing = list(calls)
    while playing:
        for name in playing:
            samples[name].append(_seconds(calls[name], inner[name]))
        playing = [
            name
            for name, taken in samples.items()
            if len(taken) < effort.rounds or sum(taken) * inner[name] < effort.seconds
        ]
    return {
        name: Timing(min(taken), statistics.median(taken), len(taken), inner[name])
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


def check(contestant: Contestant, *, value: float = 1e-5, gradient: float = 1e-4) -> None:
    """Raise AssertionError unless the contestant computes what is expected of it.

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
    parameters = {t.untyped_storage().data_ptr() for t in contestant.inputs[1:]}
    sizes = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        u = contestant.function()
    assert u.requires_grad  # the graph has to live until here, or a storage could be used again
    return sum(size for address, size in sizes.items() if address not in parameters)


def _usable(case: Case) -> Iterator[Contestant]:
    """The contestants, checked; without those that cannot run here."""
    for contestant in case.contestants:
        try:
            check(contestant)
            contestant.forward()
        except Exception as error:
            if not contestant.may_fail or isinstance(error, AssertionError):
                raise
            reason = str(error).strip().partition("\n")[0]
            print(f"{case.name}: left out {contestant.name}: {type(error).__name__}: {reason}")
        else:
            contestant.expected = ()  # no memory is held through the timing that it does not need
            yield contestant


def _warm_up(call: Callable[[], object], slice_: float) -> int:
    """Call until nothing is done for the first time, and say how many calls fill a repeat."""
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
