import json
from pathlib import Path

import pytest

from aaren.engine.config import (
    EngineConfig,
    RunConfig,
    differences,
    find_key,
    from_mapping,
    override,
    read_config,
    to_json,
)
from aaren.engine.setting import find_setting
from aaren.errors import ConfigError
from aaren.fields import to_mapping
from support.toy_task import ToyConfig, ToyModelConfig


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(setting="support.toy_task", task=ToyConfig(), profile="cpu", seed=3)


def load(path: Path) -> RunConfig:
    return from_mapping(read_config(path), source=str(path))


def test_json_and_back(config: RunConfig, tmp_path: Path) -> None:
    strange = override(config, ['dataset=a "quoted" µ 𝄞 \\ name', "learning_rate=1e-05", "patience=none"])
    path = tmp_path / "run.json"
    path.write_text(to_json(strange), encoding="utf-8")
    assert load(path) == strange


def test_a_short_file_is_completed_by_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('setting = "support.toy_task"\n[task.model]\nwidth = 4\n')
    assert load(path) == RunConfig(setting="support.toy_task", task=ToyConfig(model=ToyModelConfig(width=4)))


def test_all_faults_of_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'setting = "support.toy_task"\nsede = 1\n[task]\nepochs = "many"\n[task.model]\nwidht = 4\n'
        "[engine]\nthreads = -1\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: 4 faults\n"
        "  - unknown key 'task.model.widht'; did you mean 'task.model.width'?\n"
        "  - task.epochs: expected an integer, got 'many'\n"
        "  - unknown key 'sede'; did you mean 'seed'?\n"
        "  - engine: threads must be 0 to 1024; got -1."
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = ", "is not TOML"),
        ("seed = 1", "'setting' is missing"),
        ('setting = "forecastin"', "unknown setting 'forecastin'; did you mean 'forecasting'"),
        ('setting = "support.toy_task"\ntask = 3', "task: expected a table of keys, got 3"),
    ],
)
def test_files_that_are_no_runs(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file .*run\.toml\. Write one, or use a preset"):
        load(tmp_path / "run.toml")


def test_override_takes_types_from_the_config(config: RunConfig) -> None:
    changed = override(config, ["epochs=7", "width=32", "engine.threads=2", "patience=3", "seed=9"])
    assert changed.task == ToyConfig(epochs=7, patience=3, model=ToyModelConfig(width=32))
    assert (changed.engine, changed.seed) == (EngineConfig(threads=2), 9)
    assert changed.changed == ("task.epochs", "task.model.width", "engine.threads", "task.patience")


def test_override_reports_everything(config: RunConfig) -> None:
    with pytest.raises(ConfigError) as caught:
        override(config, ["epoks=7", "name=sgd", "epochs", "width=wide", "epochs=0"])
    assert str(caught.value).splitlines() == [
        "--set: 4 faults",
        "  - unknown key 'epoks'; did you mean 'epochs'?",
        "  - 'epochs' is no assignment: write key=value",
        "  - task.model.width: expected an integer, got 'wide'",
        "  - task: epochs must be at least 1; got 0.",
    ]


@pytest.mark.parametrize("setting", ["forecasting", "classification", "events", "rl"])
@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("width=abc", "task.network.width: expected an integer, got 'abc'"),
        ("network.width=1.5", "task.network.width: expected an integer, got '1.5'"),
        ("dropout=x", "task.network.dropout: expected a number, got 'x'"),
    ],
)
def test_a_wrong_size_of_the_network_is_named_in_every_setting(
    setting: str, assignment: str, words: str
) -> None:
    run = RunConfig(setting=setting, task=find_setting(setting).config_type(dataset="x"))
    with pytest.raises(ConfigError, match=f"--set: {words}"):
        override(run, [assignment])


def test_a_device_that_does_not_exist() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown device 'gpu'; did you mean 'cpu'.*Known: auto, cpu, cuda"
    ):
        EngineConfig(device="gpu")  # type: ignore[arg-type]


def test_a_key_that_could_be_several() -> None:
    assert find_key("width", ["task.a.width", "task.b.width"]) == ["task.a.width", "task.b.width"]
    assert find_key("width", ["task.width", "task.b.width"]) == ["task.width"]


def test_differences_name_key_and_values(config: RunConfig) -> None:
    mapping = to_mapping(config)
    assert differences(mapping, to_mapping(override(config, ["eps=1e-5"]))) == [
        "changed: [], now ['task.optimiser.eps']",
        "task.optimiser.eps: 1e-08, now 1e-05",
    ]


def test_folder_name_tells_runs_apart(config: RunConfig) -> None:
    other = override(config, ["width=32"])
    assert config.folder_name().startswith("line-aaren-cpu-seed3-")
    assert config.folder_name() != other.folder_name()


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "3", '{"setting": 1}'])
def test_json_that_is_no_run(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"is not JSON|is no config|'setting' is missing"):
        load(path)


def test_written_json_is_strict(config: RunConfig) -> None:
    assert json.loads(to_json(config))["task"]["clip_norm"] == 1.0
