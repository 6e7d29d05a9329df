r"""Write the networks of ``lpunits.paper.pretrained`` from trained models and their records.

    python results/pretrained.py RECORDS TRIALS

Each is the seed that validation chose among those of its row. Trained on two cores in three hours:

    run() { lpunits run "$1" --scale paper --only "$2" --records RECORDS --work TRIALS; }
    run modern "noise 0.3, adversarial 1.5, p from 2.6, weight decay 0.0018, seed 3"
    run modern "whiten True, adamw, lp 300-300-300 x 4, p from 2, weight decay 0.01, seed 1"
    run table2 "pentomino, lp 400 x 6, p from 2, weight decay 0.003, seed 1"
    run table4 "jsb, lp, shortcut, threshold 0.3, 300 epochs, seed 0"
    run table4 "nottingham, lp, 150 epochs, seed 1"
    run gem "fer2013, adamw, convolutions 16-32-64, p learned from 3, seed 2"

Weights are kept in half precision, and units that the weight decay has made idle are left out. The
score in a file is that of what is kept, on the test set.
"""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lpunits import MLP, LpLinear, sealed
from lpunits.paper.data import load
from lpunits.paper.training.classification import Classification
from lpunits.paper.training.models import PRETRAINED, config_of, load_model
from lpunits.paper.training.music import Music, Prediction

ABOUT = ("kind", "label", "config", "seed", "versions", "commit")
IDLE = 1.5e-3  # of the unit that acts most
CHANGE = 5e-3  # of a score by half precision, and by the units that are left out


def of_record(record: dict[str, Any]) -> dict[str, float]:
    """The number of the record on the test set."""
    outcome = record["outcome"]
    if "nll" in outcome:
        return {"test nll": outcome["nll"]["test"]}
    return {"test error": outcome.get("last_stage", outcome["metrics"])["test"]["error"]}


@torch.no_grad()
def drop_idle(net: nn.Module, x: torch.Tensor) -> list[int]:
    """Leave out the units that hardly act on the next layer; how many each hidden layer keeps.

    A unit acts by how much it varies over the inputs, times its weights there. The next layer adds
    the mean of a unit that is left out.
    """
    *hidden, last = (layer for layer in net.children() if layer.state_dict())
    for layer, after in pairwise((*hidden, last)):
        u = torch.cat([layer(rows) for rows in x.split(1000)])
        action = u.std(0) * after.weight.flatten(0, -2).norm(dim=0)
        kept = action >= IDLE * action.max()
        added = after.weight[..., ~kept] @ u.mean(0)[~kept]
        if after is last:
            after.bias += added
        else:
            after.center -= added
        for name, tensor in layer.state_dict().items():  # (filters, units, ...), or (units,)
            replace(layer, name, tensor[:, kept] if tensor.ndim > 1 else tensor[kept])
        replace(after, "weight", after.weight[..., kept])
        x = u[:, kept]
    return [layer.weight.shape[1] for layer in hidden]


def replace(layer: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Put another tensor in the place of a parameter or a buffer."""
    learned = isinstance(getattr(layer, name), nn.Parameter)
    setattr(layer, name, nn.Parameter(tensor.clone()) if learned else tensor.clone())


def is_plain(net: nn.Module) -> bool:
    """Whether all that has weights is layers of Lp units with centres, and a linear output."""
    *hidden, _ = (layer for layer in net.children() if layer.state_dict())
    units = all(isinstance(h, LpLinear) and h.center is not None for h in hidden)
    return isinstance(net, MLP) and units


def main(records: Path, trials: Path) -> None:
    """Write a file for each record that has a model."""
    for path in sorted(records.glob("*.json")):
        record = json.loads(path.read_text())
        model = trials / record["key"] / "model.safetensors"
        if not model.exists():
            continue
        about = {name: record[name] for name in ABOUT}
        name = about["config"]["data"]
        data = load(name, **dict(about["config"].get("data_options", ())))
        net = load_model(model).net
        if is_plain(net):
            task = Classification(config_of(about))
            inputs = task.prepared(task.data.valid.features).to_dense()
            about["config"] |= {"hidden": drop_idle(net, inputs)}
        tensors = {n: t.half() if t.is_floating_point() else t for n, t in net.state_dict().items()}
        assert all(t.isfinite().all() for t in tensors.values())
        about |= {"shape": data.shape, "classes": data.classes, "data_sha256": data.checksum}
        ((metric, expected),) = of_record(record).items()
        out = PRETRAINED / f"{name}.safetensors"
        sealed.write(out, tensors, about)
        found = measured(out, metric)
        assert abs(found - expected) < CHANGE * expected, (out, found, expected)
        sealed.write(out, tensors, about | {"score": {metric: found}})
        print(f"{out}: {record['label']}, {metric} {expected:.4g} in the record, {found:.4g} here")
        print(f"  {out.stat().st_size / 1e6:.1f} MB, {about['config'].get('hidden')} units")


@torch.no_grad()
def measured(path: Path, metric: str) -> float:
    """What the network of a file reaches on the test set."""
    net, about = load_model(path)
    config = config_of(about)
    task: Any = (Prediction if isinstance(config, Music) else Classification)(config)
    return float(task.evaluate(net, task.data.test)[metric.removeprefix("test ")])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*map(Path, sys.argv[1:]))
