"""Networks that nobody should trust: safetensors, sealed files, folders of `lpunits fit`."""

import hashlib
import json
import struct
from collections.abc import Callable

DIGITS = "9" * 10_000
DEEP = "[" * 100_000

# ---------------------------------------------------------------- safetensors: models, checkpoints


def safetensors(header: object, body: bytes = b"", size: int | None = None) -> bytes:
    """A safetensors file with this header, which may be text already."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def sealed(facts: object) -> bytes:
    """A model or checkpoint with a right checksum, whoever made it."""
    from lpunits.sealed import BLANK

    text = facts if isinstance(facts, str) else json.dumps(facts)
    text = '{"sha256": "' + BLANK.decode() + '", "facts": ' + text + "}"
    if isinstance(facts, dict):
        text = json.dumps({"sha256": BLANK.decode(), **facts})
    one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    data = safetensors({"__metadata__": {"json": text}, "weight": one}, bytes(4))
    return data.replace(BLANK, hashlib.sha256(data).hexdigest().encode(), 1)


def about(**changes: object) -> dict[str, object]:
    """The facts of a model of music."""
    return {"kind": "Music", "config": {"data": "chords"}, "seed": 0} | changes


MODELS = {
    "header is a list": lambda: safetensors([1, 2]),
    "header is deep": lambda: safetensors(DEEP),
    "header of 10,000 digits": lambda: safetensors('{"a":' + DIGITS + "}"),
    "header longer than the file": lambda: safetensors({}, size=2**62),
    "negative offsets": lambda: safetensors(
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}
    ),
    "shape overflows": lambda: safetensors(
        {"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}}, bytes(4)
    ),
    "no facts": lambda: safetensors({"__metadata__": {}}),
    "facts are a list": lambda: sealed([1, 2]),
    "facts are deep": lambda: sealed(DEEP),
    "facts of 10,000 digits": lambda: sealed(DIGITS),
    "config is a list": lambda: sealed(about(config=[1, 2])),
    "config is null": lambda: sealed(about(config=None)),
    "config is a text": lambda: sealed(about(config="data")),
    "unknown setting": lambda: sealed(about(config={"data": "chords", "os.system": "ls"})),
    "kind is a list": lambda: sealed(about(kind=[])),
    "kind is unknown": lambda: sealed(about(kind="Popen")),
    "no kind": lambda: sealed({"config": {}}),
    **{
        f"hidden is {json.dumps(value)[:12]}": lambda value=value: sealed(
            about(config={"data": "chords", "hidden": value})
        )
        for value in (None, "many", [], [1, 2], {}, -1, 0, 2.5, 10**9, 10**30, True)
    },
    "100,000 layers": lambda: sealed(
        about(
            kind="FeedForward",
            config={"data": "digits", "hidden": [1] * 100_000},
            shape=[1],
            classes=["a", "b"],
        )
    ),
    "state is a list": lambda: sealed({"of": {}, "parts": {}, "state": []}),
    "parts are a list": lambda: sealed({"of": {}, "parts": [], "state": {}}),
    "no parts": lambda: sealed({"of": {}}),
}

# ---------------------------------------------------------------- estimators, and their folders


def estimator(**changes: object) -> Callable[[], bytes]:
    """What is changed in the facts of a classifier for two columns and two classes."""
    return lambda: json.dumps(changes).encode()


def labels(values: object, dtype: object = "<i8") -> dict[str, object]:
    return {"dtype": dtype, "values": values}


ESTIMATORS = {
    "another network": estimator(parameters={"hidden_layer_sizes": {"tuple": [3]}}),
    "100,000 layers": estimator(parameters={"hidden_layer_sizes": {"tuple": [1] * 100_000}}),
    **{
        f"{name} is {json.dumps(value)[:12]}": estimator(**{name: value})
        for name in ("class", "dtype", "columns", "names", "targets")
        for value in ([1, {}], "text", -1, 0, 2.5, 10**9, 10**30)
    },
    **{
        f"{name} is {json.dumps(value)[:12]}": estimator(parameters={name: value})
        for name in ("hidden_layer_sizes", "filters", "activation", "device", "os.system")
        for value in ([1, 2], "text", -1, 0, 10**9, 10**30, {"tuple": [10**6] * 3}, {"a": 1})
    },
    **{
        f"classes are {json.dumps(value)[:40]}": estimator(classes=value)
        for value in (
            *(None, [], labels([]), labels([0]), labels([0, 0]), labels([[0], [1, 2]])),
            *(labels(["a", "b"]), labels([10**30, 1]), labels(["a", "b"], "<U1000000000")),
            *(labels([0, 1], "V8"), labels([0, 1], "i8,i8"), labels([0, 1], "O"), {"a": 1}),
        )
    },
    **{
        f"history is {json.dumps(value)[:12]}": estimator(history=value)
        for value in (None, [], [1, 2, 3], [["a"], [], []], [[], [], [1.0]])
    },
    **{
        f"bound is {json.dumps(value)[:12]}": estimator(bound=value)
        for value in ([1, {}], "text", -1, 0, None, float("nan"))
    },
    **{
        f"order is {json.dumps(value)[:12]}": estimator(parameters={"order": value})
        for value in ([1, 2, 3], "text", {"a": 1}, float("nan"), [[1], [2, 3]])
    },
    "format is a list": estimator(format=[[]] * 10_000),
}


def folder(**changes: object) -> Callable[[], bytes]:
    """A ``model.json`` with a right checksum; its weights are those of the folder."""
    column = {"name": "a", "kind": "number", "why": "", "fill": 0.0, "flagged": False, "levels": []}
    target = {"name": "t", "task": "regression", "why": "", "classes": []}
    content = {"weights": "HERE", "sha256": "HERE", "target": target, "facts": {}}
    content["columns"] = [column, column | {"name": "b"}]
    for name, value in changes.items():
        part = {"column": content["columns"][0]}.get(name, target if name == "goal" else content)
        part.update(value)
    return lambda: json.dumps(content).encode()


FOLDERS = {
    **{
        f"{name} is {json.dumps(value)[:12]}": folder(content={name: value})
        for name in ("target", "columns", "sha256")
        for value in (None, [], {}, [1, 2], "text", 10**30)
    },
    **{
        f"a column's {name} is {json.dumps(value)[:12]}": folder(column={name: value})
        for name in ("name", "kind", "fill", "flagged", "levels", "exec")
        for value in (None, [1, 2], {}, "text", 10**30, True)
        if not (name == "name" and value == "text") and not (name == "flagged" and value is True)
        if not (name == "fill" and value == 10**30)
    },
    **{
        f"the target's {name} is {json.dumps(value)[:12]}": folder(goal={name: value})
        for name in ("name", "task", "classes")
        for value in (None, [1, 2], {}, "text", 10**30, "classification")
        if not (name == "name" and isinstance(value, str))
    },
    "filled by nan": folder(column={"fill": float("nan")}),
    "one column more": folder(column={"flagged": True}),
    "a path that climbs": folder(content={"weights": "../../weights.safetensors"}),
}
