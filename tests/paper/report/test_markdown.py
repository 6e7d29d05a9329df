"""The results page: made of records and of nothing else, and every link of it leads somewhere."""

import dataclasses
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from configs import Sum
from test_page import example

import lpunits_cli
from lpunits.paper.report import markdown, summary
from lpunits.paper.report import page as html
from lpunits.paper.report.parts import collect
from lpunits.paper.training import records
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Trial

ROOT = Path(__file__).parents[3]


def made(folder, value=1.0, seconds=3600):
    """A page of two records in ``folder``."""
    store = Records(folder / "results")
    for seed in (0, 2):
        store.write(
            records.make(Trial(Sum(), seed), "finished", {"sum": value + seed}, seconds=seconds)
        )
    experiment = dataclasses.replace(
        example(),
        trials=lambda scale: [Trial(Sum(), s) for s in range(3)] if scale == "paper" else [],
    )
    parts = collect([experiment], store, ("paper",))
    return markdown.write(folder / "docs" / "results.md", parts, store, [example("other")])


def test_many_records_are_a_link_to_their_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(markdown, "MOST_LINKS", 1)
    page = made(tmp_path)
    assert "| 2 records | [results](../results) |" in page.read_text()


def test_findings_stand_before_the_tables(tmp_path):
    (tmp_path / "results").mkdir()
    text = "## What holds\n\n- This & that,\n  in all runs.\n\n## What does not\n\n- Nothing.\n"
    (tmp_path / "results" / "findings.md").write_text(text)
    page = made(tmp_path).read_text()
    assert text.strip() in page
    assert page.index("## What holds") < page.index("| 3.0 |") < page.index("## What was run")


def test_findings_link_to_the_section_of_their_evidence(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "findings.md").write_text("## What\n\n- So ([[sums]], [[none]]).\n")
    page = made(tmp_path).read_text()
    assert "- So ([Sums <of> things](#sums-of-things), none)." in page


def links(page):
    found = re.findall(r"\]\(([^)]+)\)", page.read_text())
    return [page.parent / link for link in found if not link.startswith("#")]


def test_the_page_says_what_was_found_where_and_how_to_repeat_it(tmp_path):
    page = made(tmp_path)
    text = page.read_text()
    threads = records.make(Trial(Sum(), 0), "finished", {}, seconds=1)["threads"]
    for expected in (
        "## Sums \\<of\\> things",
        "\n2 sums & more.\n",
        "- An `x < y`.\n",
        "| 1 \\< 2 | 3.0 |",
        f"| Sums \\<of\\> things | 2 of 3 | {threads:.2f} | 0.00 |",
        "| Sums \\<of\\> things | not run |  | 0.00 |",
        "```\nlpunits run sums --scale paper\n```",
        '![a "line"](images/results/sums.svg)',
    ):
        assert expected in text
    found = [link for link in links(page) if link.name != "reproduction.md"]
    assert {link.suffix for link in found} == {".svg", ".json"}
    assert len(found) == 3
    assert all(link.exists() for link in found)


def test_other_records_give_another_page_and_the_same_ones_the_same(tmp_path):
    pages = [made(tmp_path / str(i), value).read_text() for i, value in enumerate((1.0, 1.0, 5.0))]
    assert pages[0] == pages[1]
    assert pages[2] == pages[0].replace("| 3.0 |", "| 7.0 |")


def test_a_figure_of_the_last_time_is_removed(tmp_path):
    old = tmp_path / "docs" / "images" / "results" / "old.svg"
    old.parent.mkdir(parents=True)
    old.write_text("<svg/>")
    made(tmp_path)
    assert [p.name for p in old.parent.iterdir()] == ["sums.svg"]


def test_a_page_of_a_checkout_comes_with_the_summary_of_the_package(tmp_path):
    package = tmp_path / "src" / "lpunits" / "paper" / "report"
    package.mkdir(parents=True)
    made(tmp_path)
    assert (package / "summary.json").read_text() == "[\n\n]\n"


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="there are no records of full runs")
def test_the_committed_page_and_summary_are_those_of_the_records(tmp_path, monkeypatch):
    """Fails after new records: run ``lpunits report --markdown docs/results.md``."""
    shutil.copytree(ROOT / "results", tmp_path / "results")
    (tmp_path / markdown.PACKAGE).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    written = []
    write = markdown.write

    def spy(path, parts, *rest):
        written.extend(parts)
        return write(path, parts, *rest)

    monkeypatch.setattr(markdown, "write", spy)
    with pytest.raises(SystemExit) as end:
        lpunits_cli.main(["report", "--markdown", "docs/results.md"])
    assert not end.value.code
    assert Path("docs/results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    assert all(link.exists() for link in links(ROOT / "docs" / "results.md"))
    committed = [asdict(headline) for headline in summary.read()]
    assert json.loads((markdown.PACKAGE / "summary.json").read_text()) == committed
    assert {row["verdict"] for row in committed} == {
        *("reproduced", "better", "not reproduced", "stand-in")
    }
    assert all(row["why"] and row["command"].startswith("lpunits run ") for row in committed)
    # The same parts as one HTML page, with all figures in it.
    whole = html.write(tmp_path / "html", written, (), Records(Path("results")).findings())
    assert whole.stat().st_size < 3_000_000
