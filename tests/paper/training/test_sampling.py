"""Music out of a network, into a MIDI file and back."""

import os

import mido
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lpunits import DOTRNN, sealed
from lpunits.files import StorageError
from lpunits.paper.cli.music import app
from lpunits.paper.data.midi import read_midi, write_midi
from lpunits.paper.training.models import load_model
from lpunits.paper.training.music import Music
from lpunits.paper.training.sampling import sample
from lpunits.paper.training.trial import Trial

CONFIG = Music("chords", hidden=8, units=6, output_units=6)


def kept(path, config=CONFIG):
    """A model file, as a trial keeps it."""
    torch.manual_seed(0)
    header = {"kind": "Music", "config": Trial(config, 0).values, "seed": 0}
    sealed.write(path, config.net().state_dict(), header)
    return path


def run(*arguments):
    app(tuple(map(str, arguments)), exit_on_error=False, result_action="return_value")


@settings(deadline=None, max_examples=30)
@given(
    notes=st.lists(st.sets(st.integers(0, 87), max_size=6), min_size=1, max_size=12),
    tempo=st.floats(20, 300),
)
def test_a_midi_file_holds_the_roll(notes, tempo, tmp_path_factory):
    roll = torch.zeros(len(notes), 88)
    for t, keys in enumerate(notes):
        roll[t, list(keys)] = 1
    path = tmp_path_factory.mktemp("midi") / "a.mid"
    write_midi(path, roll, tempo=tempo)
    ons = [m for m in mido.MidiFile(path) if m.type == "note_on"]
    first = torch.cat([torch.zeros(1, 88), roll])
    assert len(ons) == ((roll - first[:-1]) > 0).sum()
    while len(roll) and not roll[-1].any():  # silence at the end leaves no trace
        roll = roll[:-1]
    if len(roll):
        assert torch.equal(read_midi(path), roll)
        seconds = len(roll) * 30 / tempo
        assert mido.MidiFile(path).length == pytest.approx(seconds, rel=1e-3)


def test_a_midi_file_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "a.mid"
    write_midi(path, torch.eye(88))
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda file: os.write(-1, b""))  # as a disk that has failed
    with pytest.raises(StorageError, match=r"a\.mid cannot be written: Bad file descriptor"):
        write_midi(path, torch.ones(3, 88))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_samples():
    torch.manual_seed(0)
    net = DOTRNN(88, 8, 88, 6, 2, 6, 2, dropout=0.5)
    assert torch.equal(sample(net, 20, seed=1), sample(net, 20, seed=1))
    assert not torch.equal(sample(net, 20, seed=1), sample(net, 20, seed=2))
    cold, warm = sample(net, 30, temperature=0), sample(net, 30, temperature=10.0)
    assert torch.equal(cold, sample(net, 30, temperature=0, seed=5))  # nothing is left to chance
    assert warm.shape == (30, 88)
    assert set(warm.unique().tolist()) == {0.0, 1.0}
    # Every frame at temperature 0 is the likely one, given those before it.
    logits, _ = net(torch.cat([torch.zeros(1, 88), cold[:-1]]))
    assert torch.equal(cold, (logits > 0).float())


def test_a_sample_goes_on_from_a_beginning():
    torch.manual_seed(0)
    net = DOTRNN(88, 8, 88, 6, 2, 6, 2).eval()
    whole = sample(net, 12, temperature=0)
    assert torch.equal(sample(net, 5, temperature=0, start=whole[:7]), whole[7:])


@pytest.mark.parametrize("model", ["lp", "tanh", "gru"])
def test_the_command(model, tmp_path, capsys):
    config = Music("chords", model=model, hidden=8, units=6, output_units=6)
    path = kept(tmp_path / "model.safetensors", config)
    out = tmp_path / "out.mid"
    run("sample", path, "-o", out, "--steps", 9, "--temperature", 0.7, "--seed", 4)
    assert f"{out}: 9 steps" in capsys.readouterr().out
    roll = sample(load_model(path).net, 9, temperature=0.7, seed=4)
    found = read_midi(out)
    assert torch.equal(found, roll[: len(found)])
    again = tmp_path / "again.mid"
    run("sample", path, "-o", again, "--steps", 9, "--start", out)
    assert again.stat().st_size > 30


def test_what_is_wrong_is_said_in_a_sentence(tmp_path):
    good = kept(tmp_path / "good.safetensors")
    high = tmp_path / "high.mid"
    track = mido.MidiTrack([mido.Message("note_on", note=120), mido.Message("note_off", note=120)])
    mido.MidiFile(tracks=[track]).save(high)
    mido.MidiFile(tracks=[mido.MidiTrack()]).save(tmp_path / "empty.mid")
    net = load_model(good).net
    for call, sentence in (
        (lambda: sample(net, 0), "steps must be a number from 1 to 100000, got 0"),
        (lambda: sample(net, 5, temperature=-1.0), "temperature must be a number of at least 0"),
        (lambda: sample(net, 5, temperature=float("nan")), "temperature must be"),
        (lambda: write_midi(high, torch.zeros(3, 87)), "roll must have the shape (steps, 88)"),
        (lambda: write_midi(high, torch.zeros(3, 88), tempo=0), "tempo must be from 4 to 1000"),
        (lambda: read_midi(high), "a note must be on the keyboard, from 21 to 108, got 120"),
        (lambda: read_midi(good), "a damaged MIDI file"),
        (lambda: read_midi(tmp_path / "none.mid"), "there is no such file"),
        (lambda: read_midi(tmp_path / "empty.mid"), "from 1 to 100000 steps of music"),
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            call()
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
