"""The report: from records alone, one page that needs nothing else, readable everywhere."""

import dataclasses
import io
import re
import shutil

import pytest
from configs import Sum
from matplotlib.figure import Figure
from PIL import Image

from lpunits.paper import experiments
from lpunits.paper.report import page as report
from lpunits.paper.report.section import Experiment, Headline, Picture, Section, Table
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
    return Section(f"{len(sums)} sums & more.", [table], [Picture("sums", drawing(), 'a "line"')])


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
    parts = report.collect([example()], store, scales=("quick",))
    text = report.write(tmp_path / "out", parts).read_text()
    for expected in (
        "Sums &lt;of&gt; things",
        "It adds &amp; shows.",
        "2 sums &amp; more.",
        "<td>1 &lt; 2</td><td>3.0</td>",
        "2 of 3 trials have finished, 2 seeds.",
        "3.0 minutes of computation",
        "<code>lpunits run sums</code>",
        'aria-label="a &quot;line&quot;"',
    ):
        assert expected in text
    assert sorted(p.name for p in (tmp_path / "out" / "figures").iterdir()) == [
        "sums-quick.png",
        "sums-quick.svg",
    ]


def test_the_page_begins_with_the_headlines_of_the_first_scale(store, tmp_path):
    def with_headline(results):
        return dataclasses.replace(section(results), headlines=[Headline("most", "2", "<3>")])

    both = dataclasses.replace(example(), title="Sums: all", section=with_headline)
    (part,) = report.collect([both], store, ("quick",))
    parts = [dataclasses.replace(part, scale="paper"), part]
    (table,) = report.headlines(parts)
    assert table.rows == [["most", "2", "<3>", "Sums"]]
    text = report.write(tmp_path / "out", parts[:1]).read_text()
    assert text.index("<td>&lt;3&gt;</td>") < text.index("<nav>")
    assert report.headlines(report.collect([example()], store)) == []


def test_scales_and_settings_are_reported_apart(store, tmp_path):
    parts = report.collect([example()], store)
    assert [(p.scale, len(p.results), p.command) for p in parts] == [
        ("paper", 1, "lpunits run sums --scale paper"),
        ("quick", 2, "lpunits run sums"),
    ]
    assert report.collect([example()], store, settings=["number=2"]) == []
    trial = Trial(Sum(2.0), 0)
    store.write(records.make(trial, "finished", {"sum": 2.0}, seconds=1))
    (part,) = report.collect([example()], store, ("quick",), settings=["number=2"])
    assert part.command == "lpunits run sums --set number=2"


def test_a_scale_is_not_shown_for_some_trials_of_a_smaller_one(store):
    def trials(scale):
        return [Trial(Sum(), seed) for seed in {"quick": (0, 2), "paper": (0, 2, 4)}.get(scale, ())]

    experiment = dataclasses.replace(example(), trials=trials)
    assert [part.scale for part in report.collect([experiment], store)] == ["quick"]
    store.write(records.make(Trial(Sum(), 4), "finished", {"sum": 5.0}, seconds=1))
    assert [part.scale for part in report.collect([experiment], store)] == ["paper", "quick"]


def test_what_has_no_record_is_named(store, tmp_path):
    text = report.write(tmp_path, [], [example("other")]).read_text()
    assert "Not run yet" in text
    assert "<code>lpunits run other</code>" in text


def test_findings_are_told_first(store, tmp_path):
    (tmp_path / "records" / "findings.md").write_text("## What holds\n\nThis & that.\n")
    parts = report.collect([example()], store)
    text = report.write(tmp_path, parts, findings=store.findings()).read_text()
    assert "<h3>What holds</h3>\n<p>This &amp; that.</p>\n<nav>" in text
    assert Records(tmp_path / "none").findings() == {}
    (tmp_path / "records" / "findings.md").write_text("All is well.\n")
    with pytest.raises(ValueError, match=r"must begin with a heading.*All is well"):
        store.findings()


def test_the_same_records_give_the_same_page(store, tmp_path):
    pages = [
        report.write(tmp_path / name, report.collect([example()], store)) for name in ("a", "b")
    ]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_black_is_the_colour_of_the_text_inside_the_page_only():
    assert "currentColor" in report.svg(drawing(), inline=True)
    assert "#000000" not in report.svg(drawing(), inline=True)
    assert "currentColor" not in report.svg(drawing())


@pytest.fixture(scope="module")
def whole(smoke, tmp_path_factory):
    """The page of all experiments, and how many figures it has."""
    store = Records(smoke / "records")
    parts = report.collect(experiments.chosen(("all",)), store, scales=("smoke",))
    assert len(parts) == len(experiments.EXPERIMENTS)
    page = report.write(tmp_path_factory.mktemp("page"), parts)
    return page, sum(len(part.section.pictures) for part in parts)


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


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_in_a_browser(scheme, width, whole):
    api = pytest.importorskip("playwright.sync_api")
    page_file, pictures = whole
    problems: list[str] = []
    requests: list[str] = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 800}, offline=True
        )
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(page_file.as_uri())
        assert problems == []
        assert [url for url in requests if not url.startswith("data:")] == [page_file.as_uri()]
        # The page itself never scrolls sideways; wide tables and figures do, within themselves.
        assert page.evaluate("document.documentElement.scrollWidth") == width
        figures = page.locator("figure svg")
        assert figures.count() == pictures
        for index in range(figures.count()):
            figure = figures.nth(index)
            assert (figure.get_attribute("aria-label") or "").strip()
            box = figure.bounding_box()
            assert box is not None
            assert box["width"] > 250
            assert box["height"] > 100
            if width > 1000:
                image = Image.open(io.BytesIO(figure.screenshot())).convert("RGB")
                assert len(image.getcolors(1 << 24)) > 20
        text, back = page.evaluate(
            "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
        )
        light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (text, back)]
        assert (light[0] < 200 < 600 < light[1]) == (scheme == "light")
        assert (light[1] < 200 < 600 < light[0]) == (scheme == "dark")
        browser.close()
