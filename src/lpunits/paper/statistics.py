"""Means, spreads and comparisons of several seeds."""

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
