"""The arrow of imports, in the core and in the reproduction of the paper.

A file may import its own room and the rooms of the lines above its own, nothing else. Every import
counts: at the top of a file, inside a function, under ``TYPE_CHECKING``, by ``import_module``.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

ARROW = """
reference ops arguments files
segments orders start optim sealed
functional
windows layers dropout
units
pooling mlp recurrence
rnn
dotrnn
diagnosis geometry sklearn integrations
__init__
paper.register paper.statistics
paper.playground
paper.data
paper.training
paper
paper.search
paper.report
paper.experiments paper.fitting
paper.cli
lpunits_cli
__main__
"""
LEVELS = {room: level for level, line in enumerate(ARROW.split("\n")) for room in line.split()}

# These look up modules by names that users register: no import of ours is hidden in them.
REGISTERS = {"lpunits.paper.register"}
LOADS = re.compile("import_|resolve_name")


def module_name(path: Path) -> str:
    """`lpunits.paper.data` for src/lpunits/paper/data/__init__.py."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def room(module: str) -> str:
    """The room of a module, as ARROW names it."""
    package, *parts = module.split(".")
    if package != "lpunits":
        return package
    if not parts:
        return "__init__"
    if parts[0] == "paper":
        return ".".join(parts[:2])
    return parts[0]


def imports(source: str, module: str) -> set[str]:
    """The modules of lpunits that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(node.module) for name in names}
        elif isinstance(node, ast.Call) and LOADS.search(ast.unparse(node.func)):
            found |= {called(node.args[0], module)} - ({""} if module in REGISTERS else set())
    assert "" not in found, f"{module} imports a module whose name is not in the source"
    return {name for name in found if name.split(".")[0] in ("lpunits", "lpunits_cli")}


def called(argument: ast.expr, module: str) -> str:
    """The module of `import_module(argument)`, as far as its name begins with constants."""
    if isinstance(argument, ast.JoinedStr):
        pieces = [called(part, module) for part in argument.values]
        return "".join(pieces[: pieces.index("")] if "" in pieces else pieces).strip(".")
    if isinstance(argument, ast.Constant):
        return str(argument.value).partition(":")[0]
    if isinstance(argument, ast.FormattedValue):
        argument = argument.value
    if isinstance(argument, ast.Name) and argument.id == "__name__":
        return module
    return ""


def forbidden(source: str, module: str) -> set[str]:
    """The imports of a file that are against the arrow."""
    own = room(module)
    rooms = {name: room(name) for name in imports(source, module)}
    return {name for name, other in rooms.items() if other != own and LEVELS[other] >= LEVELS[own]}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_the_arrow_of_imports(module):
    assert room(module) in LEVELS
    assert not forbidden(MODULES[module].read_text(), module)


@pytest.mark.parametrize(
    "source",
    [
        "from lpunits.paper.report import page",
        "import lpunits.paper.report.page",
        "from lpunits.paper import report",
        "def later():\n    from lpunits.paper.report.page import TITLE",
        "if TYPE_CHECKING:\n    from lpunits.paper.report import page",
        "importlib.import_module('lpunits.paper.report.page')",
        "import_module(f'lpunits.paper.report.{name}')",
        "pkgutil.resolve_name('lpunits.paper.report.page:TITLE')",
    ],
)
def test_no_import_escapes(source):
    assert forbidden(source, "lpunits.paper.search.run")
    assert not forbidden(source, "lpunits.paper.experiments.fig1")


def test_a_core_module_does_not_import_the_front():
    assert forbidden("from lpunits import LpLinear", "lpunits.geometry") == {"lpunits"}
    assert not forbidden("from lpunits import layers", "lpunits.geometry")


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, lpunits; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"triton", "scipy", "sklearn", "matplotlib", "lpunits.paper", "lpunits.paper.cli"}
    assert not heavy & set(modules)
