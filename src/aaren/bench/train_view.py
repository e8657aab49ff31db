"""Draw and judge a record of `aaren bench train`: its tables, its targets and its figure."""

from dataclasses import replace
from pathlib import Path

from aaren.bench import figure
from aaren.bench.record import BenchRecord, Row, counted, number
from aaren.bench.stream_contenders import AAREN, GRU, LSTM, TRANSFORMER
from aaren.bench.stream_figure import draw_straight
from aaren.bench.table import Sheet, format_bytes, format_ratio, format_seconds
from aaren.bench.target import Target, are_noisy, at_least, targets_sheet

LABELS = {AAREN: "Aaren", TRANSFORMER: "Transformer", GRU: "GRU", LSTM: "LSTM"}
COLUMNS = ("", "one step", "quartiles", "/ Aaren", "tokens per second", "peak memory", "runs")
SPEED_RATIOS = ((1024, 1.15), (8192, 2.0))
_LOOKS: dict[str, tuple[str, str, str]] = {
    AAREN: (figure.VERMILION, "-", "o"),
    TRANSFORMER: (figure.BLUE, "-", "s"),
    GRU: (figure.GREEN, "--", "D"),
    LSTM: (figure.GREY, "--", "P"),
}


def sheets(record: BenchRecord) -> list[Sheet]:
    """Return one table per length, then the targets."""
    lengths = sorted({int(number(row, "length")) for row in record.measurements})
    judged = targets_sheet(targets(record), whole_run="aaren bench train")
    return [*(_sheet(record, length) for length in lengths), judged]


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by what this benchmark should reach."""
    found = []
    for length, least in SPEED_RATIOS:
        slow, fast = (record.find(contender=name, length=length) for name in (TRANSFORMER, AAREN))
        ratio = None
        if slow is not None and fast is not None:
            ratio = number(slow, "median_seconds") / number(fast, "median_seconds")
        target = at_least(f"training step, Transformer / Aaren, t = {length:,}", ratio, least)
        found.append(replace(target, is_noisy=are_noisy(slow, fast)))
    return found


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw peak memory and time of one step against the length of its sequences."""
    panels = [
        figure.Panel(
            title="Peak memory of one step",
            x_label="items in each sequence",
            y_label="megabytes",
            lines=_lines(record, "peak_extra_bytes", 1e-6),
        ),
        figure.Panel(
            title="Time of one step",
            x_label="items in each sequence",
            y_label="seconds",
            lines=_lines(record, "median_seconds", 1.0),
        ),
    ]
    about = f"{record.settings['model']}; {record.settings['tokens_per_step']:,} tokens in each step"
    return draw_straight(panels, base, caption=f"{about}; {counted(record.machine['threads'], 'thread')}")


def _sheet(record: BenchRecord, length: int) -> Sheet:
    rows = [row for row in record.measurements if row["length"] == length]
    sequences = counted(rows[0]["batch_size"], "sequence")
    baseline = record.find(contender=AAREN, length=length)
    return Sheet(
        title=f"One training step, {sequences} of {length:,} items: {record.settings['model']}",
        columns=COLUMNS,
        rows=[_cells(row, baseline) for row in rows],
        bold_rows=frozenset({LABELS[AAREN]}),
    )


def _cells(row: Row, baseline: Row | None) -> tuple[str, ...]:
    seconds = number(row, "median_seconds")
    low, high = number(row, "lower_quartile_seconds"), number(row, "upper_quartile_seconds")
    peak = row["peak_extra_bytes"]
    return (
        LABELS[str(row["contender"])],
        format_seconds(seconds),
        f"{format_seconds(low)} - {format_seconds(high)}",
        "" if baseline is None else format_ratio(seconds / number(baseline, "median_seconds")),
        f"{number(row, 'batch_size') * number(row, 'length') / seconds:,.0f}",
        "" if peak is None else format_bytes(number(row, "peak_extra_bytes")),
        f"{row['repeats']}",
    )


def _lines(record: BenchRecord, field: str, scale: float) -> list[figure.Line]:
    found = []
    for name, (colour, style, marker) in _LOOKS.items():
        rows = [row for row in record.measurements if row["contender"] == name and row[field] is not None]
        found.append(
            figure.Line(
                label=LABELS[name],
                lengths=[number(row, "length") for row in rows],
                heights=[scale * number(row, field) for row in rows],
                colour=colour,
                style=style,
                marker=marker,
                is_stressed=name == AAREN,
            )
        )
    return found
