"""The report: from records alone, one page that needs nothing else, readable everywhere."""

import dataclasses
import io
import re

import pytest
from browsing import opened, places_of_cells
from configs import Sum
from matplotlib.figure import Figure

from lpunits.paper import experiments
from lpunits.paper.report import page as report
from lpunits.paper.report.parts import collect, headlines
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.report.summary import Headline
from lpunits.paper.training import records
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Trial


def drawing():
    figure = Figure(figsize=(4, 3))
    figure.subplots().plot([0, 1], [1, 0], color="black", label="<line>")
    return figure


def section(results):
    sums = [r.outcome["sum"] for r in results]
    table = Table(["paper", "ours"], [["1 < 2", str(max(sums))]])
    pictures = [Picture("sums", drawing(), 'a "line"')]
    return Section(f"{len(sums)} sums & more.", [table], pictures, ["An `x < y`."])


def example(name="sums"):
    return Experiment(
        name=name,
        title="Sums <of> things",
        about="It adds & shows.",
        trials=lambda scale: [Trial(Sum(), seed) for seed in range({"quick": 3}.get(scale, 1))],
        section=section,
        minutes={"smoke": 0, "quick": 0, "paper": 0},
    )


@pytest.fixture
def store(tmp_path):
    store = Records(tmp_path / "records")
    for seed in (0, 2):
        trial = Trial(Sum(), seed)
        store.write(records.make(trial, "finished", {"sum": 1.0 + seed}, seconds=90))
    return store


def test_the_page_says_what_was_run_and_how_to_repeat_it(store, tmp_path):
    parts = collect([example()], store, scales=("quick",))
    text = report.write(tmp_path / "out", parts).read_text()
    for expected in (
        "Sums &lt;of&gt; things",
        "It adds &amp; shows.",
        "2 sums &amp; more.",
        '<td data-head="paper">1 &lt; 2</td><td data-head="ours">3.0</td>',
        "Trials: 2 of 3 have finished, 2 seeds.",
        "Time: 3.0 minutes of computation",
        "<pre>lpunits run sums</pre>",
        "<li>An <code>x &lt; y</code>.</li>",
        'aria-label="a &#34;line&#34;"',
    ):
        assert expected in text
    assert sorted(p.name for p in (tmp_path / "out" / "figures").iterdir()) == [
        "sums-quick.png",
        "sums-quick.svg",
    ]


def test_the_page_begins_with_the_summary_of_the_first_scale(store, tmp_path):
    row = Headline("most", "2", "<3>", "not reproduced", "so it is")

    def with_headline(results):
        return dataclasses.replace(section(results), headlines=[row])

    experiment = dataclasses.replace(example(), section=with_headline)
    (part,) = collect([experiment], store, ("quick",))
    parts = [dataclasses.replace(part, scale="paper", command="x"), part]
    assert headlines(parts) == [dataclasses.replace(row, command="x")]
    text = report.write(tmp_path / "out", parts[:1]).read_text()
    assert text.index("&lt;3&gt;</td>") < text.index("<nav>")
    assert 'class="not reproduced">not reproduced</td>' in text
    assert headlines(collect([example()], store)) == []


def test_scales_and_settings_are_reported_apart(store, tmp_path):
    parts = collect([example()], store)
    assert [(p.scale, len(p.results), p.command) for p in parts] == [
        ("paper", 1, "lpunits run sums --scale paper"),
        ("quick", 2, "lpunits run sums"),
    ]
    assert collect([example()], store, settings=["number=2"]) == []
    trial = Trial(Sum(2.0), 0)
    store.write(records.make(trial, "finished", {"sum": 2.0}, seconds=1))
    (part,) = collect([example()], store, ("quick",), settings=["number=2"])
    assert part.command == "lpunits run sums --set number=2"


def test_a_scale_is_not_shown_for_trials_that_belong_to_another(store):
    def trials(scale):
        return [Trial(Sum(), seed) for seed in {"quick": (0, 2), "paper": (0, 2, 4)}.get(scale, ())]

    experiment = dataclasses.replace(example(), trials=trials)
    assert [part.scale for part in collect([experiment], store)] == ["quick"]
    store.write(records.make(Trial(Sum(), 4), "finished", {"sum": 5.0}, seconds=1))
    assert [part.scale for part in collect([experiment], store)] == ["paper"]
    assert [part.scale for part in collect([experiment], store, ("quick",))] == ["quick"]


def test_a_smaller_scale_is_behind_a_fold(store, tmp_path):
    parts = collect([example()], store)
    assert [part.scale for part in parts] == ["paper", "quick"]
    text = report.write(tmp_path, parts).read_text()
    assert text.count("<details><summary>At the scale <em>quick</em></summary>") == 1


def test_what_has_no_record_is_named(store, tmp_path):
    text = report.write(tmp_path, [], [example("other")]).read_text()
    assert "Not run yet" in text
    assert "<code>lpunits run other</code>" in text


def test_findings_follow_the_summary(store, tmp_path):
    text = "## What holds\n\n- **This** & that,\n  by *far* ([[sums]]).\n- Not [[other]], [x](a).\n"
    (tmp_path / "records" / "findings.md").write_text(text)
    parts = collect([example()], store)
    page = report.write(tmp_path, parts, findings=store.findings()).read_text()
    link = '<a href="#sums">Sums &lt;of&gt; things</a>'
    first = f"<li><strong>This</strong> &amp; that, by <em>far</em> ({link}).</li>"
    assert f"<h2>What holds</h2>\n<ul>{first}\n<li>Not other, x.</li>" in page
    assert Records(tmp_path / "none").findings() == {}
    (tmp_path / "records" / "findings.md").write_text("All is well.\n")
    with pytest.raises(ValueError, match=r"must begin with a heading.*All is well"):
        store.findings()


def test_the_same_records_give_the_same_page(store, tmp_path):
    pages = [report.write(tmp_path / name, collect([example()], store)) for name in ("a", "b")]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_black_is_the_colour_of_the_text_inside_the_page_only():
    assert "currentColor" in report.svg(drawing(), inline=True)
    assert "#000000" not in report.svg(drawing(), inline=True)
    assert "currentColor" not in report.svg(drawing())


@pytest.fixture(scope="module")
def whole(smoke, tmp_path_factory):
    """The page of all experiments, and how many figures it has."""
    store = Records(smoke / "records")
    parts = collect(experiments.chosen(("all",)), store, scales=("smoke",))
    assert len(parts) == len(experiments.EXPERIMENTS)
    page = report.write(tmp_path_factory.mktemp("page"), parts)
    shown = [it for p in parts for it in (*p.section.pictures, *p.section.details)]
    return page, sum(isinstance(it, Picture) for it in shown)


def test_nothing_is_loaded_from_elsewhere_and_no_id_is_given_twice(whole):
    text = whole[0].read_text()
    assert not re.findall(r'(?:src|href)="(?!#|data:|playground/index\.html#)', text)
    assert not re.search(r"@import|url\((?!#)", text)
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))


def test_figures_2_to_4_open_in_the_playground(whole):
    text = whole[0].read_text()
    links = re.findall(r'href="(playground/index\.html)#view=(\w+)&amp;data=([\w-]+)', text)
    assert [kind for *_, kind in links] == ["two-gaussians"] * 3 + ["three-gaussians"] * 2 + [
        "curve"
    ]
    assert [view for _, view, _ in links] == ["network"] * 5 + ["race"]
    for page, *_ in links:
        assert (whole[0].parent / page).exists()


def test_markers_share_a_style_and_places_are_short():
    figure = Figure(figsize=(4, 3))
    figure.subplots().plot(range(500), [x**0.5 for x in range(500)], "o", alpha=0.7)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    assert len(report.svg(figure)) < 0.6 * len(buffer.getvalue())
    assert report.svg(figure).count("fill-opacity: 0.7") == 1


def luminance(colour):
    """The relative luminance of an RGB colour, as WCAG defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(colour, back):
    low, high = sorted(luminance([c / 255 for c in some]) for some in (colour, back))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_in_a_browser(scheme, width, whole, browser):
    file, pictures = whole
    with opened(browser, file, scheme, width) as page:
        # The page itself never scrolls sideways.
        assert page.evaluate("document.documentElement.scrollWidth") == width
        figures = page.locator("figure svg")
        assert figures.count() == pictures
        for index in range(figures.count()):
            figure = figures.nth(index)
            assert (figure.get_attribute("aria-label") or "").strip()
            box = figure.bounding_box()
            assert box["width"] > 250
            assert box["height"] > 100
        text, back = page.evaluate(
            "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
        )
        text, back = ([int(c) for c in re.findall(r"\d+", some)[:3]] for some in (text, back))
        assert contrast(text, back) > 10
        assert (luminance(text) < luminance(back)) == (scheme == "light")


@pytest.mark.parametrize("width", [1200, 390])
def test_no_cell_of_a_table_is_out_of_sight(width, whole, browser):
    with opened(browser, whole[0], "light", width) as page:
        cells = places_of_cells(page)
        assert len(cells) > 300
        assert not [cell for cell in cells if cell[1] < 0 or cell[2] > width]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_of_a_curve_is_visible(scheme, whole, browser):
    """Strokes of the inline figures against the page: the curves of Fig. 1 once vanished."""
    with opened(browser, whole[0], scheme, 1200) as page:
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        strokes = page.eval_on_selector_all(
            "figure svg g[id*='line2d'] > path",
            "paths => [...new Set(paths.map(p => getComputedStyle(p).stroke))]",
        )
    back = [int(c) for c in re.findall(r"\d+", back)[:3]]
    colours = [[int(c) for c in re.findall(r"\d+", stroke)[:3]] for stroke in strokes]
    colours = [colour for colour in colours if len(colour) == 3]
    assert len(colours) > 10
    ink = [26, 26, 26]  # of Fig. 1's labels on a coloured surface
    faint = [c for c in colours if c != ink and contrast(c, back) < 1.9]
    assert not faint
