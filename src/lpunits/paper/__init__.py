"""The reproduction of the paper: data, training, experiments, records, report.

Nothing outside this package imports it, and it needs the extra ``lpunits[paper]``.
"""
