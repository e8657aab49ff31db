"""Tables, targets and figure of a record of `aaren bench stream`."""

from pathlib import Path

from aaren.bench import figure
from aaren.bench.publish import Benchmark
from aaren.bench.record import BenchRecord, Row, counted, number
from aaren.bench.stream import COMMAND, LONG, QUICK, StreamSettings, measure
from aaren.bench.stream_contenders import (
    AAREN,
    CACHED_QUERY,
    FOLDED,
    GRU,
    LABELS,
    LSTM,
    PAPER,
    SIZES,
    SMALL,
    TRANSFORMER,
    size_title,
)
from aaren.bench.stream_engines import ENGINES, HAND, NATIVE, ONNX, READ, TORCH, WASM
from aaren.bench.target import Ratio, Target, at_least, at_most, doubt, judge, targets_table, time_ratio
from aaren.table import Table, format_bytes, format_ratio, format_seconds, text_table

FLAT_WITHIN = 0.1
LATE_TOKENS = 1_000_000
CUMULATIVE_RATIOS = ((8192, 1.7), (32_768, 4.0))
MANY_STREAMS, MANY_STREAMS_RATIO = 1024, 100.0
# One step of one stream: what is divided by what, and how large the ratio may be (or, first, must be).
FASTER_THAN_TORCH = 20.0
ENGINE_LIMITS = (
    (SMALL, NATIVE, HAND, 1.5),
    (PAPER, NATIVE, READ, 1.5),
    (SMALL, WASM, NATIVE, 4.0),
    (SMALL, ONNX, NATIVE, 10.0),
)
MANY_NATIVE_RATIO = 2.0
OVERHEAD_SECONDS, SAVED_SECONDS = 5e-6, 50e-6


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by every target of this benchmark."""
    found = []
    for tokens, least in CUMULATIVE_RATIOS:
        rows = (_row(record, PAPER, contender, tokens) for contender in (TRANSFORMER, FOLDED))
        ratio = time_ratio(record, *rows, field="cumulative_seconds", prefix="token_")
        name = f"width 512: cumulative time, Transformer / folded Aaren, at {tokens:,} tokens"
        found.append(at_least(name, ratio, least))
    found += _flatness(record)
    for size in SIZES:
        found += [_folded_is_faster(record, size, slower) for slower in (AAREN, CACHED_QUERY)]
    return [*found, _many_streams(record), *_engines(record)]


def _engines(record: BenchRecord) -> list[Target]:
    """Judge the step without torch, and what sessions add to it."""

    def engine(size: str, name: str, streams: int = 1) -> Row | None:
        row = record.find(what="engine", size=size, contender=name, streams=streams)
        return None if row is None or "skipped" in row else row

    field = "step_median_seconds"
    ratio = time_ratio(record, engine(SMALL, TORCH), engine(SMALL, NATIVE), field=field)
    found = [at_least("4 layers of width 64: one step, torch / native", ratio, FASTER_THAN_TORCH)]
    for size, name, other, limit in ENGINE_LIMITS:
        ratio = time_ratio(record, engine(size, name), engine(size, other), field=field)
        title = "4 layers of width 64" if size == SMALL else "a block of width 512"
        found.append(at_most(f"{title}: one step, {ENGINES[name]} / {ENGINES[other]}", ratio, limit))
    many = (engine(SMALL, name, MANY_STREAMS) for name in (TORCH, NATIVE))
    name = f"{MANY_STREAMS:,} streams in one call, 2 threads: tokens per second, native / torch"
    found.append(at_least(name, time_ratio(record, *many, field=field), MANY_NATIVE_RATIO))
    for item in ("array", "tensor", "list"):
        row = record.find(what="session", item=item)
        found.append(_seconds_below(record, f"session, per {item}", row, "overhead_seconds", "step_"))
    for model in ("small", "decision"):
        for call in ("to_bytes", "restore"):
            row = record.find(what="saved_state", model=model, call=call)
            found.append(_seconds_below(record, f"{call} of the {model} model", row, "median_seconds", ""))
    return found


def _seconds_below(record: BenchRecord, name: str, row: Row | None, field: str, prefix: str) -> Target:
    limit = OVERHEAD_SECONDS if field == "overhead_seconds" else SAVED_SECONDS
    value = None if row is None else Ratio(number(row, field), doubt(record, row, prefix=prefix))
    wanted = f"below {format_seconds(limit)}"
    return judge(name, wanted, value, lambda found: found < limit, format_seconds)


def _row(record: BenchRecord, size: str, contender: str, tokens: int) -> Row | None:
    """Return what was measured of a model at a number of tokens."""
    return record.find(what="stream", size=size, contender=contender, tokens=tokens)


def _flatness(record: BenchRecord) -> list[Target]:
    """Compare a late token with an early one: the millionth, and in shorter runs the latest there is."""
    row = record.find(what="flatness", size=PAPER, contender=FOLDED)
    late = 0 if row is None else int(number(row, "late_tokens"))
    found = [] if late in (0, LATE_TOKENS) else [_flat_time(record, row, late), _flat_bytes(row, late)]
    wanted = row if late == LATE_TOKENS else None
    return [*found, _flat_time(record, wanted, LATE_TOKENS), _flat_bytes(wanted, LATE_TOKENS)]


def _flat_time(record: BenchRecord, row: Row | None, late: int) -> Target:
    ratio = None
    if row is not None:
        value = number(row, "late_median_seconds") / number(row, "early_median_seconds")
        ratio = Ratio(value, doubt(record, row, prefix="early_") or doubt(record, row, prefix="late_"))
    return judge(
        f"width 512: folded Aaren, time per token, token {late:,} / token 1,000",
        f"{1 - FLAT_WITHIN:.2f}x to {1 + FLAT_WITHIN:.2f}x",
        ratio,
        lambda found: abs(found - 1) <= FLAT_WITHIN,
        "{:.3f}x".format,
    )


def _flat_bytes(row: Row | None, late: int) -> Target:
    early = 0.0 if row is None else number(row, "early_state_bytes")
    return judge(
        f"width 512: folded Aaren, bytes of state, token {late:,} and token 1,000",
        "equal",
        None if row is None else number(row, "late_state_bytes"),
        lambda found: found == early,
        lambda found: f"{format_bytes(found)} and {format_bytes(early)}",
    )


def _folded_is_faster(record: BenchRecord, size: str, slower: str) -> Target:
    """Compare times per token at the last number of tokens that both were measured at."""
    tokens = longest(record, size, slower)
    rows = (_row(record, size, name, tokens) for name in (slower, FOLDED))
    name = f"width {SIZES[size].width}: time per token, {LABELS[slower]} / folded"
    ratio = time_ratio(record, *rows, field="token_median_seconds")
    return judge(name, "more than 1x", ratio, lambda found: found > 1.0, format_ratio)


def _many_streams(record: BenchRecord) -> Target:
    one, many = (
        record.find(what="many_streams", contender=FOLDED, streams=streams) for streams in (1, MANY_STREAMS)
    )
    name = f"4 layers of width 64: tokens per second, {MANY_STREAMS:,} streams / one"
    ratio = time_ratio(record, many, one, field="tokens_per_second", prefix="step_")
    return at_least(name, ratio, MANY_STREAMS_RATIO)


COLUMNS = ("", "parameters", "state", "process", "per token", "/ folded", "all tokens", "/ folded")
_FIRST_SHOWN = 512  # and every fourfold of it, and the last
_STYLES: dict[str, tuple[str, str]] = {
    FOLDED: (figure.VERMILION, "-"),
    CACHED_QUERY: (figure.ORANGE, "-"),
    AAREN: (figure.PURPLE, "-"),
    TRANSFORMER: (figure.BLUE, "-"),
    GRU: (figure.GREEN, "--"),
    LSTM: (figure.GREY, "--"),
}


def tables(record: BenchRecord) -> list[Table]:
    """Return one table per size and number of tokens, then many streams and the targets."""
    found = []
    for size in SIZES:
        counts = sorted({int(number(row, "tokens")) for row in _stream_rows(record, size)})
        found += [_table(record, size, tokens) for tokens in _shown(counts)]
    judged = targets_table(targets(record), whole_run=f"{COMMAND} --long")
    return [*found, _many_streams_table(record), *_engine_tables(record), judged]


def _engine_tables(record: BenchRecord) -> list[Table]:
    """Return one table per size and number of streams, with the contenders that were skipped and why."""
    rows = [row for row in record.measurements if row["what"] == "engine"]
    found = []
    for size, streams in dict.fromkeys((str(row["size"]), int(number(row, "streams"))) for row in rows):
        chosen = [row for row in rows if row["size"] == size and row["streams"] == streams]
        timed = {
            str(row["contender"]): number(row, "step_median_seconds")
            for row in chosen
            if "skipped" not in row
        }
        missing = [
            f"{ENGINES[str(row['contender'])]} skipped: {row['skipped']}"
            for row in chosen
            if "skipped" in row
        ]
        found.append(
            text_table(
                title=f"One step of {counted(streams, 'stream')}: {size_title(size)}",
                columns=("", "one step", "/ native"),
                rows=[
                    (
                        ENGINES[name],
                        format_seconds(seconds),
                        format_ratio(seconds / timed[NATIVE]) if NATIVE in timed else "",
                    )
                    for name, seconds in timed.items()
                ],
                bold_rows=[ENGINES[NATIVE]],
                note=" ".join(missing),
            )
        )
    return found


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw memory and cumulative time of the paper's block against the number of tokens.

    A model that went further than the Transformer is cut off where the Transformer ended: beyond, a linear
    axis would show nothing but the longest line.
    """
    furthest = longest(record, PAPER)
    # The Transformer's state as it is allocated; everybody else's is a line on the axis.
    allocated = [
        (number(row, "tokens"), number(row, "state_bytes") / 1e6)
        for row in _ordered(record, TRANSFORMER, furthest)
    ]
    cache = figure.Line("its cache, allocated", allocated, _STYLES[TRANSFORMER][0], ":", "")
    memory = [*_lines(record, furthest, "process_bytes", 1e6), cache]
    times = _lines(record, furthest, "cumulative_seconds", 1.0)
    panels = [
        figure.Panel("Memory", "tokens", "megabytes above the weights", memory),
        figure.Panel("Cumulative time", "tokens", "seconds", times),
    ]
    threads = counted(record.machine["threads"], "thread")
    caption = f"{size_title(PAPER)}; one stream; CPU, {threads}"
    return figure.draw(panels, base, caption=caption, is_logarithmic=False)


def longest(record: BenchRecord, size: str, contender: str = TRANSFORMER) -> int:
    """Return how many tokens a model took in; 0 if it did not take part."""
    return max((int(number(row, "tokens")) for row in _stream_rows(record, size, contender)), default=0)


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


def _table(record: BenchRecord, size: str, tokens: int) -> Table:
    rows = [row for row in _stream_rows(record, size) if row["tokens"] == tokens]
    by_name = {str(row["contender"]): row for row in rows}
    folded = by_name.get(FOLDED)
    return text_table(
        title=f"After {tokens:,} tokens: {size_title(size)}",
        columns=COLUMNS,
        rows=[_cells(by_name[name], folded) for name in LABELS if name in by_name],
        bold_rows=[LABELS[FOLDED]],
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


def _many_streams_table(record: BenchRecord) -> Table:
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
    return text_table(
        title=f"Many streams stepped together: {', '.join(size_title(size) for size in sorted(sizes))}",
        columns=("", "one step", "tokens per second", "/ one stream"),
        rows=cells,
    )


def _ordered(record: BenchRecord, contender: str, furthest: int) -> list[Row]:
    rows = sorted(_stream_rows(record, PAPER, contender), key=lambda row: number(row, "tokens"))
    return [row for row in rows if number(row, "tokens") <= furthest]


def _lines(record: BenchRecord, furthest: int, field: str, unit: float) -> list[figure.Line]:
    found = []
    for name, (colour, style) in _STYLES.items():
        points = [
            (number(row, "tokens"), number(row, field) / unit)
            for row in _ordered(record, name, furthest)
            if row[field] is not None
        ]
        points = [(0.0, 0.0), *points] if points else []
        found.append(figure.Line(LABELS[name], points, colour, style, "", name in (FOLDED, TRANSFORMER)))
    return found


BENCHMARK = Benchmark(
    kind="stream",
    command=COMMAND,
    settings=StreamSettings(),
    quick=QUICK,
    long=LONG,
    measure=measure,
    tables=tables,
    draw=draw,
)
