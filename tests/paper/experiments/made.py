"""Results as the feed-forward trials leave them, with numbers chosen by a test."""

from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.trial import Result, Trial


def result(
    data="mnist", activation="lp", seed=0, error=0.01, orders=(2.0, 3.0), start=2.0, **fields
):
    """A finished run with this test error and these learned orders."""
    config = FeedForward(data, activation=activation, order=start, **fields)
    scores = {"error": error, "nll": 0.1}
    outcome = {
        "metrics": {"train": scores, "valid": scores, "test": scores},
        "orders": [{"layer": "0", "initial": [start] * len(orders), "final": list(orders)}],
        "parameters": 1000,
        "chosen_epoch": 1,
        "curve": [{"valid_error": error, "order_mean": 2.0, "order_std": 0.1}],
    }
    record = {"outcome": outcome, "seconds": 60.0, "threads": 2}
    return Result(Trial(config, seed), record)
