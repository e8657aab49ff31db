from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aaren.datasets.catalogue import lookup
from aaren.datasets.verify import checksums, verify


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data" / "forecasting").mkdir(parents=True)
    return tmp_path / "data"


def write_exchange(root: Path, rows: int) -> Path:
    days = np.datetime64("1990-01-01") + np.arange(rows)
    lines = ["date,0,OT"] + [f"{day},1.5,{place}" for place, day in enumerate(days)]
    path = root / "forecasting" / "exchange_rate.csv"
    path.write_text("\n".join(lines))
    return path


def test_what_is_not_there_is_missing(root: Path) -> None:
    assert verify(lookup("Exchange")).status == "missing"
    assert root.exists()


def test_a_fact_that_does_not_hold_is_a_difference(root: Path) -> None:
    write_exchange(root, 300)
    finding = verify(lookup("Exchange"))
    assert finding.status == "differs"
    assert finding.differences[:2] == ("rows: expected 7588, found 300", "series: expected 8, found 2")
    assert finding.remarks == ("its bytes are not those of the copy the registry knows",)


def test_an_uncertain_fact_that_does_not_hold_is_a_remark(root: Path) -> None:
    write_exchange(root, 300)
    row = replace(lookup("Exchange"), facts={"rows": 301}, uncertain=("rows",), sha256={})
    finding = verify(row)
    assert finding.status == "verified"
    assert finding.remarks == ("rows: expected 301, found 300",)


def test_a_file_that_cannot_be_read_is_broken(root: Path) -> None:
    (root / "forecasting" / "exchange_rate.csv").write_text("date,a\n2020-01-01,x\n")
    finding = verify(lookup("Exchange"))
    assert finding.status == "broken"
    assert "line 2, column 'a': expected a finite number; got 'x'" in finding.differences[0]


def test_a_generated_set_needs_no_file(root: Path) -> None:
    assert verify(lookup("seasonal")).status == "generated"
    assert checksums(lookup("seasonal")) == {}
    assert root.exists()


def test_the_real_sets_are_verified_by_fact_and_byte(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("ETTh1", "Weather", "Exchange", "traffic-20", "mimic", "wiki", "taxi-tritpp"):
        finding = verify(lookup(name))
        assert (finding.status, finding.remarks) == ("verified", ())
