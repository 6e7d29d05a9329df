"""MIDI files as piano rolls, and piano rolls as MIDI files."""

import io
import itertools
from pathlib import Path

import torch
from torch import Tensor

from lpunits.files import write_atomically
from lpunits.paper.data.untrusted import HIGHEST, LOWEST

KEYS = HIGHEST - LOWEST + 1
TICKS, STEPS = 480, 2  # per quarter note
VELOCITY = 80
PERCUSSION = 9  # this channel plays drums, whatever the note
MOST_STEPS = 100_000
MOST_BYTES = 2**21  # takes 200 MB to read; hours of piano have less than half


def write_midi(path: Path, roll: Tensor, *, tempo: float = 120.0) -> None:
    """Write a piano roll as a standard MIDI file; a note in adjacent steps is held.

    Args:
        path: The file to write.
        roll: (steps, 88), of 0 and 1.
        tempo: Quarter notes per minute.
    """
    import mido

    if not 4 <= tempo <= 1000:
        raise ValueError(f"tempo must be from 4 to 1000 quarter notes a minute, got {tempo!r}")
    if roll.ndim != 2 or roll.shape[1] != KEYS:
        raise ValueError(f"roll must have the shape (steps, {KEYS}), got {tuple(roll.shape)}")
    file = mido.MidiFile(ticks_per_beat=TICKS)
    track = mido.MidiTrack()
    file.tracks.append(track)
    track.append(mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(tempo)))
    waiting = 0
    silence = torch.zeros(1, KEYS, dtype=torch.bool)
    frames = torch.cat([silence, roll.bool(), silence])
    for before, now in itertools.pairwise(frames):
        for kind, change in (("note_off", before & ~now), ("note_on", now & ~before)):
            for key in change.nonzero().flatten().tolist():
                track.append(mido.Message(kind, note=key + LOWEST, velocity=VELOCITY, time=waiting))
                waiting = 0
        waiting += TICKS // STEPS
    content = io.BytesIO()
    file.save(file=content)
    write_atomically(path, content.getvalue())


def read_midi(path: Path) -> Tensor:
    """The piano roll of a MIDI file, (steps, 88), without its percussion.

    Times are rounded to the nearest step.
    Raises ValueError for a note outside the keyboard.
    """
    import mido

    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        file = mido.MidiFile(path)
        messages = list(mido.merge_tracks(file.tracks))
        if file.ticks_per_beat <= 0:  # or above 32767: frames of a film, not notes
            raise ValueError("its times are not in parts of a quarter note")
    except FileNotFoundError as error:
        raise ValueError(f"{path}: there is no such file") from error
    except Exception as error:  # the parser fails in many ways on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: a damaged MIDI file ({reason:.200})") from error
    step = file.ticks_per_beat / STEPS
    now, sounding = 0, dict[int, int]()
    notes: list[tuple[int, int, int]] = []
    for message in messages:
        now += message.time
        if message.type not in ("note_on", "note_off") or message.channel == PERCUSSION:
            continue
        if not LOWEST <= message.note <= HIGHEST:
            raise ValueError(
                f"{path}: a note must be on the keyboard, from {LOWEST} to {HIGHEST}, "
                f"got {message.note}"
            )
        if message.type == "note_on" and message.velocity:
            sounding.setdefault(message.note, now)
        elif message.note in sounding:
            notes.append((message.note, sounding.pop(message.note), now))
    last = max((end for _, _, end in notes), default=0)
    steps = round(last / step)
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"{path}: from 1 to {MOST_STEPS} steps of music are expected, got {steps}")
    roll = torch.zeros(steps, KEYS)
    for note, begin, end in notes:
        first = min(round(begin / step), steps - 1)
        roll[first : max(first + 1, round(end / step)), note - LOWEST] = 1
    return roll
