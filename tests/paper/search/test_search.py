"""A search: it survives its trials, validation decides, the test set is for the winner."""

import json
from dataclasses import replace

import pytest
from configs import Valley, ValleySpace
from optuna.trial import TrialState

from lpunits.paper.report import page as report
from lpunits.paper.report import searches as search_report
from lpunits.paper.search import spaces, study
from lpunits.paper.search.run import run
from lpunits.paper.search.runner import Runner
from lpunits.paper.search.search import search, table
from lpunits.paper.search.study import Plan, Study, open_storage
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Trial


@pytest.fixture
def storage(tmp_path):
    with open_storage(f"sqlite:///{tmp_path / 'studies.db'}") as storage:
        yield storage


@pytest.fixture
def valley(monkeypatch):
    def use(**changes):
        monkeypatch.setitem(spaces.SPACES, "valley", lambda scale: ValleySpace(**changes))

    use()
    return use


@pytest.fixture
def work(tmp_path):
    return Runner(Records(tmp_path / "search"), tmp_path / "work")


def records(work):
    return [json.loads(path.read_text()) for path in work.store.folders[0].glob("*.json")]


def test_validation_decides_and_the_winner_alone_is_tested(valley, storage, work, capsys):
    found = search(Plan("valley", trials=5), storage, work, jobs=2)
    one = Study(Plan("valley", trials=5), storage)
    heights = [trial.value for trial in one.finished()]
    assert [t.state for t in one.finished()] == [TrialState.COMPLETE] * 5
    assert found.best.number == heights.index(min(heights))
    assert found.test == min(heights) + 1
    tested = [r for r in records(work) if "test" in r["outcome"]]
    assert len(records(work)) == 6
    assert [r["config"]["x"] for r in tested] == [found.best.params["x"]]
    assert "[5/5] trial" in capsys.readouterr().err
    # The same search does nothing; with more trials it is extended.
    assert search(Plan("valley", trials=5), storage, work, jobs=2) == found
    assert len(records(work)) == 6
    more = search(Plan("valley", trials=7), storage, work, jobs=2)
    assert more.trials == 7
    assert [t.value for t in Study(Plan("valley", trials=7), storage).finished()][:5] == heights
    lines = str(table(Study(Plan("valley", trials=7), storage), []).renderables[1])
    assert lines == "7 of 7 trials have ended, 0 failed"


def test_no_trial_can_end_the_search(valley, storage, work):
    modes = spaces.Choice(("walk", "raise", "hang", "nan", "die"))
    valley(mode=modes)
    plan = Plan("valley", trials=14)
    found = search(plan, storage, work, jobs=3, timeout=2.0)
    trials = Study(plan, storage).finished()
    ends = {t.params["mode"]: (t.state, t.user_attrs.get("error")) for t in trials}
    assert set(ends) == set(modes.options)
    assert ends == {
        "walk": (TrialState.COMPLETE, None),
        "raise": (TrialState.FAIL, "ArithmeticError: it does not go down"),
        "hang": (TrialState.FAIL, "TimeoutError: it took longer than 2 s"),
        "nan": (TrialState.FAIL, "the outcome has a number that is not finite"),
        "die": (TrialState.FAIL, "its process ended with exit code -9"),
    }
    assert found.failed == sum(t.params["mode"] != "walk" for t in trials)
    assert found.best.params["mode"] == "walk"
    kept = {r["key"]: r for r in records(work)}
    assert len(kept) == 15
    for trial in trials:
        assert kept[trial.user_attrs["key"]]["config"]["x"] == trial.params["x"]


def test_no_trial_that_finishes_no_winner(valley, storage, work):
    valley(base=Valley(mode="raise"))
    found = search(Plan("valley", trials=2), storage, work)
    assert (found.best, found.test, found.failed) == (None, None, 2)
    assert str(found) == "2 trials, 2 failed, 0 pruned, no winner"


def test_equal_values_are_run_once(valley, storage, work):
    valley(x=spaces.Choice((0.5,)))
    found = search(Plan("valley", trials=4), storage, work, jobs=2)
    assert (found.trials, found.best.number) == (4, 0)
    assert len(records(work)) == 2


def test_a_trial_with_a_record_is_not_run_again(valley, storage, work):
    plan = Plan("valley", trials=2)
    killed = Study(plan, storage)
    trial = killed.trial(killed.next_trial())
    run([trial], work.store, work.folder)
    before = work.store.find(trial)
    killed.claims.release()
    search(plan, storage, work)
    assert work.store.find(trial) == before
    assert Study(plan, storage).finished()[0].value == before["outcome"]["valid"]


def test_asha_ends_what_is_behind(valley, storage, work):
    valley(base=Valley(epochs=27, seconds=0.02))
    plan = Plan("valley", sampler="asha", trials=12)
    found = search(plan, storage, work, jobs=2)
    trials = Study(plan, storage).finished()
    complete = [t for t in trials if t.state == TrialState.COMPLETE]
    pruned = [t for t in trials if t.state == TrialState.PRUNED]
    assert len(complete) + len(pruned) == 12
    assert found.pruned == len(pruned) >= 4
    assert found.best.value == min(t.value for t in complete)
    assert {r["status"] for r in records(work)} == {"finished", "pruned"}
    assert all(len(t.intermediate_values) < 27 for t in pruned)


def test_tpe_looks_where_it_was_good(valley, storage, work):
    plan = Plan("valley", sampler="tpe", trials=30)
    search(plan, storage, work, jobs=1)  # else the values depend on which trial ends first
    x = [t.params["x"] for t in Study(plan, storage).finished()]
    near = [sum(abs(v - 0.3) < 0.15 for v in part) / len(part) for part in (x[:10], x[-10:])]
    assert near[1] > near[0]


def test_the_winner_over_seeds_and_the_report(valley, storage, work, tmp_path):
    search(Plan("valley", "smoke", trials=6), storage, work, jobs=2)
    search(Plan("valley", "smoke", seed=1, trials=6), storage, work, jobs=2)
    both = [one.best() for one in study.studies(storage)]
    trials = study.winners(storage, "valley", "smoke", (), 3)
    best = min(both, key=lambda t: t.value)
    assert trials == [Trial(Valley(x=best.params["x"]), seed) for seed in range(3)]
    ran = run(trials, Records(tmp_path / "records", *work.store.folders), work.folder)
    assert (ran.recorded, len(ran.new)) == (1, 2)  # the winner itself has its record

    store = Records(tmp_path / "records", *work.store.folders)
    parts = search_report.collect(storage, store)
    better = both.index(best)
    repeated = [
        "; lpunits run valley --scale smoke --from-search --seeds 3" * (k == better) for k in (0, 1)
    ]
    assert [part.command for part in parts] == [
        "lpunits search valley --scale smoke --trials 6" + repeated[0],
        "lpunits search valley --scale smoke --seed 1 --trials 6" + repeated[1],
    ]
    pictures = [p.name for part in parts for p in part.section.details if hasattr(p, "figure")]
    assert len(set(pictures)) == 4
    assert pictures[:2] == [
        "search-valley-importance",
        "search-valley-slices",
    ]
    text = report.write(tmp_path / "page", parts).read_text()
    assert f"on validation (trial {both[0].number})" in text
    assert "(n = 3) on test" in text
    assert len(list((tmp_path / "page" / "figures").glob("*.png"))) == 4
    assert (
        text == report.write(tmp_path / "again", search_report.collect(storage, store)).read_text()
    )


def test_the_same_search_for_several_units_is_compared(storage, tmp_path):
    work = Runner(Records(tmp_path / "search"), tmp_path / "work")
    small = ("epochs=1", "hidden=(8, 8)")
    for settings in (small, ("activation=maxout", *small), ("activation=relu", "epochs=2")):
        search(Plan("mnist", "smoke", settings=settings, trials=2), storage, work)
    together, both, relu = search_report.collect(storage, work.store)
    table, differences = together.section.tables
    assert differences.rows == [["digits (8 x 8)", "maxout", "", "", "one seed"]]
    tested = {
        kind: f"{one.tested['test']:.2%} (n = 1)"
        for kind, one in zip(("lp", "maxout"), study.studies(storage), strict=False)
    }
    assert table.head[2:] == ["Lp", "maxout"]  # that of ReLU had more epochs, and no Lp units
    assert table.rows == [["digits (8 x 8)", "2 trials of 1 epochs", *tested.values()]]
    assert len(together.results) == 2
    assert both.experiment.title == "Search: mnist, 2 trials for each of 2 kinds of unit"
    assert both.command.count("lpunits search mnist") == 2
    (table,) = both.section.tables
    best = [shown for shown in both.section.details if not hasattr(shown, "figure")]
    assert [row[:2] for row in table.rows] == [["Lp", "2 of 2"], ["maxout", "2 of 2"]]
    assert [b.caption for b in best] == ["The best trials: Lp", "The best trials: maxout"]
    for row, trials, one in zip(table.rows, best, study.studies(storage), strict=False):
        assert row[2] == trials.rows[0][1] == f"{one.best().value:.2%}"
        assert row[3] == f"{one.tested['test']:.2%} (n = 1)"
    assert both.section.verdict.count("on test.") == 2
    assert [row[0] for row in relu.section.tables[0].rows] == ["ReLU"]


def test_a_search_that_is_not_over_has_no_test(valley, storage, work):
    begun = Study(Plan("valley", "smoke", trials=2), storage)
    begun.begin()
    asked = begun.next_trial()
    begun.trial(asked)
    begun.optuna.tell(asked, 0.5)
    (part,) = search_report.collect(storage, work.store)
    assert part.section.verdict.endswith("the search has not finished, nothing was tested.")


def test_no_search_no_winner(valley, storage):
    message = "there is no finished search, run `lpunits search valley --set x=1` first"
    with pytest.raises(ValueError, match=message):
        study.winners(storage, "valley", "quick", ["x=1"], 2)
    with pytest.raises(ValueError, match="seeds must be a positive integer, got 0"):
        study.winners(storage, "valley", "quick", [], 0)


def test_unfinished_searches(valley, storage, work):
    with pytest.raises(ValueError, match="there is no unfinished search here"):
        study.unfinished(storage)
    search(Plan("valley", trials=1), storage, work)
    more = Plan("valley", trials=2)
    Study(more, storage).begin()
    other = Plan("valley", seed=5)
    Study(other, storage).begin()
    assert study.unfinished(storage) == [more, other]
    with pytest.raises(ValueError, match="there is no unfinished search of mnist here"):
        study.unfinished(storage, "mnist")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0.0}, "trial-timeout must be a number of seconds above 0, got 0"),
        ({"jobs": 0}, "jobs must be a positive integer, got 0"),
    ],
)
def test_bad_options(options, message, valley, storage, work):
    with pytest.raises(ValueError, match=message):
        search(Plan("valley"), storage, work, **options)


def test_missing_data_is_an_error_at_once(storage, work, tmp_path, monkeypatch):
    monkeypatch.setenv("LPUNITS_DATA", str(tmp_path))
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="the search needs mnist, which is not here: lpunits data"):
        search(Plan("mnist", "paper"), storage, work)


def test_a_trial_of_a_search_has_no_test_set_and_the_same_training(tmp_path):
    config = spaces.get("mnist", "smoke").base
    store = Records(tmp_path / "records")
    whole, part = (Trial(c, 0) for c in (config, config.untested()))
    run([whole, part], store, tmp_path / "work")
    outcomes = [store.find(trial)["outcome"] for trial in (whole, part)]
    assert set(outcomes[1]["metrics"]) == {"train", "valid"}
    assert outcomes[1]["curve"] == outcomes[0]["curve"][: config.epochs]
    assert config.score(outcomes[0]) == config.score(outcomes[1])
    assert config.score(outcomes[0], "test") == outcomes[0]["last_stage"]["test"]["error"]
    assert not (tmp_path / "work" / part.key).exists()

    music = replace(spaces.get("jsb", "smoke").base, epochs=1)
    trials = [Trial(c, 0) for c in (music, music.untested())]
    run(trials, store, tmp_path / "work")
    outcomes = [store.find(trial)["outcome"] for trial in trials]
    assert set(outcomes[1]["nll"]) == {"train", "valid"}
    assert "excerpt" not in outcomes[1]
    assert music.score(outcomes[0]) == music.score(outcomes[1])
    assert music.score(outcomes[0], "test") == outcomes[0]["nll"]["test"]
