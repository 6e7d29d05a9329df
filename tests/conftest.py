import pytest
import torch


@pytest.fixture(autouse=True)
def _seed_and_fill_with_nan():
    """Seed every test, and let torch.empty return NaN, so that an unwritten output shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
