"""The page in a real browser: it loads alone, sorts, draws, and changes its light."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aaren.report.page import write_report

PATIENCE = 120_000  # milliseconds, for a machine that does other things too
BENCHES = Path(__file__).parents[2] / "results" / "bench"


@pytest.fixture(scope="module")
def page_file(full_results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    shutil.copytree(BENCHES, root / "bench")
    _, (page, *_) = write_report([full_results, root], root / "report")
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator["object"]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'aaren[dev]'")
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("needs a browser: install Debian's package chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox"] if os.geteuid() == 0 else [], timeout=PATIENCE
        )
        yield started
        started.close()


class Visit:
    """A page that was opened, with all that it said and asked for."""

    def __init__(self, browser, page_file: Path, *, scheme: str = "light", width: int = 1280) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(page_file.as_uri(), timeout=PATIENCE)

    def draw_all(self) -> int:
        """Bring every plot into view; returns how many were drawn."""
        canvases = self.page.locator(".canvas")
        for place in range(canvases.count()):
            canvases.nth(place).scroll_into_view_if_needed()
            canvases.nth(place).locator("svg.main-svg").first.wait_for()
        return canvases.count()


@pytest.fixture(scope="module")
def visit(browser: object, page_file: Path) -> Iterator[Visit]:
    opened = Visit(browser, page_file)
    yield opened
    opened.context.close()


def test_it_loads_alone_and_draws_every_plot(visit: Visit, page_file: Path) -> None:
    assert visit.draw_all() == 15
    drawn = visit.page.evaluate(
        "[...document.querySelectorAll('.canvas')].filter("
        "c => c.querySelector('.scatterlayer .trace, .barlayer .trace')).length"
    )
    assert drawn == 15
    assert visit.said == []
    assert [url for url in visit.asked if not url.startswith(("data:", "blob:"))] == [page_file.as_uri()]


def test_tables_sort_by_numbers_and_gaps_come_last(visit: Visit) -> None:
    table = "#forecasting-cpu-main-test-mse"
    head = visit.page.locator(f"{table} thead tr:last-child th").nth(1).locator("button")
    values = f"""[...document.querySelectorAll('{table} tbody tr')].map(
        row => row.cells[1].dataset.key === undefined ? null : Number(row.cells[1].dataset.key))"""
    for direction in ("ascending", "descending"):
        head.click()
        found = visit.page.evaluate(values)
        numbers = [value for value in found if value is not None]
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert found[len(numbers) :] == [None] * (32 - 9)
        assert visit.page.locator(f"{table} th[aria-sort={direction}]").count() == 1


def test_gaps_can_be_shown(visit: Visit) -> None:
    table = visit.page.locator("#forecasting-cpu-main-test-mse")
    assert table.locator("tr.gap").first.is_hidden()  # most rows are gaps
    table.locator("label.gaps input").check()
    assert table.locator("tr.gap").first.is_visible()


def test_another_view_is_drawn_when_chosen(visit: Visit) -> None:
    figure = visit.page.locator("figure.plot").first
    axis = "document.querySelector('.canvas').layout.yaxis.ticktext.length"
    figure.locator(".canvas svg.main-svg").first.wait_for()
    assert visit.page.evaluate(axis) == 14
    figure.locator("select").select_option(label="RL, score, best evaluation, cpu")
    assert visit.page.evaluate(axis) == 2


def test_light_and_dark(visit: Visit, browser: object, page_file: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('.canvas').layout.font.color"
    assert visit.page.evaluate(paper) == "rgb(255, 255, 255)"
    light_ink = visit.page.evaluate(ink)
    visit.page.locator("button.theme").click()
    assert visit.page.evaluate(paper) == "rgb(19, 21, 24)"
    assert visit.page.evaluate(ink) != light_ink  # the plots change too
    dark = Visit(browser, page_file, scheme="dark", width=390)
    assert dark.page.evaluate(paper) == "rgb(19, 21, 24)"
    dark.page.locator("button.theme").click()
    assert dark.page.evaluate(paper) == "rgb(255, 255, 255)"
    # On a phone only tables scroll sideways, never the page.
    assert dark.page.evaluate("document.documentElement.scrollWidth") == 390
    assert dark.said == []
    dark.context.close()
