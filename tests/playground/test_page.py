"""Runs, links, scripts and files of the playground, without a browser."""

import ast
import base64
import math
import re
import signal
import socket
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

from lpunits import MLP, LpLinear
from lpunits.paper import playground

FILES = [path for path in playground.folder().rglob("*") if path.is_file()]
CLOSE = {"rtol": 0, "atol": 1e-9}


def test_it_is_small_and_asks_nobody():
    assert sum(path.stat().st_size for path in FILES) < 150_000
    for path in FILES:
        text = path.read_text()
        assert len(text.splitlines()) < 400, path
        addresses = set(re.findall(r"https?://[^\s'\"`]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path


def test_the_readme_shows_it_in_motion():
    root = Path(__file__).parents[2]
    assert "](docs/images/playground.webp)](docs/playground.md)" in (root / "README.md").read_text()
    picture = (root / "docs" / "images" / "playground.webp").read_bytes()
    assert len(picture) < 1_000_000
    assert picture.count(b"ANMF") > 50  # frames


def test_every_script_is_loaded_and_every_module_has_its_name():
    page = (playground.folder() / "index.html").read_text()
    loaded = re.findall(r'src="(js/[^"]+)"', page)
    assert sorted(loaded) == sorted(f"js/{path.name}" for path in FILES if path.suffix == ".js")
    for identifier in re.findall(r'for="([^"]+)"', page):
        assert f'id="{identifier}"' in page


TASK = """
const task = {
  shape: { kind: "lp", units: 2, filters: 2, classes: 2, orders: [3, 3], learned: [true, given.learned] },
  optimiser: given.by, rate: 0.02, orderRate: 5, seed: given.seed,
};
const set = use("data").make("curve", 400, 0);
const { Trainer } = use("trainer");
const walk = (trainer, steps) => {
  for (let k = 0; k < steps; k++) trainer.step();
  return trainer;
};
"""  # noqa: E501


@pytest.mark.parametrize("by", ["natural", "adam", "sgd"])
def test_the_same_seed_gives_the_same_run(javascript, by):
    script = (
        TASK
        + """
    const theta = (seed) => walk(new Trainer({ ...task, seed }, set), 12).network.theta;
    return [theta(5), theta(5), theta(6)];
    """
    )
    first, again, other = javascript(script, by=by, seed=0, learned=True)
    assert first == again != other


@pytest.mark.parametrize("by", ["natural", "adam", "sgd"])
def test_a_run_continues_from_its_link(javascript, by):
    script = (
        TASK
        + """
    const { fresh, write, read } = use("state");
    const whole = walk(new Trainer(task, set), 14).network.theta;
    const half = walk(new Trainer(task, set), 7);
    const nets = [task.shape, task.shape];
    const history = [[0, 0.5, 3, 2.5, 4]];
    const runs = [{ ...half.save(), history }, null];
    const state = { ...fresh(), view: "network", nets, runs, optimiser: given.by, rate: 0.02 };
    const back = read("#" + write(state));
    const rest = walk(new Trainer({ ...task, shape: { ...back.nets[0], classes: 2 } }, set, back.runs[0]), 7);
    return { whole, joined: rest.network.theta, steps: rest.steps, history: back.runs[0].history };
    """  # noqa: E501
    )
    found = javascript(script, by=by, seed=3, learned=True)
    assert found["whole"] == found["joined"]
    assert found["steps"] == 14
    assert found["history"] == [[0, 0.5, 3, 2.5, 4]]


def test_an_order_that_is_fixed_stays(javascript):
    script = (
        TASK
        + """
    const trainer = new Trainer(task, set);
    const before = trainer.network.orders();
    return [before, walk(trainer, 5).network.orders()];
    """
    )
    for by in ("natural", "adam", "sgd"):
        before, after = javascript(script, by=by, seed=0, learned=False)
        assert before[1] == after[1]
        assert before[0] != after[0]


def test_the_page_opens_with_a_run_that_ends_without_a_mistake(javascript):
    script = """
    const state = use("state").fresh();
    const { name, count, seed } = state.data;
    const set = use("data").make(name, count, seed);
    const { optimiser, rate, orderRate } = state;
    const shape = { ...state.nets[0], classes: 2 };
    const { Trainer } = use("trainer");
    const trainer = new Trainer({ shape, optimiser, rate, orderRate, seed: state.seed }, set);
    while (trainer.measure().mistakes && trainer.steps < 100) trainer.step();
    return { shape, name, count, mistakes: trainer.measure().mistakes };
    """
    found = javascript(script)
    assert (found["name"], found["count"], found["mistakes"]) == ("curve", 5000, 0)
    assert (found["shape"]["kind"], found["shape"]["units"]) == ("lp", 2)


def test_state_in_the_address(javascript):
    script = """
    const { fresh, write, read } = use("state");
    const unit = { p: Infinity, filters: [[1, 0.5], [-0.25, 1], [0, 1]], center: [0.5, -1],
      gradient: true, dual: true };
    const one = { ...fresh(), unit };
    const rows = [[0.5, -1.25, 0], [2, 3, 2], [-1, 0.125, 1]];
    const data = { name: "own", count: 5000, seed: 0, rows };
    const nets = [
      { kind: "lp", units: 3, filters: 4, orders: [1, 2.5, Infinity],
        learned: [true, false, false] },
      { kind: "sigmoid", units: 2, filters: 1, orders: [3, 3], learned: [true, true] },
    ];
    const race = { ...fresh(), view: "race", data, nets, optimiser: "adam", rate: 0.5, orderRate: 2,
      seed: 77, pace: "full" };
    const twice = (state) => read("#" + write(state));
    return { unit, backUnit: twice(one).unit, race, backRace: twice(race), fresh: fresh(),
      broken: [read("#view=%E0%A4%A"), read("#view=race&theta0=***")],
      junk: read("#view=nothing&p=abc&w=1,x&net0=foo:9&theta0=AAAA&points=1e9&data=nope&rate=-") };
    """
    found = javascript(script)
    assert found["unit"] == found["backUnit"]
    assert found["race"] == found["backRace"]
    assert found["junk"] == found["fresh"]
    assert found["broken"] == [found["fresh"]] * 2


def test_a_hostile_address_opens_a_page_that_works(javascript):
    nan = base64.urlsafe_b64encode(struct.pack("<20d", *[math.nan] * 20)).decode().rstrip("=")
    texts = [
        *(f"view=network&net0={kind}:2:2:3,3" for kind in ("constructor", "__proto__", "toString")),
        *(f"view=network&data={name}" for name in ("constructor", "__proto__", "valueOf")),
        *(f"view=race&by={name}" for name in ("constructor", "hasOwnProperty")),
        f"view=network&net0=lp:3:2:3,3,3&theta0={nan}",
        f"view=network&net0=lp:{'9' * 400}:{'9' * 400}:{'1e999,' * 1000}",
        f"view=unit&p={'9' * 10_000}&w={'1,' * 10_000}&c=1e999,NaN",
        f"view=race&seed={'9' * 10_000}&steps0=-1&rate=-inf&points=-5",
        "view=network&data=own&xy=&class=9",
        "&".join(["view=unit"] * 10_000),
    ]
    script = """
    const { read } = use("state");
    const { SETS, make } = use("data");
    const { Trainer } = use("trainer");
    return given.texts.map((text) => {
      const state = read("#" + text);
      const set = make(state.data.name, state.data.count, state.data.seed);
      const { optimiser, rate, orderRate, seed } = state;
      const shape = { ...state.nets[0], classes: 2 };
      const trainer = new Trainer({ shape, optimiser, rate, orderRate, seed }, set);
      trainer.step();
      const theta = state.runs[0]?.theta ?? trainer.network.theta;
      return [Object.hasOwn(SETS, state.data.name), [...theta].some(Number.isNaN)];
    });
    """
    for text, found in zip(texts, javascript(script, texts=texts), strict=True):
        assert found == [True, False], text[:80]


def test_points_from_csv(javascript):
    script = """
    const { parseCsv } = use("data");
    return given.texts.map((text) => {
      try { return parseCsv(text); } catch (error) { return error.message; }
    });
    """
    texts = [
        "x,y,class\n1,2,b\n-1.5; 2e-1; a\n\n3\t4\tb\n",
        "1 2 1\n3 4 0\r\n",
        "1,2,a\n3,four,b\n",
        "1,2,a\n3,4,a\n",
        "1,2,a\n1,2,b\n1,2,c\n1,2,d",
        "1,,a\n1,2,b",
        "1,2,0\n" * 3000 + "1,2,1\n" * 3000,
    ]
    good, numbered, *bad = javascript(script, texts=texts)
    assert good == [[1, 2, 0], [-1.5, 0.2, 1], [3, 4, 0]]
    assert numbered == [[1, 2, 1], [3, 4, 0]]
    assert bad[0] == "Line 2 must be two numbers and a class, got “3,four,b”."
    assert bad[1] == "The points must be of two or three classes."
    assert "fourth class" in bad[2]
    assert "Line 1" in bad[3]
    assert "At most 5000 points" in bad[4]


SHAPES = [
    ("lp", 3, 2, 2, [1.0, 2.5, math.inf], [True, False, False]),
    ("lp", 2, 3, 3, [3.0, 1.25], [True, True]),
    ("lp", 1, 2, 2, [4.0], [False]),
    ("l2", 2, 2, 2, [3.0, 3.0], [True, True]),
    ("maxout", 2, 4, 3, [3.0, 3.0], [True, True]),
    ("relu", 4, 1, 2, [3.0] * 4, [True] * 4),
    ("sigmoid", 2, 1, 3, [3.0] * 2, [True] * 2),
]


def test_what_is_copied_as_pytorch_runs_and_is_the_network(javascript, tmp_path):
    script = """
    const { Network } = use("network");
    const { pytorch } = use("exporting");
    return given.shapes.flatMap((shape) => ["natural", "adam", "sgd"].map((optimiser) => {
      const network = new Network(shape).start(4);
      const [theta, orders] = [[...network.theta], network.orders()];
      network.prepare();
      const scores = given.points.map(([x, y]) => [...network.score(x, y)]);
      const rates = { rate: 0.02, orderRate: 5 };
      return { code: pytorch({ shape, theta, orders, optimiser, ...rates }), scores };
    }));
    """
    names = ("kind", "units", "filters", "classes", "orders", "learned")
    shapes = [dict(zip(names, shape, strict=True)) for shape in SHAPES]
    points = [[0.0, 0.0], [0.5, -0.25], [1.0, 1.0], [-3.0, 2.0]]
    found = javascript(script, shapes=shapes, points=points)
    for k, each in enumerate(found):
        (tmp_path / f"copied{k}.py").write_text(each["code"])
    # Each script runs by itself; one process for all, because to import torch takes seconds.
    runner = (
        "import runpy, sys, torch\n"
        f"for k in range({len(found)}):\n"
        f"    made = runpy.run_path(rf'{tmp_path}/copied{{k}}.py')\n"
        "    assert callable(made['optimizer'].step)\n"
        f"    print(made['net'](torch.tensor({points})).tolist(), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", runner], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    printed = done.stderr.splitlines()
    for line, each in zip(printed, found, strict=True):
        np.testing.assert_allclose(np.array(ast.literal_eval(line)), each["scores"], **CLOSE)


NETS = [
    MLP(2, [2], 1, bias=True, dtype=torch.float64),
    MLP(2, [2], 1, order=[1.7, 30.0], dtype=torch.float64),
    MLP(2, [2], 3, order=[2.0, float("inf")], learn_order=False, dtype=torch.float64),
    MLP(2, [3], 1, activation="maxout", filters=3),
    MLP(2, [4], 1, activation="relu"),
    MLP(2, [4], 3, activation="sigmoid"),
    MLP(2, [2], 1, activation="l2", dtype=torch.float64),
]


@pytest.mark.parametrize("net", NETS, ids=str)
def test_a_link_carries_a_network_over(javascript, net):
    script = """
    const { Network } = use("network");
    const state = use("state").read(given.link);
    const network = new Network({ ...state.nets[0], classes: given.classes }, state.runs[0].theta);
    network.prepare();
    const scores = given.points.map(([x, y]) => [...network.score(x, y)]);
    return { state, scores, learned: network.free[0] };
    """
    points = torch.randn(20, 2, dtype=torch.float64)
    outputs = net[-1].out_features
    found = javascript(
        script,
        link=playground.link(net, data="teacher", points=700, draw=2),
        classes=2 if outputs == 1 else 3,
        points=points.tolist(),
    )
    expected = net.double()(points).detach()
    np.testing.assert_allclose(np.array(found["scores"]), expected.numpy(), **CLOSE)
    assert found["state"]["view"] == "network"
    assert found["state"]["data"] == {"name": "teacher", "count": 700, "seed": 2, "rows": []}


def test_a_link_to_a_race_and_what_has_no_link(javascript):
    link = playground.link(NETS[0], NETS[4], data="curve", points=5000)
    state = javascript("return use('state').read(given.link);", link=link)
    assert state["view"] == "race"
    assert [net["kind"] for net in state["nets"]] == ["lp", "relu"]
    assert all(state["runs"])
    with pytest.raises(ValueError, match="one or two networks, got 0"):
        playground.link(data="curve", points=10)
    for wrong in (MLP(3, [2], 1), MLP(2, [2, 2], 1), MLP(2, [2], 1, activation="tanh")):
        with pytest.raises(ValueError, match="model must have two inputs"):
            playground.link(wrong, data="curve", points=10)
    units = LpLinear(2, 2, 2, order=0.5, order_range=(0.1, 9.0), bias=False)
    with pytest.raises(ValueError, match=r"orders of at least 1, got 0\.5"):
        playground.link(torch.nn.Sequential(units, torch.nn.Linear(2, 1)), data="xor", points=10)
    with pytest.raises(ValueError, match="must have centres"):
        playground.link(MLP(2, [2], 1, center=False, bias=False), data="curve", points=10)


def test_the_command_serves_this_computer_alone_and_ends_quietly():
    running = subprocess.Popen(
        [sys.executable, "-m", "lpunits", "playground", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", line)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/js/unit.js", timeout=20) as answer:
            assert "javascript" in answer.headers["content-type"]
            assert answer.read() == (playground.folder() / "js" / "unit.js").read_bytes()
        listening = socket.socket()
        with listening:  # nobody listens on the other addresses of this computer
            assert listening.connect_ex(("127.0.0.2", int(port))) != 0
        running.send_signal(signal.SIGINT)
        rest, problems = running.communicate(timeout=20)
        assert (running.returncode, rest.strip(), problems.strip()) == (
            130,
            "",
            "lpunits: interrupted",
        )
    finally:
        running.kill()


def test_where_the_page_is(monkeypatch, tmp_path):
    assert playground.folder() == Path(__file__).parents[2] / "playground"
    monkeypatch.setattr(playground, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    with pytest.raises(FileNotFoundError, match="not part of this installation"):
        playground.folder()
