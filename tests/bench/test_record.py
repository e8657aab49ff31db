import json
import platform
from pathlib import Path

import pytest

from aaren.bench.record import BenchRecord, describe, machine, number, read_record
from aaren.errors import DataError


@pytest.fixture
def record() -> BenchRecord:
    return BenchRecord(
        kind="scan",
        command="aaren bench scan",
        settings={"lengths": [64]},
        measurements=[
            {"contender": "copy", "median_seconds": 0.5},
            {"contender": "fused", "median_seconds": 1.0},
        ],
    )


def test_round_trip(record: BenchRecord, tmp_path: Path) -> None:
    path = tmp_path / "new" / "scan.json"
    record.write(path)
    assert read_record(path, kind="scan") == record
    assert [file.name for file in path.parent.iterdir()] == ["scan.json"]


def test_knows_versions_and_machine_but_no_host(record: BenchRecord, tmp_path: Path) -> None:
    assert record.versions.keys() >= {"aaren", "python", "torch", "numpy"}
    assert {"cpu", "cores", "threads", "platform"} <= machine().keys()
    path = tmp_path / "scan.json"
    record.write(path)
    assert platform.node() not in path.read_text().split('"')
    assert str(tmp_path) not in path.read_text()


def test_find_and_number(record: BenchRecord) -> None:
    row = record.find(contender="fused")
    assert row is not None
    assert number(row, "median_seconds") == 1.0
    assert record.find(contender="nobody") is None
    with pytest.raises(DataError, match="needs a number as 'contender'; got 'fused'"):
        number(row, "contender")


def test_describe_is_one_line_with_the_command(record: BenchRecord) -> None:
    text = describe(record)
    assert "\n" not in text
    assert "`aaren bench scan`" in text
    assert record.date[:10] in text


def test_missing_record_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Benchmarks write one with --record"):
        read_record(tmp_path / "no.json", kind="token")


def test_other_files_are_refused(record: BenchRecord, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        read_record(path)
    path.write_text('{"format": 1, "kind": "scan"}')
    with pytest.raises(DataError, match="it lacks command, date, machine"):
        read_record(path)
    path.write_text("[]")
    with pytest.raises(DataError, match="is no benchmark record"):
        read_record(path)
    record.write(path)
    with pytest.raises(DataError, match="a record of 'scan', not of 'token'"):
        read_record(path, kind="token")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    with pytest.raises(DataError, match="has format 2; this version of aaren reads format 1"):
        read_record(path)
