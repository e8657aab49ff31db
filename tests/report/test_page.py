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
from aaren.report.markdown import BEGIN, END, render_summary
from aaren.report.page import PAGE, write_report
from aaren.report.rows import read_results

WriteRun = Callable[..., Path]


def test_a_readme_is_rewritten_beside_the_report_or_alone(
    full_results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text(f"{BEGIN}\n{END}\n")
    words = ["report", str(full_results), "--readme", "README.md"]
    assert CliRunner().invoke(app, words).stdout == "README.md: rewritten\n"
    assert not Path("report").exists()
    result = CliRunner().invoke(app, [*words, "-o", "out"])
    assert result.stdout.startswith("README.md: up to date\n")
    assert (tmp_path / "out" / PAGE).is_file()


def test_equal_records_give_equal_reports(full_results: Path, tmp_path: Path) -> None:
    _, first = write_report([full_results], tmp_path / "a")
    _, second = write_report([full_results], tmp_path / "b")
    assert [path.name for path in first] == ["index.html", "tables.md", "verdict.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_broken_and_foreign_records_are_named_and_left_out(full_results: Path, tmp_path: Path) -> None:
    results, (page, tables, _) = write_report([full_results], tmp_path / "report")
    reasons = {problem.path.parent.name: problem.reason for problem in results.problems}
    assert reasons.keys() == {"cut-off", "foreign"}
    for text in (page.read_text(), tables.read_text()):
        assert "cut-off/record.json" in text
        assert "it is no record of a run" in text
    assert str(tmp_path) not in tables.read_text()


def test_a_failed_or_newer_run_is_a_problem(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.7)
    write_run(tmp_path, "events", "sin", "transformer", 0.7, status="failed")
    newer = write_run(tmp_path, "events", "mimic", "aaren", 0.7) / "record.json"
    newer.write_text(json.dumps({**json.loads(newer.read_text()), "format": 99}))
    reasons = sorted(problem.reason for problem in read_results(tmp_path).problems)
    assert reasons[0].startswith("it has format 99")
    assert reasons[1] == "the run failed: DataError: no such column"


def test_a_foreign_benchmark_is_a_problem(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path, "events", "sin", "aaren", 0.7)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "stream.json").write_text("{")
    (problem,) = read_results(tmp_path).problems
    assert problem.reason.startswith("is not JSON")


def test_a_curve_of_one_point_and_strange_figures_are_not_drawn(tmp_path: Path, write_run: WriteRun) -> None:
    broken = {"figures": {"windows": 3}, "curve": [1.0]}
    write_run(tmp_path / "runs", "forecasting", "ETTh1", "aaren", 0.5, 0.4, horizon=96, **broken)
    _, (page, *_) = write_report([tmp_path / "runs"], tmp_path / "report")
    text = page.read_text()
    assert 'data-figure="forecasting-forecasts"' not in text
    assert 'data-figure="forecasting-curves"' not in text


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
    assert lines[2:] == [str(tmp_path / "out" / name) for name in ("index.html", "tables.md", "verdict.svg")]
    assert "left out" in result.stderr


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
    found = read_results(*folders)
    assert [problem.path for problem in found.problems] == [folders[1] / "bench" / "stream.json"]
    assert "stream" in found.benches


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
    _, (page, tables, _) = write_report([tmp_path], tmp_path / "report")
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


@pytest.mark.parametrize(("validation", "title"), [("f1", "validation f1"), ("other", "training loss")])
def test_an_unknown_setting_is_displayed_and_never_imported(
    validation: str, title: str, tmp_path: Path, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_setting.py").write_text("raise AssertionError('a record chose what is imported')")
    for model, f1 in (("aaren", 0.9), ("transformer", 0.5), ("simple", 0.4)):
        folder = write_run(tmp_path / "runs", "events", "mine", model, test={"f1": f1}, curve=[0.1, 0.2])
        record = json.loads((folder / "record.json").read_text().replace('"nll"', f'"{validation}"'))
        own = {"setting": "own_setting", "reports": ["test.f1"], "higher_is_better": ["test.f1"]}
        (folder / "record.json").write_text(json.dumps(record | own))
    _, (page, tables, _) = write_report([tmp_path / "runs"], tmp_path / "report")
    text = page.read_text()
    assert '<section id="own_setting"><h2>own_setting</h2>' in text
    assert 'id="own_setting-cpu-main-test-f1"' in text
    assert 'id="own_setting-cpu-references-test-f1"' in text
    assert 'data-figure="own_setting-curves"' in text
    assert f'{{"text": "{title}"}}' in text
    assert "## own_setting" in tables.read_text()
    assert "**own_setting**, f1 (higher is better)" in render_summary(read_results(tmp_path / "runs"))


def test_a_setting_of_unknown_models_has_a_table_and_learning_curves(
    tmp_path: Path, write_run: WriteRun
) -> None:
    write_run(tmp_path / "runs", "events", "mine", "simple", 0.7, curve=[0.9, 0.8])
    _, (page, tables, _) = write_report([tmp_path / "runs"], tmp_path / "report")
    assert 'data-figure="events-curves"' in page.read_text()
    assert "| mine | – | – | **0.700** | simple |" in tables.read_text()
