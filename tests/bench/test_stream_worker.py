import pytest

from aaren.bench.memory import can_measure
from aaren.bench.stream import EARLY_TOKENS, stream_worker
from aaren.bench.stream_contenders import FOLDED, SMALL, TRANSFORMER


def test_a_transformers_state_and_process_grow_with_its_tokens() -> None:
    with stream_worker(SMALL, TRANSFORMER, num_threads=1) as worker:
        first, second = worker.take(64), worker.take(448)
    assert worker.first_state_bytes == 0
    assert (first.tokens, second.tokens) == (64, 512)
    assert (len(first.seconds), len(second.seconds)) == (64, 448)
    assert min(first.seconds) > 0
    assert second.state_bytes == 8 * first.state_bytes == 4 * 2 * 512 * 64 * 4  # layers, k and v, c, float32
    if can_measure():
        assert first.process_bytes is not None
        assert second.process_bytes is not None
        assert second.process_bytes - first.process_bytes > 0.5 * second.state_bytes


def test_an_aarens_state_and_process_do_not() -> None:
    with stream_worker(SMALL, FOLDED, num_threads=1) as worker:
        before, turn = worker.first_state_bytes, worker.take(EARLY_TOKENS + 24)
        compared = worker.compare(rounds=2, tokens=4)
        after = worker.take(1)
    assert turn.state_bytes == before == compared["early_state_bytes"] == compared["late_state_bytes"]
    assert turn.process_bytes is None or turn.process_bytes < 500_000
    assert (compared["early_tokens"], compared["late_tokens"]) == (EARLY_TOKENS, EARLY_TOKENS + 24)
    assert compared["repeats"] == 8
    assert after.tokens == EARLY_TOKENS + 25  # comparing moved nothing on


def test_a_failure_in_the_process_is_told() -> None:
    wanted = pytest.raises(RuntimeError, match="failed in its process")
    with wanted as found, stream_worker("none", FOLDED, num_threads=1):
        pass
    assert "KeyError: 'none'" in str(found.value)
