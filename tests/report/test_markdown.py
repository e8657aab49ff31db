"""The report as Markdown: the results section of the README, and how files between marks are rewritten."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.errors import DataError
from aaren.report.forest import picture
from aaren.report.markdown import BEGIN, END, render_section, render_summary, write_readme
from aaren.report.page import FOREST
from aaren.report.rows import read_results
from aaren.report.verdict import first_comparisons, pool_settings

WriteRun = Callable[..., Path]
ROOT = Path(__file__).parents[2]
HOSTILE = '"><script>alert(1)</script><!--<script><img src=x onerror=alert(2)>[a](javascript:alert(3))`|'


def test_the_results_section_is_not_stale() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()
    wanted = render_section(read_results(ROOT / "results")).strip()
    assert shown == wanted, "README.md is stale: run `aaren report results --readme README.md`"


def test_the_picture_beside_it_is_not_stale() -> None:
    shown = (ROOT / "results" / "report" / FOREST).read_text(encoding="utf-8")
    wanted = picture(pool_settings(first_comparisons(read_results(ROOT / "results"))))
    assert shown == wanted, "the verdict is stale: run `aaren report results --out results/report`"


def test_who_loses_to_something_simple_is_seen_to_lose(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    for horizon, linear in ((96, 0.4), (192, 0.6), (336, 0.3)):
        for model, mse in (("aaren", 0.5), ("transformer", 0.55), ("linear", linear), ("streaming", 0.35)):
            write_run(tmp_path, "forecasting", "ETTh1", model, mse, mse, horizon=horizon)
    write_run(tmp_path, "forecasting", "ETTh2", "aaren", 0.5, 0.5, horizon=96)
    words = "Simple references, run in 3 rows, are ahead of both models in 2: linear (2)."
    assert words in render_summary(read_results(tmp_path))


def test_a_reference_that_loses_is_said_to_lose(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    for model, accuracy in (("aaren", 0.9), ("transformer", 0.8), ("majority", 0.2)):
        write_run(tmp_path, "classification", "JapaneseVowels", model, accuracy, profile="paper")
    words = "Simple references, run in 1 row, are ahead of both models in none."
    assert words in render_summary(read_results(tmp_path))


def test_the_summary_says_profile_stand_ins_and_what_was_not_run(full_results: Path) -> None:
    section = render_summary(read_results(full_results))
    assert (
        "**Reinforcement learning**, score, fresh episodes (higher is better), regenerated data;" in section
    )
    assert "Aaren, published, on D4RL" in section
    assert "profile `cpu`" in section
    assert "| uber-sample (stands for uber) |" in section
    assert "Not run: ETTh1 (720), ETTh2 (96, 192, 336, 720)" in section


def test_a_setting_without_runs_is_said_to_be_not_run(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.7)
    section = render_summary(read_results(tmp_path))
    assert "**Time-series forecasting**: not run." in section
    assert "**Reinforcement learning**: not run." in section


def test_the_readme_is_rewritten_between_its_marks(full_results: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert write_readme([full_results], readme)
    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\n\n![Aaren's advantage")
    assert "**As good as Transformers?** Pooled over datasets " in text
    assert "(results/report/tables.md)" in text
    assert text.endswith(f"{END}\nafter\n")
    assert not write_readme([full_results], readme)
    readme.write_text("no marks")
    with pytest.raises(DataError, match="has no place for what --readme writes: put these two lines there"):
        write_readme([full_results], readme)
    with pytest.raises(DataError, match=r"no file .*none"):
        write_readme([full_results], tmp_path / "none")


def test_a_readme_that_is_no_text(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "classification", "Handwriting", "aaren", 0.5)
    (tmp_path / "README.md").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"README.md is no text in UTF-8"):
        write_readme([tmp_path], tmp_path / "README.md")


def test_a_profile_with_changed_rows_alone_says_so(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        write_run(
            tmp_path, "rl", "hopper-medium-regen", model, 50.0, profile="paper", changed=("task.updates",)
        )
    assert "**Reinforcement learning**, profile `paper`" in render_summary(read_results(tmp_path))
    assert "none was run here as it stands" in render_summary(read_results(tmp_path))


def test_the_results_of_a_readme_carry_no_markup_of_records(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer", HOSTILE):
        path = write_run(tmp_path, "events", "sin", model.replace("/", ""), 0.7 - 0.1 * (model == HOSTILE))
        record = json.loads((path / "record.json").read_text())
        record["profile"] = f"cpu{HOSTILE}"
        (path / "record.json").write_text(json.dumps(record))
    section = render_summary(read_results(tmp_path)) + render_section(read_results(tmp_path))
    assert "alert(2)" in section
    outside_code = section.replace(f"`cpu{HOSTILE.replace('`', chr(39))}`", "")
    assert "](javascript" not in outside_code
    assert "<" not in outside_code
