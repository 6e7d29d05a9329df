import os

# Some virtual machines announce AMX and then trap on it, in oneDNN's bfloat16 products.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch

pytest.register_assert_rewrite("cases")


@pytest.fixture(autouse=True)
def _seed_and_fill_with_nan():
    """Seed every test, and let torch.empty return NaN, so that an unwritten output shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
