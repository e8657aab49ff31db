from pathlib import Path

import pytest
from typer.testing import CliRunner

from aaren.bench.memory import can_measure
from aaren.bench.record import BenchRecord, Row, read_record
from aaren.bench.stream import (
    LONG,
    StreamSettings,
    checkpoints,
    measure_many_streams,
)
from aaren.bench.stream_contenders import (
    AAREN,
    CACHED_QUERY,
    FOLDED,
    GRU,
    LABELS,
    LSTM,
    PAPER,
    SMALL,
    TRANSFORMER,
)
from aaren.bench.stream_engines import HAND, NATIVE, READ, TORCH, WASM, EngineSettings, measure_engines
from aaren.bench.stream_view import draw, tables, targets
from aaren.cli.main import app


def _stream_row(contender: str, tokens: int, *, cumulative: float = 1.0, token: float = 1e-3) -> Row:
    return {
        "what": "stream",
        "size": PAPER,
        "contender": contender,
        "tokens": tokens,
        "parameters": 10,
        "state_bytes": tokens if contender == TRANSFORMER else 8,
        "process_bytes": tokens if contender == TRANSFORMER else 0,
        "token_median_seconds": token,
        "token_lower_quartile_seconds": token,
        "token_upper_quartile_seconds": token,
        "window_tokens": 128,
        "cumulative_seconds": cumulative,
    }


def _flatness_row(late_tokens: int, *, late: float, late_bytes: int = 8) -> Row:
    return {
        "what": "flatness",
        "size": PAPER,
        "contender": FOLDED,
        "early_tokens": 1000,
        "late_tokens": late_tokens,
        "early_median_seconds": 1e-3,
        "late_median_seconds": late,
        "early_state_bytes": 8,
        "late_state_bytes": late_bytes,
        "repeats": 10,
    }


def _many_row(streams: int, tokens_per_second: float) -> Row:
    return {
        "what": "many_streams",
        "size": SMALL,
        "contender": FOLDED,
        "streams": streams,
        "step_median_seconds": streams / tokens_per_second,
        "tokens_per_second": tokens_per_second,
    }


def _record(*rows: Row) -> BenchRecord:
    return BenchRecord(kind="stream", command="aaren bench stream", settings={}, measurements=list(rows))


def _verdicts(record: BenchRecord, part_of_name: str) -> list[str]:
    return [target.verdict for target in targets(record) if part_of_name in target.name]


def test_every_model_of_a_size_goes_equally_far_but_the_folded_one() -> None:
    found = {lane.contender: lane.tokens for lane in LONG.lanes if lane.size == PAPER}
    assert found == {name: 1_000_000 if name == FOLDED else 32_768 for name in LABELS}
    default = {(lane.size, lane.tokens) for lane in StreamSettings().lanes}
    assert default == {(PAPER, 8192), (SMALL, 2048)}


def test_rows_stand_at_doublings_and_at_equal_parts() -> None:
    found = checkpoints(8192)
    assert {64, 128, 256, 512, 1024, 2048, 4096, 8192} | set(range(512, 8193, 512)) == found
    assert {8192, 32_768, 1_000_000} <= checkpoints(1_000_000)
    assert checkpoints(64) == {64}


def test_cumulative_times_are_judged_where_they_were_promised() -> None:
    rows = [
        _stream_row(name, tokens, cumulative=seconds)
        for name, tokens, seconds in [
            (FOLDED, 8192, 1.0),
            (TRANSFORMER, 8192, 1.8),
            (FOLDED, 32_768, 4.0),
            (TRANSFORMER, 32_768, 15.0),
        ]
    ]
    assert _verdicts(_record(*rows), "cumulative time") == ["met", "missed"]
    assert _verdicts(_record(*rows[:2]), "cumulative time") == ["met", "not run"]


def test_a_late_token_must_cost_what_an_early_one_costs() -> None:
    assert _verdicts(_record(_flatness_row(1_000_000, late=1.09e-3)), "time per token, token") == ["met"]
    assert _verdicts(_record(_flatness_row(1_000_000, late=1.12e-3)), "time per token, token") == ["missed"]
    assert _verdicts(_record(_flatness_row(1_000_000, late=0.88e-3)), "time per token, token") == ["missed"]
    grown = _record(_flatness_row(1_000_000, late=1e-3, late_bytes=16))
    assert _verdicts(grown, "bytes of state") == ["missed"]


def test_a_short_run_does_not_claim_the_millionth_token() -> None:
    record = _record(_flatness_row(8192, late=1e-3))
    assert _verdicts(record, "token 8,192") == ["met", "met"]
    assert _verdicts(record, "token 1,000,000") == ["not run", "not run"]


def test_folding_must_pay() -> None:
    rows = [_stream_row(FOLDED, 64, token=1e-3), _stream_row(FOLDED, 128, token=1e-3)]
    slower = [_stream_row(AAREN, 128, token=1.2e-3), _stream_row(CACHED_QUERY, 128, token=0.9e-3)]
    assert _verdicts(_record(*rows, *slower), "width 512: time per token, Aaren") == ["met", "missed"]


def test_many_streams_are_judged() -> None:
    many = [_many_row(1, 2000.0), _many_row(1024, 220_000.0)]
    assert _verdicts(_record(*many), "1,024 streams / one") == ["met"]


def test_a_step_carries_many_streams() -> None:
    rows = measure_many_streams((1, 8), budget_seconds=0.1)
    assert [(row["contender"], row["streams"]) for row in rows] == [
        (FOLDED, 1),
        (FOLDED, 8),
        (AAREN, 1),
        (AAREN, 8),
    ]
    for row in rows:
        assert row["tokens_per_second"] == pytest.approx(row["streams"] / row["step_median_seconds"])


def test_figure_is_drawn_where_the_transformer_ends(tmp_path: Path) -> None:
    rows = [
        _stream_row(name, tokens, cumulative=float(tokens))
        for name in LABELS
        for tokens in (64, 128, 256)
        if name == FOLDED or tokens <= 128
    ]
    png, svg = draw(_record(*rows), tmp_path / "stream")
    assert png.stat().st_size > 10_000
    assert "Transformer, KV cache" in svg.read_text()
    assert ">250<" not in svg.read_text()


@pytest.mark.long
def test_quick_run_measures_and_shows_everything(tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    arguments = ["bench", "stream", "--quick", "--record", str(path)]
    result = CliRunner().invoke(app, [*arguments, "--figure", str(tmp_path / "stream")])
    assert result.exit_code == 0, result.output
    record = read_record(path, kind="stream")
    assert record.command == "aaren bench stream --quick"
    streamed = [row for row in record.measurements if row["what"] == "stream"]
    assert {(row["size"], row["contender"], row["tokens"]) for row in streamed} == {
        (size, name, tokens) for size in (PAPER, SMALL) for name in LABELS for tokens in (64, 128)
    }
    for row in streamed:
        assert isinstance(row["cumulative_seconds"], float)
        assert isinstance(row["token_median_seconds"], float)
        assert row["cumulative_seconds"] > row["token_median_seconds"] > 0
        assert isinstance(row["process_bytes"], int) == can_measure()
    for name in (FOLDED, CACHED_QUERY, AAREN, GRU, LSTM):
        sizes = {row["state_bytes"] for row in streamed if (row["size"], row["contender"]) == (PAPER, name)}
        assert len(sizes) == 1
    assert "3,152,384" in result.stdout
    assert "3,152,896" in result.stdout
    assert (tmp_path / "stream.svg").exists()


def _engine_row(contender: str, seconds: float, *, size: str = SMALL, streams: int = 1) -> Row:
    times = {f"step_{part}_seconds": seconds for part in ("median", "lower_quartile", "upper_quartile")}
    return {"what": "engine", "size": size, "contender": contender, "streams": streams, **times}


def test_engines_are_judged_by_their_ratios_and_a_missing_tool_is_no_verdict() -> None:
    rows = [
        _engine_row(TORCH, 300e-6),
        _engine_row(NATIVE, 10e-6),
        _engine_row(HAND, 5e-6),
        {"what": "engine", "size": SMALL, "contender": WASM, "streams": 1, "skipped": "needs Node."},
        _engine_row(NATIVE, 150e-6, size=PAPER),
        _engine_row(READ, 120e-6, size=PAPER),
        _engine_row(TORCH, 5e-3, streams=1024),
        _engine_row(NATIVE, 2e-3, streams=1024),
    ]
    record = _record(*rows)
    assert _verdicts(record, "torch / native") == ["met"]
    assert _verdicts(record, "native / C by hand") == ["missed"]
    assert _verdicts(record, "WebAssembly in Node / native") == ["not run"]
    assert _verdicts(record, "width 512: one step, native / reading") == ["met"]
    assert _verdicts(record, "1,024 streams in one call") == ["met"]
    notes = [note for table in tables(record) for note in table.notes]
    assert "WebAssembly in Node skipped: needs Node." in notes


def test_engines_run_the_same_network() -> None:
    settings = EngineSettings(budget_seconds=0.1, streams=16, threads=1, has_wasm=False)
    rows = measure_engines(settings, lambda _what: None)
    skipped = {row["contender"]: row["skipped"] for row in rows if "skipped" in row}
    assert skipped.pop(WASM) == "left out of a quick run."
    assert not [why for why in skipped.values() if "differs" in str(why)]
    assert {row["call"] for row in rows if row["what"] == "saved_state"} == {"to_bytes", "restore"}
