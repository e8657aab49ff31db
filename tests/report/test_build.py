"""Writing a report: what is in it, and everything that can be wrong with its input."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.errors import ConfigError, DataError
from aaren.report.build import write_readme, write_report
from aaren.report.gathered import gather
from aaren.report.readme import BEGIN, END, render_section

WriteRun = Callable[..., Path]


def test_equal_records_give_equal_reports(full_results: Path, tmp_path: Path) -> None:
    _, first = write_report([full_results], tmp_path / "a")
    _, second = write_report([full_results], tmp_path / "b")
    assert [path.name for path in first] == ["index.html", "tables.md"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_broken_and_foreign_records_are_named_and_left_out(full_results: Path, tmp_path: Path) -> None:
    gathered, (page, tables) = write_report([full_results], tmp_path / "report")
    reasons = {problem.path.parent.name: problem.reason for problem in gathered.problems}
    assert reasons == {
        "cut-off": "it is not JSON: cut off, or something else wrote it",
        "foreign": "it is no record of a run: something else wrote it",
    }
    for text in (page.read_text(), tables.read_text()):
        assert "cut-off/record.json" in text
        assert "it is no record of a run" in text
    assert str(tmp_path) not in tables.read_text()


def test_a_failed_or_newer_run_is_a_problem(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.7)
    write_run(tmp_path, "events", "sin", "transformer", 0.7, status="failed")
    newer = write_run(tmp_path, "events", "mimic", "aaren", 0.7) / "record.json"
    newer.write_text(json.dumps({**json.loads(newer.read_text()), "format": 99}))
    reasons = sorted(problem.reason for problem in gather(tmp_path).problems)
    assert reasons[0].startswith("a newer version of aaren wrote it (format 99")
    assert reasons[1] == "the run failed: DataError: no such column"


def test_a_foreign_benchmark_is_a_problem(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.7)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "stream.json").write_text("{")
    (problem,) = gather(tmp_path).problems
    assert problem.reason.startswith("is not JSON")


def test_broken_files_beside_a_record_leave_no_figure(tmp_path: Path, write_run: WriteRun) -> None:
    folder = write_run(
        tmp_path / "runs", "forecasting", "ETTh1", "aaren", 0.5, 0.4, horizon=96, curve=[1.0, 0.5]
    )
    (folder / "figures.json").write_text("{")
    (folder / "curve.jsonl").write_text('{"update": 1, "validation": {"mse": 1.0}}\n{"upd')
    _, (page, _) = write_report([tmp_path / "runs"], tmp_path / "report")
    text = page.read_text()
    assert 'data-figure="forecasts"' not in text
    assert 'data-figure="curves-forecasting"' not in text


def test_input_that_cannot_be(tmp_path: Path, write_run: WriteRun) -> None:
    with pytest.raises(DataError, match=r"no folder .*nowhere"):
        write_report([tmp_path / "nowhere"], tmp_path / "report")
    (tmp_path / "runs").mkdir()
    with pytest.raises(DataError, match=r"no finished run below .*runs: .* Make some: aaren train"):
        write_report([tmp_path / "runs"], tmp_path / "report")
    write_run(tmp_path / "runs", "events", "sin", "aaren", 0.7)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is a file: -o needs a folder"):
        write_report([tmp_path / "runs"], tmp_path / "file")
    with pytest.raises(ConfigError, match=r"cannot write to .*file/report.*Choose another folder: -o FOLDER"):
        write_report([tmp_path / "runs"], tmp_path / "file" / "report")


def test_the_command_prints_verdict_and_paths(full_results: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(full_results), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("As good as Transformers? ")
    assert lines[1] == "Cheaper? not measured."
    assert lines[2:] == [str(tmp_path / "out" / "index.html"), str(tmp_path / "out" / "tables.md")]
    assert "left out" in result.stderr


def test_the_readme_section_says_profile_stand_ins_and_what_was_not_run(full_results: Path) -> None:
    section = render_section(gather(full_results))
    assert (
        "**Reinforcement learning**, score, best evaluation (higher is better), regenerated data;" in section
    )
    assert "Aaren, published, on D4RL" in section
    assert "profile `cpu`" in section
    assert "| uber-sample (stands for uber) |" in section
    assert "Not run: ETTh1 (720), ETTh2 (96, 192, 336, 720)" in section


def test_a_setting_without_runs_is_said_to_be_not_run(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.7)
    section = render_section(gather(tmp_path))
    assert "**Time-series forecasting**: not run." in section
    assert "**Reinforcement learning**: not run." in section


def test_the_readme_is_rewritten_between_its_marks(full_results: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert write_readme([full_results], readme)
    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\n\n**As good")
    assert text.endswith(f"{END}\nafter\n")
    assert not write_readme([full_results], readme)
    readme.write_text("no marks")
    with pytest.raises(DataError, match="has no place for results: put the lines"):
        write_readme([full_results], readme)
    with pytest.raises(ConfigError, match=r"no file .*none"):
        write_readme([full_results], tmp_path / "none")


def test_numbers_that_are_not_finite_beside_a_record(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        folder = write_run(
            tmp_path, "classification", "Handwriting", model, 0.5, curve=[0.1, math.nan, 0.3], seed=0
        )
        with (folder / "curve.jsonl").open("ab") as curve:
            curve.write(b"\xff\xfe")
    write_report([tmp_path], tmp_path / "page")
    page = (tmp_path / "page" / "index.html").read_text()
    assert '"y": [0.1, null, 0.3]' in page  # a gap, and the cut-off end is left out


def test_the_benchmark_of_the_first_folder_counts(tmp_path: Path) -> None:
    measured = Path(__file__).parents[2] / "results" / "bench" / "stream.json"
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        (folder / "bench").mkdir(parents=True)
        shutil.copy(measured, folder / "bench")
    found = gather(*folders)
    assert [problem.path for problem in found.problems] == [folders[1] / "bench" / "stream.json"]
    assert "stream" in found.benches


def test_a_readme_that_is_no_text(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "classification", "Handwriting", "aaren", 0.5)
    (tmp_path / "README.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"README.md is no text in UTF-8"):
        write_readme([tmp_path], tmp_path / "README.md")


def test_a_profile_with_changed_rows_alone_says_so(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        write_run(
            tmp_path, "rl", "hopper-medium-regen", model, 50.0, profile="paper", changed=("task.updates",)
        )
    assert "**Reinforcement learning**, profile `paper`" in render_section(gather(tmp_path))
    assert "none was run here as it stands" in render_section(gather(tmp_path))


HOSTILE = '"><script>alert(1)</script><!--<script><img src=x onerror=alert(2)>[a](javascript:alert(3))`|'


def test_a_record_cannot_put_markup_into_the_report(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer", "dtw"):
        path = write_run(tmp_path, "events", "sin", model, 0.7, curve=[0.9, 0.8, 0.7]) / "record.json"
        record = json.loads(path.read_text())
        names = ("setting", "profile", "command", "ended_by", "date")
        record |= {name: f"{name}{HOSTILE}" for name in names}
        record["cell"] = {
            "dataset": f"d{HOSTILE}",
            "model": model if model != "dtw" else HOSTILE,
            "x": HOSTILE,
        }
        record["metrics"]["test"][f"n{HOSTILE}"] = 0.5
        record["reports"] = [f"test.n{HOSTILE}"]
        record["data"] = {f"file{HOSTILE}": f"digest{HOSTILE}"}
        record["machine"] = {"cpu": f"cpu{HOSTILE}", "cores": HOSTILE}
        record["versions"] = {f"v{HOSTILE}": HOSTILE}
        path.write_text(json.dumps(record))
        write_run(tmp_path, "events", f"e{HOSTILE.replace('/', '')}", model, 0.7, curve=[0.9, 0.8, 0.7])
    broken = tmp_path / "<img src=x onerror=alert(4)>" / "record.json"
    broken.parent.mkdir()
    broken.write_text(json.dumps({"kind": "run", "format": f"<script>{HOSTILE}"}))
    _, (page, tables) = write_report([tmp_path], tmp_path / "report")
    text = page.read_text()
    # What belongs to the page: its own scripts and, inside plotly's, whatever it needs.
    library = text.split("</head>")[1].partition("<script>")[2].partition("</script>")[0]
    ours = text.replace(library, "")
    assert ours.count("<script") == 3
    assert not any(mark in ours for mark in ("<img", "<!--", 'javascript:alert(3)"', "alert(1)</script>"))
    figures = ours.partition('id="figures">')[2].partition("</script>")[0]
    assert "<" not in figures
    assert "alert(1)" in json.dumps(json.loads(figures))
    markdown = tables.read_text()
    assert "alert(1)" in markdown
    assert "<script" not in markdown
    assert "](javascript" not in markdown
    assert "<" not in "".join(line for line in markdown.splitlines() if "`" not in line)


def test_the_results_of_a_readme_carry_no_markup_of_records(tmp_path: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer", HOSTILE):
        path = write_run(tmp_path, "events", "sin", model.replace("/", ""), 0.7 - 0.1 * (model == HOSTILE))
        record = json.loads((path / "record.json").read_text())
        record["profile"] = f"cpu{HOSTILE}"
        (path / "record.json").write_text(json.dumps(record))
    section = render_section(gather(tmp_path))
    assert "alert(2)" in section
    outside_code = section.replace(f"`cpu{HOSTILE.replace('`', chr(39))}`", "")
    assert "](javascript" not in outside_code
    assert "<" not in outside_code
