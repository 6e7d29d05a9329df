"""Fitted estimators in files: safetensors, with the rest as JSON in its head."""

from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpunits import sealed
from lpunits.sklearn.tables import Standardize, unscaled
from lpunits.sklearn.training import History, usable

FORMAT = 1
WIDEST = 2**16  # bytes of a label
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def save(estimator: Any, path: Path) -> None:
    """Write a fitted estimator; see :meth:`LpClassifier.save`."""
    model = estimator.model_
    history: History = estimator._history
    facts = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "lpunits": _version(),
        "parameters": {
            name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()
        },
        "dtype": str(model[0].dtype).removeprefix("torch."),
        "bound": model[0].bound,
        "columns": len(model[0].mean),
        "names": _listed(getattr(estimator, "feature_names_in_", None)),
        "classes": _classes(getattr(estimator, "classes_", None)),
        "targets": None if hasattr(estimator, "classes_") else len(model[2].mean),
        "flat": getattr(estimator, "_flat", None),
        "history": vars(history),
    }
    sealed.write(path, model.state_dict(), facts)


def load(path: str | Path, kind: type | None = None) -> Any:
    """The estimator of a file, whichever of the two it is.

    >>> import tempfile
    >>> from lpunits.sklearn import LpRegressor
    >>> X = np.random.default_rng(0).random((50, 3))
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> LpRegressor(max_iter=2, random_state=0).fit(X, X[:, 0]).save(path)
    >>> load(path)
    LpRegressor(max_iter=2, random_state=0)

    Args:
        path: What ``save`` wrote.
        kind: The class that is expected, if one is.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path must be a file that save() wrote, got {path}")
    tensors, facts = sealed.read(path)
    if facts.get("format", FORMAT) != FORMAT:
        raise ValueError(
            f"{path}: written by lpunits {facts.get('lpunits')!s:.20} in format "
            f"{facts['format']!s:.20}, this lpunits {_version()} reads format {FORMAT}"
        )
    try:
        found = _restored(tensors, facts)
    except Exception as error:  # nothing is known of what a file made by hand may hold
        sentence = f"{path}: not a file that save() wrote ({sealed.reason(error)})"
        raise ValueError(sentence) from error
    if kind is not None and type(found) is not kind:
        name = type(found).__name__
        raise ValueError(f"{path}: holds a {name}, load it with {name}.load")
    return found


def _restored(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Any:
    from lpunits.sklearn.estimators import LpClassifier, LpRegressor

    kind = {c.__name__: c for c in (LpClassifier, LpRegressor)}[facts["class"]]
    parameters = {name: _unplain(value) for name, value in facts["parameters"].items()}
    estimator: Any = kind(**parameters)
    estimator._validate_params()
    device = torch.device(estimator.device)
    try:
        usable(device)
    except ValueError:
        estimator.device = "cpu"  # it was trained where there is another
    history = {field.name: facts["history"][field.name] for field in fields(History)}
    estimator._history = sealed.made(History, history)
    shape = sealed.made(_Shape, {field.name: facts[field.name] for field in fields(_Shape)})
    estimator.n_features_in_ = shape.columns
    if shape.names is not None:
        if len(set(shape.names)) != shape.columns:
            raise ValueError(f"{len(set(shape.names))} names for {shape.columns} columns")
        estimator.feature_names_in_ = np.array(shape.names, dtype=object)
    if kind is LpClassifier:
        estimator.classes_ = _labels(**facts["classes"])
    else:
        estimator._flat = bool(shape.flat)
    dtype = DTYPES[facts["dtype"]]

    def scalings() -> tuple[Standardize, Standardize | None]:
        inputs = unscaled(shape.columns, dtype)
        inputs.bound = float(shape.bound)
        return inputs, None if kind is LpClassifier else unscaled(shape.targets or 0, dtype)

    # Before there is memory for what the file promises: no size is beyond its number of values,
    # and each layer has a tensor.
    values = sum(t.numel() for t in tensors.values())
    sizes = estimator.hidden_layer_sizes, estimator.filters or 1, shape.columns, shape.targets or 1
    if any(np.max(size) > values or np.size(size) > len(tensors) for size in sizes):
        raise ValueError(f"sizes of {sizes!s:.100} with {values} values in all")
    with torch.device("meta"):
        expected = estimator._network(*scalings()).state_dict()
    if not all(
        name in tensors and (tensors[name].shape, tensors[name].dtype) == (t.shape, t.dtype)
        for name, t in expected.items()
    ):
        raise ValueError("its tensors are not those of its network")
    estimator._assemble(*scalings(), np.random.default_rng(0))
    estimator.model_.load_state_dict(tensors)
    return estimator._publish()


@dataclass
class _Shape:
    """What a file holds about the columns and the targets of a table."""

    columns: int
    names: list[str] | None
    targets: int | None
    flat: bool | None
    bound: float

    def __post_init__(self) -> None:
        if not (self.columns > 0 and (self.targets is None or self.targets > 0) and self.bound > 0):
            raise ValueError("columns, targets and bound must be above 0")


def _labels(dtype: str, values: list[Any]) -> npt.NDArray[Any]:
    """The classes, in order and each once."""
    kind = np.dtype(str(dtype))
    if kind.kind not in "biufUO" or kind.itemsize > WIDEST:
        raise ValueError(f"classes must be numbers or text, got {kind}")
    if kind.kind == "O" and not all(isinstance(value, str) for value in values):
        raise ValueError("classes of the dtype object must be text")
    found = np.array(values, kind)
    if found.ndim != 1 or len(found) < 2 or len(set(found.tolist())) < len(found):
        raise ValueError("classes must be two different ones at least")
    return found


def _version() -> str:
    try:
        return version("lpunits")
    except PackageNotFoundError:
        return "from source"


def _listed(names: Any) -> list[str] | None:
    return None if names is None else [str(name) for name in names]


def _classes(classes: Any) -> dict[str, Any] | None:
    if classes is None:
        return None
    if classes.dtype.kind not in "biufU" and not all(isinstance(c, str) for c in classes):
        raise TypeError(
            f"classes must be numbers or text to be saved, got the dtype {classes.dtype}"
        )
    return {
        "dtype": classes.dtype.str if classes.dtype != object else "O",
        "values": classes.tolist(),
    }


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON has it; tuples and dicts are marked, as both are lists there."""
    if isinstance(value, tuple):
        return {"tuple": [_plain(name, v) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_plain(name, k), _plain(name, v)] for k, v in value.items()]}
    if isinstance(value, list):
        return [_plain(name, v) for v in value]
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return value.tolist()
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name} must be a number, text or a list of them to be saved, got {value!r}")


def _unplain(value: Any) -> Any:
    if isinstance(value, dict):
        if "tuple" in value:
            return tuple(_unplain(v) for v in value["tuple"])
        return {_unplain(k): _unplain(v) for k, v in value["dict"]}
    return [_unplain(v) for v in value] if isinstance(value, list) else value
