"""The results page: made of records and of nothing else, and every link of it leads somewhere."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from configs import Sum
from test_page import example

import lpunits_cli
from lpunits.paper.report import markdown
from lpunits.paper.report import page as report
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
    parts = report.collect([experiment], store, ("paper",))
    return markdown.write(folder / "docs" / "results.md", parts, store, [example("other")])


def test_many_records_are_a_link_to_their_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(markdown, "MOST_LINKS", 1)
    page = made(tmp_path)
    assert "Records: 2 in [results](../results)." in page.read_text()


def test_findings_stand_before_the_tables(tmp_path):
    (tmp_path / "results").mkdir()
    text = "## What holds\n\nThis & that,\nin all runs.\n\n## What does not\n\nNothing.\n"
    (tmp_path / "results" / "findings.md").write_text(text)
    page = made(tmp_path).read_text()
    assert text.strip() in page
    assert page.index("## What holds") < page.index("## What was run") < page.index("| 3.0 |")


def links(page):
    return [page.parent / link for link in re.findall(r"\]\(([^)]+)\)", page.read_text())]


def test_the_page_says_what_was_found_where_and_how_to_repeat_it(tmp_path):
    page = made(tmp_path)
    text = page.read_text()
    threads = records.make(Trial(Sum(), 0), "finished", {}, seconds=1)["threads"]
    for expected in (
        "## Sums \\<of\\> things",
        "> 2 sums & more.",
        "| 1 \\< 2 | 3.0 |",
        f"| Sums \\<of\\> things | 2 of 3 | {threads:.2f} | 0.00 |",
        "| Sums \\<of\\> things | not run |  | 0.00 |",
        "`lpunits run sums --scale paper`",
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


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="there are no records of full runs")
def test_the_page_of_the_documentation_is_made_from_the_records(tmp_path, monkeypatch):
    """Fails after new records: run ``lpunits report --markdown docs/results.md`` again."""
    shutil.copytree(ROOT / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        lpunits_cli.main(["report", "--markdown", "docs/results.md"])
    assert not end.value.code
    assert Path("docs/results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    assert all(link.exists() for link in links(ROOT / "docs" / "results.md"))
