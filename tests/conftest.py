import os
import signal

# A shell's background ignores Ctrl-C, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Some virtual machines announce AMX and then trap on it, in oneDNN's bfloat16 products.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from pathlib import Path

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # there is a process for each core: more threads only wait

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
    "hostile",
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


def _is_slow(path: Path) -> bool:
    """Whether the tests of a file start processes, train, or compile for long."""
    return any(path.is_relative_to(Path(__file__).parent / name) for name in SLOW)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what ``make test-fast`` leaves out."""
    return (config.option.markexpr == "not slow" and _is_slow(collection_path)) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow and run it first, so that two processes end at about the same time."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker("slow")
    items.sort(key=lambda item: not _is_slow(item.path))
