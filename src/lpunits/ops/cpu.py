"""The compiled library (``csrc/``), which registers itself for CPU tensors when it is loaded."""

from pathlib import Path

import torch

from lpunits.ops.schemas import ops


def _load() -> str:
    """Load the compiled library; the reason if that is not possible, or nothing."""
    folder = Path(__file__).parent
    if not (folder / "_cpu.so").exists():
        reason = folder / "_build_error.txt"
        if reason.exists():
            return reason.read_text().strip()
        return "it is not built: install lpunits once more, beside torch and a C++ compiler"
    try:
        torch.ops.load_library(folder / "_cpu.so")
    except OSError as error:  # another torch, another processor, a file that is not whole
        return str(error)
    return ""


_why_not = _load()
compiled = not _why_not  # whether the library serves CPU tensors


def status() -> str:
    """Which implementation serves CPU tensors, and why not a faster one.

    >>> status().startswith(("compiled for", "plain torch"))
    True
    """
    if compiled:
        return f"compiled for {ops.instruction_set()}"
    return f"plain torch, as the compiled library could not be loaded: {_why_not}"
