from pathlib import Path

import pytest

from aaren.bench.publish import Benchmark, main, require_writable
from aaren.bench.record import BenchRecord, Measured, OnStep, read_record
from aaren.errors import ConfigError
from aaren.table import Table, text_table

COMMAND = "python benchmarks/it.py"


def measure(settings: str, on_step: OnStep) -> Measured:
    on_step(0, 1, settings)
    return {"size": settings}, []


def tables(record: BenchRecord) -> list[Table]:
    return [text_table(title="sizes", columns=("the size",), rows=[(str(record.settings.get("size")),)])]


BENCHMARK = Benchmark(
    kind="it", command=COMMAND, settings="large", quick="small", measure=measure, tables=tables
)


def test_a_script_measures_and_shows_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "it.json"
    main(BENCHMARK, ["--quick", "--threads", "1", "--record", str(path)])
    assert "small" in capsys.readouterr().out
    assert read_record(path, kind="it").command == f"{COMMAND} --quick --threads 1"
    main(BENCHMARK, ["--show", str(path)])
    assert "small" in capsys.readouterr().out


def test_a_script_says_what_is_wrong_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["--show", str(tmp_path / "no.json")],
        ["--figure", str(tmp_path / "x")],
        ["--threads", "0"],
    ):
        with pytest.raises(SystemExit, match="2"):
            main(BENCHMARK, words)
    shown = capsys.readouterr().err
    assert "no benchmark record at" in shown
    assert f"{COMMAND} makes tables and no figure: leave out --figure" in shown


def test_unwritable_places_are_found_before_measuring(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tables and no figure"):
        require_writable(BENCHMARK, None, tmp_path / "x")
    require_writable(BENCHMARK, tmp_path / "deep" / "it.json", None)
    with pytest.raises(ConfigError, match=r"--record needs a file name; .* is a folder"):
        require_writable(BENCHMARK, tmp_path, None)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="its folder cannot be made"):
        require_writable(BENCHMARK, tmp_path / "file" / "scan.json", None)
