"""Optimisers: momentum descent with a bound on every filter's norm."""

from lpunits.optim.sgd import SGD

__all__ = ["SGD"]
