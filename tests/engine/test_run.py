import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aaren.engine.config import RunConfig
from aaren.engine.loop import PausedError
from aaren.engine.presets import make_run
from aaren.engine.progress import Observer
from aaren.engine.record import read_record
from aaren.engine.run import train
from aaren.errors import ConfigError, DataError, StateError
from aaren.files.lock import locked
from aaren.lab.records import core_seconds, wall_seconds
from support.toy_task import ToyExperiment

ToyRun = Callable[..., RunConfig]


def test_a_run_leaves_everything(toy_run: ToyRun, tmp_path: Path) -> None:
    record = train(toy_run(predictions=True), tmp_path, command="aaren train ...")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock",
        "checksums.json",
        "curve.jsonl",
        "model",
        "predictions.safetensors",
        "preprocessing.json",
        "record.json",
        "run.json",
    ]
    assert record == read_record(tmp_path / "record.json")
    assert (record.status, record.command, record.threads, record.updates, record.epochs) == (
        "finished",
        "aaren train ...",
        1,
        24,
        3.0,
    )
    assert record.cell == {"dataset": "line", "model": "aaren"}
    assert record.parameters == 4 * 16 + 16 + 16 * 16 + 16 + 16 + 1
    assert set(record.metrics) == {"test", "best", "last"}
    assert record.metric("best.mse") == min(
        json.loads(line)["validation"]["mse"] for line in (tmp_path / "curve.jsonl").read_text().splitlines()
    )
    assert set(load_file(tmp_path / "predictions.safetensors")) == {"forecast", "truth"}


def test_a_finished_run_is_not_run_again(
    toy_run: ToyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(toy_run(), tmp_path)
    monkeypatch.setattr(ToyExperiment, "build_model", pytest.fail)
    heard = []

    class Listener(Observer):
        def say(self, message: str) -> None:
            heard.append(message)

    assert train(toy_run(checkpoint_seconds=9.0), tmp_path, observer=Listener()) == first
    assert heard == [f"{tmp_path} is finished already; this is its record."]


def test_a_folder_of_another_config_is_refused(toy_run: ToyRun, tmp_path: Path) -> None:
    train(toy_run(epochs=1), tmp_path)
    with pytest.raises(ConfigError) as caught:
        train(toy_run(epochs=2, batch_size=4), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds a run of another config: task.batch_size: 8, now 4; task.epochs: 1, now 2. "
        "Use the same values, or another folder (--out)."
    )


def test_a_folder_in_use_is_refused(toy_run: ToyRun, tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StateError, match="is in use by process"):
        train(toy_run(), tmp_path)


def test_a_paused_run_resumes(toy_run: ToyRun, tmp_path: Path) -> None:
    calls = []

    def after_ten() -> bool:
        calls.append(1)
        return len(calls) == 10

    with pytest.raises(PausedError, match="stopped at update 10; the same command resumes there"):
        train(toy_run(), tmp_path / "a", is_pause_wanted=after_ten)
    assert not (tmp_path / "a" / "record.json").exists()
    again, whole = train(toy_run(), tmp_path / "a"), train(toy_run(), tmp_path / "b")
    assert again.metrics == whole.metrics
    assert (again.resumed, whole.resumed) == (1, 0)
    weights = [load_file(tmp_path / folder / "model" / "weights.safetensors") for folder in "ab"]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_changed_data_is_noticed(toy_run: ToyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyExperiment, "checksums", lambda _self: {"line.csv": "abc"})
    with pytest.raises(PausedError):
        train(toy_run(), tmp_path, is_pause_wanted=lambda: True)
    monkeypatch.setattr(ToyExperiment, "checksums", lambda _self: {"line.csv": "def"})
    with pytest.raises(ConfigError, match=r"another config: data\.line\.csv: abc, now def"):
        train(toy_run(), tmp_path)


def test_a_failure_is_recorded_and_can_be_tried_again(
    toy_run: ToyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ToyExperiment.evaluate

    def failing(self: ToyExperiment, model: object, part: str, moment: object) -> object:
        if part == "test":
            raise DataError("the test part is broken.")
        return plain(self, model, part, moment)

    monkeypatch.setattr(ToyExperiment, "evaluate", failing)
    with pytest.raises(DataError):
        train(toy_run(), tmp_path)
    record = read_record(tmp_path / "record.json")
    assert (record.status, record.error, record.updates) == (
        "failed",
        "DataError: the test part is broken.",
        24,
    )
    assert set(record.metrics) == {"best", "last"}
    monkeypatch.setattr(ToyExperiment, "evaluate", plain)
    assert train(toy_run(), tmp_path).status == "finished"


def test_a_full_disk_at_the_end_is_one_clear_line(
    toy_run: ToyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.toy_task import ToySetting

    def full(_self: ToySetting, _model: object, _folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ToySetting, "save_model", full)
    with pytest.raises(StateError, match=r"cannot write to .*No space left on device\. Free some space"):
        train(toy_run(), tmp_path)
    monkeypatch.undo()
    assert train(toy_run(), tmp_path).resumed == 1


def test_a_stopped_run_can_be_finished_as_it_is(toy_run: ToyRun, tmp_path: Path) -> None:
    asked = []

    def after(updates: int) -> Callable[[], bool]:
        def is_pause_wanted() -> bool:
            asked.append(1)
            return len(asked) == updates

        return is_pause_wanted

    with pytest.raises(PausedError):
        train(toy_run(), tmp_path, is_pause_wanted=after(3))
    with pytest.raises(PausedError, match="nothing has been evaluated yet"):
        train(toy_run(), tmp_path, stop_early=True)
    asked.clear()
    with pytest.raises(PausedError):
        train(toy_run(), tmp_path, is_pause_wanted=after(7))
    record = train(toy_run(), tmp_path, stop_early=True)
    assert (record.status, record.ended_by, record.updates, record.epochs) == (
        "finished",
        "request",
        10,
        1.25,
    )
    assert record.metric("test.mse") > 0.0
    assert train(toy_run(), tmp_path) == record


def test_a_run_that_failed_before_it_began_may_be_mended(toy_run: ToyRun, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="diverged"):
        train(toy_run(penalty=1e38, checkpoint_seconds=99.0), tmp_path)
    assert train(toy_run(), tmp_path).status == "finished"  # an error's own cure is another config
    with pytest.raises(ConfigError, match="holds a run of another config"):
        train(toy_run(epochs=9), tmp_path)


def test_predictions_that_a_setting_does_not_keep_are_refused_before_training(tmp_path: Path) -> None:
    config = make_run("rl", "cartpole", profile="smoke", assignments=["engine.predictions=true"])
    with pytest.raises(ConfigError, match=r"'rl' keeps no predictions: leave out engine\.predictions"):
        train(config, tmp_path / "run")
    record = read_record(tmp_path / "run" / "record.json")
    assert (record.status, record.updates) == ("failed", 0)


def test_figures_are_drawn_without_dropout_and_gradients(
    toy_run: ToyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figures(self: ToyExperiment, model: object) -> dict[str, object]:
        found = model(self.inputs[:3])  # with dropout it would change
        assert not found.requires_grad
        return {"forecast": found.flatten().tolist(), "nothing": float("nan")}

    monkeypatch.setattr(ToyExperiment, "figures", figures)
    train(toy_run(epochs=1, checkpoint_seconds=1e9), tmp_path)
    found = read_record(tmp_path / "record.json").figures
    assert len(found["forecast"]) == 3
    assert found["nothing"] is None


def test_a_record_tells_cpu_time(toy_run: ToyRun, tmp_path: Path) -> None:
    record = train(toy_run(), tmp_path / "run")
    assert core_seconds(record) == record.seconds["cpu"] > 0.0
    old = replace(record, seconds={"training": 6.0, "evaluation": 3.0, "saving": 1.0})
    assert core_seconds(old) == wall_seconds(old) == 10.0
