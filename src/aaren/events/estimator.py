"""AarenEventForecaster: fit a frame of events, predict time and kind of the next ones, find odd ones.

The model is an `EventModel` that corrects a Markov chain with log-normal gaps: logarithms of gaps and a short
convolution go into Aaren layers with decay in time. Each sequence has a state of its own.
"""

import math
import sys
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from aaren.engine.config import EngineConfig
from aaren.engine.estimator import (
    Estimator,
    Learned,
    RandomState,
    draw_seed,
    require_levels,
    require_whole,
)
from aaren.engine.loop import fit as fit_experiment
from aaren.errors import ConfigError, DataError, require_extra
from aaren.events.distribution import NextEvent
from aaren.events.fitting import (
    EventFit,
    Judged,
    compare,
    divide,
    fit_markov,
    is_still_improving,
    shrink_correction,
    terms,
)
from aaren.events.fitting import summarise as summarise_terms
from aaren.events.forecaster import EventState, Futures
from aaren.events.frames import (
    PURPOSE,
    Clock,
    Columns,
    Frame,
    Read,
    as_frame,
    guess_columns,
    read_events,
)
from aaren.events.likelihood import explain
from aaren.events.live import EventSession
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.sequences import EventSequences, Times
from aaren.export.whole import WholeStep
from aaren.files.stdio import write_line
from aaren.nn.blocks import state_from_bytes, state_to_bytes
from aaren.nn.conv import Conv

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

OURS, BASELINE = "AarenEventForecaster", "markov"
DAY, WEEK = 86_400.0, 604_800.0  # seconds: the periods of dates
FEWEST_TURNS = 2.0  # of a period within the data, or it cannot be told from chance
MOST_MARKS = 2_000  # of which the chain has rows
LEAST = {  # whole numbers among the settings, and how small they may be
    **dict.fromkeys(("width", "num_heads", "num_layers", "batch_size", "updates", "patience"), 1),
    "threads": 0,
}


class AarenEventForecaster(Estimator):
    """Forecast events at irregular times: when the next one comes and of which kind, as distributions.

    `fit` takes a frame with one row per event. Times are dates or numbers in any unit; dates come back as
    dates, kinds by their names. Where the clock is rounded (seconds, days) events may come at equal times.

    Args:
        sequence: the column that names the sequence (user, machine, session) of each event; None: guessed by
            the usual names, and if there is none, all events are one sequence.
        time: the column of times; None: guessed.
        kind: the column of kinds; None: guessed, and if there is none, there is only one kind.
        periods: of the clock that events may follow, in the unit of numeric times, in seconds or as "12h" for
            dates; "auto": a day and a week for dates, none for numbers; (): none.
        width: of the model.
        num_heads: must divide width; each head learns how fast it forgets.
        num_layers: of the encoder.
        mixer: "aaren" or, to compare, "softmax" (the Transformer, whose memory grows).
        dropout: while training.
        batch_size: sequences, or windows of 256 events of longer ones, per update.
        learning_rate: the highest.
        updates: of the weights, at most; training ends before when held-out events stop improving.
        patience: evaluations without improvement before it ends.
        validation_fraction: of the events, held out: half for early stopping, half for the table.
        threads: of torch while training; 0: as it is.
        random_state: of weights, order and what is held out: an int makes fits repeatable, None does not.
        verbose: show progress, and the table beside the baseline after a fit.

    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> days = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.cumsum(rng.exponential(1.0, 200)), unit="D")
    >>> frame = pd.DataFrame({"time": days, "kind": rng.choice(["visit", "order"], 200)})
    >>> model = AarenEventForecaster(width=16, patience=1).fit(frame)
    >>> list(model.predict(levels=[80]).columns)
    ['last', 'time', 'time-lo-80', 'time-hi-80', 'kind', 'probability']
    >>> session = model.stream()
    >>> coming = session.push("2026-09-01 12:00", "visit")
    >>> bool(coming.time > pd.Timestamp("2026-09-01 12:00")), sorted(coming.probabilities)
    (True, ['order', 'visit'])
    """

    def __init__(
        self,
        *,
        sequence: Hashable | None = None,
        time: Hashable | None = None,
        kind: Hashable | None = None,
        periods: "str | Sequence[float | str]" = "auto",
        width: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        mixer: str = "aaren",
        dropout: float = 0.1,
        batch_size: int = 16,
        learning_rate: float = 1e-3,
        updates: int = 5000,
        patience: int = 8,
        validation_fraction: float = 0.2,
        threads: int = 1,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self.sequence = sequence
        self.time = time
        self.kind = kind
        self.periods = periods
        self.width = width
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.mixer = mixer
        self.dropout = dropout
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.updates = updates
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.threads = threads
        self.random_state = random_state
        self.verbose = verbose
        self._settings()  # with all checks, here rather than at fit

    def fit(self, events: Frame, *, until: object = None) -> "AarenEventForecaster":
        """Fit to events, compare with the baseline on some that are held out, and remember all sequences.

        Args:
            events: a frame with one row per event, in any order; or a dictionary or list of sequences, each
                an array of times or a pair (times, kinds).
            until: when observation of every sequence ended, if that is known: the quiet time after a last
                event then counts too. None: sequences end with their last events.
        """
        settings, seed = self._settings(), draw_seed(self.random_state)
        frame = as_frame(events)
        columns, guessed = guess_columns(frame, sequence=self.sequence, time=self.time, kind=self.kind)
        observer = self._observer()
        if guessed:
            write_line(f"{OURS}: {guessed}", sys.stderr)
        given = read_events(frame, columns)
        found = given.events
        if until is not None:
            found = _observed_until(found, given.clock.read_one(until))
        parts = divide(found, fraction=settings["validation_fraction"], seed=seed)
        config = self._config(parts.train, given.clock)
        experiment = EventFit(
            parts,
            config,
            **{name: settings[name] for name in ("batch_size", "learning_rate", "updates", "patience")},
            seed=seed,
        )
        fitted = fit_experiment(
            experiment,
            seed=seed,
            engine=EngineConfig(threads=settings["threads"]),
            observer=observer,
            name=OURS,
        )
        status = fitted.status
        if status.ended_by == "max_updates" and is_still_improving(
            [evaluation["validation"]["nll"] for evaluation in status.curve]
        ):
            warnings.warn(
                f"after {status.update} updates the held-out likelihood was still improving: give more with "
                f"updates={2 * settings['updates']}.",
                stacklevel=2,
            )
        self.model_ = cast("EventModel", fitted.model)
        gaps, kinds = shrink_correction(self.model_, parts.stop)
        if min(gaps, kinds) < 1.0:
            observer.say(
                f"of what the network adds to the baseline, {100 * gaps:.0f} % is kept for gaps, "
                f"{100 * kinds:.0f} % for kinds"
            )
        ours, theirs = (terms(some, parts.judge) for some in (self.model_, fit_markov(parts.train)))
        self.held_out_ = {OURS: summarise_terms(ours), BASELINE: summarise_terms(theirs)}
        self.gain_ = compare(ours, theirs)
        self.num_updates_ = status.curve[status.best_index or 0]["update"]
        self.columns_, self.clock_, self.kinds_ = columns, given.clock, given.kinds
        self.sequences_ = given.names
        self.state_ = explain(self.model_, given.events).state
        if self.verbose:
            observer.say(self.table())
        return self

    def table(self) -> str:
        """Return the comparison with the baseline on held-out events, in nats per event; lower is better."""
        self._require_fitted()
        width = max(map(len, self.held_out_))
        has_kinds = len(self.kinds_) > 1
        lines = [f"{'nats per held-out event':<{width + 6}} total    time" + "    kind   right" * has_kinds]
        for name, found in self.held_out_.items():
            kinds = f"  {found.kind:6.3f}  {100 * found.accuracy:4.1f} %" if has_kinds else ""
            lines.append(f"{name:<{width + 6}}{found.total:6.3f}  {found.time:6.3f}{kinds}")
        gain, error = self.gain_
        lines.append(f"{OURS} is better by {gain:.3f} ± {error:.3f} nats per event")
        if gain < 0.0:
            lines[-1] = f"{BASELINE} is better by {-gain:.3f} ± {error:.3f} nats per event: use the baseline."
        elif gain < error:
            lines[-1] += ", which may be chance: the baseline will do."
        return "\n".join(lines)

    def predict(
        self, events: "Frame | None" = None, *, levels: Sequence[float] = (80,), now: object = None
    ) -> "pandas.DataFrame":
        """Predict time and kind of every sequence's next event, one row each.

        The column of times is the median; `-lo-80` and `-hi-80` hold it with 80 % probability; the column of
        kinds is the most probable one.

        Args:
            events: whole sequences so far, as in `fit`; None: those that were fitted.
            levels: of intervals, in percent.
            now: a time until which nothing has come: the next event comes after it. None: nothing is known
                since each last event.
        """
        levels = require_levels(levels)
        names, state, coming = self._coming(events)
        last = state.time.numpy()
        quiet = self._quiet(last, now, names)
        columns = self.columns_
        found: dict[Hashable, Any] = {} if columns.sequence is None else {columns.sequence: list(names)}
        found["last"] = self.clock_.write(last)
        sides = [("", 0.5)]
        for level in levels:
            sides += [(f"-lo-{level:g}", 0.5 - level / 200.0), (f"-hi-{level:g}", 0.5 + level / 200.0)]
        for suffix, probability in sides:
            name = columns.time if not suffix else f"{columns.time}{suffix}"
            found[name] = self.clock_.write(last + later_quantile(coming, probability, quiet).numpy())
        if self.kinds_:
            chosen = coming.mark_probabilities.max(-1)
            found[columns.kind] = [self.kinds_[place] for place in chosen.indices.tolist()]
            found["probability"] = chosen.values.numpy()
        pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
        return pandas.DataFrame(found)

    def predict_proba(self, events: "Frame | None" = None) -> "pandas.DataFrame":
        """Return the probability of every kind for the next event, a row per sequence, a column per kind."""
        names, _, coming = self._coming(events)
        pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
        index = pandas.Index(list(names), name=_named(self.columns_.sequence), tupleize_cols=False)
        kinds = pandas.Index(list(self.kinds_) or ["event"], name=self.columns_.kind, tupleize_cols=False)
        return pandas.DataFrame(coming.mark_probabilities.numpy(), index=index, columns=kinds)

    def simulate(
        self,
        n: int | None = None,
        *,
        horizon: object = None,
        events: "Frame | None" = None,
        num_paths: int = 1,
        most: int = 1000,
        seed: int | None = None,
    ) -> "pandas.DataFrame":
        """Draw futures of every sequence: a row per event, with its sequence, path, time and kind.

        Args:
            n: events of each future; or
            horizon: how far after its last event each goes: a number in the unit of times, seconds or "7D"
                for dates.
            events: sequences to continue, as in `predict`.
            num_paths: futures of each sequence.
            most: events of a future that does not reach its horizon; more are cut off, with a warning.
            seed: of the draws; default: the estimator's random_state.
        """
        if (n is None) == (horizon is None):
            raise ConfigError("give either n, how many events to draw, or horizon=, how far to go.")
        names, state, _ = self._coming(events)
        generator = torch.Generator().manual_seed(draw_seed(self.random_state) if seed is None else seed)
        futures: Futures = self.model_.simulate(
            state,
            num_branches=num_paths,
            horizon=None if horizon is None else self.clock_.duration(horizon),
            max_events=most if n is None else require_whole("n", n),
            generator=generator,
        )
        if bool(futures.is_cut.any()):
            warnings.warn(
                f"{int(futures.is_cut.sum())} futures had {most} events before their horizon and were cut "
                f"there: allow more with most=.",
                stacklevel=2,
            )
        place, path, number = futures.mask.nonzero(as_tuple=True)
        times = (state.time[place] + futures.times[place, path, number]).numpy()
        columns = self.columns_
        found: dict[Hashable, Any] = {_named(columns.sequence): [names[i] for i in place.tolist()]}
        if columns.sequence is None:
            found = {}
        found["path"] = path.numpy()
        found[columns.time] = self.clock_.write(times)
        if self.kinds_:
            kinds = futures.marks[place, path, number].tolist()
            found[columns.kind] = [self.kinds_[kind] for kind in kinds]
        pandas = require_extra("pandas", extra="data", purpose=PURPOSE)
        return pandas.DataFrame(found)

    def score_events(self, events: Frame) -> "pandas.DataFrame":
        """Return how surprising every event was, given all before it in its sequence.

        The frame comes back, in its own order, with three more columns: `surprise`, in nats, and its two
        parts, `surprise_time` and `surprise_kind`. It is the negative log-likelihood, the time counted in
        mean gaps of the training data. First events of sequences have none (NaN).
        """
        given = self._read(events)
        found = explain(self.model_, given.events)
        frame = given.frame.copy()
        # A density has a unit; counted in mean gaps it does not depend on that of the data.
        parts = {"time": -found.time - math.log(self.model_.config.time_scale), "kind": 0.0 - found.mark}
        for name, values in {"": parts["time"] + parts["kind"], **parts}.items():
            column = np.empty(len(frame))
            column[given.rows] = values
            frame[f"surprise_{name}" if name else "surprise"] = column
        return frame

    def score(self, events: Frame) -> float:
        """Return the mean log-likelihood per event (higher is better), times in the unit of the data."""
        found = explain(self.model_, self._read(events).events)
        total = found.time + found.mark
        if np.isnan(total).all():
            raise DataError("every sequence has one event only: there is nothing to explain.")
        return float(np.nanmean(total))

    def stream(self, sequence: Hashable | None = None, *, engine: str = "auto") -> EventSession:
        """Open a session for one sequence: push times and kinds as they come, read what comes next.

        Args:
            sequence: one that was fitted, to resume where it ended; None: a new one.
            engine: "native" (the C runtime), "torch", or "auto": native where it can be.
        """
        self._require_fitted()
        session = EventSession(self.model_, clock=self.clock_, kinds=self.kinds_, engine=engine)
        if sequence is not None:
            session.state = self.state_.select([self._place(sequence)])
        return session

    def whole_step(self) -> WholeStep:
        """Return what is exported: a new sequence, with times as `push` takes them.

        Dates become seconds since 1970-01-01 in UTC, or, of dates without a time zone, by their own clocks.
        """
        self._require_fitted()
        self.model_.preprocessing = self._learned()
        whole, clock = self.model_.whole_step(), self.clock_
        origin, inner = clock.origin / 1e9 if clock.is_date else float(clock.origin), whole.run

        def run(given: list[Tensor], state: EventState) -> tuple[list[Tensor], EventState]:
            outputs, new = inner([given[0] - origin, *given[1:]], state)
            return outputs, new

        whole.run = run
        if clock.is_date:
            whole.notes["time"] = (
                "when the event came, in seconds since 1970-01-01; later than the one before"
            )
        return whole

    def _learned(self) -> dict[str, list[str] | str]:
        return {"mark_names": [str(kind) for kind in self.kinds_], "unit": self.clock_.time_unit}

    def _state_dict(self) -> Learned:
        for what, values in (("sequences", self.sequences_), ("kinds", self.kinds_)):
            for value in values:
                if not isinstance(value, str | int | float):
                    raise DataError(
                        f"names of {what} that are saved must be text or numbers; got {value!r}. Fit again "
                        f"with astype(str)."
                    )
        clock, columns = self.clock_, self.columns_
        self.model_.preprocessing = self._learned()
        facts = {
            "columns": [columns.sequence, columns.time, columns.kind],
            "clock": [clock.is_date, clock.origin, clock.zone, clock.unit],
            "kinds": list(self.kinds_),
            "sequences": list(self.sequences_),
            "held_out": {
                name: [score.total, score.time, score.kind, score.accuracy]
                for name, score in self.held_out_.items()
            },
            "gain": list(self.gain_),
            "num_updates": self.num_updates_,
        }
        state = state_to_bytes(self.state_, fingerprint=self.model_.fingerprint())
        return Learned(
            model=self.model_, facts=cast("Any", facts), arrays={"state": np.frombuffer(state, np.uint8)}
        )

    def _restore(self, learned: Learned) -> None:
        facts = cast("dict[str, Any]", learned.facts)
        if not isinstance(learned.model, EventModel):
            raise DataError(f"expected an EventModel; got a {type(learned.model).__name__}.")
        model = self.model_ = learned.model
        sequence, time, kind = facts["columns"]
        self.columns_ = Columns(sequence=sequence, time=time, kind=kind)
        is_date, origin, zone, unit = facts["clock"]
        self.clock_ = Clock(is_date=is_date, origin=origin, zone=zone, unit=unit)
        self.kinds_, self.sequences_ = tuple(facts["kinds"]), tuple(facts["sequences"])
        self.held_out_ = {
            name: Judged(total=numbers[0], time=numbers[1], kind=numbers[2], accuracy=numbers[3])
            for name, numbers in facts["held_out"].items()
        }
        gain, error = facts["gain"]
        self.gain_, self.num_updates_ = (float(gain), float(error)), int(facts["num_updates"])
        self.state_ = state_from_bytes(
            learned.arrays["state"].tobytes(), like=model.init_state(1), fingerprint=model.fingerprint()
        )
        if len(self.sequences_) != len(self.state_.time):
            raise DataError(f"{len(self.sequences_)} sequences and {len(self.state_.time)} states.")

    def _config(self, train: EventSequences, clock: Clock) -> EventModelConfig:
        """Return the model's config; its unit of time is the mean gap of the training events."""
        return EventModelConfig(
            num_marks=train.num_marks,
            width=int(self.width),
            num_heads=int(self.num_heads),
            num_layers=int(self.num_layers),
            ff_width=2 * int(self.width),
            mixer=self.mixer,
            dropout=float(self.dropout),
            encoding="log-gaps",
            time_scale=max(train.mean_gap, train.resolution),
            time_decay="learned" if self.mixer == "aaren" else None,
            conv=Conv(),
            periods=self._periods(train, clock),
            resolution=train.resolution,
            base="markov" if train.num_marks <= MOST_MARKS else None,
        )

    def _periods(self, train: EventSequences, clock: Clock) -> tuple[float, ...]:
        if self.periods != "auto":
            return tuple(clock.duration(period) for period in self.periods)
        if not clock.is_date:
            return ()
        span = float(train.times.max() - train.times.min())
        # A gap of many periods ends at any of their times, one far below needs no calendar.
        return tuple(
            period for period in (DAY, WEEK) if span > FEWEST_TURNS * period and train.mean_gap < 5 * period
        )

    def _coming(self, events: "Frame | None") -> tuple[tuple[Hashable, ...], EventState, NextEvent]:
        """Return sequences, their states and what comes next in each."""
        self._require_fitted()
        names, state = self.sequences_, self.state_
        if events is not None:
            given = self._read(events)
            names, state = given.names, explain(self.model_, given.events).state
        with torch.no_grad():
            return names, state, self.model_.next_event(state)

    def _read(self, events: Frame) -> Read:
        self._require_fitted()
        return read_events(
            events,
            self.columns_,
            clock=self.clock_,
            kinds=self.kinds_ if self.columns_.kind is not None else None,
            resolution=self.model_.config.resolution,
        )

    def _quiet(self, last: Times, now: object, names: Sequence[Hashable]) -> Tensor | None:
        """Return how long nothing has come, (b,)."""
        if now is None:
            return None
        moment = self.clock_.read_one(now)
        for place in np.flatnonzero(last > moment)[:1]:
            raise DataError(
                f"now={now!r} is before the last event of sequence {names[place]!r}, "
                f"{self.clock_.write(last[place : place + 1]).iloc[0]}."
            )
        return torch.from_numpy(moment - last)

    def _place(self, sequence: Hashable) -> int:
        if sequence not in self.sequences_:
            raise DataError(
                f"no sequence {sequence!r} was fitted; known are {', '.join(map(repr, self.sequences_[:8]))}"
                f"{', ...' if len(self.sequences_) > 8 else ''}. For a new one: stream()."
            )
        return self.sequences_.index(sequence)

    def _settings(self) -> dict[str, Any]:
        """Return the numbers among the settings as plain ones, or report all that cannot be."""
        faults: list[str] = []
        settings = self._numbers(LEAST, {"learning_rate": math.inf, "validation_fraction": 1.0}, faults)
        self._check_random_state(faults)
        if isinstance(self.periods, str) and self.periods != "auto":
            faults.append(f"periods must be 'auto' or a list such as [24.0] or ['1D']; got {self.periods!r}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        EventModelConfig(
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            mixer=self.mixer,
            dropout=self.dropout,
        )
        return settings


def later_quantile(coming: NextEvent, probability: float, quiet: Tensor | None) -> Tensor:
    """Return the gap within which the next event comes, given that nothing has come for so long, (b,)."""
    if quiet is None:
        return coming.quantile(probability)
    left = coming.survival(quiet).clamp(min=1e-12)
    wanted = (1.0 - left * (1.0 - probability)).clamp(1e-15, 1.0 - 1e-15)
    return torch.maximum(coming.quantile(wanted), quiet)


def _observed_until(events: EventSequences, end: float) -> EventSequences:
    return replace(events, observed_until=np.full(len(events), end))


def _named(sequence: Hashable | None) -> Hashable:
    return "sequence" if sequence is None else sequence
