"""The package as people install it: a wheel with the library in it, or none without a compiler."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NO_TOOLS = {"PATH": "", "CXX": ""}  # no compiler can be found

pytestmark = pytest.mark.skipif(
    not (shutil.which("c++") or shutil.which("g++")), reason="needs a C++ compiler"
)


def pip(python: Path, *arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    if "hatchling" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("the build needs hatchling, which cannot be downloaded here")
    assert done.returncode == 0, done.stderr


def status(python: Path) -> str:
    """What the package says of its operator, after a call of it in the other environment."""
    code = (
        "import torch, lpunits\n"
        "z = torch.randn(4, 3, 5, requires_grad=True)\n"
        "lpunits.LpPool(5, dim=1)(z).sum().backward()\n"
        "assert 'site-packages' in lpunits.__file__, lpunits.__file__\n"
        "print(lpunits.ops.status())\n"
    )
    done = subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, env=os.environ | NO_TOOLS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def clean(tmp_path) -> Path:
    """The Python of a new environment, which has the torch of this one and nothing built."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text(sysconfig.get_path("purelib"))
    return tmp_path / "venv" / "bin" / "python"


@pytest.fixture
def source(tmp_path) -> Path:
    """The project without what was built in it."""
    kept = ("csrc", "src", "playground", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
    (tmp_path / "source").mkdir()
    for name in kept:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / "source" / name)  # type: ignore[operator]
    for built in ("_cpu.so", "_build_error.txt"):
        (tmp_path / "source" / "src" / "lpunits" / "ops" / built).unlink(missing_ok=True)
    return tmp_path / "source"


def test_a_wheel_works_where_there_is_no_compiler(clean, source, tmp_path):
    pip(clean, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(source))
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "lpunits/ops/_cpu.so" in names
    # What an editable installation has compiled there would be replaced.
    assert not list((source / "src" / "lpunits" / "ops").glob("*.so"))
    assert {"lpunits/playground/index.html", "lpunits/playground/js/main.js"} <= set(names)
    networks = (ROOT / "src/lpunits/paper/pretrained").glob("*.safetensors")
    assert {f"lpunits/paper/pretrained/{path.name}" for path in networks} <= set(names)
    pip(clean, "install", "--no-deps", str(wheel), **NO_TOOLS)
    assert status(clean).startswith("compiled for ")
    code = "from lpunits.paper.playground import folder; print(folder())"
    where = subprocess.run([clean, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert where.stdout.strip().endswith("site-packages/lpunits/playground")


def test_without_a_compiler_it_is_installed_and_plain_torch_serves(clean, source):
    built = source / "src" / "lpunits" / "ops" / "_cpu.so"
    built.write_bytes(b"of an editable installation")
    pip(clean, "install", "--no-deps", str(source), **NO_TOOLS)
    assert built.exists()
    assert status(clean).startswith("plain torch, ")
    assert status(clean).endswith("there is no C++ compiler")
