"""Draw a record of `aaren bench stream`: its tables for the terminal and the page, and its figure."""

from pathlib import Path

from aaren.bench import figure
from aaren.bench.record import BenchRecord, Row, counted, number
from aaren.bench.stream import longest
from aaren.bench.stream_contenders import (
    AAREN,
    CACHED_QUERY,
    FOLDED,
    GRU,
    LABELS,
    LSTM,
    PAPER,
    SIZES,
    TRANSFORMER,
    size_title,
)
from aaren.bench.stream_figure import draw_straight
from aaren.bench.stream_targets import targets
from aaren.bench.table import Sheet, format_bytes, format_ratio, format_seconds
from aaren.bench.target import targets_sheet

COLUMNS = ("", "parameters", "state", "process", "per token", "/ folded", "all tokens", "/ folded")
_FIRST_SHOWN = 512  # and every fourfold of it, and the last
_LOOKS: dict[str, tuple[str, str, str]] = {
    FOLDED: (figure.VERMILION, "-", "o"),
    CACHED_QUERY: (figure.ORANGE, "-", "v"),
    AAREN: (figure.PURPLE, "-", "^"),
    TRANSFORMER: (figure.BLUE, "-", "s"),
    GRU: (figure.GREEN, "--", "D"),
    LSTM: (figure.GREY, "--", "P"),
}


def sheets(record: BenchRecord) -> list[Sheet]:
    """Return one table per size and number of tokens, then many streams, precision and the targets."""
    found = []
    for size in SIZES:
        counts = sorted({int(number(row, "tokens")) for row in _stream_rows(record, size)})
        found += [_sheet(record, size, tokens) for tokens in _shown(counts)]
    found.append(_many_streams_sheet(record))
    precision = record.find(what="precision")
    if precision is not None:
        found.append(_precision_sheet(precision))
    return [*found, targets_sheet(targets(record), whole_run="aaren bench stream --long --precision")]


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw memory and cumulative time of the paper's block against the number of tokens.

    A model that went further than the Transformer is cut off where the Transformer ended: beyond, a straight
    axis would show nothing but the longest line.
    """
    furthest = longest(record, PAPER)
    panels = [
        figure.Panel(
            title="Memory",
            x_label="tokens",
            y_label="megabytes above the weights",
            lines=[*_lines(record, furthest, "process_bytes", 1e6), *_state_lines(record, furthest)],
        ),
        figure.Panel(
            title="Cumulative time",
            x_label="tokens",
            y_label="seconds",
            lines=_lines(record, furthest, "cumulative_seconds", 1.0),
        ),
    ]
    threads = counted(record.machine["threads"], "thread")
    return draw_straight(panels, base, caption=f"{size_title(PAPER)}; one stream; CPU, {threads}")


def _stream_rows(record: BenchRecord, size: str, contender: str | None = None) -> list[Row]:
    return [
        row
        for row in record.measurements
        if row["what"] == "stream" and row["size"] == size and contender in (None, row["contender"])
    ]


def _shown(counts: list[int]) -> list[int]:
    """Choose few of many numbers of tokens: 512, 2,048, 8,192, ... and the last.

    >>> _shown([64, 128, 512, 1024, 2048, 3000])
    [512, 2048, 3000]
    """
    fourfold = [_FIRST_SHOWN << (2 * power) for power in range(12)]
    return [count for count in counts if count in fourfold or count == counts[-1]]


def _sheet(record: BenchRecord, size: str, tokens: int) -> Sheet:
    rows = [row for row in _stream_rows(record, size) if row["tokens"] == tokens]
    by_name = {str(row["contender"]): row for row in rows}
    folded = by_name.get(FOLDED)
    return Sheet(
        title=f"After {tokens:,} tokens: {size_title(size)}",
        columns=COLUMNS,
        rows=[_cells(by_name[name], folded) for name in LABELS if name in by_name],
        bold_rows=frozenset({LABELS[FOLDED]}),
    )


def _cells(row: Row, folded: Row | None) -> tuple[str, ...]:
    token, cumulative = number(row, "token_median_seconds"), number(row, "cumulative_seconds")
    memory = row["process_bytes"]
    return (
        LABELS[str(row["contender"])],
        f"{row['parameters']:,}",
        format_bytes(number(row, "state_bytes")),
        "" if memory is None else format_bytes(number(row, "process_bytes")),
        format_seconds(token),
        "" if folded is None else format_ratio(token / number(folded, "token_median_seconds")),
        format_seconds(cumulative),
        "" if folded is None else format_ratio(cumulative / number(folded, "cumulative_seconds")),
    )


def _many_streams_sheet(record: BenchRecord) -> Sheet:
    rows = [row for row in record.measurements if row["what"] == "many_streams"]
    singles = {row["contender"]: number(row, "tokens_per_second") for row in rows if row["streams"] == 1}
    sizes = {str(row["size"]) for row in rows}
    cells = [
        (
            f"{LABELS[str(row['contender'])]}, {counted(row['streams'], 'stream')}",
            format_seconds(number(row, "step_median_seconds")),
            f"{number(row, 'tokens_per_second'):,.0f}",
            format_ratio(number(row, "tokens_per_second") / singles[row["contender"]])
            if row["contender"] in singles
            else "",
        )
        for row in rows
    ]
    return Sheet(
        title=f"Many streams stepped together: {', '.join(size_title(size) for size in sorted(sizes))}",
        columns=("", "one step", "tokens per second", "/ one stream"),
        rows=cells,
    )


def _precision_sheet(row: Row) -> Sheet:
    return Sheet(
        title=f"Distance from the exact running mean, width {row['width']}, equal scores, float64",
        columns=("", "tokens", "largest distance"),
        rows=[
            ("through forward, in chunks", f"{row['tokens']:,}", f"{number(row, 'forward_error'):.1e}"),
            (
                "then through step, values raised by 1",
                f"{row['raised_tokens']:,}",
                f"{number(row, 'step_error'):.1e}",
            ),
        ],
    )


def _lines(record: BenchRecord, furthest: int, field: str, unit: float) -> list[figure.Line]:
    found = []
    for name, (colour, style, _) in _LOOKS.items():
        rows = [
            row
            for row in sorted(_stream_rows(record, PAPER, name), key=lambda row: number(row, "tokens"))
            if number(row, "tokens") <= furthest and row[field] is not None
        ]
        found.append(
            figure.Line(
                label=LABELS[name],
                lengths=[0.0, *(number(row, "tokens") for row in rows)] if rows else [],
                heights=[0.0, *(number(row, field) / unit for row in rows)] if rows else [],
                colour=colour,
                style=style,
                marker="",
                is_stressed=name in (FOLDED, TRANSFORMER),
            )
        )
    return found


def _state_lines(record: BenchRecord, furthest: int) -> list[figure.Line]:
    """Draw the Transformer's state as it is allocated; everybody else's is a line on the axis."""
    rows = sorted(_stream_rows(record, PAPER, TRANSFORMER), key=lambda row: number(row, "tokens"))
    rows = [row for row in rows if number(row, "tokens") <= furthest]
    return [
        figure.Line(
            label="its cache, allocated",
            lengths=[number(row, "tokens") for row in rows],
            heights=[number(row, "state_bytes") / 1e6 for row in rows],
            colour=_LOOKS[TRANSFORMER][0],
            style=":",
            marker="",
        )
    ]
