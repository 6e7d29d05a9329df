"""A page in Chromium, without a network."""

from contextlib import contextmanager


@contextmanager
def opened(browser, file, scheme, width):
    """The page in a browser without a network, all folds open; it must not complain."""
    problems, requests = [], []
    size = {"width": width, "height": 800}
    context = browser.new_context(color_scheme=scheme, viewport=size, offline=True)
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    yield page
    assert problems == []
    assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
    context.close()


def places_of_cells(page):
    """Text, left and right of every cell of a table that is shown."""
    return page.eval_on_selector_all(
        "td, th",
        "cells => cells.filter(c => c.offsetParent).map(c => {"
        " const box = c.getBoundingClientRect(); return [c.innerText, box.left, box.right]; })",
    )
