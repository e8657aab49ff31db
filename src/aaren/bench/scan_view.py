"""Draw a record of `aaren bench scan`: its tables for the terminal and the page, and its figure."""

from pathlib import Path

from aaren.bench import figure
from aaren.bench.record import BenchRecord, Row, counted, number
from aaren.bench.scan import shape_of
from aaren.bench.scan_contenders import CONTENDERS, PASSES
from aaren.bench.scan_targets import targets
from aaren.bench.table import Sheet, format_bytes, format_ratio, format_seconds
from aaren.bench.target import targets_sheet

COLUMNS = ("", "median", "quartiles", "/ copy", "/ fused", "peak extra", "error", "runs")

# Ours are solid, PyTorch's dashed, the limit set by memory dotted; equal colours never share a style.
_LOOKS: dict[str, tuple[str, str, str]] = {
    "copy": (figure.GREY, ":", "x"),
    "kernel": (figure.VERMILION, ":", "o"),
    "fused": (figure.VERMILION, "-", "o"),
    "chunked": (figure.BLUE, "-", "s"),
    "hillis_steele": (figure.PURPLE, "-", "^"),
    "ladner_fischer": (figure.GREEN, "-", "v"),
    "recurrent": (figure.ORANGE, "-", "D"),
    "naive": (figure.BLACK, "-", "P"),
    "triton": (figure.SKY, "-", "*"),
    "sdpa": (figure.BLACK, "--", "X"),
    "gru": (figure.SKY, "--", "h"),
    "lstm": (figure.BLUE, "--", "p"),
}


def sheets(record: BenchRecord) -> list[Sheet]:
    """Return one table per length and direction, then the targets."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in record.measurements:
        groups.setdefault((shape_of(row), row["direction"]), []).append(row)
    title = "Targets (ratios within this run; forward+backward unless said otherwise)"
    judged = targets_sheet(targets(record), title=title, whole_run="aaren bench scan")
    return [*(_sheet(rows) for rows in groups.values()), judged]


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw time per sequence against length, forward and forward+backward side by side."""
    panels = [
        figure.Panel(
            title=direction,
            x_label="items in the sequence",
            y_label="milliseconds per sequence",
            lines=_lines(record, direction),
        )
        for direction in PASSES
    ]
    about = f"{record.settings['heads']} heads of width {record.settings['width']}, float32"
    return figure.draw(panels, base, caption=f"{about}; {counted(record.machine['threads'], 'thread')}")


def _lines(record: BenchRecord, direction: str) -> list[figure.Line]:
    lines = []
    for name, (colour, style, marker) in _LOOKS.items():
        rows = [
            row
            for row in record.measurements
            if row["contender"] == name and row["direction"] == direction and row["skipped"] is None
        ]
        lines.append(
            figure.Line(
                label=CONTENDERS[name].label,
                lengths=[number(row, "length") for row in rows],
                heights=[1e3 * number(row, "median_seconds") / number(row, "batch") for row in rows],
                colour=colour,
                style=style,
                marker=marker,
                is_stressed=name == "fused",
            )
        )
    return lines


def _sheet(rows: list[Row]) -> Sheet:
    shape, direction = shape_of(rows[0]), rows[0]["direction"]
    by_name = {str(row["contender"]): row for row in rows}
    error_of = "outputs" if direction == PASSES[0] else "gradients"
    return Sheet(
        title=f"{direction}, (b, t, h, d) = {tuple(shape)}, error of {error_of}",
        columns=COLUMNS,
        rows=[_cells(row, by_name) for row in rows],
        bold_rows=frozenset({CONTENDERS["fused"].label}),
    )


def _cells(row: Row, by_name: dict[str, Row]) -> tuple[str, ...]:
    who = CONTENDERS[str(row["contender"])]
    if row["skipped"] is not None:
        return (who.label, f"skipped: {row['skipped']}", *[""] * (len(COLUMNS) - 2))
    low, high = number(row, "lower_quartile_seconds"), number(row, "upper_quartile_seconds")
    peak = row["peak_extra_bytes"]
    return (
        who.label,
        format_seconds(number(row, "median_seconds")),
        f"{format_seconds(low)} - {format_seconds(high)}",
        _ratio(row, by_name.get("copy")),
        _ratio(row, by_name.get("fused")),
        format_bytes(number(row, "peak_extra_bytes")) if peak is not None else "",
        f"{number(row, 'error'):.0e}" if row["error"] is not None else "",
        f"{row['repeats']}",
    )


def _ratio(row: Row, baseline: Row | None) -> str:
    if baseline is None or baseline["skipped"] is not None:
        return ""
    return format_ratio(number(row, "median_seconds") / number(baseline, "median_seconds"))
