"""How results of several random seeds are summarised and compared."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import ttest_rel


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Mean and sample standard deviation, with the number of values.

    >>> spread([1.0, 2.0, 3.0]), spread([0.0125], ".2%")
    ('2.00 ± 1.00 (n = 3)', '1.25% (n = 1)')
    """
    mean = format(statistics.fmean(values), form)
    if len(values) == 1:
        return f"{mean} (n = 1)"
    return f"{mean} ± {format(statistics.stdev(values), form)} (n = {len(values)})"


def versus(how: str, others: str) -> str:
    """What :func:`compare` found, in words.

    >>> versus("lower", "ReLU"), versus("not significantly different", "maxout")
    ('lower than ReLU', 'not significantly different from maxout')
    """
    return f"{how} {'from' if how.endswith('different') else 'than'} {others}"


def compare(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Whether our mean is ``lower``, ``higher`` or ``not significantly different``.

    Means differ significantly if they are more than two standard errors of their difference apart.
    A single run is assumed to vary as much as the other side; two single runs are compared as they
    are.

    >>> compare([0.10, 0.11, 0.12], [0.20, 0.21]), compare([0.10, 0.11, 0.12], [0.12])
    ('lower', 'not significantly different')
    """
    difference = statistics.fmean(ours) - statistics.fmean(theirs)
    variances = [statistics.variance(side) for side in (ours, theirs) if len(side) > 1] or [0.0]
    squared_error = variances[0] / len(ours) + variances[-1] / len(theirs)
    if abs(difference) <= 2 * math.sqrt(squared_error):
        return "not significantly different"
    return "lower" if difference < 0 else "higher"


class Difference(NamedTuple):
    """A mean difference, its 95 % confidence interval, and the p-value of a paired t-test."""

    mean: float
    low: float
    high: float
    p: float

    @property
    def how(self) -> str:
        """``lower``, ``higher`` or ``not significantly different``, at the level of 5 %."""
        if self.low <= 0 <= self.high:
            return "not significantly different"
        return "lower" if self.high < 0 else "higher"


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """Ours less theirs, seed by seed, over the seeds that both have; None for fewer than two.

    >>> found = paired([0.10, 0.12, 0.11], [0.20, 0.21, 0.22])
    >>> f"{found.mean:.2f} from {found.low:.3f} to {found.high:.3f}, p = {found.p:.3f}", found.how
    ('-0.10 from -0.125 to -0.075, p = 0.003', 'lower')
    """
    pairs = list(zip(ours, theirs, strict=False))
    if len(pairs) < 2:
        return None
    differences = [a - b for a, b in pairs]
    mean = statistics.fmean(differences)
    if len(set(differences)) == 1:
        return Difference(mean, mean, mean, float(mean == 0))
    found = ttest_rel([a for a, _ in pairs], [b for _, b in pairs])
    interval = found.confidence_interval()
    return Difference(mean, float(interval.low), float(interval.high), float(found.pvalue))
