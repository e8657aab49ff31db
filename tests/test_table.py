import pytest

from aaren.table import format_bytes, format_seconds, print_table


def test_units_change_where_three_digits_end() -> None:
    times = [format_seconds(seconds) for seconds in (0.999, 1.0, 60.0, 1e-6)]
    assert times == ["999 ms", "1.00 s", "60.0 s", "1.00 µs"]
    assert [format_bytes(size) for size in (999, 1000, 17.2e9)] == ["999 B", "1.00 kB", "17.2 GB"]


def test_a_table_in_a_file_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["dataset", "of", "mse"], [["ETTh1 [bold]", "word " * 9, "0.123"]], title="Test", num_left=2)
    title, head, row = capsys.readouterr().out.splitlines()
    assert (title.strip(), head.split()) == ("Test", ["dataset", "of", "mse"])
    assert row.rstrip() == "ETTh1 [bold]  " + "word " * 9 + "  0.123"
