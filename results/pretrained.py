"""Write the networks of ``lpunits.paper.pretrained`` from trained models and their records.

    python results/pretrained.py RECORDS TRIALS

Each is the seed that validation chose among those of its row. Trained on two cores in three hours:

    run() { lpunits run "$1" --scale paper --only "$2" --records RECORDS --work TRIALS; }
    run modern "noise 0.3, adversarial 1.5, p from 2.6, weight decay 0.0018, seed 2"
    run modern "covertype components None"
    run table2 "pentomino, lp 400 x 6, p from 2, weight decay 0.003, seed 1"
    run table4 "jsb, lp, threshold 0.3, 300 epochs, seed 1"
    run table4 "nottingham, lp, 150 epochs, seed 1"
    run gem "fer2013, adamw, convolutions 16-32-64, p learned from 3, seed 2"

Weights are kept in half precision.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from lpunits import sealed
from lpunits.paper.data import load
from lpunits.paper.training.models import PRETRAINED

ABOUT = ("kind", "label", "config", "seed", "versions", "commit")


def score(record: dict[str, object]) -> dict[str, float]:
    """The number of the record on the test set."""
    outcome = record["outcome"]
    if "nll" in outcome:
        return {"test nll": outcome["nll"]["test"]}
    return {"test error": outcome.get("last_stage", outcome["metrics"])["test"]["error"]}


def main(records: Path, trials: Path) -> None:
    """Write a file for each record that has a model."""
    for path in sorted(records.glob("*.json")):
        record = json.loads(path.read_text())
        model = trials / record["key"] / "model.safetensors"
        if not model.exists():
            continue
        config = record["config"]
        name = config["data"]
        data = load(name, **dict(config.get("data_options", ())))
        tensors = {n: t.half() if t.is_floating_point() else t for n, t in load_file(model).items()}
        assert all(t.isfinite().all() for t in tensors.values())
        about = {n: record[n] for n in ABOUT} | {
            "shape": data.shape,
            "classes": data.classes,
            "data_sha256": data.checksum,
            "score": score(record),
        }
        out = PRETRAINED / f"{name}.safetensors"
        sealed.write(out, tensors, about)
        print(f"{out}: {record['label']}, {about['score']}, {out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*map(Path, sys.argv[1:]))
