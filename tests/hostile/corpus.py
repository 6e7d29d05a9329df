"""Files that nobody should trust, by kind and name; each is made when it is needed."""

import gzip
import io
import json
import pickle
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.io import savemat

from hostile.models import DEEP, DIGITS, ESTIMATORS, FOLDERS, MODELS

# ---------------------------------------------------------------- anything

ANYTHING: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "a byte": lambda: b"\0",
    "zeros": lambda: bytes(10_000),
    "noise": lambda: np.random.default_rng(0).bytes(10_000),
    "text": lambda: b"no such thing\n" * 100,
    "one long line": lambda: b"x" * 10**6,
    "html": lambda: b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
    "utf-16": lambda: "{}".encode("utf-16"),
}

# ---------------------------------------------------------------- records


def record(**changes: object) -> bytes:
    """A record of the trial that the readers ask for; None takes a field out."""
    fields = {
        "format": 1,
        "key": "sum-1",
        "kind": "Sum",
        "label": "add 1, seed 0",
        "config": {"number": 1.0, "mode": "add", "seconds": 0.0, "needs": ["curve"]},
        "seed": 0,
        "status": "finished",
        "error": None,
        "seconds": 1.5,
        "finished": "2026-01-01T00:00:00+00:00",
        "threads": 1,
        "ranks": 1,
        "versions": {"python": "3.11", "torch": "2.13.0"},
        "cpu": "a processor",
        "commit": None,
        "outcome": {"sum": 1.0},
    } | changes
    return json.dumps({name: v for name, v in fields.items() if v != "nothing"}).encode()


def digits(field: str, number: str = DIGITS) -> bytes:
    """A record whose field is this number."""
    return record(**{field: "HERE"}).replace(b'"HERE"', number.encode())


RECORDS = {
    **{
        f"no {field}": lambda field=field: record(**{field: "nothing"})
        for field in json.loads(record())
        if field not in ("error", "ranks", "commit", "key", "kind")
    },
    **{
        f"{field} is {json.dumps(value)[:20]}": lambda field=field, value=value: record(
            **{field: value}
        )
        for field in ("config", "status", "seconds", "threads", "versions", "cpu", "outcome")
        for value in (None, [], {"a": []}, "text", -1, True, 10**400)
        if not (field == "cpu" and value == "text") and not (field == "outcome" and value == {})
        if not (field == "outcome" and isinstance(value, dict))
    },
    "seconds is nan": lambda: digits("seconds", "NaN"),
    "seconds is inf": lambda: digits("seconds", "1e999"),
    "versions without torch": lambda: record(versions={"python": "3.11"}),
    "finished is a number": lambda: record(finished=3),
    "commit is a list": lambda: record(commit=[1]),
    "label is a number": lambda: record(label=1),
    "a list": lambda: b"[1, 2]",
    "null": lambda: b"null",
    "half": lambda: record()[:100],
    "two": lambda: record() * 2,
    "deep": lambda: DEEP.encode(),
    "deep outcome": lambda: digits("outcome", '{"a":' * 100_000 + "1" + "}" * 100_000),
    **{
        f"10,000 digits in {f}": lambda f=f: digits(f)
        for f in ("format", "seed", "seconds", "outcome")
    },
    "latin-1": lambda: record(label="caf\u00e9").replace(b"caf\\u00e9", b"caf\xe9"),
    "byte order mark": lambda: b"\xef\xbb\xbf" + record(),
}

# What a section of the report must not stumble over: the record is whole, its outcome is not ours.
OUTCOMES = {
    f"outcome {json.dumps(outcome)[:30]}": lambda outcome=outcome: record(outcome=outcome)
    for outcome in (
        {},
        {"sum": "one"},
        {"sum": None},
        {"sum": [1, {}]},
        {"sum": 10**400},
        {"sum": 1.0, "examples": 3},
        {"sum": 1.0, "examples": {"train": "many"}},
    )
}

FINDINGS = {
    "no heading": lambda: b"some text\n",
    "latin-1": lambda: b"## caf\xe9\n\n- a\n",
}

# ---------------------------------------------------------------- MIDI


def midi(division: int = 480, *events: bytes, tracks: int = 1, length: int | None = None) -> bytes:
    """A MIDI file with one track of these events."""
    body = b"".join(events) + b"\0\xff\x2f\0"
    size = len(body) if length is None else length
    head = struct.pack(">4sIHHH", b"MThd", 6, 1, tracks, division)
    return head + struct.pack(">4sI", b"MTrk", size) + body


NOTE = b"\0\x90\x3c\x40\x60\x80\x3c\x40"  # middle C for 96 ticks

MIDI = {
    "division 0": lambda: midi(0, NOTE),
    "division in frames": lambda: midi(0xE728, NOTE),
    "bad key signature": lambda: midi(480, b"\0\xff\x59\x02\x7f\x05", NOTE),
    "short key signature": lambda: midi(480, b"\0\xff\x59\x01\x00", NOTE),
    "short tempo": lambda: midi(480, b"\0\xff\x51\x01\x00", NOTE),
    "bad time signature": lambda: midi(480, b"\0\xff\x58\x04\x04\xff\x18\x08", NOTE),
    "bad frame rate": lambda: midi(480, b"\0\xff\x54\x05\xff\xff\xff\xff\xff", NOTE),
    "track of 4 GB": lambda: midi(480, NOTE, length=2**32 - 1),
    "65,535 tracks": lambda: midi(480, NOTE, tracks=65_535),
    "text of 2^28 bytes": lambda: midi(480, b"\0\xff\x01\xff\xff\xff\x7f", NOTE),
    "no running status": lambda: midi(480, b"\0\x3c\x40"),
    "endless delta": lambda: midi(480, b"\xff" * 1000),
    "a year of silence": lambda: midi(480, b"\0\x90\x3c\x40" + b"\xff\xff\xff\x7f\x80\x3c\x40"),
    "five million notes": lambda: midi(480, NOTE, b"\0\x90", b"\x3c\x40\0" * 5_000_000),
    "half": lambda: midi(480, NOTE)[:20],
    "head alone": lambda: midi()[:14],
    "note outside of the keyboard": lambda: midi(480, NOTE.replace(b"\x3c", b"\x7f")),
}

# ---------------------------------------------------------------- CSV


TABLE = b"a,b,target\n" + b"1,2,0\n3,4,1\n" * 12
CSV = {
    "no rows": lambda: b"a,b,target\n",
    "no header": lambda: b"\n\n\n",
    "a NUL byte": lambda: TABLE.replace(b"3", b"\x003"),
    "a million digits": lambda: TABLE.replace(b"3", b"9" * 10**6),
    "ragged": lambda: TABLE + b"5\n6,7,8,9\n",
    "the same column twice": lambda: TABLE.replace(b"a,b", b"a,a"),
    "columns without a name": lambda: TABLE.replace(b"a,b", b",,"),
    "latin-1": lambda: TABLE.replace(b"3", b"caf\xe9"),
    "utf-16": lambda: TABLE.decode().encode("utf-16"),
    "a quote that never ends": lambda: TABLE.replace(b"3", b'"3'),
    "a formula": lambda: TABLE.replace(b"3", b"=cmd|' /C calc'!A0"),
    "nan and inf": lambda: TABLE.replace(b"3", b"nan").replace(b"2", b"1e999"),
    "100,000 columns": lambda: b",".join([b"1"] * 100_000) + b"\n",
    "other line ends": lambda: TABLE.replace(b"\n", b"\r") + b"\x1a",
    "faces with a wrong pixel": lambda: (
        b"emotion,pixels,Usage\n0," + b"256 " * 2304 + b",Training\n"
    ),
    "faces with a long pixel": lambda: b"emotion,pixels,Usage\n0," + b"x" * 10**5 + b",Training\n",
    "faces with a long emotion": lambda: (
        b"emotion,pixels,Usage\n" + b"9" * 4000 + b"," + b"1 " * 2304 + b",Training\n"
    ),
    "faces with a long usage": lambda: (
        b"emotion,pixels,Usage\n0," + b"1 " * 2304 + b"," + b"x" * 10**5 + b"\n"
    ),
}

# ---------------------------------------------------------------- parquet


def parquet(value: object, rows: int) -> bytes:
    """A parquet file that has the same value in every row, and its target."""
    import polars

    buffer = io.BytesIO()
    each = polars.repeat(value, rows, eager=True).to_frame("a")
    each.with_columns(target=polars.lit(1)).write_parquet(buffer)
    return buffer.getvalue()


PARQUET = {
    "100 million values": lambda: parquet(1, 50_000_000),
    "a book in every row": lambda: parquet("a book" * 10_000, 20_000),
    "half": lambda: parquet(1, 100)[:-100],
    "a wrong length": lambda: parquet(1, 100)[:-8] + b"\xff\xff\xff\x7fPAR1",
}

# ---------------------------------------------------------------- idx, gzip


def idx(*sizes: int, magic: bytes = b"\0\0\x08", body: bytes = b"") -> bytes:
    """An idx file that promises these sizes."""
    return magic + bytes([len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + body


IDX = {
    "header alone": lambda: idx(60_000, 28, 28),
    "a size of -1": lambda: idx(2**32 - 1, 28, 28),
    "sizes that overflow": lambda: idx(2**31, 2**31, 4),
    "no sizes": lambda: idx(),
    "255 dimensions": lambda: idx(*[1] * 255, body=b"\0"),
    "floats": lambda: idx(3, 28, 28, magic=b"\0\0\x0d", body=bytes(4 * 3 * 784)),
    "one image too few": lambda: idx(3, 28, 28, body=bytes(2 * 784)),
    "bomb": lambda: gzip.compress(bytes(10**8), 1),
    "bomb of many members": lambda: gzip.compress(bytes(10**6), 1) * 100,
    "truncated": lambda: gzip.compress(idx(3, 28, 28, body=bytes(3 * 784)))[:-12],
    "wrong checksum": lambda: gzip.compress(idx(3, 28, 28, body=bytes(3 * 784)))[:-8] + bytes(8),
    "gzip of gzip": lambda: gzip.compress(gzip.compress(idx(3, 28, 28))),
    "gzip with a tail": lambda: gzip.compress(b"1,2,3\n") + b"tail",
}

# ---------------------------------------------------------------- npz


def npz(**members: bytes) -> bytes:
    """A zip file of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def npy(header: str, body: bytes = b"") -> bytes:
    """A npy file with this header."""
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header) % 2**16) + header.encode() + body


def faces(header: str, body: bytes = b"") -> bytes:
    """The three members of the faces, all with this header."""
    return npz(**dict.fromkeys(("images", "labels", "usage"), npy(header, body)))


def objects() -> bytes:
    """Arrays of Python objects, which numpy would unpickle."""
    buffer = io.BytesIO()
    np.savez(buffer, **dict.fromkeys(("images", "labels", "usage"), np.array([{}, []], object)))
    return buffer.getvalue()


NPZ = {
    "no members": npz,
    "members of noise": lambda: npz(images=b"x" * 100, labels=b"", usage=b"\x93NUMPY"),
    "an array of 1 TB": lambda: faces(
        "{'descr':'|u1','fortran_order':False,'shape':(1099511627776,)}"
    ),
    "a negative size": lambda: faces("{'descr':'|u1','fortran_order':False,'shape':(-1,)}"),
    "a deep header": lambda: faces("(" * 9000),
    "a call in the header": lambda: faces("__import__('os').system('exit 3')"),
    "pickled objects": objects,
    "half": lambda: npz(images=b"x" * 10_000)[:200],
    "a path that climbs": lambda: npz(**{"../../images": b""}),
}

# ---------------------------------------------------------------- MATLAB files and pickles


def mat(**arrays: object) -> bytes:
    """A MATLAB file of these arrays."""
    buffer = io.BytesIO()
    savemat(buffer, arrays, do_compression=True)
    return buffer.getvalue()


class Exits:
    """A pickle that ends the process which loads it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        import os

        return os._exit, (3,)


MUSIC = {
    "other arrays": lambda: mat(x=np.zeros(3)),
    "no cells": lambda: mat(traindata=np.zeros(3), validdata=1, testdata="text"),
    "half": lambda: mat(traindata=np.ones((100, 88)))[:150],
    "a program": lambda: pickle.dumps({"train": Exits(), "valid": [], "test": []}),
    "deep": lambda: b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b".",
    "10,000 digits": lambda: b"I" + DIGITS.encode() + b"\n.",
    # {(((), ()), ((), ())): 1}, but 60 pairs deep: the key has 2^60 parts to hash
    "a key that takes years": lambda: b"\x80\x02})" + b"2\x86" * 60 + b"K\x01s.",
    "lists of the wrong things": lambda: pickle.dumps({"train": [1], "valid": [], "test": None}),
}

# ---------------------------------------------------------------- storages of searches


def database(*statements: str) -> bytes:
    """A SQLite file."""
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    return connection.serialize()


def storage(**attributes: object) -> bytes:
    """A storage with one search, that has these attributes."""
    import tempfile

    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "studies.db"
        kept = optuna.storages.RDBStorage(f"sqlite:///{path}")
        study = optuna.create_study(storage=kept, study_name="a search")
        for name, value in attributes.items():
            study.set_user_attr(name, value)
        kept.remove_session()
        kept.engine.dispose()
        return path.read_bytes()


PLAN = {"experiment": "table1", "scale": "quick", "sampler": "random", "seed": 0, "settings": []}

DATABASES = {
    "another program's": lambda: database("CREATE TABLE notes (text VARCHAR)"),
    "tables without columns": lambda: database(
        "CREATE TABLE studies (a INT)", "CREATE TABLE version_info (a INT)"
    ),
    "half": lambda: storage(plan=PLAN)[:6000],
    "a flipped page": lambda: storage(plan=PLAN)[:4096] + b"\xff" * 8192,
    **{
        f"{table} without end": lambda table=table: database(
            f"CREATE VIEW {table} AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM "
            "n) SELECT x AS study_id, x AS study_name, x AS schema_version, x AS library_version, "
            "'run' AS scope, x AS name, x AS driver, x AS beats, x AS version_info_id FROM n"
        )
        for table in ("studies", "version_info", "lpunits_claimed")
    },
    "a trigger": lambda: database(
        "CREATE TABLE lpunits_claimed (scope, name, driver, beats)",
        "CREATE TRIGGER more AFTER INSERT ON lpunits_claimed BEGIN DELETE FROM lpunits_claimed; "
        "END",
    ),
}
PLANS = {
    "plan is a list": lambda: storage(plan=[1, 2], space="x"),
    "plan is a number": lambda: storage(plan=3, space="x"),
    "plan without settings": lambda: storage(plan={"experiment": "table1"}, space="x"),
    "plan of nothing": lambda: storage(plan=PLAN | {"experiment": "no such"}, space="x"),
    "plan with other fields": lambda: storage(plan=PLAN | {"a": 1}, space="x"),
    "plan with wild settings": lambda: storage(plan=PLAN | {"settings": [[1], {}]}, space="x"),
    "plan at no scale": lambda: storage(plan=PLAN | {"scale": "huge"}, space="x"),
    "plan without a space": lambda: storage(plan=PLAN),
}

FILES = {
    "anything": ANYTHING,
    "records": RECORDS,
    "outcomes": OUTCOMES,
    "findings": FINDINGS,
    "models": MODELS,
    "estimators": ESTIMATORS,
    "folders": FOLDERS,
    "midi": MIDI,
    "csv": CSV,
    "parquet": PARQUET,
    "idx": IDX,
    "npz": NPZ,
    "music": MUSIC,
    "databases": DATABASES,
    "plans": PLANS,
}
