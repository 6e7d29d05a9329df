import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PLAYGROUND = Path(__file__).parents[2] / "playground"
NODE = shutil.which("node")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return float(value) if value in ("Infinity", "-Infinity", "NaN") else value


@pytest.fixture(scope="session")
def javascript():
    """Run a script with the modules of the page under node; ``given`` is what it is called with."""
    if NODE is None:
        pytest.skip("there is no node")

    def run(script: str, **given: Any) -> Any:
        done = subprocess.run(
            [NODE, str(Path(__file__).with_name("harness.js"))],
            input=json.dumps({"folder": str(PLAYGROUND), "script": script, "given": _plain(given)}),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return _numbers(json.loads(done.stdout))

    return run
