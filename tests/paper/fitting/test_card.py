"""The card: what it shows, and that nothing of a table can act in it."""

import dataclasses
import html
import re

import pytest
from browsing import opened, places_of_cells

from lpunits.paper.fitting import card
from lpunits.paper.fitting.scores import number


@pytest.fixture(scope="module")
def page(fitted, facts, tmp_path_factory):
    path = tmp_path_factory.mktemp("card") / "card.html"
    path.write_text(card.render(fitted, "lpunits fit <table> --target y", facts))
    return path


def test_it_says_how_well_and_how(page, fitted, task):
    text = html.unescape(re.sub(r"<svg.*?</svg>", "", page.read_text(), flags=re.DOTALL))
    plain = re.sub(r"<[^>]*>", " ", text.replace("<b>", "(b)"))
    for score in fitted.scores:
        assert score.name in plain
        for name, value in score.values.items():
            assert number(value, name) in plain
    for expected in (
        "96 rows to train, 24 to test, seed 3; validation: none, too few rows",
        "lpunits fit <table> --target y",
        "lpunits predict model new.csv",
        "a number for each row, as an id has",
        "11 missing, filled by the median" if task == "regression" else "filled by the median",
        "hidden layers of 8, 4 lp units",
        "torch 2",
    ):
        assert expected in text, expected
    assert ("predicted mid" in plain) == (task == "classification")
    assert len(re.findall("<figure>", page.read_text())) == 2 + (task == "regression")


def test_names_are_escaped(page):
    text = page.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(&#34;1&#34;)" in text
    for name in ("ta<b>le", "<b>Bern", "<i>low"):
        assert name not in text
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))


def test_without_rivals_there_is_one_row(fitted):
    alone = dataclasses.replace(fitted, scores=fitted.scores[:1])
    table = card.score_table(alone)
    assert len(table.rows) == 1
    assert len(table.head) == len(table.rows[0]) == 5
    assert "comparison" not in card.verdict(alone)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_in_a_browser(scheme, width, page, browser):
    with opened(browser, page, scheme, width) as shown:
        assert shown.evaluate("document.documentElement.scrollWidth") == width
        cells = places_of_cells(shown)
        assert len(cells) > 30
        assert not [cell for cell in cells if cell[1] < 0 or cell[2] > width]
        boxes = shown.locator("figure svg")
        assert all(boxes.nth(i).bounding_box()["width"] > 250 for i in range(boxes.count()))
