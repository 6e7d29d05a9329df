"""Optimisers that stand alone: they take any ``nn.Module``, and nothing of this package."""

from lpunits.optim.natural import NaturalConjugateGradient
from lpunits.optim.sgd import SGD

__all__ = ["SGD", "NaturalConjugateGradient"]
