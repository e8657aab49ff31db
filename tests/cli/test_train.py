import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.errors import AarenError, ConfigError

TOY = "support.toy_task"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> list[str]:
    """Run the command and return the lines of its stdout; a user's mistake comes out as its exception."""
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_train_evaluate_predict(tmp_path: Path) -> None:
    lines = run("train", TOY, "line", "--set", "width=4", "--seed", "1", "--json-log", "log.jsonl")
    assert [line.split()[0] for line in lines] == ["test.mse", "test.mae", "run"]
    folder = Path(lines[-1].removeprefix("run "))
    assert folder.parts[:2] == ("runs", TOY)
    record = json.loads((folder / "record.json").read_text())
    assert record["command"] == (
        "aaren train support.toy_task line --model aaren --profile cpu --seed 1 --set width=4"
    )
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 4
    assert run("evaluate", str(folder)) == lines[:2]
    found = json.loads("\n".join(run("evaluate", str(folder), "--json", "--part", "validation")))
    assert found == {"validation": record["metrics"]["best"]}
    Path("new.json").write_text("[[1, 2, 3, 4]]")
    assert run("predict", str(folder), "--data", "new.json", "-o", "answer.json") == ["answer.json"]
    assert len(json.loads(Path("answer.json").read_text())) == 1
    assert run("train", TOY, "line", "--set", "width=4", "--seed", "1") == lines  # finished: told again


def test_train_from_a_file() -> None:
    Path("run.toml").write_text(f'setting = "{TOY}"\n[task]\nepochs = 1\n[engine]\nthreads = 1\n')
    assert run("--import", TOY, "train", "run.toml", "--seed", "2", "--out", "here")[-1] == "run here"
    record = json.loads(Path("here/record.json").read_text())
    assert (record["seed"], record["updates"], record["profile"]) == (2, 8, "custom")
    assert record["command"] == f"aaren --import {TOY} train run.toml --seed 2"
    with pytest.raises(ConfigError, match="a dataset, --data, --model and --profile do not go with it"):
        run("train", "run.toml", "--profile", "cpu")


def test_own_data_is_named_by_its_full_path() -> None:
    Path("mine.csv").write_text("x")
    run("train", TOY, "--data", "mine.csv", "--out", "run")
    config = json.loads(Path("run/record.json").read_text())["config"]
    assert config["task"]["data_file"] == str(Path("mine.csv").resolve())
    assert not config["task"]["dataset"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "forecastin", "x"), "unknown setting 'forecastin'; did you mean 'forecasting'"),
        (("train", TOY), "name a dataset"),
        (("train", TOY, "line", "--set", "epoch=3"), "unknown key 'epoch'; did you mean 'epochs'"),
        (("train", TOY, "--data", "nothing.csv"), "--data nothing.csv: there is no such file"),
        (("train", "nothing.toml"), r"no file nothing\.toml"),
        (("evaluate", "nowhere"), "nowhere is no run folder"),
        (("predict", "nowhere", "--data", "x", "-o", "y"), "no file x"),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(AarenError, match=message):
        run(*words)
