"""The hour-long run, see :mod:`fuzz.calls`: the properties once more until the time is used."""

import time

import pytest

from fuzz.calls import SECONDS


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session):
    """After the ordinary pass, round after round of the properties that have not failed."""
    end = time.monotonic() + SECONDS
    result = yield
    properties = [
        item
        for item in getattr(session, "items", [])
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        and "fuzz" in item.path.parts
    ]
    while properties and time.monotonic() < end:
        for item in properties.copy():
            failed = session.testsfailed
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if session.testsfailed > failed or time.monotonic() > end:
                properties.remove(item)
            if session.shouldstop:
                return result
    return result
