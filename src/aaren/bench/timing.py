"""Time several calls in one run, turn by turn, so that the noise of the machine falls on all of them alike.

Ratios between medians of one run are the numbers to quote; times of different runs are not comparable on a
shared machine.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MIN_REPEATS = 3
MAX_REPEATS = 200
ONCE_SECONDS = 10.0  # a call this slow is not repeated, if it exceeds its share of the budget
_clock = time.perf_counter


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Median and quartiles of repeated calls, in seconds."""

    median: float
    lower_quartile: float
    upper_quartile: float
    repeats: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        """Summarise samples; a single one is its own spread.

        >>> Timing.of([3.0, 1.0, 2.0])
        Timing(median=2.0, lower_quartile=1.5, upper_quartile=2.5, repeats=3)
        """
        if len(seconds) == 1:
            return cls(median=seconds[0], lower_quartile=seconds[0], upper_quartile=seconds[0], repeats=1)
        lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(median=median, lower_quartile=lower, upper_quartile=upper, repeats=len(seconds))

    def fields(self, prefix: str = "", *, parts: int = 1) -> dict[str, float]:
        """Return the fields of a measurement, of one of the equal parts that a call consists of.

        >>> Timing.of([2.0]).fields("token_", parts=4)["token_median_seconds"]
        0.5
        """
        return {
            f"{prefix}median_seconds": self.median / parts,
            f"{prefix}lower_quartile_seconds": self.lower_quartile / parts,
            f"{prefix}upper_quartile_seconds": self.upper_quartile / parts,
        }


def time_interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    budget_seconds: float = 10.0,
    min_repeats: int = MIN_REPEATS,
    max_repeats: int = MAX_REPEATS,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, Timing]:
    """Repeat every call, round after round, until each has used its equal share of the budget.

    Each is called once before, as a warm-up that does not count. A call whose warm-up alone exceeds its share
    is slow: its warm-up counts as the first sample and one more is taken, or none beyond ONCE_SECONDS. All
    others get at least min_repeats samples, so the budget is a guide and not a limit. The garbage collector
    is off meanwhile.

    Args:
        calls: what to time, by name; the order of a round.
        budget_seconds: for all calls together.
        min_repeats: samples of each call that is not slow.
        max_repeats: where to stop even if time is left.
        on_round: called with the number of the round that begins, for progress bars; not timed.
    """
    share = budget_seconds / max(1, len(calls))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    wanted = dict.fromkeys(calls, min_repeats)
    was_collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for name, call in calls.items():
            warm_up = _seconds(call)
            if warm_up > share:
                samples[name].append(warm_up)
                wanted[name] = 1 if warm_up > ONCE_SECONDS else min(2, min_repeats)
        waiting = list(calls)
        round_number = 0
        while waiting:
            round_number += 1
            if on_round is not None:
                on_round(round_number)
            waiting = [
                name
                for name in waiting
                if len(samples[name]) < wanted[name]
                or (sum(samples[name]) < share and len(samples[name]) < max_repeats)
            ]
            gc.collect(1)  # cycles that the calls left behind must not pile up
            for name in waiting:
                samples[name].append(_seconds(calls[name]))
    finally:
        if was_collecting:
            gc.enable()
    return {name: Timing.of(seconds) for name, seconds in samples.items()}


def _seconds(call: Callable[[], object]) -> float:
    start = _clock()
    call()
    return _clock() - start
