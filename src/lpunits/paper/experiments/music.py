"""The networks of Table 4 on any music: ``lpunits run music --data PATH``."""

from dataclasses import replace

from lpunits.paper.experiments import table4
from lpunits.paper.report.section import Experiment
from lpunits.paper.training.recipes import music
from lpunits.paper.training.trial import Scale, Trial


def trials(scale: Scale) -> list[Trial]:
    """A network with Lp units, one with tanh and a GRU; without --data, on generated chords."""
    recipe = replace(music(scale), data="chords")
    return [Trial(replace(recipe, model=model), 0) for model in ("lp", "tanh", "gru")]


EXPERIMENT = Experiment(
    name="music",
    title="Music of your own",
    about="A deep recurrent network with Lp units, the same with tanh units, and a GRU, on the "
    "music of --data: a .mat or a pickle of piano rolls, or a folder of MIDI files.",
    trials=trials,
    section=table4.section,
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 10},
)
