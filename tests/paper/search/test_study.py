"""Studies: the same values whoever draws them, and no trial in two hands."""

from contextlib import ExitStack

import optuna
import pytest
import sqlalchemy
from configs import ValleySpace
from optuna.trial import TrialState

from lpunits.files import StorageError
from lpunits.paper.search import claims, spaces, study
from lpunits.paper.search.study import Plan, Study, open_storage


@pytest.fixture(autouse=True)
def valley(monkeypatch):
    modes = spaces.Choice(("walk", "run", "fly"))
    monkeypatch.setitem(spaces.SPACES, "valley", lambda scale: ValleySpace(mode=modes))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new' / 'studies.db'}"
    return request.getfixturevalue("postgresql")


@pytest.fixture
def driver():
    """Makes drivers; each has its own connection to the storage."""
    with ExitStack() as open_ones:

        def make(url, trials=6, **changes):
            storage = open_ones.enter_context(open_storage(url))
            return Study(Plan("valley", trials=trials, **changes), storage)

        yield make


def values(asked):
    return (asked.number, *asked.params.values())


def test_values_depend_on_seed_and_number_alone(driver, tmp_path):
    def draw(file, **changes):
        one = driver(f"sqlite:///{tmp_path / file}", **changes)
        found = [one.next_trial() for _ in range(6)]
        for asked in found:
            one.trial(asked)
        return {values(asked) for asked in found}

    first = draw("a.db")
    assert len({x for _, x, _ in first}) == 6
    assert draw("b.db") == first
    assert not draw("c.db", seed=1) & first


def test_drivers_share_the_trials(driver, url):
    drivers = [driver(url), driver(url), driver(url)]
    taken = [one.next_trial() for _ in range(3) for one in drivers]
    numbers = [asked.number for asked in taken if asked is not None]
    assert sorted(numbers) == list(range(6))
    for one, asked in zip(drivers * 3, taken, strict=True):
        if asked is not None:
            one.trial(asked)
            assert one.tell(asked, TrialState.COMPLETE, float(asked.number)) is None
    assert len(drivers[0].finished()) == 6
    assert drivers[1].best().number == 0


def test_a_trial_too_many_is_nobodys_until_more_are_wanted(driver, url):
    one = driver(url, 2)
    one.optuna.ask(), one.optuna.ask(), one.optuna.ask()  # as if three drivers had raced
    assert [one.next_trial().number, one.next_trial().number, one.next_trial()] == [0, 1, None]
    assert driver(url, 3).next_trial().number == 2


def test_a_claim_passes_to_one_when_its_driver_is_still(driver, url, clock):
    dead, *others = (driver(url, 1) for _ in range(3))
    drawn = dead.trial(dead.next_trial())
    assert [one.next_trial() for one in others] == [None, None]
    clock.now += claims.GRACE
    taken = [(one, asked) for one in others if (asked := one.next_trial()) is not None]
    ((heir, asked),) = taken
    assert heir.trial(asked) == drawn
    assert dead.claims.beat() == {"0"}
    assert heir.claims.beat() == set()


def test_a_driver_that_beats_keeps_its_claim(driver, url, clock):
    one, two = driver(url, 1), driver(url, 1)
    assert one.next_trial() is not None
    for _ in range(3):
        assert one.claims.beat() == set()
        assert two.next_trial() is None
        clock.now += 0.9 * claims.GRACE
    one.claims.release()
    assert two.next_trial() is not None


def test_a_driver_that_dies_amid_its_draws_changes_nothing(driver, tmp_path):
    whole = driver(f"sqlite:///{tmp_path / 'a.db'}")
    expected = whole.trial(whole.next_trial())
    half = driver(f"sqlite:///{tmp_path / 'b.db'}")
    asked = half.next_trial()
    half.optuna.sampler = half._sampler(0, "mode")
    half.space.ranges["mode"].suggest(asked, "mode")
    half.claims.release()
    heir = driver(f"sqlite:///{tmp_path / 'b.db'}")
    inherited = heir.next_trial()
    assert inherited.number == 0
    assert heir.trial(inherited) == expected


def test_a_second_end_is_not_heard(driver, url):
    one = driver(url, 1)
    asked = one.next_trial()
    one.trial(asked)
    one.tell(asked, TrialState.COMPLETE, 1.0, key="a")
    one.tell(asked, TrialState.COMPLETE, 2.0, key="b")
    one.tell(asked, TrialState.FAIL, error="late")
    (trial,) = driver(url, 1).finished()
    assert (trial.value, trial.user_attrs) == (1.0, {"key": "a"})
    assert not one.should_prune(asked, 1, 5.0)


def test_the_first_of_equals_is_the_best(driver, tmp_path):
    one = driver(f"sqlite:///{tmp_path / 'a.db'}", 3)
    found = [one.next_trial() for _ in range(3)]
    for asked, value in reversed(list(zip(found, (2.0, 1.0, 1.0), strict=True))):
        one.trial(asked)
        one.tell(asked, TrialState.COMPLETE, value)
    assert one.best().number == 1


def test_other_ranges_are_another_search(driver, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    driver(url).begin()
    with open_storage(url) as storage:
        assert [one.plan.trials for one in study.studies(storage)] == [6]
        driver(url, 8).begin()
        assert [one.plan.trials for one in study.studies(storage)] == [8]
    changed = ValleySpace(x=spaces.Real(0.0, 2.0))
    monkeypatch.setitem(spaces.SPACES, "valley", lambda scale: changed)
    with pytest.raises(ValueError, match="was started with other ranges: use"):
        driver(url).begin()
    with open_storage(url) as storage:
        assert study.studies(storage) == []


def test_the_command_of_a_plan():
    plan = Plan("jsb", "paper", "tpe", 3, ("model=gru",), 9)
    parts = "lpunits search jsb --scale paper --sampler tpe --seed 3 --trials 9 --set model=gru"
    assert plan.command == parts
    assert plan.repetition == "lpunits run jsb --scale paper --set model=gru --from-search"
    assert Plan("mnist").command == "lpunits search mnist"
    wide = Plan("mnist", settings=("hidden=(8, 8)",))
    assert wide.command == "lpunits search mnist --set 'hidden=(8, 8)'"  # as a shell wants it


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 0}, "trials must be a positive integer, got 0"),
        ({"sampler": "grid"}, "sampler must be one of random, tpe, asha, got 'grid'"),
    ],
)
def test_bad_plans(changes, message):
    with pytest.raises(ValueError, match=message):
        Plan("valley", **changes)


def test_bad_storages(tmp_path):
    def refused(url, message):
        with pytest.raises((ValueError, StorageError), match=message) as caught, open_storage(url):
            pass
        return str(caught.value)

    refused("x.db", "must be sqlite:///FILE or postgresql://")
    (tmp_path / "text.db").write_text("not a database, but a text that is long enough" * 50)
    refused(f"sqlite:///{tmp_path / 'text.db'}", "text.db could not be opened: .*not a database")
    pytest.importorskip("psycopg")
    url = "postgresql://me:secret@127.0.0.1:1/none"
    assert "secret" not in refused(url, "could not be opened")


def test_tables_may_be_there_in_part(tmp_path):
    """Two drivers begin at once: one finds what the other has made so far."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    engine = sqlalchemy.create_engine(url)
    claims.TABLE.create(engine)
    engine.dispose()
    with open_storage(url) as storage:
        assert isinstance(storage, optuna.storages.RDBStorage)
