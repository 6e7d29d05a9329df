"""The required speed and the measured one: ratios of times of the same run, and one time.

All times are forward + backward on all threads. "Compiled" is ``torch.compile(fullgraph=True)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import first_use
import pooling
import recurrent
import segments
import spatial
import training_step
from report import print_table
from timing import BOTH, OURS, Result, compiled


@dataclass(frozen=True)
class Requirement:
    """Ours against the fastest of some rivals, in every case of some groups."""

    against: str
    rivals: tuple[str, ...]  # none: not a ratio, but milliseconds
    groups: tuple[str, ...]
    required: float
    aim: float | None
    faster: bool = False  # "N times faster", or "at most N times the time"
    ours: str = OURS

    def show(self, measured: float | None) -> str:
        """What was measured in the words of the requirement."""
        if measured is None:
            return ""
        if not self.rivals:
            return f"{measured:.0f} ms"
        return f"{measured:.3g}x faster" if self.faster else f"{measured:.2f}x its time"


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
            return "falls short"
        aim = self.requirement.aim
        return "pass, and the aim" if aim is not None and self.reaches(aim) else "pass"

    def reaches(self, limit: float) -> bool:
        """Whether what was measured is as good as this."""
        return self.measured >= limit if self.requirement.faster else self.measured <= limit


def _compiled(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(compiled, names))


MAXOUTS = ("maxout, amax", "maxout, max")
FOUR_SHAPES = (pooling.RECURRENT, pooling.MAIN)
LAST = (pooling.SHORT, pooling.LONG)
UNITS = (training_step.LAYER, training_step.STEP)  # where a layer of maxout can take our place
LAYERS = (  # LpPool is lp_pool over a dimension
    *UNITS,
    *FOUR_SHAPES,
    *LAST,
    *spatial.WINDOWS,
    *spatial.OTHER_WINDOWS,
    *spatial.GLOBAL,
)
REQUIREMENTS = (
    Requirement("torch's faster maxout", MAXOUTS, (pooling.MAIN,), 1.2, 2, faster=True),
    Requirement("amax maxout", MAXOUTS[:1], (pooling.RECURRENT, pooling.FEW), 1.2, 1),
    Requirement("ReLU, centre subtracted", ("ReLU",), FOUR_SHAPES, 2, 1.2),
    Requirement("naive formula", ("naive",), FOUR_SHAPES, 5, 12, faster=True),
    Requirement("amax", MAXOUTS[:1], LAST, 1.6, 1),
    Requirement("GeM formula", spatial.GEM, spatial.GLOBAL, 6, 15, faster=True),
    Requirement(
        "GeM formula, both compiled",
        _compiled(spatial.GEM),
        spatial.GLOBAL,
        4,
        15,
        faster=True,
        ours=compiled(OURS),
    ),
    Requirement(
        "GeM formula, ours in plain torch", spatial.GEM, spatial.GLOBAL, 2, None, ours=spatial.PLAIN
    ),
    Requirement("nn.LPPool2d", ("nn.LPPool2d",), spatial.WINDOWS, 1, 1),
    Requirement("nn.MaxPool2d", ("nn.MaxPool2d",), spatial.WINDOWS, 1.5, 1),
    Requirement(
        "nn.LPPool2d, both compiled",
        _compiled(["nn.LPPool2d"]),
        spatial.WINDOWS,
        1.2,
        1,
        ours=compiled(OURS),
    ),
    Requirement("ours eager, ours compiled", (OURS,), LAYERS, 1.2, 1, ours=compiled(OURS)),
    Requirement("maxout, both compiled", _compiled(MAXOUTS), UNITS, 1.1, 1, ours=compiled(OURS)),
    Requirement("torch's maxout, like for like", MAXOUTS, (training_step.STEP,), 1.05, 0.85),
    Requirement("PyG's mean", (segments.MEAN,), (segments.SEGMENTS,), 2, None),
    Requirement(
        "PyG's power mean", (segments.POWER_MEAN,), (segments.SEGMENTS,), 1, None, faster=True
    ),
    Requirement("no mask", (segments.NO_MASK,), (segments.MASKS,), 1.3, None),
    Requirement("nn.GRU", ("nn.GRU",), (recurrent.SMALL,), 0.6, 0.45),
    Requirement("nn.GRU", ("nn.GRU",), (recurrent.LARGE,), 0.85, 0.7),
    Requirement("first use, library built", (), (first_use.CALL,), 50, 20),
)


def judge(results: Sequence[Result]) -> list[Verdict]:
    """The worst case of every group that each requirement speaks of."""
    times: dict[tuple[str, str], dict[str, float]] = {}
    for r in results:
        if r.mode == BOTH:
            times.setdefault((r.group, r.case), {})[r.contestant] = r.timing.best
    verdicts = []
    for requirement in REQUIREMENTS:
        worst = min if requirement.faster else max
        for group in requirement.groups:
            found = [
                (measured, case)
                for (its_group, case), contestants in times.items()
                if its_group == group
                and (measured := _measured(requirement, contestants)) is not None
            ]
            if found:
                measured, case = worst(found)
                verdicts.append(Verdict(requirement, group, case, measured))
    return verdicts


def _measured(requirement: Requirement, times: dict[str, float]) -> float | None:
    """Our ratio to the fastest rival, or our milliseconds; None if either did not run."""
    ours = times.get(requirement.ours)
    theirs = [times[name] for name in requirement.rivals if name in times]
    if ours is None or (requirement.rivals and not theirs):
        return None
    ratio = ours / min(theirs, default=1e-3)
    return 1 / ratio if requirement.faster else ratio


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """What was required, line by line."""
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
    head = ["against", "in its worst case", "required", "aim", "measured", ""]
    print_table(f"What was required: {BOTH}, all threads", head, rows, left=2)
    judged = {(v.requirement, v.group) for v in verdicts}
    for requirement in REQUIREMENTS:
        if missing := [g for g in requirement.groups if (requirement, g) not in judged]:
            print(f"not measured in this run: {requirement.against} ({'; '.join(missing)})")
