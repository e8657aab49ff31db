"""What `aaren bench stream` should reach, and whether a record did. Judges records only."""

from dataclasses import replace

from aaren.bench.record import BenchRecord, Row, number
from aaren.bench.stream_contenders import AAREN, CACHED_QUERY, FOLDED, LABELS, PAPER, SIZES, TRANSFORMER
from aaren.bench.table import format_bytes
from aaren.bench.target import Target, are_noisy, at_least

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
