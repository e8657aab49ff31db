import io
from dataclasses import replace

from rich.console import Console

from aaren.table import format_bytes, format_ratio, format_seconds, text_table, to_markdown, to_rich

TABLE = text_table(
    title="Times", columns=("", "median"), rows=[("copy", "1 ms"), ("a|b", "")], bold_rows=["copy"]
)


def test_markdown() -> None:
    assert to_markdown(TABLE) == (
        "**Times**\n\n|  | median |\n| :-- | --: |\n| **copy** | **1 ms** |\n| a\\|b |  |\n"
    )


def test_a_note_stands_below_the_rows_or_in_their_place() -> None:
    noted = replace(TABLE, notes=["and 3 more"])
    assert to_markdown(noted).endswith("| a\\|b |  |\n\nand 3 more\n")
    alone = replace(noted, rows=[], is_dim=[])
    assert to_markdown(alone) == "and 3 more\n"
    out = io.StringIO()
    Console(file=out, width=60).print(to_rich(noted), to_rich(alone))
    assert out.getvalue().count("and 3 more") == 2


def test_terminal() -> None:
    out = io.StringIO()
    Console(file=out, width=60).print(to_rich(TABLE))
    assert "Times" in out.getvalue()
    assert "  copy     1 ms" in out.getvalue()


def test_units_change_where_three_digits_end() -> None:
    assert [format_seconds(seconds) for seconds in (0.999, 1.0, 60.0, 1e-6)] == [
        "999 ms",
        "1.00 s",
        "60.0 s",
        "1.00 µs",
    ]
    assert [format_bytes(size) for size in (999, 1000, 17.2e9)] == ["999 B", "1.00 kB", "17.2 GB"]
    assert [format_ratio(ratio) for ratio in (0.5, 9.996, 99.96, 12345.0)] == [
        "0.50x",
        "10.0x",
        "100x",
        "12,345x",
    ]


def test_a_table_that_is_too_wide_comes_in_parts_and_nothing_is_cut() -> None:
    heads = ("dataset", *(f"published: number {n}" for n in range(8)))
    wide = text_table("Wide", heads, [("ETTh1, 96", *(f"0.123{n} ± 0.045" for n in range(8)))])
    out = io.StringIO()
    Console(file=out, width=80).print(to_rich(wide))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for n in range(8):
        assert f"0.123{n} ± 0.045" in out.getvalue()
    assert out.getvalue().count("ETTh1, 96") == out.getvalue().count("dataset") > 1
    assert out.getvalue().count("Wide") == 1


def test_a_long_first_column_is_broken_between_words_before_a_table_is_parted() -> None:
    tall = text_table("Tall", ("target", "measured"), [("one two three " * 9, "1.5x")])
    out = io.StringIO()
    Console(file=out, width=60).print(to_rich(tall))
    assert out.getvalue().count("target") == 1
    assert max(map(len, out.getvalue().splitlines())) <= 60


def test_a_long_cell_beside_a_long_first_column_cuts_no_other() -> None:
    rows = [
        ("a name of many words " * 3, "1.00 s", "void: busy machine"),
        ("short", "not measured: " + "x" * 44, ""),
    ]
    out = io.StringIO()
    Console(file=out, width=120).print(to_rich(text_table("Long", ("what", "seconds", "met"), rows)))
    assert "void: busy machine" in out.getvalue()
    assert "not measured: " + "x" * 44 in out.getvalue()
