"""AarenEventForecaster with its defaults beside the Markov baseline and, where it is known, the truth.

    python benchmarks/event_forecaster.py --record results/bench/event-forecaster.json     # half an hour

Log-likelihood per event of sequences that neither saw, given each first event. Generated processes: 300
sequences to fit, 200 to judge. Real sets: fitted on the train and validation parts of the setting, judged
on its test part; the baseline is fitted on both parts whole, the estimator holds a fifth back to stop by. A
row that is in the record already is not run again.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package

from aaren.events import AarenEventForecaster
from aaren.events.data import load, split, true_process
from aaren.events.fitting import compare, fit_markov
from aaren.events.likelihood import explain
from aaren.events.sequences import EventSequences, Times
from harness import Benchmark, Measured, OnStep, main, resumed, table
from records import BenchRecord, Row, number

FITTED, JUDGED = 300, 200
MOST_SEQUENCES = 1_500  # of a real set, to fit
PERIODS = {"sin": [4.0 * math.pi], "taxi-tritpp": [24.0]}  # of clocks that numbers, unlike dates, do not tell
DATED = {"uber-sample": ("2015-01-01", 3600.0), "stackoverflow-partial": ("1970-01-01", 1.0)}
UNSEEN = ("web-sessions",)  # made after the defaults were fixed, by another mechanism
GENERATED = ("hawkes", "sin", "renewal", "semi-markov", "second-order", "marked-hawkes")
REAL = ("mimic", "taxi-tritpp", "uber-sample", "mooc-partial", "stackoverflow-partial")

Drawn = tuple[Times, list[int], float]  # times, kinds, true log-likelihood given the first event


def semi_markov(rng: np.random.Generator, num_kinds: int = 5, count: int = 60) -> Drawn:
    """Draw from the baseline's own family: gap and next kind depend on the latest kind alone."""
    design = np.random.default_rng(42)
    chain = design.dirichlet(np.full(num_kinds, 0.5), size=num_kinds)
    means, deviations = design.normal(0.0, 1.0, num_kinds), design.uniform(0.4, 1.2, num_kinds)
    times, kinds, total = [0.0], [int(rng.integers(num_kinds))], 0.0
    for _ in range(count - 1):
        last = kinds[-1]
        gap, kind = rng.lognormal(means[last], deviations[last]), int(rng.choice(num_kinds, p=chain[last]))
        total += _log_normal(gap, means[last], deviations[last]) + math.log(chain[last, kind])
        times.append(times[-1] + gap)
        kinds.append(kind)
    return np.array(times), kinds, total


def second_order(rng: np.random.Generator, num_kinds: int = 4, count: int = 60) -> Drawn:
    """Draw gaps and kinds that depend on the two latest kinds; the one before the first is not told."""
    design = np.random.default_rng(43)
    chain = design.dirichlet(np.full(num_kinds, 0.4), size=(num_kinds, num_kinds))
    means = design.normal(0.0, 1.0, (num_kinds, num_kinds))
    before, last, total = int(rng.integers(num_kinds)), int(rng.integers(num_kinds)), 0.0
    times, kinds = [0.0], [last]
    for _ in range(count - 1):
        gap, kind = rng.lognormal(means[before, last], 0.5), int(rng.choice(num_kinds, p=chain[before, last]))
        total += _log_normal(gap, means[before, last], 0.5) + math.log(chain[before, last, kind])
        times.append(times[-1] + gap)
        kinds.append(kind)
        before, last = last, kind
    return np.array(times), kinds, total


def marked_hawkes(rng: np.random.Generator, horizon: float = 60.0) -> Drawn:
    """Draw two kinds of events that excite each other, by thinning; excitement fades at the rate 1."""
    base, jumps = (
        np.array([0.2, 0.05]),
        np.array([[0.2, 0.6], [0.1, 0.1]]),
    )  # of the column's kind on the row's
    now, excited = 0.0, np.zeros(2)
    times: list[float] = []
    kinds: list[int] = []
    total = 0.0
    compensator = 0.0
    while True:
        bound = base.sum() + excited.sum()
        wait = rng.exponential(1.0 / bound)
        compensator += base.sum() * wait + excited.sum() * -math.expm1(-wait)
        now, excited = now + wait, excited * math.exp(-wait)
        if now > horizon:
            break
        rates = base + excited
        if rng.random() * bound >= rates.sum():
            continue
        kind = int(rng.choice(2, p=rates / rates.sum()))
        if times:
            total += math.log(rates[kind]) - compensator
        times.append(now)
        kinds.append(kind)
        excited, compensator = excited + jumps[:, kind], 0.0
    return (np.array(times), kinds, total) if len(times) > 1 else marked_hawkes(rng, horizon)


def web_sessions(visitors: int, seed: int) -> pd.DataFrame:
    """Draw the visits of two weeks: habits, sittings at the visitor's hour, pages by intent, whole seconds.

    Nothing here is a point process with a density: a visitor has an intent (reads, shops or searches), comes
    on some days near an hour of his own, and in a sitting walks a site map with a patience that runs out.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for visitor in range(visitors):
        intent = rng.choice(["read", "shop", "search"], p=[0.5, 0.3, 0.2])
        hour, keen, pace = rng.normal(20.0, 3.0) % 24.0, rng.uniform(0.2, 0.7), rng.lognormal(3.2, 0.4)
        for day in range(14):
            if rng.random() > keen + 0.2 * (day % 7 >= 5):
                continue
            now = 86400.0 * day + 3600.0 * max(0.0, hour + rng.normal(0.0, 0.7))
            page, left, basket = "home", rng.poisson(6) + 2, 0
            while left > 0 and page != "pay":
                rows.append((visitor, now, page))
                now += pace * rng.gamma(3.0, {"article": 1.5, "home": 0.2}.get(page, 0.5))
                left -= 1
                if intent == "read":
                    page = "article" if page != "article" or rng.random() < 0.6 else "home"
                elif intent == "search":
                    page = (
                        "result" if page == "search" else str(rng.choice(["search", "article"], p=[0.8, 0.2]))
                    )
                elif basket >= 2:
                    page = "cart" if page == "product" else "pay"
                else:
                    page, basket = ("product", basket + 1) if page in ("list", "cart") else ("list", basket)
            if page == "pay":
                rows.append((visitor, now, page))
    frame = pd.DataFrame(rows, columns=["visitor", "time", "page"])
    frame["time"] = pd.Timestamp("2026-05-04") + pd.to_timedelta(frame["time"].round(), unit="s")
    return frame


DRAWS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "semi-markov": semi_markov,
    "second-order": second_order,
    "marked-hawkes": marked_hawkes,
}


def _log_normal(gap: float, mean: float, deviation: float) -> float:
    standard = (math.log(gap) - mean) / deviation
    return -0.5 * standard**2 - math.log(gap * deviation * math.sqrt(2.0 * math.pi))


def open_set(name: str) -> tuple[pd.DataFrame, pd.DataFrame, float | None]:
    """Return events to fit and to judge, and the true log-likelihood per judged event."""
    if name == "web-sessions":
        return web_sessions(FITTED, 0), web_sessions(JUDGED, 1), None
    if name in DRAWS:
        drawn = [
            [DRAWS[name](np.random.default_rng([seed, number])) for number in range(count)]
            for seed, count in ((0, FITTED), (1, JUDGED))
        ]
        truth = sum(total for *_, total in drawn[1]) / sum(len(times) - 1 for times, *_ in drawn[1])
        fitted, judged = (_frame([(times, kinds) for times, kinds, _ in part]) for part in drawn)
        return fitted, judged, truth
    if name in GENERATED:
        process, horizon = true_process(name), 32.0 * math.pi if name == "sin" else 100.0
        parts = [
            process.sample(count, horizon=horizon, rng=np.random.default_rng(seed))
            for seed, count in ((0, FITTED), (1, JUDGED))
        ]
        truth = float(process.log_density(parts[1])[~parts[1].is_first].mean())
        return events_frame(parts[0], name), events_frame(parts[1], name), truth
    cut = split(load(name))
    fitted = pd.concat(
        [events_frame(cut.train, name), events_frame(cut.validation, name, first=len(cut.train))]
    )
    return fitted[fitted["sequence"] < MOST_SEQUENCES], events_frame(cut.test, name), None


def events_frame(events: EventSequences, name: str, *, first: int = 0) -> pd.DataFrame:
    """Return a frame as a user would have it."""
    frame = pd.DataFrame(
        {"sequence": first + np.repeat(np.arange(len(events)), events.lengths), "time": events.times}
    )
    if name in DATED:
        origin, unit = DATED[name]
        frame["time"] = pd.Timestamp(origin) + pd.to_timedelta(frame["time"] * unit, unit="s")
    if events.marks is not None and events.num_marks > 1:
        frame["kind"] = events.marks
    return frame


def _frame(sequences: list[tuple[Times, list[int]]]) -> pd.DataFrame:
    return pd.concat(
        pd.DataFrame({"sequence": number, "time": times, "kind": kinds})
        for number, (times, kinds) in enumerate(sequences)
    )


def measure_one(name: str) -> Row:
    """Fit one set and judge."""
    fitted, judged, truth = open_set(name)
    if "kind" in judged:  # kinds that were never fitted cannot be explained by anyone
        is_known = judged["kind"].isin(set(fitted["kind"])).groupby(judged["sequence"]).transform("all")
        judged = judged[is_known]
    begin = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = AarenEventForecaster(
            sequence="visitor" if name in UNSEEN else "sequence",
            kind="page" if name in UNSEEN else None,
            periods=PERIODS.get(name, "auto"),
        ).fit(fitted)
    seconds = time.process_time() - begin
    train, test = model._read(fitted).events, model._read(judged).events
    ours, theirs = explain(model.model_, test), explain(fit_markov(train), test)
    scored = ~test.is_first
    terms = [np.stack([some.time, some.mark, some.is_right])[:, scored] for some in (ours, theirs)]
    gain, error = compare(*terms)
    return {
        "set": name,
        "kinds": test.num_marks,
        "resolution": test.resolution,
        "events_fitted": train.num_events,
        "events_judged": int(scored.sum()),
        "updates": model.num_updates_,
        "still_improving": any("still improving" in str(one.message) for one in said),
        "cpu_seconds": round(seconds, 1),
        "nll": -float(terms[0][:2].sum(0).mean()),
        "nll_markov": -float(terms[1][:2].sum(0).mean()),
        "gain": gain,
        "gain_error": error,
        "accuracy": float(terms[0][2].mean()),
        "accuracy_markov": float(terms[1][2].mean()),
        "nll_true": None if truth is None else -truth,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class EventSettings:
    """What to measure."""

    sets: tuple[str, ...] = (*GENERATED, *REAL, *UNSEEN)
    record: Path | None = None  # written after every set; what it holds is not measured again


def measure(settings: EventSettings, on_step: OnStep) -> Measured:
    """Measure the sets that the record lacks."""
    record = resumed(BENCHMARK, settings.record)
    for done, name in enumerate(settings.sets):
        on_step(done, len(settings.sets), name)
        if record.find(set=name) is None:
            record.measurements.append(measure_one(name))
            if settings.record is not None:
                record.write(settings.record)
    return record.settings, record.measurements


def tables(record: BenchRecord) -> list[str]:
    """Return losses beside the baseline's and the truth."""
    rows = []
    for row in record.measurements:
        ours, chain, truth, gain, error = (
            number(row, name) if row[name] is not None else math.nan
            for name in ("nll", "nll_markov", "nll_true", "gain", "gain_error")
        )
        right = [100 * number(row, name) for name in ("accuracy", "accuracy_markov")]
        above = ["" if math.isnan(truth) else f"{loss - truth:.3f}" for loss in (ours, chain)]
        hits = f"{right[0]:.1f} / {right[1]:.1f}" if number(row, "kinds") > 1 else ""
        gains = f"{gain:+.3f} \N{PLUS-MINUS SIGN} {error:.3f}"
        cells = [str(row["set"]), f"{row['events_fitted']:,}", f"{ours:.3f}", f"{chain:.3f}", gains]
        rows.append([*cells, *above, hits, f"{number(row, 'cpu_seconds'):.0f} s"])
    columns = ["", "events fitted", "estimator", "Markov", "gain", "above truth", "Markov above truth"]
    title = "Nats per event, lower is better"
    return [table(title, [*columns, "kinds right, %, both", "fit, CPU"], rows)]


BENCHMARK = Benchmark(
    kind="event-forecaster",
    command="python benchmarks/event_forecaster.py",
    sources=("aaren/events", "aaren/nn"),
    settings=EventSettings(),
    quick=EventSettings(sets=("semi-markov",)),
    measure=measure,
    tables=tables,
    is_timed=False,
)

if __name__ == "__main__":
    main(BENCHMARK)
