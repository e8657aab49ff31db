"""`aaren bench scan`: every backend, a memory copy and PyTorch's peers, on the same inputs, in one run.

For each length and direction: measure peak extra memory in fresh processes; time all, turn by turn; compare
results with a float64 run. Then targets, tables and figure of the record. Targets are ratios within one run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from aaren.bench import figure, memory
from aaren.bench.memory import MemoryExhaustedError
from aaren.bench.publish import Benchmark
from aaren.bench.record import BenchRecord, Measured, OnStep, Row, Setting, counted, number
from aaren.bench.scan_contenders import (
    CONTENDERS,
    FORWARD,
    FORWARD_BACKWARD,
    PASSES,
    Call,
    Results,
    Shape,
    build,
    truth_name,
)
from aaren.bench.target import (
    Ratio,
    Target,
    at_least,
    at_most,
    doubt,
    format_quartiles,
    targets_table,
    time_ratio,
    within,
)
from aaren.bench.timing import time_interleaved
from aaren.table import Table, format_bytes, format_ratio, format_seconds, text_table

COMMAND = "aaren bench scan"
LONG_LENGTH = 8192  # from here on the batch is small, beyond it only the linear contenders take part
DEFAULT_LENGTHS = (256, 1024, 8192)
_WARM_UP_LENGTH = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanSettings:
    """What to measure."""

    lengths: tuple[int, ...] = DEFAULT_LENGTHS
    heads: int = 8
    width: int = 64  # of one head
    batch: int = 8
    long_batch: int = 2  # from LONG_LENGTH on
    budget_seconds: float = 9.0  # for the timing of one length and direction, shared by all contenders

    def shapes(self) -> list[Shape]:
        """Return the shapes to measure, shortest first."""
        return [
            Shape(self.long_batch if length >= LONG_LENGTH else self.batch, length, self.heads, self.width)
            for length in sorted(set(self.lengths))
        ]


QUICK = ScanSettings(lengths=(64,), batch=2, budget_seconds=0.4)
LONG = ScanSettings(lengths=(*DEFAULT_LENGTHS, 65_536))


def measure(settings: ScanSettings, on_step: OnStep) -> Measured:
    """Run the whole benchmark."""
    groups = [(shape, direction) for shape in settings.shapes() for direction in PASSES]
    rows: list[Row] = []
    total = sum(len(_names(shape)) + 1 for shape, _ in groups)
    done = 0
    for shape, direction in groups:
        where = f"t = {shape.length:,}, {direction}"
        ready: dict[str, Row] = {}
        calls: dict[str, Callable[[], object]] = {}
        firsts: dict[str, list[Tensor]] = {}
        for name in _names(shape):
            on_step(done, total, f"{where}: {CONTENDERS[name].label}")
            done += 1
            row = _empty_row(name, shape, direction)
            longest = CONTENDERS[name].longest
            if longest is not None and shape.length > longest:
                row["skipped"] = CONTENDERS[name].reason
            else:
                _measure_memory(row, name, shape, direction)
            if row["skipped"] is None:
                calls[name] = _keep_first(build(name, shape, direction), firsts.setdefault(name, []))
                ready[name] = row
            rows.append(row)
        on_step(done, total, f"{where}: timing, turn by turn")
        done += 1
        for turns in _rounds(calls):
            share = settings.budget_seconds * len(turns) / len(calls)
            for name, timing in time_interleaved(turns, budget_seconds=share).items():
                ready[name].update(timing.fields(), repeats=timing.repeats)
        on_step(done, total, f"{where}: float64 runs")
        truths: dict[str, Results] = {}
        for name, row in ready.items():
            _measure_error(row, firsts[name], truths)
    about: dict[str, Setting] = {
        "lengths": [shape.length for shape in settings.shapes()],
        "heads": settings.heads,
        "width": settings.width,
        "budget_seconds": settings.budget_seconds,
        "dtype": "float32",
    }
    return about, rows


def _rounds(calls: dict[str, Callable[[], object]]) -> list[dict[str, Callable[[], object]]]:
    """Part what is compared with the copy from what is compared with a user's calls.

    Between two copies another method would move hundreds of megabytes through the caches, and the copy would
    take up to twice its time.
    """
    rounds = [
        {name: call for name, call in calls.items() if CONTENDERS[name].is_preallocated is wanted}
        for wanted in (True, False)
    ]
    return [turns for turns in rounds if turns]


def needed_bytes(shape: Shape) -> int:
    """Return what must exist after both passes: outputs, log-sums (float64), gradients of scores and values.

    >>> needed_bytes(Shape(8, 1024, 8, 64))
    34340864
    """
    scores = shape.batch * shape.length * shape.heads
    values = scores * shape.width
    return 4 * values + 8 * scores + 4 * (values + scores)


def shape_of(row: Row) -> Shape:
    """Return the (b, t, h, d) that a row was measured at."""
    return Shape(*(int(number(row, axis)) for axis in Shape._fields))


def _names(shape: Shape) -> list[str]:
    return [name for name, who in CONTENDERS.items() if who.goes_long or shape.length <= LONG_LENGTH]


def _empty_row(name: str, shape: Shape, direction: str) -> Row:
    return {
        "contender": name,
        "direction": direction,
        **shape._asdict(),
        "median_seconds": None,
        "lower_quartile_seconds": None,
        "upper_quartile_seconds": None,
        "repeats": 0,
        "peak_extra_bytes": None,
        "error": None,
        "truth": None,
        "skipped": None,
    }


def _measure_memory(row: Row, name: str, shape: Shape, direction: str) -> None:
    if CONTENDERS[name].is_preallocated:
        return
    small = shape._replace(length=min(shape.length, _WARM_UP_LENGTH))
    try:
        row["peak_extra_bytes"] = memory.peak_extra_bytes(
            build,
            name,
            shape,
            direction,
            warm_up=(name, small, direction),
        )
    except MemoryExhaustedError:
        row["skipped"] = "needs more memory than this machine has"


def _keep_first(call: Call, kept: list[Tensor]) -> Callable[[], object]:
    """Make a call keep the first batch entry of its first results: errors then need no run of their own."""

    def run() -> None:
        results = call()
        if not kept:
            kept.extend(result[:1].clone() for result in results)

    return run


def _measure_error(row: Row, results: Sequence[Tensor], truths: dict[str, Results]) -> None:
    """Compare the first batch entry with a float64 run: largest difference, relative to the largest value.

    Forward rows hold the error of outputs, forward+backward rows that of the input gradients. Contenders that
    share a truth share its run.
    """
    name, direction, shape = str(row["contender"]), str(row["direction"]), shape_of(row)
    if not CONTENDERS[name].has_truth:
        return
    judge = truth_name(name, shape)
    if judge not in truths:
        truths[judge] = build(judge, shape, direction, torch.float64, 1)()
    first = 1 if direction == FORWARD_BACKWARD else 0
    row["truth"] = f"{judge} in float64"
    row["error"] = max(
        ((result - exact).abs().max() / exact.abs().max()).item()
        for result, exact in zip(results[first:], truths[judge][first:], strict=True)
    )


LINEAR_WITHIN = 1.2


def targets(record: BenchRecord) -> list[Target]:
    """Judge a record by every target of this benchmark."""

    def times(slow: str, fast: str, length: int, direction: str = FORWARD_BACKWARD) -> Ratio | None:
        return time_ratio(record, *(_row(record, name, direction, length) for name in (slow, fast)))

    found: list[Target] = []
    for length in (1024, 8192):
        where = f"t = {length:,}"
        forward, both = times("kernel", "copy", length, FORWARD), times("kernel", "copy", length)
        found.append(at_most(f"kernel forward / copy of the values, {where}", forward, 1.5))
        found.append(at_most(f"kernel forward+backward / copy, {where}", both, 4.5))
    for length, least in ((1024, 30.0), (8192, 100.0)):
        name = f"paper's scan (float32) / fused, t = {length:,}"
        found.append(at_least(name, times("paper_scan", "fused", length), least))
    for length, least in ((1024, 70.0), (8192, 300.0)):
        found.append(at_least(f"causal SDPA / fused, t = {length:,}", times("sdpa", "fused", length), least))
    for length in (1024, 8192):
        name = f"fused peak extra memory / what must exist, t = {length:,}"
        found.append(at_most(name, _memory_ratio(_row(record, "fused", FORWARD_BACKWARD, length)), 1.4))
    found.append(_linear(record, "fused", "peak extra memory of fused", "peak_extra_bytes"))
    found.append(_linear(record, "kernel", "time of the kernels", "median_seconds"))
    found.append(_linear(record, "fused", "time of fused through autograd", "median_seconds"))
    return found


def _row(record: BenchRecord, contender: str, direction: str, length: int) -> Row | None:
    return record.find(contender=contender, direction=direction, length=length, skipped=None)


def _memory_ratio(row: Row | None) -> float | None:
    if row is None or row["peak_extra_bytes"] is None:
        return None
    return number(row, "peak_extra_bytes") / needed_bytes(shape_of(row))


def _linear(record: BenchRecord, contender: str, what: str, field: str) -> Target:
    """Compare the cost per item at the longest length with that at 1,024: linear if they are nearly equal."""
    lengths = [
        int(number(row, "length"))
        for row in record.measurements
        if row["contender"] == contender and row["skipped"] is None and row[field] is not None
    ]
    longest = max(lengths, default=0)
    last, first = (_row(record, contender, FORWARD_BACKWARD, length) for length in (longest, 1024))
    ratio = None
    if longest > 1024 and last is not None and first is not None:
        is_time = field == "median_seconds"
        value = _per_item(last, field) / _per_item(first, field)
        ratio = Ratio(value, doubt(record, last, first) if is_time else "")
    reach = f"from 1,024 to {longest:,}" if ratio is not None else "from 1,024 on"
    name = f"{what} linear, {reach}: per item, last / first"
    return within(name, ratio, 1 / LINEAR_WITHIN, LINEAR_WITHIN)


def _per_item(row: Row, field: str) -> float:
    return number(row, field) / (number(row, "batch") * number(row, "length"))


COLUMNS = ("", "median", "quartiles", "/ copy", "/ fused", "peak extra", "error", "runs")

# Ours are solid, PyTorch's dashed, the limit set by memory dotted; equal colours never share a style.
_STYLES: dict[str, tuple[str, str, str]] = {
    "copy": (figure.GREY, ":", "x"),
    "kernel": (figure.VERMILION, ":", "o"),
    "fused": (figure.VERMILION, "-", "o"),
    "chunked": (figure.BLUE, "-", "s"),
    "paper_scan": (figure.PURPLE, "--", "^"),
    "hillis_steele": (figure.PURPLE, "-", "^"),
    "ladner_fischer": (figure.GREEN, "-", "v"),
    "recurrent": (figure.ORANGE, "-", "D"),
    "naive": (figure.BLACK, "-", "P"),
    "triton": (figure.SKY, "-", "*"),
    "sdpa": (figure.BLACK, "--", "X"),
    "gru": (figure.SKY, "--", "h"),
    "lstm": (figure.BLUE, "--", "p"),
}


def tables(record: BenchRecord) -> list[Table]:
    """Return one table per length and direction, then the targets."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in record.measurements:
        groups.setdefault((shape_of(row), row["direction"]), []).append(row)
    title = "Targets (ratios within this run; forward+backward unless said otherwise)"
    judged = targets_table(targets(record), title=title, whole_run=COMMAND)
    return [*(_table(rows) for rows in groups.values()), judged]


def draw(record: BenchRecord, base: Path) -> tuple[Path, Path]:
    """Draw time per sequence against length, forward and forward+backward side by side."""
    panels = [
        figure.Panel(
            direction, "items in the sequence", "milliseconds per sequence", _lines(record, direction)
        )
        for direction in PASSES
    ]
    about = f"{record.settings['heads']} heads of width {record.settings['width']}, float32"
    return figure.draw(panels, base, caption=f"{about}; {counted(record.machine['threads'], 'thread')}")


def _lines(record: BenchRecord, direction: str) -> list[figure.Line]:
    lines = []
    for name, style in _STYLES.items():
        points = [
            (number(row, "length"), 1e3 * number(row, "median_seconds") / number(row, "batch"))
            for row in record.measurements
            if row["contender"] == name and row["direction"] == direction and row["skipped"] is None
        ]
        lines.append(figure.Line(CONTENDERS[name].label, points, *style, is_stressed=name == "fused"))
    return lines


def _table(rows: list[Row]) -> Table:
    shape, direction = shape_of(rows[0]), rows[0]["direction"]
    by_name = {str(row["contender"]): row for row in rows}
    error_of = "outputs" if direction == PASSES[0] else "gradients"
    return text_table(
        title=f"{direction}, (b, t, h, d) = {tuple(shape)}, error of {error_of}",
        columns=COLUMNS,
        rows=[_cells(row, by_name) for row in rows],
        bold_rows=[CONTENDERS["fused"].label],
    )


def _cells(row: Row, by_name: dict[str, Row]) -> tuple[str, ...]:
    label, peak = CONTENDERS[str(row["contender"])].label, row["peak_extra_bytes"]
    if row["skipped"] is not None:
        return (label, f"skipped: {row['skipped']}", *[""] * (len(COLUMNS) - 2))
    return (
        label,
        format_seconds(number(row, "median_seconds")),
        format_quartiles(row),
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


BENCHMARK = Benchmark(
    kind="scan",
    command=COMMAND,
    settings=ScanSettings(),
    quick=QUICK,
    long=LONG,
    measure=measure,
    tables=tables,
    draw=draw,
)
