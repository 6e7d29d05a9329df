"""The estimators for tables: how their defaults were chosen, what they reach, how fast they are.

    python benchmarks/estimators.py --search    # on validation rows; an hour of one core
    python benchmarks/estimators.py --compare   # the defaults against scikit-learn, on test rows
    python benchmarks/estimators.py --speed     # an epoch on Covertype, and memory
    python benchmarks/estimators.py --table     # what results/estimators.json holds, as Markdown

A trial goes to ``results/estimators.json`` at once, so that an interrupted study resumes. The
search never sees a test row, nor a table that is held out.
"""

import argparse
import json
import math
import multiprocessing
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import geometric_mean
from typing import Any
from unittest.mock import patch

import numpy as np
import sklearn
import skorch
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from estimators_tables import ALL, CLASSES, NUMBERS, covertype, has_classes, parts
from lpunits import MLP
from lpunits.files import write_atomically
from lpunits.sklearn import LpClassifier, LpRegressor, base, tables

RECORDS = Path(__file__).parents[1] / "results" / "estimators.json"
Run = tuple[str, str, str, int]  # the study, the table, the name of a variant, the seed

# What a variant changes: parameters of the estimator, or (in capitals) what the package has inside.
START: dict[str, Any] = {"BOUND": 3.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "start": {},
    "bound 5": {"BOUND": 5.0},
    "bound 10": {"BOUND": 10.0},
    "decay from 200 rows": {"DECAYED": 200},
    "decay 0.1": {"weight_decay": 0.1},
    "decay 0.3": {"weight_decay": 0.3},
    "decay 3": {"weight_decay": 3.0},
    "standard": {"SCALING": "standard", "BOUND": math.inf},
    "asinh": {"BEND": "asinh"},
    "rate 0.001": {"learning_rate_init": 1e-3},
    "rate 0.004": {"learning_rate_init": 4e-3},
    "dropout 0.1": {"dropout": 0.1},
    "64 x 2": {"hidden_layer_sizes": (64, 64)},
    "256 x 2": {"hidden_layer_sizes": (256, 256)},
    "128 x 3": {"hidden_layer_sizes": (128, 128, 128)},
    "batch 32": {"batch_size": 32},
    "batch 256": {"batch_size": 256},
    "50 epochs": {"max_iter": 50},
    "200 epochs": {"max_iter": 200},
    "all rows": {"early_stopping": False},
    "order 2": {"order": 2.0},
    "rate of orders 1": {"order_scale": 1.0},
    "cosine": {"learning_rate": "cosine"},
    "3 filters": {"filters": 3},
}


def standard(X: Any, rows: Any, weights: Any, dtype: torch.dtype) -> tables.Standardize:
    """Scaling by means and standard deviations alone."""
    return tables.Standardize(*tables.moments(X, rows, weights), dtype, tables.BOUND)


def bent_by_asinh(self: tables.Standardize, x: torch.Tensor) -> torch.Tensor:
    """Values far out grow by their logarithm, where the package bounds them."""
    z = (x - self.mean) / self.scale
    return (z if self.bound == math.inf else torch.asinh(z / 3) * 3).to(self.dtype)


def patches(changes: dict[str, Any]) -> list[Any]:
    """What to patch for the names in capitals."""
    where = {"BOUND": tables, "DECAYED": base}
    found = [patch.object(where[name], name, changes[name]) for name in where if name in changes]
    if "SCALING" in changes:
        found.append(patch.object(base, "scaling", standard))
    if "BEND" in changes:
        found.append(patch.object(tables.Standardize, "forward", bent_by_asinh))
    return found


def ours(name: str, changes: dict[str, Any], seed: int) -> Any:
    kind = LpClassifier if has_classes(name) else LpRegressor
    return kind(**{k: v for k, v in changes.items() if not k.isupper()}, random_state=seed)


def judged(model: Any, name: str, X: Any, y: Any) -> dict[str, float]:
    """Error in % and log loss, or the unexplained variance in %."""
    score = 100 * (1 - model.score(X, y))
    if not has_classes(name):
        return {"error": score}
    return {"error": score, "loss": log_loss(y, model.predict_proba(X), labels=model.classes_)}


def trial(run: Run) -> tuple[Run, dict[str, float]]:
    """Train and judge; in the search by validation rows."""
    _, name, variant, seed = run
    torch.set_num_threads(1)
    X, y, X_valid, y_valid, *_ = parts(name, seed)
    begin = time.process_time()
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        changes = START | VARIANTS[variant]
        for change in patches(changes):
            stack.enter_context(change)
        model = ours(name, changes, seed).fit(X, y)
        found = judged(model, name, X_valid, y_valid)
    return run, found | {"seconds": time.process_time() - begin}


def study(runs: list[Run], processes: int) -> None:
    records = stored()
    missing = [run for run in runs if " | ".join(map(str, run)) not in records]
    print(f"{len(runs)} runs, {len(missing)} of them to do", flush=True)
    with multiprocessing.Pool(processes) as pool:
        for run, found in pool.imap(answer, missing):
            records[" | ".join(map(str, run))] = found
            print(run, {k: round(v, 4) for k, v in found.items()}, flush=True)
            write(records)


def stored() -> dict[str, Any]:
    return json.loads(RECORDS.read_text())["runs"] if RECORDS.exists() else {}


def write(records: dict[str, Any]) -> None:
    runs = ",\n".join(
        f"{json.dumps(k)}: {json.dumps({n: float(f'{x:.5g}') for n, x in v.items()})}"
        for k, v in sorted(records.items())
    )
    about = {"torch": torch.__version__, "sklearn": sklearn.__version__}
    text = f'{{"about": {json.dumps(about)},\n"runs": {{\n{runs}\n}}}}\n'
    write_atomically(RECORDS, text.encode())


# ---------------------------------------------------------------- the defaults against others


def rivals(name: str, seed: int) -> dict[str, Any]:
    """Each with its default arguments; the perceptron gets standardised inputs (and targets)."""
    if has_classes(name):
        perceptron: Any = make_pipeline(StandardScaler(), MLPClassifier(random_state=seed))
        boosting: Any = HistGradientBoostingClassifier(random_state=seed)
        forest: Any = RandomForestClassifier(random_state=seed)
        kind: Any = LpClassifier
    else:
        scaled = make_pipeline(StandardScaler(), MLPRegressor(random_state=seed))
        perceptron = TransformedTargetRegressor(scaled, transformer=StandardScaler())
        boosting = HistGradientBoostingRegressor(random_state=seed)
        forest, kind = RandomForestRegressor(random_state=seed), LpRegressor
    return {
        "Lp": kind(random_state=seed),
        "Lp, ReLU units": kind(activation="relu", random_state=seed),
        "MLP": perceptron,
        "boosting": boosting,
        "forest": forest,
    }


def compared(run: Run) -> tuple[Run, dict[str, float]]:
    """Train on training and validation rows, judge by test rows."""
    _, name, variant, seed = run
    torch.set_num_threads(1)
    X, y, X_valid, y_valid, X_test, y_test = parts(name, seed)
    X, y = np.concatenate([X, X_valid]), np.concatenate([y, y_valid])
    begin = time.process_time()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        model = rivals(name, seed)[variant].fit(X, y)
    seconds = time.process_time() - begin
    return run, judged(model, name, X_test, y_test) | {"seconds": seconds}


def answer(run: Run) -> tuple[Run, dict[str, float]]:
    return compared(run) if run[0] == "compare" else trial(run)


# ---------------------------------------------------------------- speed and memory

WIDTH, BATCH, ROWS = 100, 200, 50_000  # width and batch are scikit-learn's defaults


def speed(rows: int = ROWS, epochs: int = 3, rounds: int = 3) -> dict[str, float]:
    """Seconds of an epoch: the fastest fit of some epochs and one, less the fastest of one."""
    X, y = covertype(rows)(0)

    def by_skorch(count: int) -> Any:
        net = skorch.NeuralNetClassifier(
            MLP(54, [WIDTH], 7), criterion=torch.nn.CrossEntropyLoss, optimizer=torch.optim.AdamW,
            optimizer__fused=True, batch_size=BATCH, max_epochs=count, train_split=None, verbose=0,
        )  # fmt: skip
        return lambda X, y: net.fit(X.astype(np.float32), y)

    def by_us(**options: Any) -> Any:
        return lambda count: (
            LpClassifier(
                (WIDTH,), **options, batch_size=BATCH, max_iter=count, early_stopping=False
            ).fit
        )

    def by_sklearn(count: int) -> Any:
        return MLPClassifier((WIDTH,), batch_size=BATCH, max_iter=count, n_iter_no_change=99).fit

    contestants = {
        "LpClassifier": by_us(),
        "LpClassifier, ReLU units": by_us(activation="relu"),
        "MLPClassifier, float64": by_sklearn,
        "MLPClassifier, float32": by_sklearn,
        "skorch": by_skorch,
    }
    counts = 1, 1 + epochs
    least: dict[tuple[str, int], float] = defaultdict(lambda: math.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rounds):
            for name, fit in contestants.items():
                data = X.astype(np.float32 if "float32" in name else np.float64)
                for count in counts:
                    begin = time.perf_counter()
                    fit(count)(data, y)
                    least[name, count] = min(least[name, count], time.perf_counter() - begin)
    return {n: (least[n, counts[1]] - least[n, counts[0]]) / epochs for n in contestants}


MEMORY = """
import sys
import numpy as np
from lpunits.sklearn import LpClassifier
def peak():  # not ru_maxrss, which a child has from its parent
    return next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line)
rng, rows, dtype = np.random.default_rng(0), int(sys.argv[1]), sys.argv[2]
LpClassifier((100,), max_iter=1).fit(rng.random((2000, 54)), rng.integers(0, 7, 2000))
before = peak()
X = rng.random((rows, 54), np.float32).astype(dtype, copy=False)
y = rng.integers(0, 7, rows)
LpClassifier((100,), max_iter=1).fit(X, y).predict(X)
print((peak() - before) * 1024 / X.nbytes)
"""


def memory(rows: int, dtype: str) -> float:
    """The peak of a fit and a prediction, the table itself included, in sizes of the table."""
    command = [sys.executable, "-c", MEMORY, str(rows), dtype]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_speed() -> None:
    found = speed()
    for name, seconds in found.items():
        ratio = seconds / found["LpClassifier"]
        print(f"{name:28} {seconds:.3f} s an epoch, {ratio:.2f} x that of LpClassifier")
    for rows in (ROWS, 10 * ROWS):
        for dtype in ("float32", "float64"):
            print(f"memory, {rows:,} rows of {dtype}: {memory(rows, dtype):.2f} x the table")


# ---------------------------------------------------------------- tables


def tables_of_results() -> str:
    """The search, relative to its start, and the comparison."""
    found: dict[str, dict[str, dict[Any, Any]]] = defaultdict(lambda: defaultdict(dict))
    for key, values in stored().items():
        question, name, variant, seed = key.split(" | ")
        found[question][variant][name if question == "compare" else (name, seed)] = values
    start = found["search"]["start"]
    text = ["\n### search\n", "| | error | log loss | fits better, worse |", "|---|---|---|---|"]
    for variant in VARIANTS:
        if judged := found["search"].get(variant):
            errors = [ratio(v, start[n], "error", 0.5) for n, v in judged.items()]
            losses = [ratio(v, start[n], "loss", 0.01) for n, v in judged.items() if "loss" in v]
            better, worse = sum(r < 0.98 for r in errors), sum(r > 1.02 for r in errors)
            cells = [f"{geometric_mean(r):.2f}" if r else "" for r in (errors, losses)]
            text.append(
                f"| {variant} | {cells[0]} | {cells[1]} | {better}, {worse} of {len(errors)} |"
            )
    columns = list(rivals("iris", 0))
    text += ["\n### compare\n", "| | " + " | ".join(columns) + " |", "|---" * 6 + "|"]
    for name in ALL:
        cells = [cell(found["compare"][column].get(name)) for column in columns]
        if any(cells):
            text.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def ratio(values: dict[str, float], start: dict[str, float], what: str, plus: float) -> float:
    """By how much an error is larger than at the start of the search; a little is added to both."""
    return (values[what] + plus) / (start[what] + plus)


def cell(values: dict[str, float] | None) -> str:
    """Error in %, and the log loss of a classification."""
    if values is None:
        return ""
    return f"{values['error']:.1f}" + (f" ({values['loss']:.2f})" if "loss" in values else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--search", action="store_true", help="choose defaults")
    parser.add_argument("--compare", action="store_true", help="judge the defaults")
    parser.add_argument("--speed", action="store_true", help="time an epoch, measure memory")
    parser.add_argument("--table", action="store_true", help="print what was found")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=2, help="of the search")
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    if args.search:
        names = CLASSES | NUMBERS
        runs = [("search", n, v, s) for v in args.only for s in range(args.seeds) for n in names]
        study(runs, args.processes)
    if args.compare:
        study([("compare", n, r, 0) for n in ALL for r in rivals(n, 0)], args.processes)
    if args.speed:
        print_speed()
    if args.table:
        print(tables_of_results())


if __name__ == "__main__":
    main()
