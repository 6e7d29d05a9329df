"""A picture of a dataset: a sheet of samples, as a PNG file."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from lpunits.files import write_atomically
from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colour-blind safe (Okabe and Ito), the most different ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw(dataset: Dataset[Any], path: Path, *, seed: int = 0) -> Path:
    """Write a sheet of training examples, chosen by the seed; return its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if isinstance(dataset.train.features, list):
        figure, paint = Figure((10, 8), layout="constrained"), _rolls
    elif len(dataset.shape) == 2:
        figure, paint = Figure((10, 8)), _images
    else:
        figure, paint = Figure((8, 7)), _points
    FigureCanvasAgg(figure)
    paint(figure, dataset, seed)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=120, bbox_inches="tight")
    write_atomically(path, picture.getvalue())
    return path


def _title(dataset: Dataset[Any]) -> str:
    return f"{dataset.name}: {dataset.about}"


def _images(figure: "Figure", dataset: Dataset[Any], seed: int) -> None:
    """Rows of examples; each row has one class, with its name in front."""
    axis = figure.subplots()
    axis.set_title(_title(dataset), fontsize=11, pad=12)
    features, targets = dataset.train.features, dataset.train.targets.numpy()
    order = randomness.permutation(len(targets), seed)
    large = len(dataset.classes) < 5  # two rows of larger images for each class
    height, width = dataset.shape
    repeats, columns, gap = 1 + large, 6 if large else 10, max(1, width // 12)
    rows = repeats * len(dataset.classes)
    mosaic = np.full((rows * (height + gap), columns * (width + gap)), np.nan, np.float32)
    for row in range(rows):
        members = order[targets[order] == row // repeats]
        for column, i in enumerate(members[row % repeats * columns :][:columns]):
            image = features[i].float()
            image = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-6)
            y, x = row * (height + gap), column * (width + gap)
            mosaic[y : y + height, x : x + width] = image.reshape(height, width)
    axis.imshow(mosaic[:-gap, :-gap], cmap="gray", interpolation="nearest")
    labels = [name for name in dataset.classes for _ in range(repeats)]
    axis.set_yticks([row * (height + gap) + height / 2 for row in range(rows)], labels)
    axis.set_xticks([])
    axis.set_frame_on(False)
    axis.tick_params(length=0)


def _rolls(figure: "Figure", dataset: Dataset[Any], seed: int) -> None:
    """Four pieces, the first 200 steps of each; the notes C1 to C8 are marked."""
    figure.suptitle(_title(dataset), fontsize=11)
    rolls = dataset.train.features
    chosen = randomness.permutation(len(rolls), seed)[:4]
    longest = min(200, max(len(rolls[i]) for i in chosen))
    for axis, i in zip(figure.subplots(len(chosen), 1, squeeze=False)[:, 0], chosen, strict=True):
        roll = rolls[i][:200].numpy()
        axis.imshow(1 - roll.T, cmap="gray", aspect="auto", origin="lower", interpolation="nearest")
        axis.set_xlim(-0.5, longest - 0.5)
        axis.set_yticks([3 + 12 * octave for octave in range(8)])  # column 3 is the lowest C
        axis.set_yticklabels([f"C{octave + 1}" for octave in range(8)], fontsize=7)
        axis.grid(axis="y", linewidth=0.3)
        axis.set_title(f"piece {i} of {len(rolls)}: {len(rolls[i])} steps", fontsize=9, loc="left")
        axis.tick_params(labelsize=8)
    axis.set_xlabel("step")


def _points(figure: "Figure", dataset: Dataset[Any], seed: int) -> None:
    """The first two features of at most 5,000 examples, coloured by class."""
    features, targets = dataset.train.features, dataset.train.targets
    rows = torch.from_numpy(randomness.permutation(len(targets), seed)[:5000])
    x: npt.NDArray[np.float32] = features[rows, :2].numpy()
    y = targets[rows].numpy()
    axis = figure.subplots()
    axis.set_title(_title(dataset), fontsize=11, pad=12)
    # Rare classes last, so that they are on top.
    for k in np.argsort(-np.bincount(y, minlength=len(dataset.classes)), kind="stable"):
        name = f"{dataset.classes[k]} ({(targets == k).float().mean():.1%})"
        own = x[y == k]
        axis.scatter(own[:, 0], own[:, 1], s=7, color=COLOURS[k % 7], linewidths=0, label=name)
    axis.set(xlabel="first feature", ylabel="second feature", aspect="equal")
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, markerscale=3, fontsize=9)
