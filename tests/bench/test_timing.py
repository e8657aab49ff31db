import gc

import pytest

from aaren.bench import timing as timing_module
from aaren.bench.timing import Timing, time_interleaved


class Clock:
    """A clock that only sleeping moves, so that a busy machine changes nothing."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing_module, "_clock", made)
    return made


def test_median_and_quartiles() -> None:
    timing = Timing.of([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (timing.lower_quartile, timing.median, timing.upper_quartile, timing.repeats) == (2.0, 3.0, 4.0, 5)


def test_one_sample_is_its_own_spread() -> None:
    timing = Timing.of([2.0])
    assert timing.lower_quartile == timing.median == timing.upper_quartile == 2.0


def test_rounds_are_interleaved_after_one_warm_up_each() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b", "c")}
    timings = time_interleaved(calls, budget_seconds=0.5, min_repeats=3, max_repeats=3)
    assert order == ["a", "b", "c"] * 4
    assert [timing.repeats for timing in timings.values()] == [3, 3, 3]


def test_slow_call_counts_its_warm_up_and_lets_the_others_go_on(clock: Clock) -> None:
    calls = {
        "fast": lambda: clock.sleep(0.5),
        "slow": lambda: clock.sleep(8.0),
        "slowest": lambda: clock.sleep(11.0),
    }
    timings = time_interleaved(calls, budget_seconds=12.0)
    assert {name: timing.repeats for name, timing in timings.items()} == {"fast": 8, "slow": 2, "slowest": 1}
    assert timings["slow"].median == 16.0 * timings["fast"].median


def test_budget_limits_repeats_but_never_below_the_least(clock: Clock) -> None:
    timings = time_interleaved({"call": lambda: clock.sleep(4.0)}, budget_seconds=5.0, min_repeats=3)
    assert timings["call"].repeats == 3


def test_real_time_passes() -> None:
    assert time_interleaved({"call": lambda: sum(range(1000))}, budget_seconds=0.01)["call"].median > 0


def test_rounds_are_reported() -> None:
    seen: list[int] = []
    time_interleaved({"call": int}, min_repeats=2, max_repeats=2, on_round=seen.append)
    assert seen == [1, 2, 3]


def test_garbage_collector_is_restored_even_after_an_error() -> None:
    def fail() -> None:
        raise OSError("no")

    assert gc.isenabled()
    with pytest.raises(OSError, match="no"):
        time_interleaved({"call": fail})
    assert gc.isenabled()


def test_nothing_to_time() -> None:
    assert time_interleaved({}) == {}
