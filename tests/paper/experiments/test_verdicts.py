"""The sentences of the report follow the numbers, also where nothing was reproduced."""

import torch
from made import result
from scipy.stats import ks_2samp

from lpunits.paper.experiments import (
    fixed_p,
    learned_p,
    mnist,
    mnist5,
    pentomino_orders,
    table1,
    table2,
    table3,
)
from lpunits.paper.report import outcomes
from lpunits.paper.report.outcomes import headline, paper_value
from lpunits.paper.report.parts import collect
from lpunits.paper.training import records
from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Result, Trial

LOW = [2.0 + 0.01 * i for i in range(50)]
HIGH = [4.0 + 0.01 * i for i in range(50)]


def test_the_papers_number_is_shown_with_the_data_that_it_belongs_to():
    numbers = {"mnist": "0.97%"}
    assert paper_value(numbers, "mnist") == "0.97%"
    assert paper_value(numbers, "digits") == "0.97% on MNIST"
    assert paper_value(numbers, "covertype") == "none"


def test_after_a_last_stage_its_error_counts():
    found = result(error=0.02)
    assert outcomes.test_error(found) == 0.02
    found.outcome["last_stage"] = {"test": {"error": 0.01}}
    assert outcomes.test_error(found) == 0.01


def nets(data, orders, count=4, **fields):
    """Nets whose orders differ by a little from seed to seed."""
    return [
        result(data, seed=s, orders=[p + 0.001 * s for p in orders], **fields) for s in range(count)
    ]


def test_table1_judges_both_claims():
    differ = table1.section([*nets("mnist", LOW), *nets("pentomino", HIGH)])
    assert "differ between datasets, holds: 1 of 1 pairs of datasets" in differ.verdict
    assert "learn different orders, holds" in differ.verdict
    assert differ.tables[0].rows[1][1:4] == ["5.81 ± 1.56", "2.00", "4.25 ± 0.00 (n = 4)"]
    assert differ.tables[1].rows == [["MNIST and Pentomino", "1.00", "0.02", "0.029", "0.029"]]
    same = table1.section([*nets("mnist", [2.0] * 50), *nets("pentomino", [2.0] * 50)])
    assert "does not hold for every pair" in same.verdict
    assert "does not hold on MNIST, Pentomino" in same.verdict
    three = [*nets("mnist", LOW, 3), *nets("pentomino", HIGH, 3)]
    assert "cannot be judged with so few nets" in table1.section(three).verdict
    assert "p cannot be below 0.1." in table1.section(three).verdict
    assert "needs more than MNIST" in table1.section(three[:1]).verdict


def test_units_of_one_net_are_no_evidence_of_their_own():
    """Nets that scatter widely, on both data alike: thousands of units must not tell them apart."""
    shifts = (0.0, 3.0, 1.0, 2.0)
    first, second = (
        [result(data, seed=s, orders=[p + a for p in LOW]) for s, a in enumerate(shifted)]
        for data, shifted in (("mnist", shifts), ("pentomino", [a + 0.5 for a in shifts]))
    )
    pair = table1.Pair("MNIST", first, "Pentomino", second)
    pooled = [torch.cat([outcomes.orders(r) for r in some]).numpy() for some in (first, second)]
    assert ks_2samp(*pooled).pvalue < 0.01  # what a test over units would say
    assert pair.p > 0.3
    assert max(pair.between_seeds) == 1.0


def test_modes_are_counted():
    one, two = torch.randn(2, 400, generator=torch.Generator().manual_seed(0))
    two[200:] += 6
    assert table1.modes(result(orders=(10 + one).tolist())) == 1
    assert table1.modes(result(orders=(10 + two).tolist())) == 2
    assert table1.modes(result(orders=[3.0, 3.0])) == 1
    assert "in 0 of 1 nets on MNIST" in table1.section([result(orders=LOW)]).verdict


def test_learned_p_says_where_it_helps_and_where_not():
    runs = [
        result("mnist", unit, seed, error + 0.0001 * seed, lr=lr)
        for unit, error, lr in (("lp", 0.012, 0.3), ("l2", 0.014, 0.3), ("maxout", 0.010, 0.1))
        for seed in range(3)
    ]
    runs += [result("digits", "lp", 0, 0.03), result("digits", "l2", 0, 0.04)]
    section = learned_p.section(runs)
    assert section.verdict == (
        "Of 3 comparisons, learning the orders cannot be judged by one seed in 1, harms in 1 "
        "(MNIST, 2 layers, against maxout), helps in 1 (MNIST, 2 layers, against p = 2)."
    )
    assert section.tables[0].rows[0] == [
        *("MNIST, 2 layers", "p = 2", "1.21%", "1.41%", "-0.20 ± 0.00 (n = 3)", "helps")
    ]
    assert "so far" in learned_p.section(runs[:3]).verdict


def test_fixed_p_compares_learned_with_fixed():
    runs = [
        result("tfd", unit, seed, error) for unit, seed, error in (("lp", 0, 0.2), ("l2", 0, 0.3))
    ]
    section = fixed_p.section(runs)
    assert "lower on TFD" in section.verdict
    assert section.tables[0].rows == [["TFD", "20.75%", "20.00% (n = 1)", "21%", "30.00% (n = 1)"]]
    assert "nothing to compare" in fixed_p.section(runs[:1]).verdict


def test_table2_says_so_when_lp_loses():
    runs = [
        result("mnist", unit, seed, error + 0.0001 * seed)
        for unit, error in (("lp", 0.012), ("l2", 0.012), ("maxout", 0.010), ("relu", 0.014))
        for seed in range(3)
    ]
    section = table2.section(runs)
    assert section.verdict == (
        "On MNIST the error of the Lp net is 1.21%, not significantly different from L2 (p = 2), "
        "higher than maxout, lower than ReLU."
    )
    assert [row[2] for row in section.tables[0].rows] == ["0.97%", "none", "0.94%", "none"]
    assert "the Lp net has not been run" in table2.section(runs[-1:]).verdict


def test_table3_compares_the_folds():
    folds = [
        result("fer2013", orders=LOW, data_options=(("fold", fold),), error=0.4)
        for fold in range(5)
    ]
    section = table3.section(folds)
    assert "On FER2013 all folds end in the same region: the mean order is 2.245" in section.verdict
    assert [row[1] for row in section.tables[0].rows] == list(table3.PAPER)
    apart = [*folds[:4], result("fer2013", orders=HIGH, data_options=(("fold", 4),))]
    assert "the folds disagree" in table3.section(apart).verdict


def test_mnist5_compares_the_spread_with_the_papers():
    near = [result(seed=s, orders=[2.0 + 0.001 * s, 2.2]) for s in range(5)]
    far = [result(seed=s, orders=[2.0 + s, 2.2]) for s in range(5)]
    assert "as small as in the paper" in mnist5.section(near).verdict
    assert "larger than in the paper" in mnist5.section(far).verdict


def test_mnist_says_whether_its_goal_was_reached():
    assert "1.30%, was reached" in mnist.section([result(error=0.0127)]).verdict
    assert "1.30%, was not reached" in mnist.section([result(error=0.0131)]).verdict
    assert "goal" not in mnist.section([result("digits", error=0.0131)]).verdict
    both = mnist.section([result(error=0.0131), result(error=0.0121, optimizer="adamw")])
    assert "AdamW and batch normalisation, the lowest validation error of two" in both.verdict
    assert "1.30%, was reached" in both.verdict


def test_the_summary_of_table2_follows_the_numbers():
    def verdicts(error):
        runs = [result("mnist", seed=s, error=error) for s in range(2)]
        return [(h.verdict, h.why.partition(" the")[0]) for h in table2.section(runs).headlines]

    assert verdicts(0.0097) == [("reproduced", "0.0% below")]
    assert verdicts(0.0084) == [("better", "13.4% below")]
    assert verdicts(0.0121) == [("not reproduced", "24.7% above")]


def test_a_stand_in_is_never_compared():
    (row,) = headline("error", FeedForward("fer2013"), "20.75% on TFD", 20.75, "20.75%")
    assert (row.verdict, row.why) == (
        "stand-in",
        "TFD is not public; FER2013 stands in, nothing is compared",
    )
    assert headline("error", FeedForward("mnist"), "none", 1.0, "1%") == []
    folds = [result("digits", orders=LOW, data_options=(("seed", fold),)) for fold in range(5)]
    small = nets("pentomino", HIGH, data_options=(("train", 5000),))
    sections = (
        table1.section([*nets("digits", LOW), *small]),
        table2.section(folds[:1]),
        table3.section(folds),
        mnist5.section(nets("digits", LOW)),
        fixed_p.section([result("fer2013", unit) for unit in ("lp", "l2")]),
    )
    verdicts = [[h.verdict for h in section.headlines] for section in sections]
    assert verdicts == [["stand-in"] * count for count in (5, 1, 1, 1, 1)]
    assert "as in the paper" not in sections[3].verdict
    mixed = table1.section([*nets("mnist", LOW), *small]).headlines
    assert [h.verdict for h in mixed] == ["reproduced"] * 2 + [
        "stand-in",
        "not reproduced",
        "stand-in",
    ]


def test_a_section_on_stand_ins_alone_says_so(tmp_path):
    store = Records(tmp_path)
    for trial in mnist5.trials("quick"):
        store.write(records.make(trial, "finished", result().outcome, seconds=1))
    (part,) = collect([mnist5.EXPERIMENT], store, ("quick",))
    assert part.section.verdict.endswith("no number can be compared with the paper's.")


def test_the_summary_of_the_orders():
    def verdicts(*results):
        return {h.what.partition(":")[0]: h.verdict for h in table1.section(results).headlines}

    near = [3.4 + 0.2 * (i % 2) for i in range(50)]
    found = verdicts(*nets("mnist", near), *nets("pentomino", [2.0] * 50))
    assert found == {
        "Claim 1": "reproduced",
        "Claim 2": "not reproduced",
        "Fig. 5": "not reproduced",
        "Table 1": "not reproduced",  # the last one, on Pentomino
    }
    assert verdicts(*nets("mnist", near))["Table 1"] == "reproduced"


def test_orders_on_pentomino_are_compared_with_the_papers_under_all_conditions():
    conditions = list(pentomino_orders.conditions("paper").values())[:4]

    def found(*means):
        made = [result(orders=[mean, mean + 0.1], error=0.3 - mean / 100) for mean in means]
        nets = zip(conditions, made, strict=False)
        return [Result(Trial(config, 0), r.record) for config, r in nets]

    near, far = (pentomino_orders.section(found(*means)) for means in ((3, 4, 6), (3, 4, 5)))
    assert [s.headlines[0].verdict for s in (near, far)] == ["reproduced", "not reproduced"]
    assert "mean orders of 3.05 to 6.05 on Pentomino" in near.verdict
    assert [row[0] for row in near.tables[0].rows][:2] == [
        "as in Table 1",
        "orders start at 2",
    ]
    assert pentomino_orders.section(found(3, 4)).headlines == []


def test_the_summaries_of_seeds_folds_and_fixed_orders():
    near = [result(seed=s, orders=[2.1 + 0.001 * s, 2.2]) for s in range(5)]
    far = [result(seed=s, orders=[2.0 + s, 2.2]) for s in range(5)]
    assert [mnist5.section(r).headlines[0].verdict for r in (near, far)] == [
        "reproduced",
        "not reproduced",
    ]
    assert mnist5.section(near[:1]).headlines == ()
    folds = [
        result("tfd", orders=[1.9, 2.1], data_options=(("fold", fold),), error=0.4)
        for fold in range(5)
    ]
    assert table3.section(folds).headlines[0].verdict == "reproduced"
    runs = [result("tfd", u, s, e + s / 1e4) for u, e in (("lp", 0.2), ("l2", 0.3)) for s in (0, 1)]
    assert [h.verdict for h in fixed_p.section(runs).headlines] == ["reproduced"]
