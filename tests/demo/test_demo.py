"""The demo's page shows what its tasks found, escaped and drawn; the whole demo runs in `make test-all`."""

import html
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from aaren.demo import run as demo
from aaren.demo.run import NEXT, draw, render
from aaren.demo.tasks import TASKS, Line, Section
from aaren.errors import ConfigError

SECTION = Section(
    title="A task",
    about="What it is.",
    columns=("", "error, %"),
    rows=(("<b>ours</b>", "1"), ("naive", "2")),
    summary="ours is off by 1 % (naive: 2 %; less is better)",
    code="ours.fit(data)",
)
LINES = (Line("seen", [0, 1, 2], [1, 2, 3]), Line("told", [1, 2], [2, 3], [1, 2], [3, 4]))


def quick() -> Section:
    return SECTION


def test_the_page_shows_every_row_and_asks_for_nothing() -> None:
    other = replace(SECTION, title="Another", lines=LINES, axes=("months", "guests"))
    text = render({"task": SECTION, "other": other}, seconds=90.0)
    assert "&lt;b&gt;ours&lt;/b&gt;" in text
    assert "<b>ours</b>" not in text
    assert text.count(SECTION.summary) == 2
    assert not re.search(r'(src|href)="(?!#)', text)
    assert 'href="live/index.html"' in render({"task": SECTION}, seconds=1.0, has_live=True)
    for _, command in NEXT:
        assert command in html.unescape(text)
    assert {"seen", "told", "months", "guests"} <= set(re.findall(r">(\w+)</text>", text))


def test_a_task_below_its_level_is_said() -> None:
    assert "below the level" in render({"task": replace(SECTION, is_good=False)}, seconds=1.0)
    assert "below the level" not in render({"task": SECTION}, seconds=1.0)


def test_equal_lines_give_equal_pictures() -> None:
    assert draw(LINES, ("x", "y")) == draw(LINES, ("x", "y"))


def test_a_run_writes_page_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TASKS", {"operator": quick, "policy": quick, "stream": quick})
    talk = io.StringIO()
    sections, seconds = demo.run(tmp_path / "new", console=Console(file=talk))
    assert list(sections) == ["operator", "policy", "stream"]
    record = json.loads((tmp_path / "new" / "demo.json").read_text(encoding="utf-8"))
    assert record["sections"]["policy"]["summary"] == SECTION.summary
    assert record["seconds"] == pytest.approx(seconds, abs=0.1)
    assert "A task" in (tmp_path / "new" / "index.html").read_text(encoding="utf-8")
    assert talk.getvalue().count("done") == 3


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--out"):
        demo.run(tmp_path / "file", console=Console(file=io.StringIO()))


@pytest.mark.long
def test_everything_that_the_demo_shows_is_good(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aaren", "demo", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(TASKS) + 3
    record = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert all(section["is_good"] for section in record["sections"].values())
    assert (tmp_path / "index.html").exists()
