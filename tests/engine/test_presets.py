from pathlib import Path

import pytest

from aaren.engine.presets import load_run, make_run
from aaren.errors import ConfigError
from support.toy_task import ToyConfig, ToyModelConfig

TOY = "support.toy_task"


def test_models_are_named_as_people_do() -> None:
    aaren, transformer = (make_run(TOY, "line", model=model) for model in ("aaren", "transformer"))
    assert (aaren.task.model.mixer, transformer.task.model.mixer) == ("aaren", "softmax")
    assert (aaren.cell()["model"], transformer.cell()["model"]) == ("aaren", "transformer")


def test_a_presets_own_choice_reaches_the_preset() -> None:
    config = make_run(TOY, "line", profile="smoke", seed=4, assignments=["depth=3", "width=4"])
    assert config.task == ToyConfig(epochs=6, model=ToyModelConfig(width=4))
    assert (config.profile, config.seed, config.changed) == ("smoke", 4, ("task.model.width",))


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"setting": "forecastin"}, "unknown setting 'forecastin'"),
        ({"profile": "fast"}, "profile must be one of smoke, cpu, paper; got 'fast'"),
        ({"dataset": ""}, "name a dataset .* or give your own: --data FILE"),
        ({"data_file": "x.csv"}, r"both a dataset \(line\) and --data x\.csv were given"),
        ({"assignments": ["depth=deep"]}, "--set: depth: expected an integer, got 'deep'"),
        ({"setting": "aaren.errors"}, "the module aaren.errors has no SETTING"),
    ],
)
def test_faults(choices: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_run(**{"setting": TOY, "dataset": "line", **choices})


def test_a_file_can_start_from_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        f'setting = "{TOY}"\n[preset]\ndataset = "line"\nmodel = "transformer"\nprofile = "smoke"\nseed = 2\n'
        "depth = 2\n[task]\nclip_norm = 0.5\n[engine]\nthreads = 2\n"
    )
    config = load_run(path, ["width=4"])
    assert config.task == ToyConfig(epochs=4, clip_norm=0.5, model=ToyModelConfig(mixer="softmax", width=4))
    assert (config.profile, config.seed, config.engine.threads) == ("smoke", 2, 2)
    assert config.changed == ("task.clip_norm", "engine.threads", "task.model.width")


def test_faults_of_such_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f'setting = "{TOY}"\n[preset]\ndatset = "line"\n')
    with pytest.raises(ConfigError, match=r"unknown key 'preset\.datset'; did you mean 'dataset'\?"):
        load_run(path)
    path.write_text("[preset]\ndataset = 'line'\n")
    with pytest.raises(ConfigError, match="'setting' must name its setting"):
        load_run(path)


def test_faults_are_blamed_on_where_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('setting = "forecasting"\n[preset]\ndataset = "ETTh1"\n[task]\nhorizonn = 96\n')
    with pytest.raises(ConfigError, match=r"run.toml: unknown key 'task.horizonn'"):
        load_run(path)
    with pytest.raises(ConfigError, match="'horizon' is no assignment: write key=value"):
        make_run("forecasting", "ETTh1", assignments=["horizon"])
