"""What two ranks do for the tests: torchrun starts this file, with a folder for what they find."""

import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from lpunits.paper.search.run import run
from lpunits.paper.training import ranks
from lpunits.paper.training.classification import Classification
from lpunits.paper.training.job import Job
from lpunits.paper.training.loop import Loop
from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.recipes import table2_mnist
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Trial

# 1197 images: twenty batches, the last of which has three images fewer, an odd number.
EVEN = FeedForward("digits", hidden=(16, 16), filters=2, epochs=1, batch=60, lr=0.3, max_norm=1.0)
CASES = {
    "twenty steps": replace(EVEN, bias=True, weight_decay=1e-3),
    "one image left": replace(EVEN, batch=92, last_epochs=1),  # there is none for the other rank
    "fixed orders": replace(EVEN, learn_order=False, center=False, center_inputs=True),
    "sparse inputs": replace(EVEN, max_norm=None, sparse_inputs=True),
    "adversarial examples": replace(EVEN, batch=92, adversarial=0.5),
}
# What the test of kill -9 runs from the command line, with dropout.
NEVER_KILLED = replace(table2_mnist("smoke"), epochs=20, lr=0.1)


@dataclass(frozen=True)
class OneFails:
    """Rank 1 fails while rank 0 waits for it."""

    label, datasets, shares_batches = "one fails", (), True

    def run(self, seed, job):
        if ranks.rank() == 1:
            raise ArithmeticError("it does\nnot add up")
        ranks.summed(1.0)
        return {}


def kept(name, trained):
    """Train; leave what came of it on this rank in two files."""
    ours = f"{name}, rank {ranks.rank()}"
    (folder / f"{ours}.json").write_text(json.dumps(trained.run()))
    weights = {key: t.contiguous() for key, t in trained.model.state_dict().items()}
    save_file(weights, folder / f"{ours}.safetensors")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    ranks.join([], jobs=1)
    for name, config in CASES.items():
        kept(name, Loop(Classification(config), 0, Job(folder / name)))
    kept("never killed", Loop(Classification(NEVER_KILLED), 0, Job(folder / "never killed")))

    poisoned = Loop(Classification(EVEN), 0, Job(folder / "poisoned"))
    if ranks.rank() == 1:
        poisoned.task.shift = torch.tensor(math.nan)
    kept("poisoned", poisoned)

    run([Trial(OneFails(), 0)], Records(folder / "records"), folder / "work")
