import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aaren.datasets.catalogue import lookup
from aaren.engine.config import EngineConfig
from aaren.engine.presets import make_run
from aaren.engine.run import blank_record, train
from aaren.engine.setting import find_setting
from aaren.engine.use import Sweep, sweep_run
from aaren.errors import ConfigError
from aaren.files.archive import content_sha256
from aaren.lab.plan import (
    PlannedRun,
    Request,
    find_status,
    how_to_get,
    parse_shard,
    plan,
)
from support import toy_task

Planned = Callable[..., PlannedRun]

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


def test_a_cell_of_several_groups_is_one_run_with_the_sweeps_of_all() -> None:
    runs = plan(Request(settings=("rl",), profile="cpu", seeds=1), OUT)
    swept = {run.name: [sweep.key for sweep in run.sweeps] for run in runs if run.sweeps}
    assert swept["rl hopper-medium-replay-regen aaren, seed 0"] == ["target_scale"]
    assert swept["rl hopper-medium-regen transformer, seed 0"] == ["context"]
    assert not any(" random" in name for name in swept)


@pytest.mark.parametrize("profile", ["smoke", "cpu", "paper"])
@pytest.mark.parametrize("setting", ["forecasting", "classification", "events", "rl"])
def test_every_cell_of_every_grid_is_a_run(setting: str, profile: str) -> None:
    runs = plan(Request(settings=(setting,), profile=profile, seeds=1), OUT)
    assert len({run.folder for run in runs}) == len(runs)
    for block in find_setting(setting).grid(profile):
        assert set(block.seedless) <= set(block.models)


def test_an_empty_place(planned: Planned, tmp_path: Path) -> None:
    runs = [planned(0), planned(1)]
    assert find_status(runs, tmp_path / "nowhere").waiting == runs


def test_a_finished_run_counts_whatever_its_folder_and_threads(planned: Planned, tmp_path: Path) -> None:
    run = planned(0)
    config = replace(run.config, engine=EngineConfig(threads=0), changed=("engine.threads",))
    train(config, tmp_path / "runs" / "elsewhere")
    found = find_status([run, planned(1)], tmp_path / "runs")
    assert (found.finished, found.waiting) == ([run], [planned(1)])


def test_a_run_of_another_protocol_does_not_count(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = planned(0)
    train(old.config, old.folder)
    assert find_status([planned(0)], tmp_path / "runs").finished == [old]
    monkeypatch.setattr(toy_task.SETTING, "protocols", {"custom": 2}, raising=False)
    new = planned(0)
    assert (old.config.protocol, new.config.protocol) == (1, 2)
    assert new.folder != old.folder
    assert find_status([new], tmp_path / "runs").waiting == [new]
    with pytest.raises(ConfigError, match=r"asks for protocol 1 .* runs protocol 2 at profile custom"):
        train(old.config, tmp_path / "again")


def test_a_run_of_other_data_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "data"))
    (run,) = plan(
        Request(profile="smoke", datasets=("ETTh1",), models=("linear",), seeds=1), tmp_path / "runs"
    )[:1]
    path = tmp_path / "data" / "forecasting" / "ETTh1.csv"
    path.parent.mkdir(parents=True)
    path.write_text("date,OT\n")
    record = replace(
        blank_record(run.config, command=""), status="finished", data={path.name: content_sha256(path)}
    )
    record.write(run.folder / "record.json")
    assert find_status([run], tmp_path / "runs").finished == [run]
    path.write_text("date,OT\n2020-01-01,1\n")
    (waiting,) = find_status([run], tmp_path / "runs").waiting
    assert waiting.folder.name.startswith(f"{run.folder.name}-data")  # the old record stays where it is
    assert replace(waiting, folder=run.folder) == run
    path.unlink()
    assert find_status([run], tmp_path / "runs").finished == [run]  # nothing on disk to compare with


def test_settings_are_run_in_the_order_of_their_places() -> None:
    runs = plan(Request(profile="cpu", seeds=1), OUT)
    assert list(dict.fromkeys(run.config.setting for run in runs)) == [
        "events",
        "classification",
        "rl",
        "forecasting",
    ]
    horizons = [run.config.cell()["horizon"] for run in runs if run.config.setting == "forecasting"]
    papers = horizons[: horizons.index(720)]
    assert papers == sorted(papers)  # all datasets at 96, then 192, 336, 720


def test_a_finished_run_waits_for_a_sweep_that_it_lacks(planned: Planned, tmp_path: Path) -> None:
    run = replace(planned(0), sweeps=(Sweep.parse("batch_size=4,8"),))
    train(run.config, run.folder)
    assert find_status([run], tmp_path / "runs").waiting == [run]
    sweep_run(run.folder, run.sweeps[0])
    assert find_status([run], tmp_path / "runs").finished == [run]


def test_a_run_without_its_weights_cannot_be_swept(planned: Planned, tmp_path: Path) -> None:
    run = replace(planned(0), sweeps=(Sweep.parse("batch_size=4,8"),))
    train(run.config, run.folder)
    shutil.rmtree(run.folder / "model")  # as in a clone of records
    assert find_status([run], tmp_path / "runs").finished == [run]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps({"kind": "run", "format": 99}), "it has format 99;"),
        ('{"kind": "run", "form', "it is not JSON: cut off, or something else wrote it"),
        (json.dumps({"kind": "scan"}), "it is no record of a run: something else wrote it"),
    ],
)
def test_a_record_that_cannot_be_read_is_left_alone(
    planned: Planned, tmp_path: Path, content: str, reason: str
) -> None:
    run = planned(0)
    run.folder.mkdir(parents=True)
    (run.folder / "record.json").write_text(content)
    found = find_status([run], tmp_path / "runs")
    assert found.waiting == []
    assert found.unreadable[0][0] == run
    assert found.unreadable[0][1].startswith(reason)
    assert (run.folder / "record.json").read_text() == content


def test_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runs = plan(Request(datasets=("wiki", "sin"), models=("aaren",), seeds=1), tmp_path)
    found = find_status(runs, tmp_path)
    assert list(found.without_data) == ["wiki"]
    assert [run.dataset for run in found.waiting] == ["sin"]


def test_how_to_get_data() -> None:
    assert how_to_get(lookup("wiki")) == "aaren data fetch wiki"
    assert how_to_get(lookup("hopper-medium-regen")) == "python benchmarks/rl_data hopper-medium"
    assert how_to_get(lookup("taxi")).startswith("no download is known: the paper's January-February 2013")


def test_a_failed_run_waits_again(planned: Planned, tmp_path: Path) -> None:
    run = planned(0)
    record = train(run.config, tmp_path / "template")
    replace(record, status="failed", error="DivergedError: the loss is nan").write(run.folder / "record.json")
    assert find_status([run], tmp_path / "runs").waiting == [run]
