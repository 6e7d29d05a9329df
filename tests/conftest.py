import os
import signal

# A shell's background ignores Ctrl-C, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Some virtual machines announce AMX and then trap on it, in oneDNN's bfloat16 products.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from pathlib import Path

import pytest
import torch

pytest.register_assert_rewrite("accuracy")


@pytest.fixture(autouse=True)
def _seed_and_fill_with_nan():
    """Seed every test, and let torch.empty return NaN, so that an unwritten output shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


SLOW = (
    "fuzz",
    "integrations",
    "optim/test_natural.py",
    "paper/cli",
    "paper/data/test_covertype.py",
    "paper/data/test_fer2013.py",
    "paper/data/test_music.py",
    "paper/data/test_register.py",
    "paper/experiments",
    "paper/fitting",
    "paper/report",
    "paper/search",
    "paper/training",
    "playground",
    "test_benchmarks.py",
    "test_distributed.py",
    "test_docs.py",
    "test_gpu.py",
    "test_ops.py",
    "test_recurrence_graphs.py",
    "test_registration.py",
    "test_sklearn.py",
    "test_sklearn_checks.py",
    "test_sklearn_storage.py",
    "test_start.py",
    "test_transforms.py",
    "test_wheel.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts processes, trains, or compiles for long."""
    here = Path(__file__).parent
    for item in items:
        if any(item.path.is_relative_to(here / name) for name in SLOW):
            item.add_marker("slow")
