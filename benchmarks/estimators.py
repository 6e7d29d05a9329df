"""The estimators for tables: how their defaults were chosen, what they reach, how fast they are.

    python benchmarks/estimators.py --search    # on validation rows; half an hour of one core
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
import os
import sys
import time
import warnings
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

import numpy as np
import sklearn
import torch
from sklearn.metrics import log_loss

from estimators_tables import CLASSES, HELD_OUT_CLASSES, HELD_OUT_NUMBERS, NUMBERS
from estimators_tables import has_classes, parts
from lpunits.files import write_atomically
from lpunits.sklearn import LpClassifier, LpRegressor, tables, training

RECORDS = Path(__file__).parents[1] / "results" / "estimators.json"
Run = tuple[str, str, str, int]  # the study, the table, the name of a variant, the seed

# What a variant changes: parameters of the estimator, or (in capitals) constants of the package.
START: dict[str, Any] = {
    "hidden_layer_sizes": (128, 128), "learning_rate": "one-cycle", "learning_rate_init": 2e-3,
    "weight_decay": 0.01, "ROBUST": True, "BOUND": 3.0, "CHOOSE": "loss", "max_iter": 100,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "start": {},
    "all rows": {"early_stopping": False},
    "by score": {"CHOOSE": "score"},
    "rate 0.0005": {"learning_rate_init": 5e-4},
    "rate 0.005": {"learning_rate_init": 5e-3},
    "standard": {"ROBUST": False, "BOUND": math.inf},
    "64 x 2": {"hidden_layer_sizes": (64, 64)},
    "decay 0.1": {"weight_decay": 0.1},
    "dropout 0.1": {"dropout": 0.1},
    "50 epochs": {"max_iter": 50},
    "200 epochs": {"max_iter": 200},
    "batch 32": {"batch_size": 32},
    "standard, bound 3": {"ROBUST": False},
    "256": {"hidden_layer_sizes": (256,)},
    "decay 1": {"weight_decay": 1.0},
    "dropout 0.3": {"dropout": 0.3},
    "cosine": {"learning_rate": "cosine"},
    "batch 256": {"batch_size": 256},
    "rate of orders 1": {"order_scale": 1.0},
}
MODULES = {"ROBUST": tables, "BOUND": tables, "CHOOSE": training}


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
    study, name, variant, seed = run
    torch.set_num_threads(1)
    X, y, X_valid, y_valid, X_test, y_test = parts(name, seed)
    begin = time.process_time()
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        changes = START | VARIANTS[variant]
        for constant, module in MODULES.items():
            stack.enter_context(patch.object(module, constant, changes[constant]))
        model = ours(name, changes, seed).fit(X, y)
        found = judged(model, name, X_valid, y_valid)
    return run, found | {"seconds": time.process_time() - begin}


def study(runs: list[Run], processes: int) -> None:
    records = stored()
    missing = [run for run in runs if " | ".join(map(str, run)) not in records]
    print(f"{len(runs)} runs, {len(missing)} of them to do", flush=True)
    with multiprocessing.Pool(processes) as pool:
        for run, found in pool.imap(trial, missing):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    names = [*CLASSES, *NUMBERS]
    study(
        [("search", n, v, s) for s in range(args.seeds) for v in args.only for n in names],
        args.processes,
    )


if __name__ == "__main__":
    main()
