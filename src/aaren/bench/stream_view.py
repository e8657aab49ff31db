"""Two panels in the manner of the paper's Figure 5: straight axes, so that growth looks like what it is.

Knows nothing of models. Needs matplotlib (the `plot` extra).

What `aaren bench stream` should reach, and whether a record did. Judges records only.

Draw a record of `aaren bench stream`: its tables for the terminal and the page, and its figure.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aaren.bench import figure
from aaren.bench.figure import Panel, save, spread_out
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
from aaren.bench.table import (
    Sheet,
    Target,
    are_noisy,
    at_least,
    format_bytes,
    format_ratio,
    format_seconds,
    targets_sheet,
)

_LABEL_SHARE = 0.055  # least distance between two labels, of the height of the axes


def draw_straight(panels: Sequence[Panel], base: Path, *, caption: str = "") -> tuple[Path, Path]:
    """Draw panels side by side on linear axes and save them as PNG and SVG; equal input gives equal files."""
    return save(panels, base, _draw_panel, panel_inches=(6.4, 4.8), caption=caption)


def _draw_panel(axes, panel: Panel) -> None:  # type: ignore[no-untyped-def]  # matplotlib is imported late
    lines = [line for line in panel.lines if line.lengths]
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if not lines:
        return
    for line in lines:
        axes.plot(
            line.lengths,
            line.heights,
            color=line.colour,
            linestyle=line.style,
            marker=line.marker,
            markersize=3.5,
            linewidth=2.6 if line.is_stressed else 1.3,
            zorder=3 if line.is_stressed else 2,
        )
    furthest = max(line.lengths[-1] for line in lines)
    highest = max(max(line.heights) for line in lines) or 1.0
    axes.set_xlim(0, furthest * 1.45)  # the rest is room for labels
    axes.set_ylim(-0.05 * highest, highest * 1.08)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= furthest])
    axes.xaxis.set_major_formatter(lambda tick, _: f"{tick:,.0f}")
    places = spread_out([line.heights[-1] / highest for line in lines], _LABEL_SHARE)
    lift = max(0.0, -min(places))  # labels of flat lines must not fall below the axis
    for line, place in zip(lines, places, strict=True):
        near_bottom = place < 0.5
        axes.annotate(
            line.label,
            xy=(line.lengths[-1], line.heights[-1]),
            xytext=(furthest * 1.04, (place + (lift if near_bottom else 0.0)) * highest),
            color=line.colour,
            fontsize=9,
            fontweight="bold" if line.is_stressed else "normal",
            verticalalignment="center",
            arrowprops={
                "arrowstyle": "-",
                "relpos": (0.0, 0.5),
                "color": line.colour,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )


FLAT_WITHIN = 0.1
LATE_TOKENS = 1_000_000
CUMULATIVE_RATIOS = ((8192, 1.7), (32_768, 4.0))
MANY_STREAMS, MANY_STREAMS_RATIO = 1024, 100.0
PRECISION = 1e-9


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by every target of this benchmark."""
    found = []
    for tokens, least in CUMULATIVE_RATIOS:
        name = f"width 512: cumulative time, Transformer / folded Aaren, at {tokens:,} tokens"
        target = at_least(name, cumulative_ratio(record, PAPER, TRANSFORMER, FOLDED, tokens), least)
        rows = (stream_row(record, PAPER, contender, tokens) for contender in (TRANSFORMER, FOLDED))
        found.append(replace(target, is_noisy=are_noisy(*rows, prefix="token_")))
    found += _flatness(record)
    for size in SIZES:
        found += [_folded_is_faster(record, size, slower) for slower in (AAREN, CACHED_QUERY)]
    found.append(_many_streams(record))
    found.append(_precision(record))
    return found


def stream_row(record: BenchRecord, size: str, contender: str, tokens: int) -> Row | None:
    """Return what was measured of a model at a number of tokens."""
    return record.find(what="stream", size=size, contender=contender, tokens=tokens)


def cumulative_ratio(record: BenchRecord, size: str, above: str, below: str, tokens: int) -> float | None:
    """Return how many times longer one model took than another for its first so many tokens."""
    upper, lower = stream_row(record, size, above, tokens), stream_row(record, size, below, tokens)
    if upper is None or lower is None:
        return None
    return number(upper, "cumulative_seconds") / number(lower, "cumulative_seconds")


def _flatness(record: BenchRecord) -> list[Target]:
    """Compare a late token with an early one: the promised one, and in shorter runs the latest there is."""
    row = record.find(what="flatness", size=PAPER, contender=FOLDED)
    late = 0 if row is None else int(number(row, "late_tokens"))
    found = [] if late in (0, LATE_TOKENS) else [_flat_time(row, late), _flat_bytes(row, late)]
    promised = row if late == LATE_TOKENS else None
    return [*found, _flat_time(promised, LATE_TOKENS), _flat_bytes(promised, LATE_TOKENS)]


def _flat_time(row: Row | None, late: int) -> Target:
    ratio = None
    if row is not None:
        ratio = number(row, "late_median_seconds") / number(row, "early_median_seconds")
    return Target(
        name=f"width 512: folded Aaren, time per token, token {late:,} / token 1,000",
        wanted=f"{1 - FLAT_WITHIN:.2f}x to {1 + FLAT_WITHIN:.2f}x",
        measured=None if ratio is None else f"{ratio:.3f}x",
        is_met=None if ratio is None else abs(ratio - 1) <= FLAT_WITHIN,
        is_noisy=are_noisy(row, prefix="early_") or are_noisy(row, prefix="late_"),
    )


def _flat_bytes(row: Row | None, late: int) -> Target:
    early_bytes, late_bytes = (
        (None, None) if row is None else (number(row, "early_state_bytes"), number(row, "late_state_bytes"))
    )
    return Target(
        name=f"width 512: folded Aaren, bytes of state, token {late:,} and token 1,000",
        wanted="equal",
        measured=None
        if early_bytes is None or late_bytes is None
        else f"{format_bytes(late_bytes)} and {format_bytes(early_bytes)}",
        is_met=None if row is None else early_bytes == late_bytes,
    )


def _folded_is_faster(record: BenchRecord, size: str, slower: str) -> Target:
    """Compare times per token at the last number of tokens that both were measured at."""
    counts = [
        int(number(row, "tokens"))
        for row in record.measurements
        if row["what"] == "stream" and row["size"] == size and row["contender"] == slower
    ]
    tokens = max(counts, default=0)
    above, below = stream_row(record, size, slower, tokens), stream_row(record, size, FOLDED, tokens)
    ratio = None
    if above is not None and below is not None:
        ratio = number(above, "token_median_seconds") / number(below, "token_median_seconds")
    target = at_least(f"width {SIZES[size].width}: time per token, {LABELS[slower]} / folded", ratio, 1.0)
    return Target(
        name=target.name,
        wanted="more than 1x",
        measured=target.measured,
        is_met=None if ratio is None else ratio > 1.0,
        is_noisy=are_noisy(above, below, prefix="token_"),
    )


def _many_streams(record: BenchRecord) -> Target:
    one = record.find(what="many_streams", contender=FOLDED, streams=1)
    many = record.find(what="many_streams", contender=FOLDED, streams=MANY_STREAMS)
    ratio = None
    if one is not None and many is not None:
        ratio = number(many, "tokens_per_second") / number(one, "tokens_per_second")
    name = f"4 layers of width 64: tokens per second, {MANY_STREAMS:,} streams / one"
    return replace(at_least(name, ratio, MANY_STREAMS_RATIO), is_noisy=are_noisy(one, many, prefix="step_"))


def _precision(record: BenchRecord) -> Target:
    row = record.find(what="precision")
    error = None if row is None else max(number(row, "forward_error"), number(row, "step_error"))
    is_promised = row is not None and number(row, "tokens") >= 30_000_000
    return Target(
        name="running mean of 30,000,000 equal scores, distance from the exact one",
        wanted=f"at most {PRECISION:.0e}",
        measured=None if error is None or not is_promised else f"{error:.0e}",
        is_met=None if error is None or not is_promised else error <= PRECISION,
    )


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
