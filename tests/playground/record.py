"""Records docs/images/playground.webp, the moving picture of the README: `python record.py`."""

import io
from pathlib import Path

PAGE = Path(__file__).parents[2] / "playground" / "index.html"
TARGET = Path(__file__).parents[2] / "docs" / "images" / "playground.webp"
SIZE = (1180, 720)
SHOWN = 760  # pixels, the width of the picture


def record() -> None:
    """One unit from diamond to box, then two units that learn the curve."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    frames: list[Image.Image] = []
    times: list[int] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})

        def shoot(milliseconds: int) -> None:
            image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            height = round(SHOWN * SIZE[1] / SIZE[0])
            frames.append(image.resize((SHOWN, height), Image.Resampling.LANCZOS))
            times.append(milliseconds)

        page.goto(f"{PAGE.as_uri()}#view=unit&p=1")
        page.wait_for_timeout(500)
        shoot(900)
        for k in range(1, 33):
            page.evaluate(
                """(s) => { const slider = document.getElementById("order-slider");
                slider.value = s; slider.dispatchEvent(new Event("input")); }""",
                k / 16 if k <= 16 else 1 - (k - 16) / 32,  # up to infinity, back to 2
            )
            page.wait_for_timeout(40)
            shoot(900 if k in (16, 32) else 70)
        page.goto(f"{PAGE.as_uri()}#view=race")
        page.reload()
        page.wait_for_timeout(1200)
        shoot(900)
        for step in range(1, 40):
            page.click("#step")
            page.wait_for_timeout(160)
            shoot(2500 if step == 39 else 120)
        browser.close()
    first, *rest = frames
    first.save(
        TARGET,
        save_all=True,
        append_images=rest,
        duration=times,
        loop=0,
        quality=50,
        method=4,
        minimize_size=False,
    )
    print(f"{TARGET}: {TARGET.stat().st_size / 1e6:.2f} MB, {len(frames)} frames")


if __name__ == "__main__":
    record()
