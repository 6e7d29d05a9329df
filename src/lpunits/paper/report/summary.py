"""The summary: the paper's numbers beside ours, each with a verdict.

It opens the report. That of the committed records is also in the package, as ``summary.json``, for
people who have no records of their own.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from lpunits.files import write_atomically

Verdict = Literal["reproduced", "better", "not reproduced", "stand-in"]
Agreement = Literal["identical", "within the spread", "same verdict", "differs"]
NUMBER = re.compile(r"([\d.]+)%?(?: ± ([\d.]+))?")
FILE = "summary.json"
CLOSE = 0.05  # relative distance from the paper's number that counts as reproduced


@dataclass(frozen=True)
class Headline:
    """One row of the summary.

    Args:
        what: What was measured, and on which data.
        paper: The paper's number.
        ours: Our number, with its spread and the number of seeds.
        verdict: ``reproduced``, ``better`` or ``not reproduced``, computed from the records; or
            ``stand-in``: it was measured on other data than the paper's, and nothing is compared.
        why: One line: what the verdict rests on.
        command: What repeats the runs; the report fills it in.
    """

    what: str
    paper: str
    ours: str
    verdict: Verdict
    why: str
    command: str = ""


def judge(ours: float, paper: float, *, lower_is_better: bool = True) -> Verdict:
    """The verdict on one number: within 5 % of the paper's it is reproduced.

    >>> judge(2.81, 2.83), judge(0.84, 0.97), judge(1.21, 0.97)
    ('reproduced', 'better', 'not reproduced')
    >>> judge(1.90, 2.04, lower_is_better=False)
    'not reproduced'
    """
    distance = ours / paper - 1
    if abs(distance) <= CLOSE:
        return "reproduced"
    return "better" if lower_is_better and distance < 0 else "not reproduced"


def holds(statement: bool) -> Verdict:
    """The verdict on a statement of the paper."""
    return "reproduced" if statement else "not reproduced"


def agreement(repeated: Headline, committed: Headline) -> Agreement:
    """How a repeated measurement agrees with the committed one.

    ``within the spread``: the means are at most two standard deviations apart (the larger of the
    two). If no standard deviation is shown, the verdicts are compared.

    >>> from dataclasses import replace
    >>> row = Headline("error", "0.97%", "1.21% ± 0.03% (n = 5)", "not reproduced", "")
    >>> agreement(row, row), agreement(replace(row, ours="1.25% ± 0.02% (n = 3)"), row)
    ('identical', 'within the spread')
    >>> agreement(replace(row, ours="1.30% (n = 1)"), row)
    'differs'
    """
    if repeated.verdict != committed.verdict:
        return "differs"
    if repeated.ours == committed.ours:
        return "identical"
    found = [NUMBER.match(row.ours) for row in (repeated, committed)]
    spreads = [float(number[2]) for number in found if number and number[2]]
    if not spreads:
        return "same verdict"
    means = [float(number[1]) for number in found if number]
    near = len(means) == 2 and abs(means[0] - means[1]) <= 2 * max(spreads)
    return "within the spread" if near else "differs"


def write(headlines: Sequence[Headline], folder: Path) -> Path:
    """Write the summary to ``folder``, a row in a line."""
    rows = ",\n".join(json.dumps(asdict(h), ensure_ascii=False) for h in headlines)
    path = folder / FILE
    write_atomically(path, f"[\n{rows}\n]\n".encode())
    return path


def read() -> list[Headline]:
    """The summary of the committed records, from the package."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return [Headline(**row) for row in json.loads(text)]
