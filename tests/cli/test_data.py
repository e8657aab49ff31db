import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.cli.main import app


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "data"


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["data", *words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.usefixtures("root")
def test_list_shows_the_38_and_the_extras() -> None:
    out = run("list")
    for title in ("forecasting (8)", "classification (10)", "events (8)", "rl (12)"):
        assert title in out
    assert "of 38 on disk" in out
    assert "hopper-medium-regen" not in out
    assert "hopper-medium-regen" in run("list", "rl", "--extras")


@pytest.mark.usefixtures("root")
def test_a_set_that_is_named_is_shown_with_all_that_is_known() -> None:
    out = run("list", "ETTh1")
    for words in ("17,420 rows × 7", "CC BY-ND 4.0", "aaren data fetch ETTh1"):
        assert words in out


@pytest.mark.usefixtures("root")
def test_list_as_json() -> None:
    entries = json.loads(run("list", "--json"))
    assert len(entries) == 38
    exchange = next(entry for entry in entries if entry["name"] == "Exchange")
    assert exchange["paths"] == []
    assert exchange["shape"] == "7,588 rows × 8"


def test_fetch_and_verify_a_generated_set(root: Path) -> None:
    out = run("fetch", "seasonal")
    assert str(root / "forecasting" / "seasonal.csv") in out
    assert "verified seasonal: rows 4000, series 7" in out
    assert "verified seasonal: rows 4000, series 7" in run("verify")
    entries = json.loads(run("list", "seasonal", "--json"))
    assert entries[0]["paths"] == [str(root / "forecasting" / "seasonal.csv")]


def test_verify_exits_1_when_something_differs(root: Path) -> None:
    (root / "forecasting").mkdir(parents=True)
    (root / "forecasting" / "ETTh1.csv").write_text("date,a\n2020-01-01,1\n")
    out = run("verify", "ETTh1", code=1)
    assert "broken ETTh1" in out
    assert "a split by months needs 20 months, 14400 rows; got 1" in out


def test_verify_looks_at_a_users_file(root: Path) -> None:
    root.mkdir()
    path = root / "mine.csv"
    path.write_text("when,x\n2024-01-01,1\n2024-01-02,2\n2024-01-09,3\n2024-01-10,3\n")
    result = CliRunner().invoke(app, ["data", "verify", str(path)])
    assert result.exit_code == 1
    assert "1 gap(s), the first from 2024-01-02T00:00:00" in str(result.exception)
    assert "verified" in run("verify", str(path), "--allow-irregular")
    found = json.loads(run("verify", str(path), "--allow-irregular", "--json"))
    assert found[0]["measured"]["gaps"] == 1


def test_fetch_without_a_network_prints_one_line_per_set_and_exits_2(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every address leads to a closed port of this machine: a real failure, without a network.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    result = CliRunner().invoke(app, ["data", "fetch", "ETTh1", "mimic"])
    assert result.exit_code == 2
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 2
    assert "cannot get ETTh1: HTTPSConnectionPool" in lines[0]
    assert f"copy ETTh1.csv into {root}/forecasting, then run: aaren data verify ETTh1" in lines[0]
    assert f"copy mimic2.npz into {root}/events" in lines[1]


@pytest.mark.usefixtures("root")
def test_misuse_is_one_clear_line_and_exit_code_2() -> None:
    command = [sys.executable, "-c", "from aaren.cli.main import main; main()", "data"]
    for words, message in ((["fetch", "ETTm9"], "unknown dataset 'ETTm9'"),):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_the_help_imports_no_torch() -> None:
    program = (
        "import sys; from aaren.cli import data; print('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
