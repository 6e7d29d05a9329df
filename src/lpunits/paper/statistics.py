"""Means, spreads and comparisons of several seeds."""

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


def compared(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Whether one mean is ``lower``, ``higher`` or, within the spread, ``not told apart``.

    A single run is taken to spread as the other side does; two single runs are compared as such.
    """
    difference = statistics.fmean(ours) - statistics.fmean(theirs)
    spreads = [statistics.variance(side) for side in (ours, theirs) if len(side) > 1] or [0.0]
    error = spreads[0] / len(ours) + spreads[-1] / len(theirs)
    if abs(difference) <= 2 * math.sqrt(error):
        return "not told apart"
    return "lower" if difference < 0 else "higher"
