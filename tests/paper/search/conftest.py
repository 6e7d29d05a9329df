"""A clock of claims that the tests set, so that a busy computer does not matter."""

import time
from types import SimpleNamespace

import pytest

from lpunits.paper.search import claims


@pytest.fixture
def clock(monkeypatch):
    """Its ``now`` is what claims take for the time; it passes only where a test says so."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=time.sleep)
    monkeypatch.setattr(claims, "time", clock)
    return clock
