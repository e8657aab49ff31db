import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.errors import AarenError, ConfigError, StateError
from aaren.lab.schedule import holding

TOY = "support.toy_grid"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*words: str, code: int = 0) -> tuple[str, str]:
    """Run the command and return stdout and stderr; a user's mistake comes out as its exception."""
    result = CliRunner().invoke(app, ["reproduce", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Be a user who may write nowhere; root may everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_grid_from_beginning_to_end() -> None:
    out, talk = run(TOY, "--datasets", "line", "--seeds", "1", "--set", "threads=1", code=1)
    assert "3 runs: 0 finished already, 3 to run" in talk
    assert "finished  support.toy_task line aaren, seed 0: test.mse" in talk
    assert "failed: support.toy_task line diverging, seed 0: DivergedError" in talk
    assert "2 finished, 1 failed in" in talk
    assert "MSE" in out
    records = [json.loads(path.read_text()) for path in Path("runs").rglob("record.json")]
    assert sorted(record["status"] for record in records) == ["failed", "finished", "finished"]
    out, talk = run(TOY, "--datasets", "line", "--seeds", "1", "--plan")
    assert "3 runs: 2 finished already, 0 to run, 0 without data, 1 failed before" in out
    assert "(--set retry_failed=true tries it again)" in out
    out, talk = run(TOY, "--datasets", "line", "--seeds", "1", "--plan", "--set", "retry_failed=true")
    assert out.splitlines()[-1] == f"aaren train {TOY} line --model diverging --profile cpu --seed 0"


def test_missing_data_is_named_with_the_way_to_get_it() -> None:
    out, _ = run("--datasets", "wiki,sin", "--models", "poisson", "--seeds", "1", "--plan")
    assert "2 runs: 0 finished already, 1 to run, 1 without data" in out
    assert "  no data for wiki (1 runs): aaren data fetch wiki" in out
    assert out.splitlines()[-1] == "aaren train events sin --model poisson --profile cpu --seed 0"
    assert not Path("runs").exists()  # a dry run leaves nothing behind


def test_nothing_can_run_and_that_is_said() -> None:
    _, talk = run("--datasets", "wiki", "--models", "poisson")
    assert "1 runs: 0 finished already, 0 to run, 1 without data" in talk
    assert "0 finished in 0 s" in talk


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("forecastin",), "unknown setting 'forecastin'; did you mean 'forecasting'?"),
        (("--datasets", "ETTh9"), "unknown dataset 'ETTh9'; did you mean"),
        (("events", "--models", "arren"), "unknown model 'arren'; did you mean 'aaren'?"),
        (("--set", "shard=5/4"), "--set: shard must be I/N"),
        (("--set", "thread=1"), "--set: unknown key 'thread'; did you mean 'threads'?"),
        (("--set", "timeout"), "--set: 'timeout' is no assignment: write key=value."),
        (("--set", "stall=-1"), "--set: stall must be 0 or more minutes; got -1."),
        (("--profile", "cppu"), "unknown profile 'cppu'; did you mean 'cpu'?"),
    ],
)
def test_bad_names(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*words)
    assert message in str(caught.value)


def test_a_folder_of_a_newer_version_is_left_alone() -> None:
    out, _ = run(TOY, "--datasets", "line", "--models", "mean", "--plan")
    assert "1 to run" in out
    run(TOY, "--datasets", "line", "--models", "mean")
    path = next(Path("runs").rglob("record.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    before = path.read_text()
    _, talk = run(TOY, "--datasets", "line", "--models", "mean", "--set", "retry_failed=true")
    assert "0 to run, 0 without data, 0 failed before, 1 not to be touched" in talk
    assert f"{path} is left alone: a newer version of aaren wrote it (format 99; this one reads 1)" in talk
    assert path.read_text() == before


def test_two_grids_on_one_folder() -> None:
    runs = Path("runs")
    message = (
        rf"another grid of {TOY} runs in runs \(process {os.getpid()}\)\. Wait for it, end it, or choose"
    )
    with holding(runs, [TOY], (1, 1)), pytest.raises(StateError, match=message):
        run(TOY)
    with holding(runs, ["rl", TOY], (1, 1)), pytest.raises(StateError, match=message):
        run(TOY, "--set", "shard=1/2")
    with holding(runs, [TOY], (1, 2)), pytest.raises(StateError, match="every part must be a shard"):
        run(TOY)
    with holding(runs, [TOY], (1, 2)), pytest.raises(StateError, match=message):
        run(TOY, "--set", "shard=1/2")
    with holding(runs, [TOY], (1, 2)), holding(runs, [TOY], (2, 2)):
        pass  # the shards of one grid share a folder


def test_grids_of_two_settings_share_a_folder() -> None:
    with holding(Path("runs"), ["rl", "events"], (1, 1)):
        _, talk = run(TOY, "--datasets", "line", "--models", "mean")
        assert "1 to run" in talk
        with pytest.raises(StateError, match="another grid of events"):
            run("forecasting", "events")


def test_no_permission_to_write() -> None:
    closed = Path("closed")
    closed.mkdir()
    closed.chmod(0o500)
    with (
        without_rights(),
        pytest.raises(StateError, match=r"cannot write to .*Choose another place"),
    ):
        run(TOY, "--out", str(closed / "runs"))


def test_a_file_in_the_way() -> None:
    Path("file").write_text("")
    with pytest.raises(AarenError, match=r"cannot write to file/"):
        run(TOY, "--out", "file")


def test_no_cluster_there() -> None:
    with pytest.raises(
        ConfigError, match=r"no Ray cluster answers at 127.0.0.1:1 \(.*refused\)\. Give --set ray="
    ):
        run(TOY, "--set", "ray=127.0.0.1:1")


def test_a_hanging_run_fails_by_its_timeout() -> None:
    _, talk = run(
        "support.toy_trouble", "--profile", "smoke", "--workers", "2", "--set", "timeout=0.1", code=1
    )
    assert (
        "failed: support.toy_trouble hang aaren, seed 0: TimeoutError: it took longer than its timeout"
        in talk
    )
    assert "1 finished, 1 failed in" in talk
    again, _ = run("support.toy_trouble", "--profile", "smoke", "--plan")
    assert "2 runs: 1 finished already, 0 to run, 0 without data, 1 failed before" in again


@pytest.mark.long
def test_a_stalled_run_is_given_up() -> None:
    words = ("support.toy_trouble", "--profile", "smoke", "--datasets", "hang", "--set", "stall=0.1")
    _, talk = run(*words, code=1)
    assert "its worker was lost (it made no progress for 6 s); another one resumes it" in talk
    assert "failed: support.toy_trouble hang aaren, seed 0: its worker process died 3 times" in talk


def test_the_plan_says_what_is_left_and_what_it_costs(tmp_path: Path) -> None:
    arguments = [TOY, "--profile", "smoke", "--models", "mean"]
    out, _ = run(*arguments, "--plan")
    assert "0 of 2 runs are done" in out
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ConfigError, match="--seeds must be a number or auto; got 'many'"):
        run(*arguments, "--seeds", "many")
