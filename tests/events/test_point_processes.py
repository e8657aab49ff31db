import math
from itertools import pairwise

import numpy as np
import pytest

from aaren.errors import ConfigError, DataError
from aaren.events.processes import Hawkes, LogNormalRenewal, PointProcess, Poisson, SinePoisson
from aaren.events.sequences import EventSequences, Times

PROCESSES = [
    Poisson(rate=0.7),
    SinePoisson(),
    Hawkes(base=0.2, jump=0.8, decay=1.0),
    LogNormalRenewal(location=-0.3),
]


def name_of(process: PointProcess) -> str:
    return type(process).__name__


def trapezoid(values: Times, points: Times) -> float:
    return float(((values[1:] + values[:-1]) / 2 * np.diff(points)).sum())


def rate(process: PointProcess, when: Times, before: Times) -> Times:
    """The intensity just after the events `before`, written straight from each definition."""
    if isinstance(process, Poisson):
        return np.full_like(when, process.rate)
    if isinstance(process, SinePoisson):
        return 1 + np.sin(when / 2)
    if isinstance(process, Hawkes):
        ages = when[:, None] - before[None, :]
        return process.base + process.jump * np.exp(-process.decay * ages).sum(axis=1)
    assert isinstance(process, LogNormalRenewal)
    gap = when - (before[-1] if len(before) else 0.0)
    density = np.exp(-0.5 * ((np.log(gap) - process.location) / process.scale) ** 2)
    density /= gap * process.scale * math.sqrt(2 * math.pi)
    tail = [0.5 * math.erfc((math.log(g) - process.location) / process.scale / math.sqrt(2)) for g in gap]
    return density / np.asarray(tail)


@pytest.mark.parametrize("process", PROCESSES, ids=name_of)
def test_the_likelihood_equals_log_rate_minus_the_integral_of_the_rate(process: PointProcess) -> None:
    times = [0.4, 1.0, 1.2, 3.7, 6.5]
    events = EventSequences.from_lists([times, [0.9, 5.0]], observed_from=0.0, observed_until=8.0)
    densities, survivals = process.log_density(events), process.log_survival(events)
    edges = np.array([0.0, *times, 8.0])
    for place, (begin, end) in enumerate(pairwise(edges)):
        before = np.asarray(times[:place])
        points = np.linspace(begin, end, 20_001)[1:]  # a renewal's rate at age 0 is a limit
        points = np.concatenate([[begin + 1e-12], points])
        want = -trapezoid(rate(process, points, before), points)
        if place < len(times):
            want += math.log(rate(process, np.array([end]), before)[0])
            assert densities[place] == pytest.approx(want, abs=1e-6)
        else:
            assert survivals[0] == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("process", PROCESSES, ids=name_of)
def test_drawn_events_are_exponential_in_their_own_clock(process: PointProcess) -> None:
    # Time change: minus the log-survival over a gap is Exp(1) if draw and likelihood belong together.
    drawn = process.draw(4_000, horizon=60.0, rng=np.random.default_rng(1))
    long = [times for times in drawn if len(times) > 5]
    assert len(long) > 3_960
    until_sixth = EventSequences(
        times=np.concatenate([times[:5] for times in long]),
        offsets=5 * np.arange(len(long) + 1),
        observed_from=np.zeros(len(long)),
        observed_until=np.array([times[5] for times in long]),
    )
    clock = -process.log_survival(until_sixth)
    assert clock.mean() == pytest.approx(1.0, abs=0.05)  # three standard errors
    assert np.mean(clock < math.log(2)) == pytest.approx(0.5, abs=0.024)


def test_mean_counts_are_those_of_theory() -> None:
    rng = np.random.default_rng(2)
    assert Poisson(rate=2.0).sample(2_000, horizon=50.0, rng=rng).num_events / 2_000 == pytest.approx(
        100, rel=0.01
    )
    sine = SinePoisson().sample(2_000, horizon=32 * math.pi, rng=rng).num_events / 2_000
    assert sine == pytest.approx(32 * math.pi, rel=0.01)
    # A Hawkes process that starts empty has m(t) = base/(1-n) (1 - n e^(-(decay-jump) t)), n = jump/decay.
    hawkes = Hawkes().sample(2_000, horizon=100.0, rng=rng).num_events / 2_000
    want = 100.0 - 0.8 * (1 - math.exp(-0.2 * 100)) / 0.2
    assert hawkes == pytest.approx(want, rel=0.02)


def test_the_true_nll_of_sin_is_ln_2_with_and_0_683_without_the_final_interval() -> None:
    events = SinePoisson().sample(10_000, horizon=32 * math.pi, rng=np.random.default_rng(0))
    with_end = SinePoisson().nll_per_event(events, final_interval=True)
    without = SinePoisson().nll_per_event(events)
    assert with_end == pytest.approx(math.log(2), abs=0.003)
    assert without == pytest.approx(0.683, abs=0.003)


def test_poisson_and_renewal_have_the_closed_forms() -> None:
    events = EventSequences.from_lists([[1.0, 3.0]], observed_from=0.0, observed_until=4.0)
    np.testing.assert_allclose(Poisson(rate=2.0).log_density(events), np.log(2) - 2 * np.array([1.0, 2.0]))
    np.testing.assert_allclose(Poisson(rate=2.0).log_survival(events), [-2.0])
    np.testing.assert_allclose(LogNormalRenewal().log_density(events)[0], -0.5 * math.log(2 * math.pi))
    np.testing.assert_allclose(LogNormalRenewal().log_survival(events), [math.log(0.5)])


def test_a_final_gap_of_0_is_survived_for_sure() -> None:
    events = EventSequences.from_lists([[1.0, 3.0]], observed_from=0.0, observed_until=3.0)
    for process in PROCESSES:
        assert process.log_survival(events).tolist() == [0.0]


def test_impossible_processes_and_windows_are_told() -> None:
    with pytest.raises(ConfigError, match="Poisson: rate must be positive and finite; got 0"):
        Poisson(rate=0.0)
    with pytest.raises(ConfigError, match="jump must be below decay, or the events explode"):
        Hawkes(jump=1.0, decay=1.0)
    with pytest.raises(ConfigError, match=r"almost no sequence has 2 events\. Lengthen the horizon"):
        Poisson(rate=1e-9).sample(3, horizon=1.0, rng=np.random.default_rng(0))
    with pytest.raises(ConfigError, match="count >= 1 and a positive horizon"):
        Poisson().sample(0, horizon=1.0, rng=np.random.default_rng(0))
    unknown = EventSequences.from_lists([[1.0, 3.0]])
    with pytest.raises(DataError, match="needs the start of observation"):
        Poisson().log_density(unknown)
    with pytest.raises(DataError, match="needs the end of observation"):
        Poisson().log_survival(unknown)
