from pathlib import Path

import pytest

from aaren.engine.presets import make_run
from aaren.engine.setting import find_setting
from aaren.errors import ConfigError
from aaren.lab.plan import Request, identity, parse_shard, plan

OUT = Path("runs")
TOY = "support.toy_grid"


def test_one_seed_of_every_cell_comes_first() -> None:
    runs = plan(Request(settings=(TOY,), profile="cpu", seeds=2), OUT)
    found = [(*run.config.cell().values(), run.config.seed) for run in runs]
    first = [
        ("line", "aaren"),
        ("line", "mean"),
        ("curve", "aaren"),
        ("curve", "mean"),
        ("line", "diverging"),
    ]
    assert found[:5] == [(*cell, 0) for cell in first]
    assert found[5:] == [
        ("line", "aaren", 1),
        ("curve", "aaren", 1),
        ("line", "diverging", 1),
    ]  # mean: seedless


def test_folders_and_commands_are_those_of_aaren_train() -> None:
    run = plan(Request(settings=("forecasting",), profile="cpu", datasets=("etth1",)), OUT)[0]
    config = make_run("forecasting", "ETTh1", assignments=["horizon=96"])
    assert run.folder == OUT / "forecasting" / config.folder_name()
    assert run.command == (
        "aaren train forecasting ETTh1 --model aaren --profile cpu --seed 0 --set horizon=96"
    )
    assert run.name == "forecasting ETTh1 96 aaren, seed 0"


def test_shards_meet_nowhere_and_leave_nothing_out() -> None:
    def part(shard: tuple[int, int]) -> list[Path]:
        request = Request(settings=("events",), profile="cpu", seeds=2, shard=shard)
        return [run.folder for run in plan(request, OUT)]

    parts = [part((number, 3)) for number in (1, 2, 3)]
    assert sorted(folder for found in parts for folder in found) == sorted(part((1, 1)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--shard must be I/N with 1 <= I <= N, such as 1/4; got"):
        parse_shard(text)


def test_datasets_choose_their_settings() -> None:
    runs = plan(Request(datasets=("sin", "JapaneseVowels"), models=("aaren",), seeds=1), OUT)
    assert {run.config.setting for run in runs} == {"events", "classification"}
    assert {run.dataset for run in runs} == {"sin", "JapaneseVowels"}


def test_a_dataset_outside_the_grid_is_measured_like_the_papers() -> None:
    runs = plan(Request(datasets=("ECL-multivariate",), models=("aaren", "streaming"), seeds=1), OUT)
    assert [run.config.cell()["horizon"] for run in runs] == [96, 192, 336, 720]
    assert {run.config.cell()["model"] for run in runs} == {"aaren"}


def test_unknown_names_get_close_matches() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'event'; did you mean 'events'\?"):
        plan(Request(settings=("event",)), OUT)
    with pytest.raises(ConfigError, match=r"unknown dataset 'ETTh3'; did you mean 'ETTh"):
        plan(Request(datasets=("ETTh3",)), OUT)
    with pytest.raises(ConfigError, match=r"unknown model 'transfomer'; did you mean 'transformer'\?"):
        plan(Request(settings=("events",), models=("transfomer",)), OUT)
    with pytest.raises(ConfigError, match=r"unknown profile 'paperr'; did you mean 'paper'\?"):
        Request(profile="paperr")
    with pytest.raises(ConfigError, match="--seeds must be 1 to 1000; got 0"):
        Request(seeds=0)


def test_a_selection_without_a_single_row() -> None:
    request = Request(settings=("forecasting", "events"), models=("linear",), datasets=("sin",))
    with pytest.raises(ConfigError, match="no row of the grid has linear on sin at profile cpu"):
        plan(request, Path("runs"))


def test_a_dataset_of_another_setting() -> None:
    with pytest.raises(
        ConfigError, match=r"sin is a dataset of events, and only forecasting was asked for: aar"
    ):
        plan(Request(settings=("forecasting",), datasets=("sin",)), OUT)


def test_a_setting_without_a_grid() -> None:
    with pytest.raises(ConfigError, match=r"'support.toy_task' has no grid\(profile\)"):
        plan(Request(settings=("support.toy_task",)), OUT)


def test_how_a_run_is_computed_does_not_tell_cells_apart() -> None:
    one = make_run("events", "sin")
    assert identity(one) == identity(make_run("events", "sin", assignments=["engine.threads=3"]))
    assert identity(one) != identity(make_run("events", "sin", seed=1))
    assert identity(one) != identity(make_run("events", "sin", assignments=["epochs=3"]))


def test_a_cell_of_several_blocks_is_one_run_with_the_sweeps_of_all() -> None:
    runs = plan(Request(settings=("rl",), profile="cpu", seeds=1), OUT)
    swept = {run.name: [sweep.key for sweep in run.sweeps] for run in runs if run.sweeps}
    assert swept["rl hopper-medium-replay-regen aaren, seed 0"] == ["target_scale"]
    assert swept["rl hopper-medium-regen transformer, seed 0"] == ["context"]
    assert not any(" bc" in name or " random" in name for name in swept)


@pytest.mark.parametrize("profile", ["smoke", "cpu", "paper"])
@pytest.mark.parametrize("setting", ["forecasting", "classification", "events", "rl"])
def test_every_cell_of_every_grid_is_a_run(setting: str, profile: str) -> None:
    runs = plan(Request(settings=(setting,), profile=profile, seeds=1), OUT)
    assert len({run.folder for run in runs}) == len(runs)
    for block in find_setting(setting).grid(profile):
        assert set(block.seedless) <= set(block.models)
