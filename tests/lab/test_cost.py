from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aaren.engine.config import RunConfig
from aaren.engine.run import train
from aaren.lab import cost
from aaren.lab.cost import estimate, probe_run, seconds_of
from aaren.lab.plan import PlannedRun
from aaren.lab.records import FoundRecord
from support import toy_task
from support.toy_task import ToyModelConfig

Planned = Callable[..., PlannedRun]


@pytest.fixture
def past(planned: Planned, tmp_path: Path) -> FoundRecord:
    """A record of the line that took 10 seconds."""
    record = train(planned(0).config, tmp_path / "past")
    seconds = {"training": 6.0, "inside_updates": 5.0, "looking": 3.0, "saving": 1.0}
    return FoundRecord(path=tmp_path, record=replace(record, seconds=seconds))


def test_records_of_the_cell_then_of_its_kin_then_a_probe(planned: Planned, past: FoundRecord) -> None:
    probed: list[RunConfig] = []

    def probe(config: RunConfig) -> float:
        probed.append(config)
        return 7.0

    same, kin = planned(1), planned(0, dataset="curve")
    strangers = [planned(seed, model=ToyModelConfig(mixer="softmax")) for seed in (0, 1)]
    found = estimate([same, kin, *strangers], [past], probe=probe)
    assert seconds_of(past.record) == 10.0
    assert found.seconds == {
        same.folder: 10.0,
        kin.folder: 10.0,
        strangers[0].folder: 7.0,
        strangers[1].folder: 7.0,
    }
    assert found.sources == {"cell": 1, "kin": 1, "probe": 2}
    assert probed == [strangers[0].config]  # one of a kind is enough


def test_without_a_probe_it_is_unknown(planned: Planned) -> None:
    found = estimate([planned(0)], [])
    assert (found.seconds, found.sources) == ({}, {"unknown": 1})


def test_a_probe_extrapolates(toy_run: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "PROBE_SECONDS", 0.1)
    found = probe_run(toy_run(epochs=50, slow_seconds=0.01))  # 8 updates an epoch
    assert found is not None
    assert 4.0 <= found <= 40.0  # 400 updates of at least 0.01 s


def test_a_probe_of_a_run_that_breaks(
    toy_run: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: object, _config: object, *, seed: int) -> None:
        raise ValueError(f"a user's mistake, seed {seed}")

    monkeypatch.setattr(type(toy_task.SETTING), "open", broken)
    assert probe_run(toy_run()) is None  # the run itself will say why


def test_a_run_shorter_than_its_probe(toy_run: Callable[..., RunConfig]) -> None:
    found = probe_run(toy_run(epochs=1))
    assert found is not None
    assert found < 5.0
