"""How results of several random seeds are summarised and compared."""

import math
import statistics
from collections.abc import Sequence


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
