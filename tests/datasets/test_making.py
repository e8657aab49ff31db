from pathlib import Path

import pytest
import torch

from aaren.datasets.verify import make_generated
from aaren.errors import ConfigError
from aaren.forecasting import batches as forecasting


def test_a_written_series_reads_back_as_it_was_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    generated = forecasting.load("seasonal")
    path = make_generated("seasonal")
    assert path == tmp_path / "forecasting" / "seasonal.csv"
    assert torch.equal(forecasting.load("seasonal").values, generated.values)
    make_generated("seasonal", seed=1)
    assert not torch.equal(forecasting.load("seasonal").values, generated.values)


def test_event_processes_are_written_as_npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    assert make_generated("sin") == tmp_path / "events" / "sin.npz"


def test_only_generated_sets_can_be_made() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown generated set 'weather'.*Known: hawkes, poisson, renewal, rl"
    ):
        make_generated("weather")
