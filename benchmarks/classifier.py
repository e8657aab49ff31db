"""AarenClassifier beside MiniRocket, MultiRocket-Hydra, 1-NN DTW and logistic regression.

    python benchmarks/classifier.py --record results/bench/classifier.json     # hours; resumes

Ten sets: six of the UEA archive (AAREN_DATA) and four that come inside aeon; three more from there were kept
aside until the design was fixed. Every contender is fitted to TRAIN with its defaults and asked about TEST
once per seed; nothing is chosen on TEST. After 25, 50 and 75 % of a series a stream of ours has its answer;
the others are given the prefix, followed by the mean of TRAIN, and compute everything anew, which is also
what one new sample costs them. The record is written after every row, cheap rows first, and a run that was
stopped resumes from it. Times are CPU seconds of one thread, so a busy machine changes them little.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package
import torch
from numpy.typing import NDArray

from aaren.classification import AarenClassifier
from aaren.classification.batches import pad
from aaren.classification.data import complete, find_files, read_ts, steady_statistics
from aaren.classification.experiment import steps_of
from aaren.classification.frames import scale
from aaren.classification.session import decision_steps
from aaren.datasets.catalogue import lookup
from aaren.errors import AarenError, require_extra
from harness import Benchmark, Measured, OnStep, draw, main, resumed, table
from records import BenchRecord, Row

COMMAND = "python benchmarks/classifier.py"
QUARTERS = (0.25, 0.5, 0.75, 1.0)
OURS: dict[str, dict[str, Any]] = {
    "Aaren": {},
    "Aaren, small": {"size": "small"},
}
PEERS = ("MiniRocket", "MultiRocket-Hydra", "1-NN DTW", "logistic regression")
SEEDLESS = ("1-NN DTW", "logistic regression")
CHEAP_FIRST = (
    "logistic regression",
    "Aaren",
    "Aaren, small",
    "MiniRocket",
    "1-NN DTW",
    "MultiRocket-Hydra",
)
ARCHIVE = (
    "Handwriting",
    "JapaneseVowels",
    "SelfRegulationSCP1",
    "SelfRegulationSCP2",
    "SpokenArabicDigits",
    "UWaveGestureLibrary",
)
INSIDE = {  # sets that come with aeon, by the function that loads them
    "BasicMotions": "load_basic_motions",
    "ArrowHead": "load_arrow_head",
    "ItalyPowerDemand": "load_italy_power_demand",
    "PickupGestureWiimoteZ": "load_pickup_gesture_wiimoteZ",
}
ASIDE = {  # used only after the design was fixed
    "GunPoint": "load_gunpoint",
    "OSULeaf": "load_osuleaf",
    "ACSF1": "load_acsf1",
}
SHIPPED = INSIDE | ASIDE
DAYS = "days"  # generated: classes differ in the hour of a peak, which pooled features cannot tell
OUTSIDE = (*ASIDE, DAYS)  # of all means
MOST_WARPING = 2e10  # cases x cases x steps x steps that DTW is given
MOST_HYDRA = 3e5  # cases x steps that MultiRocket-Hydra is fitted to here
BINS = 10  # of the calibration error
FEW = 100  # training cases from which the stop rule must keep its promise
SAMPLES = 50  # timed
AT_ONCE = 16  # cases


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierSettings:
    """What to measure."""

    datasets: tuple[str, ...] = (*INSIDE, *ARCHIVE, *OUTSIDE)
    contenders: tuple[str, ...] = CHEAP_FIRST
    seeds: tuple[int, ...] = (0, 1, 2)
    record: Path | None = None  # written after every row; what it holds is not measured again


QUICK = ClassifierSettings(
    datasets=("ItalyPowerDemand",), contenders=("Aaren", "Aaren, small", "logistic regression"), seeds=(0,)
)


class Split(NamedTuple):
    """Cases as (channels, steps), and their labels."""

    train: list[NDArray[np.float64]]
    train_labels: NDArray[np.generic]
    test: list[NDArray[np.float64]]
    test_labels: NDArray[np.generic]

    @property
    def length(self) -> int:
        """Return the steps of the longest case of TRAIN."""
        return int(max(case.shape[1] for case in self.train))


def load(name: str) -> Split:
    """Read a set; those of the archive lie in AAREN_DATA."""
    found: list[Any] = []
    if name == DAYS:
        return Split(*draw_days(150, seed=0), *draw_days(600, seed=1))
    if name in SHIPPED:
        datasets = require_extra("aeon.datasets", extra="classification", purpose="this benchmark")
        for part in ("train", "test"):
            cases, labels = getattr(datasets, SHIPPED[name])(split=part)
            found += [[np.asarray(case, dtype=np.float64) for case in cases], np.asarray(labels)]
    else:
        for path in find_files(lookup(name)):
            raw = read_ts(path)
            found += [
                [case.T for case in complete(raw, name=name, allow_irregular=True)],
                np.asarray(raw.labels),
            ]
    return Split(*found)


def draw_days(cases: int, *, seed: int) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Draw days of 24 hours with a peak at 7, 9 or 11 o'clock, which is the class, in noise."""
    rng, hours = np.random.default_rng(seed), np.arange(24)
    labels = rng.integers(3, size=cases)
    peaks = np.exp(-((hours - 7 - 2 * labels[:, np.newaxis]) ** 2) / 8)
    return list((peaks + rng.normal(0.0, 0.5, peaks.shape))[:, np.newaxis]), labels


class Contender(NamedTuple):
    """Something fitted: probabilities or 0 and 1 after a fraction of every case, and what it costs."""

    ask: Callable[[Sequence[NDArray[np.float64]], float], NDArray[np.float64]]
    classes: NDArray[np.generic]
    fit_cpu_seconds: float
    model_bytes: int
    sample_cpu_seconds: float
    state_bytes: int | None = None
    estimator: AarenClassifier | None = None


def fit_ours(split: Split, seed: int, options: dict[str, Any]) -> Contender:
    """Fit an AarenClassifier and time its stream."""
    model = AarenClassifier(random_state=seed, **options)
    fit_seconds = cpu_seconds(lambda: model.fit(split.train, split.train_labels), times=1)
    session = model.stream()
    sample = split.test[0][:, 0]
    session.push(sample)
    return Contender(
        ask=model.predict_proba_at,
        classes=model.classes_,
        fit_cpu_seconds=fit_seconds,
        model_bytes=sum(value.nbytes for value in model.model_.state_dict().values()),
        sample_cpu_seconds=cpu_seconds(lambda: session.push(sample), times=SAMPLES),
        state_bytes=model.model_.init_state(1).nbytes,
        estimator=model,
    )


def fit_peer(split: Split, seed: int, name: str) -> Contender:
    """Fit one of the others to standardised, padded series and time a recomputation."""
    mean, deviation = steady_statistics([case.T for case in split.train])
    length = split.length

    def panel(cases: Sequence[NDArray[np.float64]], fraction: float = 1.0) -> NDArray[np.float64]:
        found = np.zeros((len(cases), len(mean), length))
        for row, case in zip(found, cases, strict=True):
            steps = min(length, max(1, int(np.ceil(case.shape[1] * fraction - 1e-8))))
            row[:, :steps] = (case[:, :steps] - mean[:, None]) / deviation[:, None]
        return found

    warm_up(name)
    estimator = build_peer(name, seed)
    flat = name == "logistic regression"

    def given(cases: Sequence[NDArray[np.float64]], fraction: float = 1.0) -> NDArray[np.float64]:
        found = panel(cases, fraction)
        return np.asarray(found.reshape(len(found), -1) if flat else found)

    fit_seconds = cpu_seconds(lambda: estimator.fit(given(split.train), split.train_labels), times=1)
    classes = np.unique(split.train_labels)

    def ask(cases: Sequence[NDArray[np.float64]], fraction: float) -> NDArray[np.float64]:
        if flat:
            return np.asarray(estimator.predict_proba(given(cases, fraction)))
        chosen = np.asarray(estimator.predict(given(cases, fraction)))
        return np.asarray(chosen[:, None] == classes, dtype=np.float64)

    estimator.predict(given(split.test[:1]))
    return Contender(
        ask=ask,
        classes=classes,
        fit_cpu_seconds=fit_seconds,
        model_bytes=size_of(estimator),
        sample_cpu_seconds=cpu_seconds(lambda: estimator.predict(given(split.test[:1])), times=3),
    )


def cpu_seconds(work: Callable[[], object], *, times: int) -> float:
    """Return the CPU seconds of one call, the mean of several."""
    begin = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begin) / times


@lru_cache
def warm_up(name: str) -> None:
    """Let Numba compile what a contender needs, which is no part of a fit."""
    generator = np.random.default_rng(0)
    for channels in (1, 2):
        cases = generator.normal(size=(12, channels, 40))
        given = cases.reshape(12, -1) if name == "logistic regression" else cases
        estimator = build_peer(name, 0).fit(given, np.arange(12) % 2)
        estimator.predict(given[:1])


def build_peer(name: str, seed: int) -> Any:
    """Make one of the others, with its defaults."""
    if name == "logistic regression":
        linear = require_extra("sklearn.linear_model", extra="classification", purpose=name)
        return linear.LogisticRegression(max_iter=1000)
    if name == "1-NN DTW":
        module = require_extra("aeon.classification.distance_based", extra="classification", purpose=name)
        return module.KNeighborsTimeSeriesClassifier(distance="dtw", n_neighbors=1)
    module = require_extra("aeon.classification.convolution_based", extra="classification", purpose=name)
    kind = module.MiniRocketClassifier if name == "MiniRocket" else module.MultiRocketHydraClassifier
    return kind(random_state=seed)


def size_of(estimator: object) -> int:
    """Return the bytes of all arrays and tensors that an estimator holds."""
    seen: set[int] = set()

    def count(item: object) -> int:
        if id(item) in seen:
            return 0
        seen.add(id(item))
        if isinstance(item, np.ndarray | torch.Tensor):
            return int(item.nbytes)
        if isinstance(item, dict):
            return sum(map(count, item.values()))
        if isinstance(item, list | tuple):
            return sum(map(count, item))
        return sum(map(count, vars(item).values())) if hasattr(item, "__dict__") else 0

    return count(estimator)


def calibration_error(probabilities: NDArray[np.float64], is_right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error of the most probable class, in bins of equal width."""
    surest = probabilities.max(axis=1)
    places = np.minimum((surest * BINS).astype(int), BINS - 1)
    return float(
        sum(
            abs(surest[places == place].mean() - is_right[places == place].mean()) * (places == place).mean()
            for place in np.unique(places)
        )
    )


class Followed(NamedTuple):
    """What streams of TEST answer."""

    quarters: NDArray[np.float64]  # (cases, quarters, classes)
    early: NDArray[np.float64]  # (cases, steps, classes)  where the rule of early stopping may decide
    steps: NDArray[np.int64]  # (cases, steps)
    lengths: NDArray[np.int64]  # (cases,)


@torch.no_grad()
def follow(model: AarenClassifier, cases: Sequence[NDArray[np.float64]]) -> Followed:
    """Score all prefixes in question in one pass; a session gives the same, sample by sample."""
    scaled = scale([case.T for case in cases], model.mean_, model.deviation_)
    decided_at = torch.tensor(decision_steps(model.length_))
    parts = []
    for start in range(0, len(scaled), AT_ONCE):
        some = scaled[start : start + AT_ONCE]
        batch = pad(some, np.zeros(len(some), dtype=np.int64), length=max(map(len, some)))
        lengths = batch.mask.sum(1)
        quarters = torch.stack([steps_of(lengths, quarter) for quarter in QUARTERS], dim=1)
        asked = torch.cat([quarters, torch.minimum(decided_at, lengths.unsqueeze(1))], dim=1)
        scores = model.model_.score_prefixes(batch.values, asked, mask=batch.mask)
        scores[:, len(QUARTERS) - 1] = model.model_(batch.values, mask=batch.mask)  # the series is complete
        parts.append((scores.softmax(-1), asked[:, len(QUARTERS) :], lengths))
    found, steps, counts = (torch.cat(some).numpy() for some in zip(*parts, strict=True))
    return Followed(found[:, : len(QUARTERS)], found[:, len(QUARTERS) :], steps, counts)


def judge_stop(model: AarenClassifier, split: Split, found: Followed) -> dict[str, float]:
    """Say what `stop_at="auto"` gives on TEST: accuracy, and the share of a series seen."""
    stop = model.early_stop()
    every = np.concatenate([found.early, found.quarters[:, -1:]], axis=1)
    is_sure = (found.early.max(-1) >= stop.threshold) & (found.steps < found.lengths[:, None])
    first = np.where(is_sure.any(axis=1), is_sure.argmax(axis=1), found.early.shape[1])
    rows = np.arange(len(every))
    chosen = model.classes_[every[rows, first].argmax(-1)]
    seen = np.concatenate([found.steps, found.lengths[:, None]], axis=1)[rows, first] / found.lengths
    return {
        "stop_threshold": stop.threshold,
        "stop_accuracy": float((chosen == split.test_labels).mean()),
        "stop_share": float(seen.mean()),
    }


def measure_one(dataset: str, split: Split, contender: str, seed: int) -> Row:
    """Fit one contender to one set and ask it about TEST."""
    if contender in OURS:
        fitted = fit_ours(split, seed, OURS[contender])
    else:
        fitted = fit_peer(split, seed, contender)
    row: dict[str, Any] = {
        "dataset": dataset,
        "contender": contender,
        "seed": seed,
        "train_cases": len(split.train),
        "length": split.length,
        "fit_cpu_seconds": fitted.fit_cpu_seconds,
        "model_bytes": fitted.model_bytes,
        "state_bytes": fitted.state_bytes,
        "sample_cpu_seconds": fitted.sample_cpu_seconds,
    }
    found = None if fitted.estimator is None else follow(fitted.estimator, split.test)
    for place, quarter in enumerate(QUARTERS):
        if quarter < 1.0 and contender == "1-NN DTW":
            continue  # a whole search per prefix
        probabilities = fitted.ask(split.test, quarter) if found is None else found.quarters[:, place]
        is_right = fitted.classes[probabilities.argmax(axis=1)] == split.test_labels
        row[f"accuracy_{quarter:.2f}"] = float(is_right.mean())
        row[f"calibration_{quarter:.2f}"] = calibration_error(probabilities, is_right)
    if fitted.estimator is not None and found is not None:
        row |= judge_stop(fitted.estimator, split, found)
    return row


def jobs(settings: ClassifierSettings) -> list[tuple[str, str, int]]:
    """List what is to be measured, cheap rows first: set, contender, seed."""
    found = []
    for contender in settings.contenders:
        seeds = settings.seeds[:1] if contender in SEEDLESS else settings.seeds
        found += [(dataset, contender, seed) for seed in seeds for dataset in settings.datasets]
    return found


def is_too_large(split: Split, contender: str) -> bool:
    """Tell whether a contender would take hours."""
    if contender == "1-NN DTW":
        return len(split.train) * len(split.test) * float(split.length) ** 2 > MOST_WARPING
    return contender == "MultiRocket-Hydra" and len(split.train) * split.length > MOST_HYDRA


def measure(settings: ClassifierSettings, on_step: OnStep) -> Measured:
    """Measure everything that the record does not hold yet."""
    record = resumed(BENCHMARK, settings.record)
    record.settings["seeds"] = list(settings.seeds)
    planned = jobs(settings)
    loaded: dict[str, Split] = {}
    for done, (dataset, contender, seed) in enumerate(planned):
        on_step(done, len(planned), f"{dataset}, {contender}, seed {seed}")
        if record.find(dataset=dataset, contender=contender, seed=seed) is not None:
            continue
        try:
            split = loaded[dataset] = loaded.get(dataset) or load(dataset)
        except AarenError:
            if dataset in SHIPPED:
                raise
            continue  # a set of the archive that is not at hand: a gap
        if not is_too_large(split, contender):
            record.measurements.append(measure_one(dataset, split, contender, seed))
            if settings.record is not None:
                record.write(settings.record)
    return record.settings, record.measurements


def seed_means(record: BenchRecord) -> pd.DataFrame:
    """Return means over seeds, by contender and set."""
    return pd.DataFrame(record.measurements).groupby(["contender", "dataset"]).mean(numeric_only=True)


def average(
    means: pd.DataFrame, contender: str, name: str, sets: Sequence[str] | None = None
) -> float | None:
    """Return the mean over some sets; without any, over all of a contender but those kept aside."""
    if contender not in means.index or name not in means:
        return None
    values = means.loc[contender][name]
    values = values.drop(list(OUTSIDE), errors="ignore").dropna() if sets is None else values.reindex(sets)
    mean = values.mean(skipna=False)
    return None if np.isnan(mean) else float(mean)


def common(means: pd.DataFrame, *contenders: str) -> list[str]:
    """List the sets, without those kept aside, that all these contenders were measured on."""
    found = [set(means.loc[one].index) if one in means.index else set() for one in contenders]
    return sorted(set.intersection(*found) - set(OUTSIDE))


def tables(record: BenchRecord) -> list[str]:
    """Return accuracies by set, then quarters and costs."""
    means = seed_means(record)
    contenders = [name for name in (*OURS, *PEERS) if name in means.index]
    sets, aside, days = (
        [name for name in names if name in means.index.levels[1]]
        for names in ((*INSIDE, *ARCHIVE), ASIDE, (DAYS,))
    )

    def accuracies(names: Sequence[str]) -> list[tuple[str, ...]]:
        return [
            (name, *(_percent(average(means, one, "accuracy_1.00", [name])) for one in contenders))
            for name in names
        ]

    shared = [common(means, "Aaren", one) for one in contenders]
    on_shared = [
        (label, *(_percent(average(means, of or one, "accuracy_1.00", some)) for one, some in pairs))
        for label, of in (("mean of its sets", None), ("Aaren on those sets", "Aaren"))
        for pairs in [list(zip(contenders, shared, strict=True))]
    ]
    counts = [("how many sets, seeds", *(_counts(record, one) for one in contenders))]
    quarters = [f"{100 * quarter:.0f} %" for quarter in QUARTERS]
    return [
        table(
            title="TEST accuracy of complete series, %",
            columns=("", *contenders),
            rows=accuracies(sets) + on_shared + counts,
            note="Not run: DTW where it would take hours, MultiRocket-Hydra on SpokenArabicDigits, and rows "
            "that did not fit into the time.",
        ),
        table(
            title="The same on sets that were kept aside until the design was fixed",
            columns=("", *contenders),
            rows=accuracies(aside),
        ),
        table(
            title="The same on generated days, whose class is the hour of a peak in noise",
            columns=("", *contenders),
            rows=accuracies(days),
        ),
        table(
            title="While a series comes in, and what it costs (means over each contender's sets)",
            columns=("", *quarters, "calibration error", "fit", "model", "state", "sample"),
            rows=[_costs(means, one) for one in contenders if common(means, one)],
            note="Accuracy after parts of a series. Calibration error: the largest of the four quarters' "
            "means, - where only a class is given. Fit and sample: CPU time of one thread. A new sample "
            "costs the last four a recomputation.",
        ),
        table(
            title="Stopping early, stop_at='auto': at most two points of accuracy promised",
            columns=("", "training cases", "waiting, %", "stopping, %", "seen, %"),
            rows=[
                _stop_cells(means, one)
                for one in sets
                if average(means, "Aaren", "stop_share", [one]) is not None
            ],
        ),
    ]


def figure(record: BenchRecord, base: Path) -> None:
    """Draw mean accuracy against the part of a series seen."""
    means = seed_means(record)
    sets = common(means, "Aaren", "MiniRocket")
    lines = []
    for name in ("Aaren", "Aaren, small", "MiniRocket", "logistic regression"):
        accuracies = [average(means, name, f"accuracy_{quarter:.2f}", sets) for quarter in QUARTERS]
        if None not in accuracies:
            xs, ys = [100 * quarter for quarter in QUARTERS], [100 * (value or 0.0) for value in accuracies]
            lines.append((name, xs, ys))
    title, caption = "Accuracy while a series comes in", f"{len(sets)} sets"
    draw({title: lines}, base, x="part of the series seen, %", y=["mean accuracy, %"], caption=caption)


def _counts(record: BenchRecord, contender: str) -> str:
    """Say on how many sets, without those kept aside, and with how many seeds a contender was measured."""
    rows = [row for row in record.measurements if row["contender"] == contender]
    seeds = Counter(str(row["dataset"]) for row in rows if row["dataset"] not in OUTSIDE)
    least, most = min(seeds.values(), default=0), max(seeds.values(), default=0)
    return f"{len(seeds)}, {least}" + (f" to {most}" if most > least else "")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _costs(means: pd.DataFrame, contender: str) -> tuple[str, ...]:
    quarters = [average(means, contender, f"accuracy_{quarter:.2f}") for quarter in QUARTERS]
    has_probabilities = contender in OURS or contender == "logistic regression"
    errors = [average(means, contender, f"calibration_{quarter:.2f}") or 0.0 for quarter in QUARTERS]
    state, sample = (average(means, contender, name) for name in ("state_bytes", "sample_cpu_seconds"))
    return (
        contender,
        *map(_percent, quarters),
        f"{max(errors):.3f}" if has_probabilities else "-",
        f"{average(means, contender, 'fit_cpu_seconds') or 0.0:.1f} s",
        f"{(average(means, contender, 'model_bytes') or 0.0) / 1e3:,.0f} kB",
        "-" if state is None else f"{state / 1e3:,.1f} kB",
        "-" if sample is None else f"{1e6 * sample:,.0f} \N{MICRO SIGN}s",
    )


def _stop_cells(means: pd.DataFrame, dataset: str) -> tuple[str, ...]:
    cases, *shares = (
        average(means, "Aaren", name, [dataset])
        for name in ("train_cases", "accuracy_1.00", "stop_accuracy", "stop_share")
    )
    return (dataset, f"{cases or 0:.0f}", *map(_percent, shares))


BENCHMARK = Benchmark(
    kind="classifier",
    command=COMMAND,
    sources=("aaren/classification",),
    settings=ClassifierSettings(),
    quick=QUICK,
    measure=measure,
    tables=tables,
    draw=figure,
    is_timed=False,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(BENCHMARK)
