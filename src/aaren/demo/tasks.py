"""What the demo shows: the operator, four estimators on small data, and a long stream.

Every task uses the library as its users do and ends in a `Section`. Each runs in a process of its own.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

MIXERS = {"Aaren": "aaren", "a Transformer": "softmax"}


class Line(NamedTuple):
    """One line of a figure, with a band around it if it has bounds."""

    name: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one task showed."""

    title: str
    about: str  # which data, and what was asked
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # the first cell names the row
    summary: str  # the figure with its unit, what it is compared with, and which is better
    code: str  # the same, in a user's hands
    lines: tuple[Line, ...] = ()
    axes: tuple[str, str] = ("", "")
    is_good: bool = True  # at the level that the demo promises


def rows_of(values: Mapping[str, float], digits: int) -> tuple[tuple[str, str], ...]:
    """Return the rows of a table."""
    return tuple((name, f"{value:.{digits}f}") for name, value in values.items())


def operator() -> Section:
    """Compare every backend with the definition; measure ratios of times."""
    from aaren.check import checks_of, measure
    from aaren.ops.dispatch import BACKENDS

    checks = [row for row in checks_of(torch.device("cpu"), list(BACKENDS)) if row.verdict != "skipped"]
    wrong = [row.name for row in checks if row.verdict == "wrong"]
    ratios = measure(torch.device("cpu"))
    step, attention, *_ = ratios.values()
    agree = f"{', '.join(wrong)} wrong" if wrong else f"all {len(checks)} implementations agree"
    return Section(
        title="Speed of the operator",
        about="Attention with a constant query over every prefix. Each implementation is compared with the "
        "definition in double precision; then times are measured in turn.",
        columns=("slower / faster", "times as long"),
        rows=rows_of(ratios, 1),
        summary=f"Over 1,024 items a training step takes a Transformer {step:.1f} times as long as Aaren, "
        f"the bare operator {attention:.0f} times as long ({agree}).",
        code="from aaren.ops import scan_attention\noutputs, state = scan_attention(scores, values)",
        is_good=not wrong,
    )


def classification() -> Section:
    """Tell nine speakers apart: the estimator, the paper's experiment with both models, a linear model."""
    from aeon.datasets import load_japanese_vowels
    from sklearn.linear_model import LogisticRegression

    from aaren import AarenClassifier
    from aaren.engine.presets import make_run
    from aaren.engine.run import train

    (train_x, train_y), (test_x, test_y) = (load_japanese_vowels(split=part) for part in ("train", "test"))
    classifier = AarenClassifier().fit(train_x, train_y)
    right = {"AarenClassifier": 100.0 * classifier.score(test_x, test_y)}
    for name, model in {"Aaren": "aaren", "a Transformer": "transformer"}.items():
        config = make_run("classification", "JapaneseVowels", model=model, profile="cpu")
        with tempfile.TemporaryDirectory() as folder:
            accuracy = train(config, Path(folder, "run")).metric("test.accuracy")
        right[f"the paper's network, made small, with {name}"] = 100.0 * accuracy
    means, unseen = ([case.mean(axis=1) for case in cases] for cases in (train_x, test_x))
    linear = LogisticRegression(max_iter=2000).fit(means, train_y).score(unseen, test_y)
    right["logistic regression on the channels' means"] = 100.0 * linear
    ours, shares = right["AarenClassifier"], np.linspace(0.1, 1.0, 10)
    heard = [[case[:, : max(2, round(share * case.shape[1]))] for case in test_x] for share in shares]
    early = [100.0 * float(np.mean(classifier.predict(cases) == test_y)) for cases in heard]
    return Section(
        title="Classification, also before the end",
        about="Who speaks? Nine men say two vowels: 12 channels, 7 to 29 samples, 270 utterances to learn "
        "from, 370 to be judged on. The line: how many are right after each tenth of an utterance.",
        columns=("", "right, %"),
        rows=rows_of(right, 1),
        summary=f"AarenClassifier names the speaker of {ours:.1f} % of 370 utterances (a linear model: "
        f"{100.0 * linear:.1f} %; more is better).",
        code="session = AarenClassifier().fit(X, y).stream()\nprobabilities = session.push(sample)",
        lines=(Line("right, %", [100.0 * share for share in shares], early),),
        axes=("% of the utterance heard", "right, %"),
        is_good=ours >= 95.0,
    )


def events() -> Section:
    """Learn a process that is known: how far from it are the estimator, its twin and a Markov chain?"""
    from aaren import AarenEventForecaster
    from aaren.events.data import true_process
    from aaren.events.fitting import fit_markov
    from aaren.events.likelihood import explain

    process = true_process("hawkes")
    data = [process.sample(n, horizon=50.0, rng=np.random.default_rng(n)) for n in (400, 200)]
    truth = -float(process.log_density(data[1])[~data[1].is_first].mean())
    fitted, judged = (np.split(part.times, np.cumsum(part.lengths)[:-1]) for part in data)
    models = {name: AarenEventForecaster(mixer=mixer).fit(fitted) for name, mixer in MIXERS.items()}
    losses = {name: -model.score(judged) - truth for name, model in models.items()}
    explained = explain(fit_markov(data[0]), data[1])
    chain = losses["a Markov chain"] = -float(np.nanmean(explained.time + explained.mark)) - truth
    return Section(
        title="When does the next event come?",
        about="Events that excite more events (a Hawkes process): 400 sequences to learn from, 200 to be "
        "judged on. The process is known here, and nothing can predict better than it.",
        columns=("", "lost to the true process, nats per event"),
        rows=rows_of(losses, 3),
        summary=f"AarenEventForecaster loses {losses['Aaren']:.3f} nats per event to the process that made "
        f"them (a Markov chain: {chain:.3f}; 0 is perfect).",
        code="model = AarenEventForecaster().fit(frame)  # who, when, what\nmodel.predict(levels=[80])",
        is_good=losses["Aaren"] <= 0.03,
    )


def forecasting() -> Section:
    """Forecast two unseen years of a real series, with intervals, beside the year before."""
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package
    from aeon.datasets import load_airline

    from aaren import AarenForecaster

    values = np.asarray(load_airline(), dtype=float).ravel()
    months = pd.date_range("1949-01-31", periods=len(values), freq="ME")
    frame = pd.DataFrame({"unique_id": "passengers", "ds": months, "y": values})
    year, known = 12, len(values) - 24
    model, parts = AarenForecaster(year).fit(frame[:known]), []
    for start in (known, known + year):
        parts.append(model.predict(levels=[80]))
        model.update(frame[start : start + year])
    names = ("AarenForecaster", "AarenForecaster-lo-80", "AarenForecaster-hi-80")
    mean, low, high = (pd.concat(parts)[name].to_numpy() for name in names)
    forecasts = {"AarenForecaster": mean, "the same month of last year": values[known - year : -year]}
    truth, index = values[known:], [float(i) for i in range(len(values))]
    errors = {name: 100.0 * float(np.mean(abs(told / truth - 1.0))) for name, told in forecasts.items()}
    ours, simple = errors.values()
    inside = int(np.sum((truth >= low) & (truth <= high)))
    return Section(
        title="A forecast with intervals",
        about="Air passengers per month, 1949 to 1960. Learned from ten years; each of the last two is "
        f"forecast from the end of the year before it. {inside} of the 24 months lie inside the 80 % band.",
        columns=("", "mean error, %"),
        rows=rows_of(errors, 1),
        summary=f"AarenForecaster is off by {ours:.1f} % a month over two unseen years (the same month of "
        f"last year: {simple:.1f} %; less is better).",
        code="model = AarenForecaster(horizon=12).fit(frame)\nmodel.predict(levels=[80, 95])",
        lines=(
            Line("passengers", index, values.tolist()),
            Line("forecast, 80 %", index[known:], mean.tolist(), low.tolist(), high.tolist()),
        ),
        axes=("months since January 1949", "passengers, thousands"),
        is_good=ours <= simple,
    )


def policy() -> Section:
    """Learn to balance a pole from recorded episodes, most of them bad; play whole new episodes."""
    from aaren import AarenPolicy

    steps = {}
    for name, mixer in MIXERS.items():
        fitted = AarenPolicy(mixer=mixer, threads=1, comparison_episodes=0).fit("cartpole")
        steps[name] = fitted.evaluate("CartPole-v1", episodes=20, seed=0).mean
    steps["a clone of the best third"] = fitted.evaluate("CartPole-v1", episodes=20, seed=0, who="clone").mean
    steps["the recorded episodes"] = fitted.behaviour_return_
    return Section(
        title="A policy from recorded episodes",
        about="Balance a pole (CartPole-v1): learned from episodes of good, clumsy and random players, "
        "played in 20 new episodes of at most 500 steps.",
        columns=("", "steps balanced"),
        rows=rows_of(steps, 0),
        summary=f"AarenPolicy balances the pole for {steps['Aaren']:.0f} of 500 steps (the episodes that it "
        f"learned from: {steps['the recorded episodes']:.0f}; more is better).",
        code="session = AarenPolicy().fit(episodes).stream()\naction = session.push(observation, reward)",
        is_good=steps["Aaren"] >= 475.0,
    )


def stream(items: int = 20_000) -> Section:
    """Push many items through one stream: bytes carried and time per item."""
    from aaren.nn import Encoder
    from aaren.stream.session import Session

    rows, lines, numbers = [], [], []
    tokens = torch.randn(256, 64)
    for name, mixer, engine in (
        ("Aaren, native engine", "aaren", "native"),
        ("Aaren, PyTorch", "aaren", "torch"),
        ("a Transformer, PyTorch", "softmax", "torch"),
    ):
        encoder = Encoder(width=64, num_heads=4, num_layers=2, ff_width=128, mixer=mixer).eval().fold()
        session, sizes, begin = Session(encoder, engine=engine), [], time.perf_counter()
        for index in range(1, items + 1):
            session.push(tokens[index % len(tokens)])
            if index % (items // 40) == 0:
                sizes.append(session.state.nbytes / 1e6)
        numbers.append((session.state.nbytes, 1e6 * (time.perf_counter() - begin) / items))
        rows.append((name, f"{numbers[-1][0] / 1e3:,.1f} kB", f"{numbers[-1][1]:,.0f} µs"))
        if engine == "torch":
            lines.append(Line(name, [items / 40 * k for k in range(1, 41)], sizes))
    (ours, native), (_, eager), (theirs, _) = numbers
    return Section(
        title=f"A stream of {items:,} items",
        about="Two layers of width 64. What Aaren carries does not grow; a Transformer keeps every item.",
        columns=("", f"carried after {items:,} items", "time per item, on average"),
        rows=tuple(rows),
        summary=f"After {items:,} items Aaren carries {ours / 1e3:.1f} kB (a Transformer: {theirs / 1e6:.0f} "
        f"MB) and takes {native:.0f} µs for the next one (in PyTorch: {eager:.0f} µs).",
        code="session = model.stream()\nanswer = session.push(item)",
        lines=tuple(lines),
        axes=("items", "megabytes carried"),
    )


_TASKS = (operator, classification, events, forecasting, policy, stream)
TASKS: dict[str, Callable[[], Section]] = {task.__name__: task for task in _TASKS}
ALONE = ("operator", "stream")  # these are timed, and have the machine for themselves
