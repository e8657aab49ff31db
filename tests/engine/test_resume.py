import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aaren.engine.distributed import SOLO, World
from aaren.engine.loop import fit
from aaren.engine.progress import Silent
from aaren.engine.resume import Keeper, Snapshot, require_same_config
from aaren.engine.status import RunStatus
from aaren.errors import ConfigError
from support.toy_task import ToyExperiment

Toy = Callable[..., ToyExperiment]


class Listener(Silent):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def say(self, message: str) -> None:
        self.heard.append(message)


def test_a_full_disk_does_not_end_the_run(toy: Toy, tmp_path: Path) -> None:
    """From update 5 to 12 no file can be written; the run goes on, says so, and ends with the same bits."""
    limits, calls, listener = resource.getrlimit(resource.RLIMIT_FSIZE), [], Listener()

    def fill_the_disk() -> bool:
        calls.append(1)
        if len(calls) in (5, 12):
            size = 64 if len(calls) == 5 else limits[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        return False

    try:
        fitted = fit(
            toy(),
            seed=1,
            keeper=Keeper(folder=tmp_path, config={}, every_seconds=0.0),
            observer=listener,
            is_pause_wanted=fill_the_disk,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(listener.heard) == 7
    assert listener.heard[0].startswith("no checkpoint at update 5: ")
    assert listener.heard[0].endswith("Training goes on; the last good one is kept.")
    plain = fit(toy(), seed=1)
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(fitted.model.state_dict()[name], tensor)


def test_a_damaged_checkpoint_costs_only_the_way_from_the_one_before(toy: Toy, tmp_path: Path) -> None:
    whole = fit(toy(), seed=1, keeper=Keeper(folder=tmp_path, config={}, every_seconds=0.0))
    newest = max(tmp_path.iterdir())
    (newest / "model.safetensors").write_bytes(b"rubbish")
    listener = Listener()
    again = fit(toy(), seed=1, keeper=Keeper(folder=tmp_path, config={}), observer=listener)
    assert listener.heard == [
        f"the checkpoint {newest.name} is damaged (model.safetensors is missing or has another checksum); "
        "taking the one before."
    ]
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)


def test_another_number_of_processes_is_refused(toy: Toy, tmp_path: Path) -> None:
    fit(toy(), seed=1, keeper=Keeper(folder=tmp_path, config={}))
    experiment = toy()
    model = experiment.build_model()
    snapshot = Snapshot(
        model=model,
        optimiser=experiment.build_optimiser(model),
        status=RunStatus(),
        device=torch.device("cpu"),
    )
    with pytest.raises(ConfigError, match=r"this run began with 1 process\(es\) and cannot go on with 2"):
        Keeper(folder=tmp_path, config={}).restore(snapshot, World(rank=0, size=2), pytest.fail)


def test_saving_takes_a_small_share_of_the_time(tmp_path: Path) -> None:
    keeper = Keeper(folder=tmp_path, config={}, every_seconds=1.0)
    keeper.saved_at -= 2.0
    assert keeper.is_due()
    keeper.save_seconds = 0.1  # two per cent of five seconds
    assert not keeper.is_due()
    keeper.saved_at -= 4.0
    assert keeper.is_due()


def test_keys_without_influence_may_differ() -> None:
    old = {"engine": {"checkpoint_seconds": 1.0, "threads": 1}, "changed": []}
    new = {"engine": {"checkpoint_seconds": 9.0, "threads": 1}, "changed": ["x"]}
    require_same_config(old, new, where="here")
    with pytest.raises(
        ConfigError, match=r"here holds a run of another config: engine\.threads: 1, now 2\. Use"
    ):
        require_same_config(old, {**new, "engine": {"checkpoint_seconds": 1.0, "threads": 2}}, where="here")


def test_solo_is_one_process() -> None:
    assert (SOLO.is_first, SOLO.tell("x"), SOLO.mean(2.0)) == (True, "x", 2.0)
