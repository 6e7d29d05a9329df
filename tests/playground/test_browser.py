"""The playground in a real browser, opened from disk."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lpunits.paper import playground

api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

PAGE = (playground.folder() / "index.html").as_uri()
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
OWN = "data=own&xy=AAAAAAAAAAAAAIA_AACAPw&class=01"  # (0, 0) and (1, 1)
VIEWS = ("unit", "network", "race")


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Open the page; at the end of the test nothing may have gone wrong or left the page."""
    problems: list[str] = []
    requests: list[str] = []
    contexts = []

    def open_page(address="#view=network", size="desktop", scheme="light", base=PAGE):
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(base + address)
        page.wait_for_function("document.body.dataset.view")
        if page.evaluate("document.body.dataset.view") != "unit":
            ready(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
    here = PAGE.rsplit("/", 1)[0]
    local = (here, "blob:", "data:", "http://127.0.0.1:")
    assert [url for url in requests if not url.startswith(local)] == []


def ready(page) -> None:
    """Wait until every network has been measured and drawn."""
    page.wait_for_function("!document.querySelector('.net:not([aria-busy=false])')")


def mistakes(page) -> list[int]:
    texts = page.locator(".mistakes dd").all_inner_texts()
    return [int(text.replace(",", "")) for text in texts]


def ended(page) -> None:
    page.wait_for_function(
        "document.querySelector('#play').textContent.includes('Play')", timeout=90_000
    )


@pytest.mark.parametrize("size", SIZES)
def test_two_lp_units_end_without_a_mistake(visit, size):
    page = visit("", size)
    page.get_by_role("button", name="A network").click()
    ready(page)
    assert mistakes(page)[0] > 0
    page.select_option("#pace", "full")
    page.click("#play")
    page.wait_for_timeout(100)
    ended(page)
    assert mistakes(page) == [0]
    assert page.inner_text("#status") == "No mistake is left."


def test_a_race_is_won_by_lp_units(visit):
    page = visit("#view=network&pace=full")
    page.click("#step")
    page.wait_for_timeout(300)
    page.get_by_role("button", name="Race").click()
    ready(page)
    assert page.locator(".steps dd").all_inner_texts() == ["0", "0"]
    page.click("#play")
    page.wait_for_timeout(100)
    ended(page)
    lp, relu = mistakes(page)
    assert lp == 0 < relu
    lp, relu = page.locator(".badge").all_inner_texts()  # as seen between two frames
    assert re.fullmatch(r"first, (39|4\d) steps", lp) and not relu  # noqa: PT018


PICTURES = "[...document.querySelectorAll('#arena canvas')].map((c) => c.toDataURL())"


def test_a_link_reopens_exactly_this_picture(visit):
    page = visit("#view=race&data=moons&points=200&by=adam&pace=full&net1=maxout:2:3")
    page.click("#play")
    page.wait_for_timeout(1200)
    page.click("#play")
    page.wait_for_timeout(1000)
    shots = [page.evaluate(PICTURES)]
    page.click("#copy-link")
    link = page.evaluate("navigator.clipboard.readText()")
    again = visit(link.removeprefix(PAGE))
    again.wait_for_timeout(300)
    assert mistakes(again) == mistakes(page)
    shots.append(again.evaluate(PICTURES))
    assert shots[0] == shots[1]
    # And from there both go the same way.
    for each in (page, again):
        each.click("#step")
        each.wait_for_timeout(500)
    assert page.inner_text(".stats") == again.inner_text(".stats")
    assert "#view=race" in page.url


def test_what_is_copied_as_pytorch_runs(visit, tmp_path):
    page = visit("#view=race&data=three-gaussians&points=300")
    page.click("#step")
    page.wait_for_timeout(500)
    page.click("#copy-code")
    code = page.evaluate("navigator.clipboard.readText()")
    assert code.count("lpunits.MLP") == 2
    (tmp_path / "copied.py").write_text(code)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "copied.py")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    scores = page.evaluate(
        """() => {
        const run = use("state").read(location.hash);
        const { Network } = use("network");
        return run.nets.map((net, i) => {
          const network = new Network({ ...net, classes: 3 }, run.runs[i].theta);
          network.prepare();
          return [[0, 0], [0.5, -0.25], [1, 1]].map(([x, y]) => [...network.score(x, y)]);
        });
        }"""
    )
    printed = [float(x) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", done.stdout)]
    np.testing.assert_allclose(printed, np.ravel(scores), atol=6e-5)  # it prints four digits


@pytest.mark.parametrize("view", VIEWS)
def test_the_picture_is_saved_as_svg(visit, view, tmp_path):
    page = visit(f"#view={view}&data=xor&points=100")
    with page.expect_download() as download:
        page.click("#save-picture")
    assert download.value.suggested_filename == f"lpunits-{view}.svg"
    path = tmp_path / "saved.svg"
    download.value.save_as(path)
    text = path.read_text()
    assert text.count("<image") == (2 if view == "race" else 1)
    assert "NaN" not in text
    reader = page.context.new_page()
    reader.goto(path.as_uri())
    assert reader.evaluate("document.documentElement.tagName") == "svg"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
def test_labels_width_and_contrast(visit, view, size, scheme):
    page = visit(f"#view={view}&show=dual&{OWN}", size, scheme)
    width = SIZES[size][0]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(PALE) == []
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", dark)[:3])) < 200) == (scheme == "dark")


# Controls and pictures without a name.
UNNAMED = """
[...document.querySelectorAll("button, input, select, textarea, canvas[role=img]")]
  .filter((e) => e.offsetParent)
  .filter((e) => !(e.ariaLabel || e.labels?.[0]?.innerText.trim() || e.innerText?.trim()))
  .map((e) => e.outerHTML)
"""

# Text whose contrast with what is behind it is below AA: 4.5, or 3 for large text.
PALE = """
(() => {
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const field = e.matches("input:not([type=range]), select, textarea");
    if (!(own || field) || !e.offsetParent || e.disabled) continue;
    const style = getComputedStyle(e);
    let back = e;
    while (back && (parse(getComputedStyle(back).backgroundColor)[3] ?? 1) === 0) back = back.parentElement;
    const behind = parse(getComputedStyle(back ?? document.documentElement).backgroundColor);
    const [a, b] = [light(parse(style.color)), light(behind)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.push([e.outerHTML.slice(0, 90), ratio]);
  }
  return found;
})()
"""  # noqa: E501


@pytest.mark.parametrize("view", VIEWS)
def test_the_keyboard_reaches_every_control(visit, view):
    page = visit(f"#view={view}&by=adam&{OWN}")
    expected = page.evaluate(
        """() => {
        const all = [...document.querySelectorAll("button, input, select, textarea, [tabindex]")]
          .filter((e) => e.offsetParent && !e.disabled);
        all.forEach((e, i) => (e.dataset.number = i));
        // Of radio buttons Tab reaches the chosen one, and arrow keys the others.
        return all.filter((e) => e.type !== "radio" || e.checked).map((e) => e.dataset.number);
        }"""
    )
    seen = set()
    for _ in range(len(expected) + 4):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.dataset.number"))
    assert set(expected) <= seen
    assert len(expected) >= 10


def test_one_unit_by_slider_keyboard_and_pointer(visit):
    page = visit("#view=unit")
    name = page.locator("#order-name strong")
    names = {}
    for p in ("1", "1.5", "2", "8", "inf", "0.5"):
        page.fill("#order-text", p)
        page.keyboard.press("Enter")
        names[p] = name.inner_text()
    assert names["1"] == "Mean"
    assert names["2"] == "RMS"
    assert "maxout" in names["inf"]
    assert names["0.5"] == "Not a norm"
    page.focus("#order-slider")
    page.keyboard.press("Home")
    assert page.input_value("#order-text") == "0.2"
    page.keyboard.press("End")
    assert page.input_value("#order-text") == "∞"
    for _ in range(100):  # even in 1/p: half-way from infinity to 1 is 2
        page.keyboard.press("ArrowLeft")
    assert page.input_value("#order-text") == "2"
    page.check("#show-dual")
    page.check("#show-gradient")
    page.fill("#unit-filters", "3")
    page.keyboard.press("Enter")
    handle = page.get_by_role("button", name="Filter 1 at 1.00, 0.00; move with arrow keys")
    handle.focus()
    page.keyboard.press("ArrowUp")
    moved = page.get_by_role("button", name="Filter 1 at 1.00, 0.05; move with arrow keys")
    box = moved.bounding_box()
    page.mouse.move(box["x"] + 17, box["y"] + 17)
    page.mouse.down()
    page.mouse.move(box["x"] + 17, box["y"] - 60, steps=4)
    page.mouse.up()
    label = page.locator(".handle").nth(1).get_attribute("aria-label")
    assert float(re.findall(r"-?\d+\.\d+", label)[1]) > 0.4
    page.hover("#unit-plane canvas", position={"x": 60, "y": 60})
    assert page.inner_text("#unit-readout").startswith("u = ")
    page.wait_for_timeout(500)
    assert "show=gradient+dual" in page.url
    assert "p=2&" in page.url


def test_points_are_drawn_and_pasted(visit):
    page = visit("#view=network")
    page.select_option("#data-name", "own")
    assert page.inner_text("#status") == "Draw some points, or paste them."
    plane = page.locator("#arena .plane")
    box = plane.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 100, steps=12)
    page.mouse.up()
    page.check("input[name=brush][value='1']")
    plane.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_timeout(600)
    found = page.evaluate("use('state').read(location.hash).data.rows.map((row) => row[2])")
    assert found.count(0) > 8
    assert found.count(1) == 2
    page.fill("#data-csv", "0,0,a\n1,oops,b")
    page.click("#data-use")
    assert "Line 2 must be two numbers" in page.inner_text("#data-problem")
    page.fill("#data-csv", "0,0,a\n1,1,b\n0,1,a\n1,0,b")
    page.click("#data-use")
    page.wait_for_timeout(300)
    page.select_option("#pace", "full")
    page.click("#play")
    page.wait_for_timeout(100)
    ended(page)
    assert mistakes(page) == [0]


def test_orders_are_fixed_and_changed_one_by_one(visit):
    page = visit("#view=network&data=rings&points=200&by=adam&pace=full")
    page.fill("ul.orders li:nth-child(1) input[type=text]", "inf")
    page.keyboard.press("Enter")
    page.uncheck("ul.orders li:nth-child(2) input[type=checkbox]")
    page.wait_for_timeout(300)
    for _ in range(3):
        page.click("#step")
    page.wait_for_timeout(300)
    values = [field.input_value() for field in page.locator("ul.orders input[type=text]").all()]
    assert values == ["∞", "3"]
    page.check("ul.orders li:nth-child(2) input[type=checkbox]")
    for _ in range(5):
        page.click("#step")
    page.wait_for_timeout(300)
    assert page.locator("ul.orders input[type=text]").nth(1).input_value() != "3"


def test_every_kind_and_every_data_set_learn(visit):
    page = visit("#view=network&by=adam&pace=full")
    sets = page.locator("#data-name option").evaluate_all("all => all.map((o) => o.value)")
    kinds = page.locator("select.kind option").evaluate_all("all => all.map((o) => o.value)")
    assert (len(sets), len(kinds)) == (9, 5)
    for k, name in enumerate(sets[:-1]):
        page.select_option("#data-name", name)
        page.select_option("select.kind", kinds[k % 5])
        page.fill("#data-count", "200")
        page.keyboard.press("Enter")
        ready(page)
        before = float(page.inner_text(".loss dd"))
        page.click("#play")
        lower = "before => Number(document.querySelector('.loss dd').innerText) < before"
        page.wait_for_function(lower, arg=before)  # or an error after 30 s
        if "Pause" in page.inner_text("#play"):
            page.click("#play")


def test_it_is_served_and_opens_a_link_of_a_trained_network(visit):
    """As the links of the report do: the weights are there, and the mistakes that Python counts."""
    import threading

    import torch

    from lpunits import MLP
    from lpunits.paper import data as datasets

    torch.manual_seed(3)
    net = MLP(2, [3], 1, filters=3)
    train = datasets.load("teacher", points=600).train
    with torch.no_grad():
        wrong = int(((net(train.features)[:, 0] > 0).long() != train.targets).sum())
    link = playground.link(net, data="teacher", points=600)
    with playground.server() as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            page = visit(link, base=f"http://127.0.0.1:{serving.server_port}/")
            assert mistakes(page) == [wrong]
        finally:
            serving.shutdown()
            thread.join()


def test_sixteen_projections_on_5000_points_leave_the_page_smooth(visit):
    """While the worker trains at full speed, the page itself has little to compute for a frame."""
    page = visit("#view=network&by=adam&pace=full&net0=lp:8:2&seed=3")
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})  # other processes do not count

    def seconds_and_steps() -> tuple[float, int]:
        found = tools.send("Performance.getMetrics")["metrics"]
        steps = int(page.inner_text(".steps dd").replace(",", ""))
        return next(m["value"] for m in found if m["name"] == "TaskDuration"), steps

    page.click("#play")
    page.wait_for_function("document.querySelector('.steps dd').innerText != '0'")
    before, first = seconds_and_steps()
    frames = "n => new Promise(f => { const t = () => n-- ? requestAnimationFrame(t) : f(); t() })"
    page.evaluate(frames, 60)
    after, last = seconds_and_steps()
    assert last > first
    assert (after - before) / 60 < 2 / 60  # seconds, two frames of a screen; drawing takes one
