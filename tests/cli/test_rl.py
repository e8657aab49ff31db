"""rl from the command line: train, evaluate, the return-conditioning curve, Minari ids."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.errors import AarenError

FEW = ("--set", "updates=4", "--set", "episode_steps=8", "--set", "max_trajectories=6")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def run(*words: str) -> list[str]:
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_train_evaluate_and_ask_for_several_returns() -> None:
    lines = run("train", "rl", "cartpole", "--profile", "smoke", *FEW, "--out", "run")
    assert [line.split()[0] for line in lines] == ["test.return", "run"]  # CartPole has no score
    record = json.loads(Path("run/record.json").read_text())
    assert record["facts"]["environment"] == "CartPole-v1"
    assert {"best", "last", "test"} == set(record["metrics"])
    assert len(Path("run/curve.jsonl").read_text().splitlines()) == 2
    found = dict(line.split() for line in run("evaluate", "run", "--set", "episodes=3"))
    assert "test.return_2" in found
    lines = run("evaluate", "run", "--sweep", "target_scale=0.5,2")
    assert lines[0].startswith("target_scale=0.5  target ")
    sweep = json.loads(Path("run/record.json").read_text())["sweeps"]["target_scale"]
    first, second = (row["metrics"]["target"] for row in sweep["rows"])
    assert second == 4 * first
    assert sweep["part"] == "test"
    lines = run("evaluate", "run", "--sweep", "context=window,carried,reset", "--json", "--set", "episodes=1")
    assert [json.loads(line)["context"] for line in lines[:3]] == ["window", "carried", "reset"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("evaluate", "run", "--sweep", "context"), "a sweep needs a key and values"),
        (("evaluate", "run", "--sweep", "contxt=window"), "unknown key 'contxt'; did you mean 'context'"),
        (("train", "rl", "--data", "mine/other-v0"), "no Minari dataset 'mine/other-v0'"),
        (("train", "rl", "--data", "mine.hdf5"), r"--data mine\.hdf5: there is no such file"),
        (("train", "rl", "hopper-medium-regen"), "python benchmarks/rl_data hopper-medium"),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if "contxt=window" in words:
        run("train", "rl", "cartpole", "--model", "random", "--profile", "smoke", *FEW, "--out", "run")
    with pytest.raises(AarenError, match=message):
        run(*words)
