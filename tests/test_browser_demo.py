"""The page of live models: it opens from a file, asks for nothing, and answers in constant memory.

Its models are exports of those in `examples/models`, whose quality `test_pretrained` judges.
"""

import base64
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.examples import generators, load_stream

FOLDER = Path(__file__).parents[1] / "examples" / "browser"
PATIENCE = 120_000  # milliseconds, for a machine that does other things too


NAMES = ("machines", "sensor", "strokes")
MOST_CODE = 62_000  # bytes of a module beside its weights


def read_script(name: str) -> tuple[dict[str, Any], bytes]:
    """Return the manifest and the WebAssembly of a model's script."""
    text = (FOLDER / "models" / f"{name}.js").read_text(encoding="utf-8")
    manifest = re.search(r"^  manifest: (.*),$", text, re.MULTILINE)
    content = re.search(r'atob\("([^"]*)"\)', text)
    assert manifest is not None
    assert content is not None
    return json.loads(manifest[1]), base64.b64decode(content[1])


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
        "['sensor', 'machines'].every((name) => Number.isFinite(aarenDemo[name].micros))"
    )
    assert visit.said == []
    asked = {url for url in visit.asked if not url.startswith("data:")}
    names = (
        "index.html",
        "demo.css",
        "demo.js",
        "models/sensor.js",
        "models/strokes.js",
        "models/machines.js",
    )
    assert asked == {(FOLDER / name).as_uri() for name in names}
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_streams_run_and_their_states_stay_as_large_as_they_were(visit: Visit) -> None:
    sizes = "Object.values(aarenDemo).map((card) => card.stream.state.length)"
    before, items = visit.page.evaluate(sizes), visit.page.evaluate("aarenDemo.sensor.items")
    visit.page.wait_for_function(f"aarenDemo.sensor.items > {items}")  # by itself
    visit.page.locator("#sensor [data-do=more]").click()
    visit.page.locator("#machines [data-do=more]").click()
    visit.page.locator("#machines .kinds button").first.click()
    visit.page.wait_for_function("document.querySelector('#sensor .theirs dd').textContent.endsWith('MB')")
    assert visit.page.evaluate(sizes) == before
    assert visit.page.evaluate("aarenDemo.sensor.items") > 10_000
    assert visit.page.evaluate("aarenDemo.machines.items") > 1_000
    # Of 10,000 readings at least, judged six readings ahead; test_pretrained judges the whole day.
    assert abs(visit.page.evaluate("aarenDemo.sensor.inside / aarenDemo.sensor.judged") - 0.8) < 0.05
    assert visit.page.evaluate("aarenDemo.machines.right / aarenDemo.machines.judged") > 0.85
    assert visit.said == []


def test_what_is_drawn_is_told(visit: Visit) -> None:
    angles = np.linspace(0.0, 2.0 * np.pi, 40)
    circle = [(0.3 * float(np.cos(angle)), 0.3 * float(np.sin(angle))) for angle in angles]
    assert visit.draw(circle) == "circle"
    assert visit.draw([(-0.4 + 0.02 * step, 0.1 - 0.005 * step) for step in range(41)]) == "line"
    assert "line" in visit.page.locator("#strokes .answer").text_content()


def test_the_page_sees_a_stroke_as_training_did(visit: Visit) -> None:
    drawn = generators()
    stroke = drawn.draw_stroke("square", np.random.default_rng(2))
    seen = visit.page.evaluate(
        "(points) => { const pen = new Pen(aarenDemo.strokes.manifest.spacing);"
        " return points.flatMap(([x, y]) => pen.go(x, y)); }",
        stroke.tolist(),
    )
    np.testing.assert_allclose(np.array(seen).T, drawn.follow(stroke), atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_answers_as_the_saved_model(visit: Visit, name: str) -> None:
    rng, drawn, model = np.random.default_rng(3), generators(), load_stream(name)
    session = model.stream()
    if name == "sensor":
        readings = drawn.Room(rng).read(100, rng)
        manifest, _ = read_script(name)
        first = manifest["first_seconds"] + manifest["seconds_per_reading"] * manifest["room"]["time"]
        items = [
            {"row": [reading], "time": first + manifest["seconds_per_reading"] * place}
            for place, reading in enumerate(readings)
        ]
        wanted = [np.ravel(session.push([reading])) for reading in readings]
        answer = "forecast"
    elif name == "strokes":
        points = drawn.follow(drawn.draw_stroke("zigzag", rng)).T
        items = [{"sample": point.tolist()} for point in points]
        wanted = [np.ravel(session.push(point)) for point in points]
        answer = "probabilities"
    else:
        log, kinds = drawn.draw_log(1, 100, rng), list(model.kinds_)
        events = list(zip(log["time"], log["kind"], strict=True))
        items = [{"time": time, "mark": kinds.index(kind)} for time, kind in events]
        said = [session.push(time, kind).probabilities for time, kind in events]
        wanted = [[one[kind] for kind in kinds] for one in said]
        answer = "mark_probabilities"
    found = visit.page.evaluate(
        "async ([name, items, answer]) => { const stream = await aarenModels[name].load();"
        " return items.map((item) => Array.from(stream.push(item)[answer])); }",
        [name, items, answer],
    )
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, atol=1e-5 * scale, rtol=0.0)  # as `aaren export --check`


@pytest.mark.parametrize("name", NAMES)
def test_an_artifact_is_an_export_of_the_saved_model_and_small(name: str) -> None:
    manifest, content = read_script(name)
    assert manifest["fingerprint"] == load_stream(name).whole_step().fingerprint
    assert len(content) <= manifest["weight_bytes"] + MOST_CODE
