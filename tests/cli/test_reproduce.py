import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.errors import AarenError, ConfigError, StateError

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
    out, talk = run(TOY, "--datasets", "line", "--seeds", "1", code=1)
    assert "3 runs: 0 finished already, 3 to run" in talk
    assert "support.toy_task line aaren, seed 0: test.mse" in talk
    assert "failed: support.toy_task line diverging, seed 0: DivergedError" in talk
    assert "2 finished, 1 failed in" in talk
    assert "support.toy_task, cpu: MSE" in out
    records = [json.loads(path.read_text()) for path in Path("runs").rglob("record.json")]
    assert sorted(record["status"] for record in records) == ["failed", "finished", "finished"]
    out, talk = run(TOY, "--datasets", "line", "--seeds", "1", "--plan")
    assert "3 runs: 2 finished already, 1 to run, 0 without data" in out
    assert out.splitlines()[-1] == f"aaren train {TOY} line --model diverging --profile cpu --seed 0"


def test_missing_data_is_named_with_the_way_to_get_it() -> None:
    out, _ = run("--datasets", "wiki,sin", "--models", "poisson", "--seeds", "1", "--plan")
    assert "2 runs: 0 finished already, 1 to run, 1 without data" in out
    assert "  no data for wiki (1 runs): aaren data fetch wiki" in out
    assert out.splitlines()[-1] == "aaren train events sin --model poisson --profile cpu --seed 0"
    assert not Path("runs").exists()  # a dry run leaves nothing behind
    out, talk = run("--datasets", "wiki", "--models", "poisson")
    assert "0 finished, 0 failed in 0 s" in talk
    assert "events, cpu: nothing was run, so there is no table." in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("forecastin",), "unknown setting 'forecastin'; did you mean 'forecasting'?"),
        (("--datasets", "ETTh9"), "unknown dataset 'ETTh9'; did you mean"),
        (("events", "--models", "arren"), "unknown model 'arren'; did you mean 'aaren'?"),
        (("--shard", "5/4"), "--shard must be I/N"),
        (("--profile", "cppu"), "unknown profile 'cppu'; did you mean 'cpu'?"),
    ],
)
def test_bad_names(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*words)
    assert message in str(caught.value)


def test_a_folder_of_a_newer_version_is_left_alone() -> None:
    run(TOY, "--datasets", "line", "--models", "mean")
    path = next(Path("runs").rglob("record.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    (path.parents[1] / "runs.jsonl").unlink()
    before = path.read_text()
    _, talk = run(TOY, "--datasets", "line", "--models", "mean")
    assert "0 to run, 0 without data, 1 not to be touched" in talk
    assert f"{path} is left alone: it has format 99; this version of aaren reads format" in talk
    assert path.read_text() == before


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
    with pytest.raises(AarenError, match=r"cannot write to .*file/"):
        run(TOY, "--out", "file")
