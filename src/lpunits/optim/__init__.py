"""Optimisers that stand alone: they take any ``nn.Module``, and nothing of this package.

>>> import torch
>>> model = torch.nn.Linear(3, 2)
>>> x, y = torch.randn(50, 3), torch.randint(2, (50,))
>>> optimizer = NaturalConjugateGradient(model)
>>> optimizer.step(x, y) > optimizer.step(x, y)
True
"""

from lpunits.optim.natural import NaturalConjugateGradient
from lpunits.optim.sgd import SGD

__all__ = ["SGD", "NaturalConjugateGradient"]
