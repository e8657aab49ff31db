"""The page of live models: it opens from a file, asks for nothing, and answers in constant memory."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "browser"
PATIENCE = 120_000  # milliseconds, for a machine that does other things too


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    described = importlib.util.spec_from_file_location("make_models", FOLDER / "make_models.py")
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


class Visit:
    """The opened page, with all that it said and asked for."""

    def __init__(self, page) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto((FOLDER / "index.html").as_uri(), timeout=PATIENCE)
        page.wait_for_function("globalThis.aarenDemo !== undefined")

    def draw(self, points: list[tuple[float, float]]) -> str:
        """Draw with the mouse, in parts of the pad's height from its middle; return what the page says."""
        pad = self.page.locator("#strokes canvas")
        pad.scroll_into_view_if_needed()
        box = pad.bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        places = [(middle[0] + box["height"] * x, middle[1] + box["height"] * y) for x, y in points]
        self.page.mouse.move(*places[0])
        self.page.mouse.down()
        for place in places[1:]:
            self.page.mouse.move(*place)
        self.page.mouse.up()
        return str(self.page.evaluate("aarenDemo.strokes.label"))


@pytest.fixture(scope="module")
def visit() -> Iterator[Visit]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'aaren[dev]'")
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("needs a browser: install Debian's package chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox"] if os.geteuid() == 0 else [], timeout=PATIENCE
        )
        yield Visit(browser.new_context(viewport={"width": 390, "height": 844}, offline=True).new_page())
        browser.close()


def test_it_opens_from_a_file_and_asks_for_nothing_else(visit: Visit) -> None:
    visit.page.wait_for_function(
        "['sensor', 'process'].every((name) => Number.isFinite(aarenDemo[name].micros))"
    )
    assert visit.said == []
    asked = {url for url in visit.asked if not url.startswith("data:")}
    names = (
        "index.html",
        "demo.css",
        "demo.js",
        "models/sensor.js",
        "models/strokes.js",
        "models/process.js",
    )
    assert asked == {(FOLDER / name).as_uri() for name in names}
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_streams_run_and_their_states_stay_as_large_as_they_were(visit: Visit) -> None:
    sizes = "Object.values(aarenDemo).map((card) => card.stream.state.length)"
    before, items = visit.page.evaluate(sizes), visit.page.evaluate("aarenDemo.sensor.items")
    visit.page.wait_for_function(f"aarenDemo.sensor.items > {items}")  # by itself
    visit.page.locator("#sensor [data-do=more]").click()
    visit.page.locator("#process [data-do=more]").click()
    visit.page.locator("#process .kinds button").first.click()
    visit.page.wait_for_function("document.querySelector('#sensor .theirs dd').textContent.endsWith('MB')")
    assert visit.page.evaluate(sizes) == before
    assert visit.page.evaluate("aarenDemo.sensor.items") > 10_000
    assert visit.page.evaluate("aarenDemo.process.items") > 1_000
    held = visit.page.evaluate(
        "() => Array.from({ length: 8 }, () => { const card = aarenDemo.sensor; card.room = new Room();"
        " card.more(100); card.inside = card.judged = 0; card.more(1000);"
        " return card.inside / card.judged; })"
    )
    assert 0.7 < np.mean(held) < 0.9  # a band of 80 %; some rooms are easier than others
    assert visit.page.evaluate("aarenDemo.process.right / aarenDemo.process.judged") > 0.85
    assert visit.said == []


def test_what_is_drawn_is_told(visit: Visit) -> None:
    angles = np.linspace(0.0, 2.0 * np.pi, 40)
    circle = [(0.3 * float(np.cos(angle)), 0.3 * float(np.sin(angle))) for angle in angles]
    assert visit.draw(circle) == "circle"
    assert visit.draw([(-0.4 + 0.02 * step, 0.1 - 0.005 * step) for step in range(41)]) == "line"
    assert "line" in visit.page.locator("#strokes .answer").text_content()


def test_the_page_sees_a_stroke_as_training_did(visit: Visit, maker: ModuleType) -> None:
    rng = np.random.default_rng(2)
    names = [maker.SHAPES[place % len(maker.SHAPES)] for place in range(90)]
    strokes = [maker.draw_stroke(name, rng) for name in names]
    seen = visit.page.evaluate(
        "(points) => { const pen = new Pen(aarenDemo.strokes.manifest.spacing);"
        " return points.flatMap(([x, y]) => pen.go(x, y)); }",
        strokes[0].tolist(),
    )
    np.testing.assert_allclose(np.array(seen).T, maker.follow(strokes[0]), atol=1e-9)
    found = visit.page.evaluate(
        "(strokes) => strokes.map((points) => aarenDemo.strokes.classify(points))",
        [stroke.tolist() for stroke in strokes],
    )
    assert np.mean(np.array(found) == names) > 0.85


def test_artifacts_are_small() -> None:
    for path in (FOLDER / "models").glob("*.js"):
        assert path.stat().st_size < 1_000_000, path.name
