"""What the unit has to reach, and what it reached: ratios of times of the same run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pooling
import recurrent
import spatial
import training_step
from report import print_table
from timing import BOTH, OURS, Result

# Values: 16 MB, more than the caches that belong to a core. A large cache that cores share can hold
# them all the same; the longest of the growing batches is beyond those, too.
BEYOND_CACHE = 4_000_000


@dataclass(frozen=True)
class Requirement:
    """Forward + backward, all threads, against the fastest of some rivals."""

    against: str
    rivals: tuple[str, ...]
    groups: tuple[str, ...]  # how the names of the groups begin
    faster: bool  # "N times faster", or "at most N times the time"
    required: float
    aim: float | None = None
    at_least: int = 0  # values of the input

    def show(self, ratio: float | None) -> str:
        """A ratio in the words of the requirement."""
        if ratio is None:
            return ""
        return f"{ratio:.3g}x faster" if self.faster else f"{ratio:.2f}x its time"


@dataclass(frozen=True)
class Verdict:
    """The worst case of a group."""

    requirement: Requirement
    group: str
    case: str
    measured: float

    @property
    def met(self) -> str:
        """Whether the requirement is met, and whether the aim is, too."""
        if not self.reaches(self.requirement.required):
            return "NO"
        aim = self.requirement.aim
        return "yes, and the aim" if aim is not None and self.reaches(aim) else "yes"

    def reaches(self, ratio: float) -> bool:
        """Whether what was measured is as good as this."""
        return self.measured >= ratio if self.requirement.faster else self.measured <= ratio


_POOLING = (pooling.MAIN, pooling.SHORT, pooling.LONG)
_STEP = (training_step.STEP,)
_MAXOUT = ("torch maxout, amax", "torch maxout, max")
REQUIREMENTS = (
    Requirement("naive formula", ("naive",), (*_POOLING, *spatial.GROUPS), True, 10, 15),
    Requirement("torch maxout", ("maxout, amax", "maxout, max"), _POOLING, True, 2, 3),
    Requirement("ReLU", ("ReLU",), _POOLING, False, 1.2, 1.0),
    Requirement(
        "copy, beyond cache", ("copy",), (*_POOLING, pooling.SWEEP), False, 5, 3, BEYOND_CACHE
    ),
    Requirement("torch maxout", _MAXOUT, _STEP, False, 0.9),
    Requirement("matrix products", (training_step.PRODUCTS,), _STEP, False, 1.6, 1.3),
    Requirement("nn.GRU", ("nn.GRU",), (recurrent.SMALL,), False, 0.6, 0.5),
    Requirement("nn.GRU", ("nn.GRU",), (recurrent.LARGE,), False, 0.85, 0.5),
    Requirement("nn.LSTM", ("nn.LSTM",), (recurrent.SMALL, recurrent.LARGE), False, 1.0),
    Requirement(
        "plain loop", ("loop, naive formula",), (recurrent.SMALL, recurrent.LARGE), True, 4
    ),
    Requirement("GeM formula", ("GeM", "GeM, per channel"), (spatial.GLOBAL,), True, 8, 15),
)


def judge(results: Sequence[Result]) -> list[Verdict]:
    """The worst case of every group that each requirement speaks of."""
    most = max(r.threads for r in results)
    judged = [r for r in results if r.mode == BOTH and r.threads == most]
    verdicts = []
    for requirement in REQUIREMENTS:
        ratios: dict[str, list[tuple[float, str]]] = {}
        for group, case, ratio in _ratios(requirement, judged):
            ratios.setdefault(group, []).append((ratio, case))
        worst = min if requirement.faster else max
        for group, found in ratios.items():
            ratio, case = worst(found)
            verdicts.append(Verdict(requirement, group, case, ratio))
    return verdicts


def _ratios(
    requirement: Requirement, results: Sequence[Result]
) -> Iterator[tuple[str, str, float]]:
    """The groups and cases in which a rival ran, with our ratio to the fastest of them."""
    for group, case in dict.fromkeys((r.group, r.case) for r in results):
        if not group.startswith(requirement.groups):
            continue
        found = [r for r in results if (r.group, r.case) == (group, case)]
        theirs = [r.timing.best for r in found if r.contestant in requirement.rivals]
        ours = [r for r in found if r.contestant == OURS]
        if not theirs or (ours[0].values or 0) < requirement.at_least:
            continue
        ratio = min(theirs) / ours[0].timing.best
        yield group, case, ratio if requirement.faster else 1 / ratio


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """What it must reach, line by line."""
    rows = [
        [
            v.requirement.against,
            f"{v.group}, {v.case}",
            v.requirement.show(v.requirement.required),
            v.requirement.show(v.requirement.aim),
            v.requirement.show(v.measured),
            v.met,
        ]
        for v in verdicts
    ]
    head = ["against", "in its worst case", "required", "aim", "measured", "met"]
    print_table(f"What it must reach: {BOTH}, all threads", head, rows, left=2)
    judged = {v.requirement for v in verdicts}
    missing = [f"{r.against} ({r.groups[0]})" for r in REQUIREMENTS if r not in judged]
    if missing:
        print(f"not measured in this run: {', '.join(missing)}")
