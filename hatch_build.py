"""Compile the CPU operator (csrc/) when the package is built, for the torch that is installed.

An isolated build does not see the environment of the installation, and installing torch a second
time would take gigabytes. So this asks the interpreter, outside of the isolation, where its torch
is. Without torch or a compiler the package is built without the library: it then runs in plain
torch, and ``lpunits.ops.status()`` says why.

``python hatch_build.py FOLDER [FLAGS ...]`` compiles into a folder, with additional flags.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # called as a script
    BuildHookInterface = object

ROOT = Path(__file__).parent
LIBRARY = "_cpu.so"
ERROR = "_build_error.txt"  # why there is none
FLAGS = [
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wall",
    "-Wextra",
]
TORCH_FLAGS = ["-DTORCH_TARGET_VERSION=0x020a000000000000"]  # one binary for torch from 2.10 on
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"]


def find_torch() -> Path:
    """The folder of the interpreter's torch, even from inside an isolated build."""
    code = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    found = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, env=environment
    ).stdout.strip()
    if not found:
        raise RuntimeError("torch is not installed: install it first, then lpunits")
    return Path(found).parent


def compile_library(folder: Path, flags: list[str]) -> None:
    """Compile ``csrc`` into ``folder``. A rename puts the complete library there in one step."""
    compiler = shlex.split(
        os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or ""
    )
    if not compiler:
        raise RuntimeError("there is no C++ compiler")
    torch = find_torch()
    sets = {"baseline": []}
    if platform.machine() in ("x86_64", "AMD64"):
        sets |= {"avx2": AVX2, "avx512": AVX512}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as made:
        jobs = [
            ("lp_pool.cpp", f"{made}/{name}.o", [f"-DINSTRUCTIONS={name}", *extra])
            for name, extra in sets.items()
        ]
        headers = ["-isystem", str(torch / "include")]
        jobs.append(("library.cpp", f"{made}/library.o", [*TORCH_FLAGS, *headers]))

        def build(job: tuple[str, str, list[str]]) -> str:
            source, target, extra = job
            _call(
                [*compiler, *FLAGS, *extra, *flags, "-c", str(ROOT / "csrc" / source), "-o", target]
            )
            return target

        with ThreadPoolExecutor() as pool:
            objects = list(pool.map(build, jobs))
        libraries = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-ltorch", "-lc10"]
        _call([*compiler, "-shared", *flags, *objects, *libraries, "-o", f"{made}/{LIBRARY}"])
        os.replace(f"{made}/{LIBRARY}", folder / LIBRARY)


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr[-4000:]}")


class CustomBuildHook(BuildHookInterface):
    """Hatchling calls this for wheels and editable installs."""

    def initialize(self, version: str, build_data: dict) -> None:
        """Compile, and tag the wheel: this platform, every Python.

        A wheel is compiled elsewhere: the library of an editable installation stays as it is.
        """
        self.elsewhere = tempfile.TemporaryDirectory()
        editable = version == "editable"
        folder = ROOT / "src" / "lpunits" / "ops" if editable else Path(self.elsewhere.name)
        (folder / ERROR).unlink(missing_ok=True)
        try:
            compile_library(folder, [])
            build_data["pure_python"] = False
            system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{system}"  # it does not use Python's API at all
            made = LIBRARY
        except (RuntimeError, OSError) as error:
            (folder / LIBRARY).unlink(missing_ok=True)
            (folder / ERROR).write_text(f"{error}\n")
            self.app.display_warning(f"lpunits is built without its CPU library: {error}")
            made = ERROR
        if not editable:
            build_data["force_include"][str(folder / made)] = f"lpunits/ops/{made}"

    def finalize(self, version: str, build_data: dict, artifact_path: str) -> None:
        """Remove what was compiled for a wheel."""
        self.elsewhere.cleanup()


if __name__ == "__main__":
    compile_library(Path(sys.argv[1]), sys.argv[2:])
