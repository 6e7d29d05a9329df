"""Forward and backward of the normalised Lp norm, one file per target, the same two signatures.

``forward(z, p, center, dim)`` returns the pooled values, and
``backward(grad, z, p, center, dim, needs)`` the gradients in z, p and center; ``needs`` says which
of the three are wanted, the others are None. Here ``p`` is a tensor that broadcasts against z, with
size 1 along ``dim``. Both take ``out``, a tensor for the values or for the gradient in z; it and z
have to be contiguous. ``supports(z)`` says whether the kernel serves a tensor.
"""

import importlib
import logging
import os
from functools import cache
from types import ModuleType

from torch import Tensor, nn

from lpunits.kernels import plain

FUSED = {"cpu": "lpunits.kernels.cpu", "cuda": "lpunits.kernels.gpu"}


def kernel_for(z: Tensor) -> ModuleType:
    """The fastest kernel that serves z: a fused one, or plain torch."""
    if type(z) not in (Tensor, nn.Parameter):  # a fake or wrapped tensor has no memory to work on
        return plain
    kernel = _fused(z.device.type)
    return kernel if kernel is not None and kernel.supports(z) else plain


@cache
def _fused(device: str) -> ModuleType | None:
    """The fused kernel for a kind of device, imported when it is first needed."""
    if device not in FUSED:
        return None
    try:
        return importlib.import_module(FUSED[device])
    except (ImportError, OSError) as error:  # also where LLVM does not load
        logging.getLogger("lpunits").info("plain torch serves %s tensors: %s", device, error)
        return None


def _forget_threads() -> None:
    """GNU OpenMP, which the CPU kernel shares with torch, does not survive a fork."""
    FUSED.pop("cpu", None)
    _fused.cache_clear()


def trust_fork() -> None:
    """Serve a forked process after all, if nothing had been computed in the one it is a fork of."""
    FUSED["cpu"] = "lpunits.kernels.cpu"
    _fused.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
