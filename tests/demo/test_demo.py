"""The demo's page shows what was found, escaped and drawn; the whole demo runs in `make test-all`."""

import html
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from aaren.demo.figure import draw
from aaren.demo.run import NEXT, _Bars, _Finished, render
from aaren.demo.tasks import MIXERS, TASKS, Line, Section, _trained_network


def section(**more: object) -> Section:
    found = {
        "title": "A task",
        "about": "What it is.",
        "columns": ("", "error"),
        "rows": (("<b>ours</b>", "1 %"), ("naive", "2 %")),
        "summary": "task: 1 % (naive 2 %)",
    }
    return Section(**{**found, **more})  # type: ignore[arg-type]


def test_the_page_shows_every_row_and_asks_for_nothing() -> None:
    text = render({"task": section(), "other": section(title="Another")}, seconds=90.0)
    assert "&lt;b&gt;ours&lt;/b&gt;" in text
    assert "<b>ours</b>" not in text
    assert text.count("task: 1 % (naive 2 %)") == 2
    assert not re.search(r"(src|href)=", text)
    assert 'href="live/index.html"' in render({"task": section()}, seconds=1.0, has_live=True)
    for _, command in NEXT:
        assert command in html.unescape(text)


def test_a_task_below_its_level_is_said() -> None:
    assert "below the level" in render({"task": section(is_learned=False)}, seconds=1.0)
    assert "below the level" not in render({"task": section()}, seconds=1.0)


def test_what_a_stopped_demo_finished_is_kept(tmp_path: Path) -> None:
    first, second = TASKS[:2]
    found = section(lines=(Line("a", [0.0], [1.0]), Line("b", [0.0], [1.0], [0.5], [1.5])), axes=("x", "y"))
    _Finished(tmp_path).keep(first, found)
    (tmp_path / f"{second.name}.json").write_text('{"versions": ')  # killed while it was written
    again = _Finished(tmp_path)
    assert again.sections == {first.name: found}
    assert [task.name for task in again.tasks] == [first.name]
    assert again.earlier_seconds > 0.0
    again.forget()
    assert not _Finished(tmp_path).sections


def test_what_other_versions_finished_is_not_kept(tmp_path: Path) -> None:
    _Finished(tmp_path).keep(TASKS[0], section())
    path = tmp_path / f"{TASKS[0].name}.json"
    path.write_text(path.read_text().replace('"aaren": "', '"aaren": "0'))
    assert not _Finished(tmp_path).sections


def test_a_figure_has_its_lines_and_band() -> None:
    picture = draw(
        [Line("seen", [0, 1, 2], [1, 2, 3]), Line("told", [1, 2], [2, 3], [1, 2], [3, 4])], ("x", "y")
    )
    assert picture.count('class="line"') == 2
    assert picture.count("<polygon") == 1
    assert "seen" in picture
    assert "told" in picture


def test_the_time_that_is_left_shrinks_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [0.0]
    monkeypatch.setattr("aaren.demo.run.time.perf_counter", lambda: moment[0])
    with _Bars(Console(file=io.StringIO())) as bars:
        lefts = [bars._left(moment[0])]
        for task in TASKS:
            bars.tick([task])
            moment[0] += task.seconds
            bars.tick([task])
            bars.finish(task)
            lefts.append(bars._left(moment[0]))
    assert lefts == sorted(lefts, reverse=True)
    assert lefts[0] == sum(task.seconds / (1 if task.is_alone else 2) for task in TASKS)
    assert lefts[-1] == 0.0


@pytest.mark.parametrize("mixer", MIXERS.values())
def test_both_networks_forecast_two_years_from_what_was_known(mixer: str) -> None:
    logs = 5.0 + 0.01 * np.arange(144.0) + 0.1 * np.sin(np.arange(144.0) * np.pi / 6.0)
    with torch.random.fork_rng():
        found = _trained_network(logs, 120, mixer, updates=2)
        changed = _trained_network(np.where(np.arange(144) < 132, logs, 9.0), 120, mixer, updates=2)
    assert found.shape == (24,)
    np.testing.assert_allclose(found, changed, atol=1e-6)  # the last year is never looked at


def test_every_task_is_named_once() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS)


@pytest.mark.long
def test_everything_that_the_demo_shows_has_learned(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aaren", "demo", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(TASKS) + 3
    record = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert all(found["is_learned"] for found in record["sections"].values())
    assert (tmp_path / "index.html").exists()
