"""The sentences and numbers of Fig. 4c, from outcomes with a known answer."""

from lpunits.paper.experiments import fig4ab, fig4c
from lpunits.paper.experiments.plane import Plane
from lpunits.paper.training.trial import Result, Trial


def results(table: dict[tuple[str, int], list[int]], data: str = "curve") -> list[Result]:
    """Runs that ended with these training errors."""
    return [
        Result(
            Trial(Plane(data, kind, size), seed),
            {"outcome": {"train_errors": errors, "loss": 0.1}},
        )
        for (kind, size), found in table.items()
        for seed, errors in enumerate(found)
    ]


TABLE = {
    ("lp", 4): [0, 3, 5, 2],
    ("lp", 6): [0, 0, 0, 0],
    ("lp", 8): [0, 0, 0, 0],
    ("l2", 4): [36, 36, 36, 36],
    ("l2", 6): [0, 0, 0, 0],
    ("l2", 8): [0, 1, 0, 0],
    ("sigmoid", 4): [0, 0, 0, 1],
    ("sigmoid", 6): [0, 0, 0, 0],
    ("sigmoid", 8): [0, 0, 0, 0],
    ("relu", 8): [9, 8, 7, 6],
}


def test_the_verdict_says_what_was_found():
    verdict = fig4c.section(results(TABLE)).verdict
    assert "0 of 4 runs fail with 6 Lp projections" in verdict
    assert "3 of 4 runs fail with 4 Lp projections" in verdict
    assert "4 of 4 runs fail with 4 L2 (p = 2) projections" in verdict
    # A size is enough only if no larger one fails.
    assert "no run fails: Lp 6, L2 (p = 2) none up to 8, ReLU none up to 8, sigmoid 6." in verdict
    assert "fail no more often, unlike in the paper (1 and 3 failures over all sizes)" in verdict
    worse = TABLE | {("sigmoid", 6): [4, 4, 4, 4]}
    assert "more often than Lp units, as in the paper" in fig4c.section(results(worse)).verdict


def test_the_summary_judges_each_statement_of_the_paper():
    def verdicts(table):
        return {
            h.what.partition(": ")[2]: h.verdict for h in fig4c.section(results(table)).headlines
        }

    assert verdicts(TABLE) == {
        "runs that fail with 6 Lp projections": "reproduced",
        "runs that fail with 4 Lp projections": "reproduced",
        "runs that fail with 4 L2 (p = 2) projections": "reproduced",
        "sigmoid units fail more often than Lp units": "not reproduced",
    }
    other = {("lp", 6): [0, 1], ("lp", 4): [2, 2], ("l2", 4): [0, 5], ("sigmoid", 4): [9, 9]}
    assert set(verdicts(other).values()) == {"not reproduced"}
    assert verdicts({("relu", 4): [1]}) == {}


def test_the_table_counts_failures_and_gives_the_median():
    (table,) = fig4c.section(results(TABLE)).tables
    assert list(table.head) == ["", "4", "6", "8"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Lp"] == ["3/4 (2.5)", "0/4 (0)", "0/4 (0)"]
    assert rows["ReLU"] == ["", "", "4/4 (7.5)"]
    assert "maxout" not in rows


def test_both_sets_have_a_panel_and_a_sentence_each():
    both = results(TABLE) + results(TABLE, "teacher")
    section = fig4c.section(both)
    assert section.verdict.count("from which on no run fails") == 2
    assert len(section.tables) == 2
    (picture,) = section.pictures
    assert [axes.get_title() for axes in picture.figure.axes] == ["the curve", "the teacher"]
    (legend,) = picture.figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert sorted(labels) == ["L2 (p = 2)", "Lp", "ReLU", "sigmoid"]


def test_scales():
    assert len(fig4c.trials("quick")) == 5 * (8 + 2) * 10
    assert len(fig4c.trials("paper")) == 2 * 5 * 8 * 10 * 2
    for scale in ("quick", "paper"):  # what a and b draw is a part of what c counts
        assert {t.key for t in fig4ab.trials(scale)} <= {t.key for t in fig4c.trials(scale)}
