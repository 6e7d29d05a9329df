"""Table 4: deep recurrent networks with Lp units predict polyphonic music."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from lpunits.paper.data.music import LOWEST
from lpunits.paper.report.figures import NAMES, panels
from lpunits.paper.report.outcomes import TITLES, headline, orders, orders_figure
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.report.summary import judge
from lpunits.paper.statistics import spread
from lpunits.paper.training.music import CELLS, Music
from lpunits.paper.training.recipes import MUSIC, MUSIC_BRIEF, MUSIC_PLAIN, music
from lpunits.paper.training.trial import Result, Scale, Trial

# Test NLL in nats per step, for Nottingham, JSB Chorales and MuseData.
PAPER = {
    "DOT-RNN, Lp": {"nottingham": 2.95, "jsb": 7.92, "musedata": 6.59},
    "DOT-RNN, sigmoid": {"nottingham": 3.22, "jsb": 8.44, "musedata": 6.97},
    "RNN, fast dropout": {"nottingham": 3.09, "jsb": 8.01, "musedata": 6.75},
}
MODELS: tuple[str, ...] = ("lp", "sigmoid", "maxout", "tanh", "rnn", "gru")
FEWER = ("lp", "sigmoid", "tanh", "gru")
SEEDS = {"jsb": 3, "nottingham": 2, "musedata": 2}
# The other networks with the recipe of Lp units, and their seeds.
FULL = {"jsb": (("sigmoid", "tanh", "gru", "lstm"), 3)}
# A comparison without the shortcut, in fewer epochs: its networks and their seeds.
BRIEF = {"jsb": (MODELS, 3), "nottingham": (FEWER, 1), "musedata": (FEWER, 1)}
# With the learning rate of the others and seed 0, this net learns only the frequencies of notes.
OWN_RATES = {("musedata", "sigmoid"): 5e-4}
THRESHOLDS = (0.3, 1.0, 3.0)  # of gradient clipping, compared on the validation set of JSB Chorales


def trials(scale: Scale) -> list[Trial]:
    """Every network on every collection, with the same budget."""
    if scale != "paper":
        models, seeds = (MODELS, 2) if scale == "quick" else (("lp", "rnn", "gru"), 1)
        net = music(scale)
        return [Trial(replace(net, model=m), seed) for m in models for seed in range(seeds)]
    found: list[Trial] = []
    for data, brief in MUSIC_BRIEF.items():
        found += [Trial(MUSIC[data], seed) for seed in range(SEEDS[data])]
        models, seeds = FULL.get(data, ((), 0))
        found += [Trial(replace(MUSIC[data], model=m), s) for m in models for s in range(seeds)]
        if MUSIC[data] != (plain := MUSIC_PLAIN[data]):
            found += [Trial(plain, seed) for seed in range(SEEDS[data])]
        models, seeds = BRIEF[data]
        for model in models:
            config = replace(brief, model=model, lr=OWN_RATES.get((data, model), brief.lr))
            found += [Trial(config, seed) for seed in range(seeds)]
    jsb = MUSIC_BRIEF["jsb"]
    found += [Trial(replace(jsb, clip=clip), 0) for clip in THRESHOLDS if clip != jsb.clip]
    return [*found, Trial(replace(jsb, transpose=6), 0)]


def section(results: Sequence[Result]) -> Section:
    """Ours beside the paper's, the learned orders, and a piece of music."""
    thresholds = _thresholds(results)
    results = [r for r in results if r.config.clip == MUSIC.get(r.config.data, r.config).clip]
    groups = grouped(results, lambda config: config)
    rows, summary = [], []
    for config, found in groups.items():
        name, data = _name(config.model), _title(config)
        claims = _full(config) or config.model != "lp"
        paper = PAPER.get(name, {}).get(config.data) if claims else None
        if config.shortcut and config.model not in CELLS:
            name += ", shortcut"
        if config.transpose:
            name += f", transposed by up to {config.transpose} semitones"
        if _brief(config):
            name += f", {config.epochs} epochs"
        test, valid = ([r.outcome["nll"][split] for r in found] for split in ("test", "valid"))
        pieces = spread([r.outcome["nll_per_piece"]["test"] for r in found])
        claimed = f"{paper:.2f}" if paper else ""
        weights = f"{found[0].outcome['weights']:,}"
        rows.append([data, name, weights, claimed, spread(test), pieces, spread(valid)])
        if paper and config.model == "lp":
            what = f"Table 4: DOT-RNN with Lp units on {data}, nats per step"
            summary += headline(what, config, claimed, statistics.fmean(test), spread(test))
    head = ["data", "network", "weights", "paper", "test", "test, per piece", "validation"]
    caption = "Negative log-likelihood (NLL) in nats per step; lower is better."
    tables, pictures = [Table(head, rows, caption)], []
    if lp := [r for r in results if r.config.model == "lp" and _full(r.config)]:
        by_data = grouped(lp, _title)
        tables.append(_orders(by_data))
        alt = "A piano roll, and the probabilities that were predicted for it"
        learned = "The learned orders of the transition"
        pictures = [
            Picture("table4-roll", roll(lp[0]), alt),
            Picture("table4-orders", orders_figure(by_data), learned),
        ]
    return Section(_verdict(groups), tables, pictures, _notes(results), summary, thresholds)


def _notes(results: Sequence[Result]) -> list[str]:
    dropout = ", ".join(
        f"{TITLES[d]} {value:.2f}" for d, value in PAPER["RNN, fast dropout"].items()
    )
    notes = [
        "*test* is the mean over all steps of the test set, the first frame included; *per piece* "
        "is the mean over pieces. The epoch with the lowest validation NLL is tested. All networks "
        "have the same number of weights and the same budget.",
        f"For comparison, fast dropout on a plain RNN, as the paper cites it: {dropout}.",
    ]
    if any(_brief(r.config) for r in results):
        notes.append(
            "Rows with a number of epochs compare networks on a smaller budget, equal for all. The "
            "hyperparameters were chosen with Lp units. The learning rate of sigmoid units on "
            "MuseData is halved: with the full rate one of two seeds did not learn."
        )
    if any(r.config.transpose for r in results):
        notes.append("Transposition of the training pieces is ours: the paper has no augmentation.")
    return notes


def _name(model: str) -> str:
    return model.upper() if model in CELLS else f"DOT-RNN, {NAMES[model]}"


def _title(config: Music) -> str:
    return TITLES.get(config.data, Path(config.data).name)


def _brief(config: Music) -> bool:
    return config.data in MUSIC_BRIEF and config.epochs == MUSIC_BRIEF[config.data].epochs


def _full(config: Music) -> bool:
    """Whether it has the recipe of Table 4, or no other one is known."""
    return replace(config, model="lp") == MUSIC.get(config.data, replace(config, model="lp"))


def _verdict(groups: Mapping[Music, Sequence[Result]]) -> str:
    means = {
        config: statistics.fmean(r.outcome["nll"]["test"] for r in found)
        for config, found in groups.items()
    }
    reached, beaten = [], []
    for config, ours in means.items():
        if config.model != "lp" or config.transpose:
            continue
        result = f"{ours:.2f} on {_title(config)}"
        if _full(config):
            paper = PAPER["DOT-RNN, Lp"].get(config.data)
            claim = f" (the paper's {paper:.2f} is {judge(ours, paper)})" if paper else ""
            reached.append(f"{result}{claim}")
        alike = (c for c in means if c != config and replace(c, model="lp", lr=config.lr) == config)
        if others := [means[other] for other in alike]:
            better = sum(other > ours for other in others)
            count = f"better than {better} of {len(others)} others"
            beaten.append(f"{result} in {config.epochs} epochs, {count}")
    if not reached and not beaten:
        return "Lp units have not been run yet."
    sentences = [f"Lp units reach {', '.join(reached)}."] if reached else []
    sentences += [f"Beside other networks they have {'; '.join(beaten)}."] if beaten else []
    return " ".join(sentences)


def _thresholds(results: Sequence[Result]) -> list[Table]:
    """The comparison of thresholds, if more than one was run."""
    jsb = MUSIC_BRIEF["jsb"]
    found = {
        r.config.clip: r.outcome["nll"]["valid"]
        for r in results
        if r.trial.seed == 0 and replace(r.config, clip=jsb.clip) == jsb
    }
    rows = [[f"{clip:g}", f"{nll:.3f}"] for clip, nll in sorted(found.items())]
    caption = "The threshold of gradient clipping on JSB Chorales, seed 0."
    return [Table(["threshold", "validation"], rows, caption)] if len(rows) > 1 else []


def _orders(groups: Mapping[str, Sequence[Result]]) -> Table:
    rows = []
    for name, found in groups.items():
        initial, final = (torch.cat([orders(r, w) for r in found]) for w in ("initial", "final"))
        numbers = (initial.mean(), final.mean(), final.std(), final.min(), final.max())
        rows.append([name, *(f"{n:.2f}" for n in numbers)])
    head = ["data", "initial order", "learned: mean", "std", "least", "most"]
    return Table(head, rows, "The orders of the transition's Lp units.")


def roll(result: Result) -> Figure:
    """What is played, above the probabilities that were predicted."""
    excerpt: dict[str, list[str]] = result.outcome["excerpt"]
    rows = {name: np.array([list(bytes.fromhex(r)) for r in t]).T for name, t in excerpt.items()}
    used = np.flatnonzero(rows["truth"].any(1) | (rows["probability"] > 25).any(1))
    low, high = (int(used[0]), int(used[-1])) if len(used) else (0, 87)
    fig, drawn = panels(2, 1, 9, 2.8, frame=True, share="x")
    titles = {"truth": "what is played", "probability": "predicted probability"}
    for axes, (name, title) in zip(drawn, titles.items(), strict=True):
        image = axes.imshow(
            rows[name][low : high + 1] / 255,
            origin="lower",
            aspect="auto",
            cmap="Blues",
            vmin=0,
            vmax=1,
            interpolation="nearest",
            extent=(-0.5, rows[name].shape[1] - 0.5, LOWEST + low - 0.5, LOWEST + high + 0.5),
        )
        axes.set(ylabel="MIDI note", title=f"{TITLES.get(result.config.data, '')} {title}".strip())
    drawn[1].set_xlabel("step")
    fig.colorbar(image, ax=drawn, shrink=0.6, label="probability")
    return fig


EXPERIMENT = Experiment(
    name="table4",
    title="Table 4: deep recurrent networks on polyphonic music",
    about="A network with Lp units between its recurrent states predicts the next frame of a piece "
    "of music, beside the same with sigmoid, maxout and tanh units, a plain RNN and a GRU.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 1, "paper": 260},
)
