"""What ``matmul=medium`` saves: updates of the recipes with both precisions of matrix products.

    LPUNITS_DATA=... python benchmarks/matmul.py

One thread, the best of several rounds. Nothing else should be running. The last column is what the
precision costs: about 1e-6 if the products stay in float32, 1e-3 if their factors are rounded. A
recurrence amplifies differences, so its numbers are larger in either case.
"""

import time
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from lpunits.paper.data import info
from lpunits.paper.training.classification import Classification, Training
from lpunits.paper.training.loop import matmul_precision
from lpunits.paper.training.music import Prediction
from lpunits.paper.training.recipes import (
    MODERN_ADVERSARIAL,
    MODERN_COVERTYPE,
    MUSIC,
    table2_mnist,
)
from lpunits.paper.training.records import cpu

ROUNDS, UPDATES = 3, 40
RECIPES = {
    "MNIST, SGD": table2_mnist("paper"),
    "MNIST, adversarial": MODERN_ADVERSARIAL,
    "Covertype": MODERN_COVERTYPE,
    "Nottingham": MUSIC["nottingham"],
    "MuseData": MUSIC["musedata"],
}


class Updates:
    """A training whose updates can be made one by one."""

    def __init__(self, config: Any, precision: str) -> None:
        torch.manual_seed(0)  # of the weights
        self.precision = precision
        self.task = Classification(config) if isinstance(config, Training) else Prediction(config)
        self.model = self.task.model()
        self.optimizer = self.task.optimizer(self.model)

    def make(self, count: int) -> tuple[Tensor, float]:
        """The first gradients, and the seconds of an update."""
        torch.manual_seed(0)  # of dropout
        generator = torch.Generator().manual_seed(0)
        batches = self.task.gradients(self.model, [self.task.data.train], generator)
        with matmul_precision(self.precision):
            next(batches)
            gradients = [p.grad.flatten() for p in self.model.parameters() if p.grad is not None]
            first = torch.cat(gradients)
            start = time.perf_counter()
            for _ in islice(batches, count):
                self.optimizer.step()
                self.optimizer.zero_grad()
        return first, (time.perf_counter() - start) / count


def main() -> None:
    """Print a row for each recipe whose data is here."""
    torch.set_num_threads(1)
    print(f"{cpu()}, one thread, torch {torch.__version__}")
    print(f"{'':20} {'highest':>9} {'medium':>9} {'ratio':>6}  distance of the first gradients")
    for name, config in RECIPES.items():
        if not info(config.data).present:
            print(f"{name:20} skipped: {config.data} is not here")
            continue
        trainings = [Updates(config, precision) for precision in ("highest", "medium")]
        exact, other = (training.make(1)[0] for training in trainings)
        apart = (other - exact).norm() / exact.norm()
        best = [min(training.make(UPDATES)[1] for _ in range(ROUNDS)) for training in trainings]
        times = " ".join(f"{1e3 * seconds:6.2f} ms" for seconds in best)
        print(f"{name:20} {times} {best[1] / best[0]:6.2f}  {apart:.1e}", flush=True)


if __name__ == "__main__":
    main()
