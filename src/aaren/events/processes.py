"""Point processes to draw from, whose true likelihood is known, so that a model can be compared with it.

Every process gives for each event the log-density of its gap given all before, and for each sequence the
log-probability that nothing more came until the end of observation. Observation starts at 0.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from aaren.datasets.numbers import offsets_from_lengths
from aaren.errors import ConfigError, DataError
from aaren.events.sequences import EventSequences, Times


class PointProcess(ABC):
    """A process on [0, horizon] that can be drawn from and scored; times are in abstract units."""

    @abstractmethod
    def draw(self, count: int, *, horizon: float, rng: np.random.Generator) -> list[Times]:
        """Draw `count` independent sequences; some may be empty."""

    @abstractmethod
    def log_density(self, events: EventSequences) -> Times:
        """Give log f(gap | all before) of every event, (events,)."""

    @abstractmethod
    def log_survival(self, events: EventSequences) -> Times:
        """Give log P(nothing after the last event until the end) of every sequence, (sequences,)."""

    def sample(
        self,
        count: int,
        *,
        horizon: float,
        rng: np.random.Generator,
        min_events: int = 2,
        name: str = "",
    ) -> EventSequences:
        """Draw sequences observed over [0, horizon], each with at least `min_events` events.

        Shorter ones are drawn again, which changes the process where they are likely; a horizon of many mean
        gaps keeps that negligible.
        """
        if count < 1 or not (math.isfinite(horizon) and horizon > 0):
            raise ConfigError(f"sample needs count >= 1 and a positive horizon; got {count} and {horizon}.")
        kept: list[Times] = []
        for _ in range(100):
            kept += [
                times
                for times in self.draw(count - len(kept), horizon=horizon, rng=rng)
                if len(times) >= min_events
            ]
            if len(kept) == count:
                return EventSequences.from_lists(
                    kept, observed_from=0.0, observed_until=horizon, name=name or type(self).__name__
                )
        raise ConfigError(
            f"{self}: on [0, {horizon:g}] almost no sequence has {min_events} events. Lengthen the horizon."
        )

    def nll_per_event(self, events: EventSequences, *, final_interval: bool = False) -> float:
        """Give the true negative log-likelihood per event: what a perfect model would reach on these events.

        With `final_interval` the quiet time after each last event counts too: the likelihood of the window.
        """
        total = self.log_density(events).sum()
        if final_interval:
            total += self.log_survival(events).sum()
        return float(-total / events.num_events)


@dataclass(frozen=True, kw_only=True, slots=True)
class Poisson(PointProcess):
    """Events at a constant rate, without memory.

    >>> process = Poisson(rate=2.0)
    >>> events = process.sample(1000, horizon=100.0, rng=np.random.default_rng(0))
    >>> round(process.nll_per_event(events), 3), round(1 - math.log(2.0), 3)
    (0.302, 0.307)
    """

    rate: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(self, rate=self.rate)

    def draw(self, count: int, *, horizon: float, rng: np.random.Generator) -> list[Times]:
        """Draw a Poisson number of events and place them uniformly."""
        return _uniform_arrivals(count, self.rate, horizon, rng)

    def log_density(self, events: EventSequences) -> Times:
        """Log rate - rate · gap."""
        return math.log(self.rate) - self.rate * _gaps(events)

    def log_survival(self, events: EventSequences) -> Times:
        """- rate · final gap."""
        return -self.rate * _final_gaps(events)


@dataclass(frozen=True, kw_only=True, slots=True)
class SinePoisson(PointProcess):
    """Events at the rate 1 + sin(t / 2): period 4π, never above 2."""

    def draw(self, count: int, *, horizon: float, rng: np.random.Generator) -> list[Times]:
        """Thin events of rate 2: keep each with probability (1 + sin(t / 2)) / 2."""
        candidates = _uniform_arrivals(count, 2.0, horizon, rng)
        return [times[rng.random(len(times)) * 2.0 < 1.0 + np.sin(times / 2.0)] for times in candidates]

    def log_density(self, events: EventSequences) -> Times:
        """Log rate at the event minus the integral of the rate over its gap."""
        before = events.times - _gaps(events)
        log_rate: Times = np.log1p(np.sin(events.times / 2.0))
        return log_rate - self._integral(before, events.times)

    def log_survival(self, events: EventSequences) -> Times:
        """Minus the integral of the rate over the final interval."""
        last = events.times[events.offsets[1:] - 1]
        return -self._integral(last, last + _final_gaps(events))

    @staticmethod
    def _integral(begin: Times, end: Times) -> Times:
        wave: Times = np.cos(end / 2.0) - np.cos(begin / 2.0)
        return end - begin - 2.0 * wave


@dataclass(frozen=True, kw_only=True, slots=True)
class Hawkes(PointProcess):
    """Events that excite more events: rate base + jump · Σ exp(-decay · age) over all events so far.

    Stationary while jump < decay; the mean rate is then base / (1 - jump / decay).
    """

    base: float = 0.2
    jump: float = 0.8
    decay: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(self, base=self.base, jump=self.jump, decay=self.decay)
        if self.jump >= self.decay:
            raise ConfigError(f"{self}: jump must be below decay, or the events explode.")

    def draw(self, count: int, *, horizon: float, rng: np.random.Generator) -> list[Times]:
        """Draw gaps exactly (Dassios and Zhao, 2013): base and excitement compete for the next event.

        The excitement's own next event may never come: the integral of its rate is finite. One pass draws
        the next event of all sequences that are still running.
        """
        times, excitement = np.zeros(count), np.zeros(count)
        running = np.arange(count)
        drawn: list[list[float]] = [[] for _ in range(count)]
        while len(running):
            excess = excitement[running]
            spent = rng.exponential(size=len(running)) * self.decay
            with np.errstate(divide="ignore"):  # no excitement: its event comes at infinity
                left = 1.0 - np.divide(spent, excess, out=np.full(len(excess), np.inf), where=excess > 0)
            from_excitement = np.full(len(running), np.inf)
            from_excitement[left > 0] = -np.log(left[left > 0]) / self.decay
            gap = np.minimum(from_excitement, rng.exponential(1.0 / self.base, size=len(running)))
            times[running] += gap
            excitement[running] = excess * np.exp(-self.decay * gap) + self.jump
            running = running[times[running] < horizon]
            for sequence in running:
                drawn[sequence].append(times[sequence])
        return [np.asarray(item) for item in drawn]

    def log_density(self, events: EventSequences) -> Times:
        """Log rate just before the event minus the integral of the rate over its gap."""
        gaps = _gaps(events)
        excitement = self._excitement(events)  # just after the event before
        log_rate: Times = np.log(self.base + excitement * np.exp(-self.decay * gaps))
        return log_rate - self._integral(excitement, gaps)

    def log_survival(self, events: EventSequences) -> Times:
        """Minus the integral of the rate over the final interval."""
        last = events.offsets[1:] - 1
        before = self._excitement(events)[last] * np.exp(-self.decay * _gaps(events)[last])
        return -self._integral(before + self.jump, _final_gaps(events))

    def _integral(self, excitement: Times, gaps: Times) -> Times:
        faded: Times = -np.expm1(-self.decay * gaps)
        return self.base * gaps + excitement / self.decay * faded

    def _excitement(self, events: EventSequences) -> Times:
        """Give the excited part of the rate just after the previous event, 0 at first events, (events,)."""
        fade = np.exp(-self.decay * _gaps(events))
        excitement = np.zeros(events.num_events)
        # Position by position over all sequences that are that long, longest first.
        starts = events.offsets[:-1][np.argsort(-events.lengths, kind="stable")]
        lengths = np.sort(events.lengths)[::-1]
        for place in range(1, int(lengths[0])):
            here = starts[: np.searchsorted(-lengths, -place)] + place
            excitement[here] = excitement[here - 1] * fade[here - 1] + self.jump
        return excitement


@dataclass(frozen=True, kw_only=True, slots=True)
class LogNormalRenewal(PointProcess):
    """Independent log-normal gaps; the first is counted from the start of observation like any other."""

    location: float = 0.0  # mean of log gap
    scale: float = 1.0  # standard deviation of log gap

    def __post_init__(self) -> None:
        _require_positive(self, scale=self.scale)

    def draw(self, count: int, *, horizon: float, rng: np.random.Generator) -> list[Times]:
        """Draw gaps for all sequences at once until every one has passed the horizon."""
        mean_gap = math.exp(self.location + self.scale**2 / 2.0)
        columns = int(horizon / mean_gap * 1.2) + 10
        times = np.cumsum(rng.lognormal(self.location, self.scale, (count, columns)), axis=1)
        while (times[:, -1] < horizon).any():
            more = np.cumsum(rng.lognormal(self.location, self.scale, (count, columns)), axis=1)
            times = np.concatenate([times, times[:, -1:] + more], axis=1)
        return [row[row < horizon] for row in times]

    def log_density(self, events: EventSequences) -> Times:
        """Log of the log-normal density of the gap."""
        log_gaps: Times = np.log(_gaps(events))
        standard = (log_gaps - self.location) / self.scale
        return -0.5 * standard**2 - log_gaps - math.log(self.scale * math.sqrt(2.0 * math.pi))

    def log_survival(self, events: EventSequences) -> Times:
        """Log of the log-normal upper tail at the final gap."""
        with np.errstate(divide="ignore"):  # a final gap of 0 is survived with probability 1
            standard = (np.log(_final_gaps(events)) - self.location) / self.scale
        return _log_normal_tail(standard)


def _uniform_arrivals(count: int, rate: float, horizon: float, rng: np.random.Generator) -> list[Times]:
    lengths = rng.poisson(rate * horizon, size=count)
    offsets = offsets_from_lengths(lengths)
    times = rng.uniform(0.0, horizon, size=int(offsets[-1]))
    times = times[np.lexsort((times, np.repeat(np.arange(count), lengths)))]
    return np.split(times, offsets[1:-1])


def _gaps(events: EventSequences) -> Times:
    if events.observed_from is None:
        raise DataError(f"{events.name}: the true likelihood needs the start of observation (observed_from).")
    return events.gaps


def _final_gaps(events: EventSequences) -> Times:
    if events.final_gaps is None:
        raise DataError(f"{events.name}: the survival needs the end of observation (observed_until).")
    return events.final_gaps


def _log_normal_tail(standard: Times) -> Times:
    """Give log P(Z > z) of a standard normal, accurate in both tails."""
    import torch

    return np.asarray(torch.special.log_ndtr(torch.from_numpy(-standard)).numpy(), dtype=np.float64)


def _require_positive(process: PointProcess, **values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{type(process).__name__}: {name} must be positive and finite; got {value}.")
