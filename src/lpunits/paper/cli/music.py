"""The command ``lpunits music sample``: a trained network plays."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

app = App(name="music", help="Polyphonic music: let a trained network play.")


@app.command
def sample(
    checkpoint: Path,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    steps: int = 200,
    temperature: float = 1.0,
    seed: int = 0,
    start: Path | None = None,
    tempo: float = 120.0,
) -> None:
    """Let a trained network play, and write the music as a MIDI file.

    Args:
        checkpoint: The model.safetensors in the work folder of a trial of table4.
        out: The MIDI file to write.
        steps: The number of steps; two are a quarter note.
        temperature: Below 1, likely notes become likelier; at 0, those above 1/2 sound.
        seed: The same seed gives the same music.
        start: A MIDI file to continue.
        tempo: Quarter notes per minute.
    """
    from lpunits.paper.data import midi
    from lpunits.paper.training import sampling
    from lpunits.paper.training.models import load_model

    net, about = load_model(checkpoint)
    if about["kind"] != "Music":
        raise ValueError(f"{checkpoint}: a model of Music is expected, got {about['kind']}")
    begin = None if start is None else midi.read_midi(start)
    roll = sampling.sample(net, steps, temperature=temperature, seed=seed, start=begin)
    midi.write_midi(out, roll, tempo=tempo)
    print(f"{out}: {steps} steps, {roll.sum(1).mean():.1f} notes at a time")
