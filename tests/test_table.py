import pytest

from aaren.table import print_table


def test_a_table_in_a_file_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["dataset", "of", "mse"], [["ETTh1 [bold]", "word " * 9, "0.123"]], title="Test", num_left=2)
    title, head, row = capsys.readouterr().out.splitlines()
    assert (title.strip(), head.split()) == ("Test", ["dataset", "of", "mse"])
    assert row.rstrip() == "ETTh1 [bold]  " + "word " * 9 + "  0.123"
