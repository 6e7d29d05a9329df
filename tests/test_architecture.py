"""Who may import whom: ops -> functional, orders -> layers -> mlp -> rnn; paper -> cli."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "lpunits"

ALLOWED = {
    "reference": set(),
    "ops": set(),
    "functional": {"ops"},
    "orders": set(),
    "start": set(),
    "layers": {"functional", "orders", "start"},
    "pooling": {"functional", "layers", "orders"},
    "dropout": {"functional", "ops"},
    "mlp": {"dropout", "layers", "orders"},
    "recurrence": {"functional", "ops"},
    "rnn": {"dropout", "functional", "layers", "mlp", "orders", "recurrence", "start"},
    "optim": {"ops"},
    "geometry": {"functional", "layers", "pooling"},
    "diagnosis": {"layers", "orders", "rnn"},
}
ALLOWED["__init__"] = set(ALLOWED)


def imported_parts(path: Path) -> set[str]:
    """The top-level parts of lpunits that a file imports."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lpunits"):
            parts |= (
                {node.module.split(".")[1]}
                if "." in node.module
                else {alias.name for alias in node.names}
            )
        elif isinstance(node, ast.Import):
            parts |= {a.name.split(".")[1] for a in node.names if a.name.startswith("lpunits.")}
    return parts


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_the_arrow_of_imports(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in ALLOWED:
        assert imported_parts(path) - {part} <= ALLOWED[part]
    else:
        assert part == "paper" or part.startswith(("cli", "__main__"))
        assert "cli" not in imported_parts(path) or part.startswith(("cli", "__main__"))


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, lpunits; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"triton", "scipy", "sklearn", "matplotlib", "lpunits.paper", "lpunits.paper.cli"}
    assert not heavy & set(modules)
