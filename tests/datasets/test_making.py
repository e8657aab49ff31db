from pathlib import Path

import pytest
import torch

from aaren.datasets.catalogue import lookup
from aaren.datasets.fetch import fetch
from aaren.forecasting import batches as forecasting


def test_a_written_series_reads_back_as_it_was_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    generated = forecasting.load("seasonal")
    (path,) = fetch(lookup("seasonal"))
    assert path == tmp_path / "forecasting" / "seasonal.csv"
    assert torch.equal(forecasting.load("seasonal").values, generated.values)
    fetch(lookup("seasonal"))
    assert torch.equal(forecasting.load("seasonal").values, generated.values)
    fetch(lookup("seasonal"), seed=1)
    assert not torch.equal(forecasting.load("seasonal").values, generated.values)


def test_event_processes_are_written_as_npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    assert fetch(lookup("sin")) == (tmp_path / "events" / "sin.npz",)
