"""What the demo shows: the operator, five tasks that are learned in seconds each, and a long stream.

Every task ends in a `Section`: a table with the simplest alternative in it, one sentence, and the lines of
Python that give the same. Each runs in a process of its own; none writes to the page or the terminal.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from aaren.table import format_bytes, format_seconds

SEED = 0
AAREN, TRANSFORMER = "Aaren", "Transformer"
MIXERS = {AAREN: "aaren", TRANSFORMER: "softmax"}


class Line(NamedTuple):
    """One line of a figure, with a band around it if it has bounds."""

    name: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one task found."""

    title: str
    about: str  # what was asked, of which data
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # the first cell names the row
    summary: str  # one line of the terminal's last ten
    code: str = ""  # the same, in a user's hands
    note: str = ""
    lines: tuple[Line, ...] = ()
    axes: tuple[str, str] = ("", "")
    is_learned: bool = True  # at the level that the demo promises
    numbers: dict[str, float] = field(default_factory=dict)


class Task(NamedTuple):
    """A task by name, about how long it takes, and whether it must have the machine for itself."""

    name: str
    run: Callable[[], Section]
    seconds: float
    is_alone: bool = False


def operator() -> Section:
    """Compare every backend with the definition; measure three ratios of times."""
    from aaren.check import check_backends, measure

    device = torch.device("cpu")
    checks = [check for check in check_backends(device) if check.verdict != "skipped"]
    wrong = [check.name for check in checks if check.verdict == "wrong"]
    ratios = measure(device)
    agree = f"{', '.join(wrong)} wrong" if wrong else f"all {len(checks)} backends right"
    attention, *_ = ratios.values()
    return Section(
        title="The operator",
        about="Softmax attention with a constant query over every prefix: every backend beside its "
        "definition in float64: outputs, gradients and steps. Then ratios of times, measured in turn.",
        columns=("", "times as fast"),
        rows=tuple((name, f"{ratio:.3g}x") for name, ratio in ratios.items()),
        summary=f"operator: {agree}; causal softmax attention takes {attention:.0f} times as long as a scan",
        code="from aaren.ops import scan_attention\noutputs, state = scan_attention(scores, values)",
        note=f"{agree.capitalize()}, by aaren check.",
        is_learned=not wrong,
        numbers={"faster_than_attention": attention},
    )


def vowels() -> Section:
    """Tell nine speakers apart: the default classifier, the paper's network and its twin, a linear model."""
    from aeon.datasets import load_japanese_vowels
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from aaren import AarenClassifier

    train_x, train_y = load_japanese_vowels(split="train")
    test_x, test_y = load_japanese_vowels(split="test")
    fits: dict[str, Any] = {
        "AarenClassifier, as it comes": AarenClassifier(random_state=SEED, threads=1),
        **{
            f"a trained network, {name}": AarenClassifier(
                model="network", mixer=mixer, updates=600, random_state=SEED, threads=1
            )
            for name, mixer in MIXERS.items()
        },
    }
    rows, found = [], {}
    for name, classifier in fits.items():
        begin = time.perf_counter()
        classifier.fit(train_x, train_y)
        took = time.perf_counter() - begin
        found[name] = 100.0 * classifier.score(test_x, test_y)
        rows.append((name, f"{found[name]:.1f} %", format_seconds(took)))
    begin = time.perf_counter()
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    linear.fit(_means(train_x), train_y)
    found["linear"] = 100.0 * linear.score(_means(test_x), test_y)
    rows.append(
        (
            "logistic regression on means",
            f"{found['linear']:.1f} %",
            format_seconds(time.perf_counter() - begin),
        )
    )
    ours = fits["AarenClassifier, as it comes"]
    shares = np.linspace(0.1, 1.0, 10)
    early = [100.0 * _accuracy_at(ours, test_x, test_y, share) for share in shares]
    best = found["AarenClassifier, as it comes"]
    return Section(
        title="Classification, also before the end",
        about="JapaneseVowels: nine men say two vowels, 12 channels, 7 to 29 samples; 270 utterances to "
        "learn from, 370 to be judged on. Published: Aaren 96.7 %, Transformer 96.4 %.",
        columns=("", "accuracy", "fit"),
        rows=tuple(rows),
        summary=f"classification: {best:.1f} % of 370 vowels (Transformer "
        f"{found[f'a trained network, {TRANSFORMER}']:.1f}, linear {found['linear']:.1f})",
        code="classifier = AarenClassifier().fit(X, y)\nsession = classifier.stream(stop_at='auto')\n"
        "probabilities = session.push(sample)",
        note="The line: accuracy after each tenth of an utterance. A stream answers after every sample.",
        lines=(Line("accuracy, %", [100.0 * share for share in shares], early),),
        axes=("% of the utterance heard", "accuracy, %"),
        is_learned=best >= 95.0,
        numbers={"accuracy": best},
    )


def _means(series: Any) -> np.ndarray:
    return np.stack([np.concatenate([one.mean(axis=1), one.std(axis=1)]) for one in series])


def _accuracy_at(classifier: Any, series: Any, labels: Any, share: float) -> float:
    cut = [one[:, : max(2, round(share * one.shape[1]))] for one in series]
    return float(np.mean(classifier.predict(cut) == labels))


def events() -> Section:
    """Learn a process whose truth is known: how far from it are the model, its twin and a Markov chain?"""
    from aaren.events import AarenEventForecaster
    from aaren.events.data import true_process
    from aaren.events.fitting import fit_markov
    from aaren.events.likelihood import explain

    process, horizon = true_process("hawkes"), 50.0
    train = process.sample(400, horizon=horizon, rng=np.random.default_rng(SEED + 1))
    test = process.sample(200, horizon=horizon, rng=np.random.default_rng(SEED + 2))
    later = ~test.is_first
    truth = -float(process.log_density(test)[later].mean())
    rows, found = [("the process itself", f"{truth:.3f}", "0", "")], {}
    for name, mixer in MIXERS.items():
        begin = time.perf_counter()
        model = AarenEventForecaster(mixer=mixer, random_state=SEED).fit(_as_lists(train))
        took = time.perf_counter() - begin
        found[name] = -model.score(_as_lists(test)) - truth
        rows.append((name, f"{truth + found[name]:.3f}", f"{found[name]:+.3f}", format_seconds(took)))
    explained = explain(fit_markov(train), test)
    chain = -float(np.nanmean(explained.time + explained.mark)) - truth
    rows.append(("Markov chain, log-normal gaps", f"{truth + chain:.3f}", f"{chain:+.3f}", ""))
    return Section(
        title="When does the next event come?",
        about="A Hawkes process, in which events excite more events: 400 sequences to learn from, 200 to be "
        "judged on. The truth is known, and nothing can beat it.",
        columns=("", "nats per event", "above the truth", "fit"),
        rows=tuple(rows),
        summary=f"events: {found[AAREN]:+.3f} nats from the truth (Transformer {found[TRANSFORMER]:+.3f}, "
        f"Markov {chain:+.3f})",
        code="model = AarenEventForecaster().fit(frame)      # who, when, what\n"
        "model.predict(levels=[80])                     # when and what comes next\n"
        "model.score_events(frame)                      # which events are odd",
        is_learned=found[AAREN] <= 0.02,
        numbers={"above_truth": found[AAREN]},
    )


def _as_lists(events: Any) -> list[np.ndarray]:
    return np.split(events.times, np.cumsum(events.lengths)[:-1])


def forecast() -> Section:
    """Forecast two unseen years of a real series, with intervals, beside last year and a linear model."""
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a separate package
    from aeon.datasets import load_airline
    from sklearn.linear_model import RidgeCV

    from aaren import AarenForecaster

    values = np.asarray(load_airline(), dtype=float).ravel()
    months = pd.date_range("1949-01-31", periods=len(values), freq="ME")
    frame = pd.DataFrame({"unique_id": "passengers", "ds": months, "y": values})
    year, known = 12, len(values) - 24
    begin = time.perf_counter()
    model = AarenForecaster(year).fit(frame[:known])
    took = time.perf_counter() - begin
    parts = []
    for start in (known, known + year):
        parts.append(model.predict(levels=[80]))
        model.update(frame[start : start + year])
    found = pd.concat(parts)
    truth = values[known:]
    logs = np.log(values)
    past = np.stack([logs[t : t + year] for t in range(known - 2 * year + 1)])
    future = np.stack([logs[t + year : t + 2 * year] for t in range(known - 2 * year + 1)])
    ridge = RidgeCV(alphas=np.logspace(-3, 2, 11)).fit(past, future)
    linear = np.exp(
        np.concatenate(
            [ridge.predict(logs[[t - year + i for i in range(year)]][None])[0] for t in (known, known + year)]
        )
    )
    ridge_name, naive_name = "ridge on logarithms of 12 months", "the same month of last year"
    networks, fitted = {}, {"AarenForecaster": took}
    for name, mixer in MIXERS.items():
        begin = time.perf_counter()
        networks[name] = _mape(np.exp(_trained_network(logs, known, mixer)), truth)
        fitted[f"a trained network, {name}"] = time.perf_counter() - begin
    errors = {
        "AarenForecaster": _mape(found["AarenForecaster"].to_numpy(), truth),
        **{f"a trained network, {name}": error for name, error in networks.items()},
        ridge_name: _mape(linear, truth),
        naive_name: _mape(values[known - year : -year], truth),
    }
    low, high = (found[f"AarenForecaster-{side}-80"].to_numpy() for side in ("lo", "hi"))
    inside = 100.0 * float(np.mean((truth >= low) & (truth <= high)))
    index = [float(i) for i in range(len(values))]
    ours = errors["AarenForecaster"]
    best = min(errors, key=lambda name: errors[name])
    verdict = (
        "AarenForecaster has the smallest error here."
        if best == "AarenForecaster"
        else f"The smallest error here is not ours: {best}, {errors[best]:.1f} % against {ours:.1f} %."
    )
    return Section(
        title="A forecast with intervals",
        about="Air passengers per month, 1949 to 1960. Learned from ten years; each of the last two is "
        "forecast from the end of the year before it.",
        columns=("", "mean error", "fit"),
        rows=tuple(
            (name, f"{error:.1f} %", format_seconds(fitted[name]) if name in fitted else "")
            for name, error in errors.items()
        ),
        summary=f"forecasting: error {ours:.1f} % (Transformer {networks[TRANSFORMER]:.1f}, ridge "
        f"{errors[ridge_name]:.1f}, last year {errors[naive_name]:.1f})",
        code="model = AarenForecaster(horizon=12).fit(frame)\nmodel.predict(levels=[80, 95])\n"
        "model.push(row, when=date)  # one more row: below a millisecond",
        note=f"{verdict} {inside:.0f} % of the 24 months lie inside the 80 % interval. AarenForecaster is a "
        "linear model in closed form. The networks differ in their mixer only: 300 updates on how each month "
        "differs from the year before.",
        lines=(
            Line("passengers", index, [float(value) for value in values]),
            Line(
                "forecast, 80 %",
                index[known:],
                *(list(map(float, part)) for part in (found["AarenForecaster"], low, high)),
            ),
        ),
        axes=("months since January 1949", "passengers, thousands"),
        is_learned=ours <= errors[naive_name],
        numbers={"mape": ours},
    )


def _trained_network(logs: np.ndarray, known: int, mixer: str, *, updates: int = 300) -> np.ndarray:
    """Train a small network on the first `known` months and forecast the rest, a year at a time.

    It reads how the logarithm of each month differs from the year before, one month after the other, and says
    after every month how the next twelve will.
    """
    from torch import nn

    from aaren.nn import Conv, Encoder, TensorOnly

    year = 12
    torch.manual_seed(SEED)  # the process is ours alone
    changes = torch.tensor(logs[year:] - logs[:-year], dtype=torch.float32)
    start = known - year  # months of change that may be learned from
    mean, spread = changes[:start].mean(), changes[:start].std()
    given = ((changes - mean) / spread)[None, :, None]
    encoder = Encoder(
        width=32, num_heads=4, num_layers=2, norm="pre", dropout=0.1, conv=Conv(kernel=4), mixer=mixer
    )
    model = nn.Sequential(nn.Linear(1, 32), TensorOnly(encoder), nn.LayerNorm(32), nn.Linear(32, year))
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    targets = given[0, 1:start, 0].unfold(0, year, 1)[None]  # (1, months, 12)
    for _ in range(updates):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(given[:, : targets.shape[1]]), targets).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        ahead = model.eval()(given)[0]
    parts = [ahead[start + shift - 1] * spread + mean for shift in (0, year)]
    found: np.ndarray = torch.cat(parts).numpy() + logs[known - year : -year]
    return found


def _mape(found: np.ndarray, truth: np.ndarray) -> float:
    return 100.0 * float(np.mean(np.abs(found - truth) / truth))


def policy() -> Section:
    """Learn to balance a pole from recorded episodes, most of them bad; play whole fresh episodes."""
    from aaren.rl import AarenPolicy

    rows, found = [], {}
    for name, mixer in MIXERS.items():
        begin = time.perf_counter()
        fitted = AarenPolicy(mixer=mixer, random_state=SEED, threads=1, comparison_episodes=0).fit("cartpole")
        took = time.perf_counter() - begin
        played = fitted.evaluate("CartPole-v1", episodes=20, seed=SEED)
        found[name] = played.mean
        rows.append((name, f"{played.mean:.0f} ± {played.standard_error:.0f}", format_seconds(took)))
        if name == AAREN:
            clone = fitted.evaluate("CartPole-v1", episodes=20, seed=SEED, who="clone")
            recorded = fitted.behaviour_return_
    rows.append(("MLP clone of the best third", f"{clone.mean:.0f} ± {clone.standard_error:.0f}", ""))
    rows.append(("the recorded episodes", f"{recorded:.0f}", ""))
    return Section(
        title="A policy from recorded episodes",
        about="CartPole-v1, whole episodes of up to 500 steps, recorded by good, clumsy and random players.",
        columns=("", "steps balanced", "fit"),
        rows=tuple(rows),
        summary=f"policy: balances {found[AAREN]:.0f} of 500 steps (Transformer {found[TRANSFORMER]:.0f}, "
        f"clone {clone.mean:.0f}, recorded {recorded:.0f})",
        code="policy = AarenPolicy().fit(episodes)\npolicy.evaluate('CartPole-v1', episodes=20)\n"
        "session = policy.stream()\naction = session.push(observation, reward)",
        is_learned=found[AAREN] >= 475.0,
        numbers={"steps": found[AAREN]},
    )


def order() -> Section:
    """Read digits pixel by pixel: what an Aaren layer sees without and with a sense of order."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from torch import nn
    from torch.nn import functional as F

    from aaren.nn import Conv, Encoder, TensorOnly

    torch.manual_seed(SEED)  # the process is ours alone
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=0.25, random_state=SEED, stratify=labels)
    train_x, test_x = (torch.tensor(part, dtype=torch.float32).unsqueeze(-1) / 8 - 1 for part in parts[:2])
    train_y, test_y = (torch.tensor(part) for part in parts[2:])
    ways: dict[str, dict[str, Any]] = {
        "Aaren, a set of pixels": {},
        "Aaren, convolution and positions": {"conv": Conv(kernel=4), "position": "learned"},
        "Transformer, positions": {"mixer": "softmax", "position": "learned"},
    }
    rows, found = [], {}
    for name, way in ways.items():
        begin = time.perf_counter()
        encoder = Encoder(width=64, num_heads=4, num_layers=2, ff_width=128, norm="pre", dropout=0.0, **way)
        model = nn.Sequential(nn.Linear(1, 64), TensorOnly(encoder), nn.LayerNorm(64), nn.Linear(64, 10))
        optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
        epochs, batch = 25, 64
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, epochs * -(-len(train_x) // batch))
        for _ in range(epochs):
            for chosen in torch.randperm(len(train_x)).split(batch):  # type: ignore[no-untyped-call]  # torch's
                optimiser.zero_grad()
                F.cross_entropy(model(train_x[chosen])[:, -1], train_y[chosen]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
        with torch.no_grad():
            found[name] = 100.0 * float((model(test_x)[:, -1].argmax(-1) == test_y).float().mean())
        rows.append((name, f"{found[name]:.1f} %", format_seconds(time.perf_counter() - begin)))
    linear = (
        LogisticRegression(max_iter=5000).fit(parts[0] / 8 - 1, parts[2]).score(parts[1] / 8 - 1, parts[3])
    )
    rows.append(("logistic regression, all pixels at once", f"{100 * linear:.1f} %", ""))
    blind, sees = found["Aaren, a set of pixels"], found["Aaren, convolution and positions"]
    return Section(
        title="Order",
        about="Handwritten digits as 64 pixels, one after the other. A layer without decay sees a set of "
        "items: order has to be told.",
        columns=("", "accuracy", "training"),
        rows=tuple(rows),
        summary=f"order: digits pixel by pixel {blind:.0f} % as a set, {sees:.0f} % with order "
        f"(Transformer {found['Transformer, positions']:.0f})",
        code="Encoder(width=64, num_heads=4, conv=Conv(kernel=4), position='learned')",
        note="A model that sees all pixels at once needs no sense of order, and is better here.",
        is_learned=sees >= 80.0,
        numbers={"with_order": sees, "as_a_set": blind},
    )


def stream(tokens: int = 20_000) -> Section:
    """Push many tokens through one stream: bytes carried and time per token, torch and native."""
    from aaren.nn import Encoder
    from aaren.stream.session import Session

    torch.manual_seed(SEED)
    encoder, twin = (
        Encoder(width=64, num_heads=4, num_layers=2, ff_width=128, mixer=mixer).eval().fold()
        for mixer in MIXERS.values()
    )
    items = torch.randn(256, 64)
    sessions = {
        "Aaren, native engine": Session(encoder, engine="native"),
        "Aaren, torch": Session(encoder, engine="torch"),
        "Transformer, torch": Session(twin, engine="torch"),
    }
    rows, lines, seconds, carried = [], [], {}, {}
    step = tokens // 40
    for name, session in sessions.items():
        places, sizes_kept = [], []
        begin = time.perf_counter()
        for index in range(1, tokens + 1):
            session.push(items[index % len(items)])
            if index % step == 0:
                places.append(float(index))
                sizes_kept.append(session.state.nbytes / 1e6)
        seconds[name] = time.perf_counter() - begin
        carried[name] = session.state.nbytes
        rows.append((name, format_bytes(carried[name]), format_seconds(seconds[name] / tokens)))
        if name != "Aaren, native engine":
            lines.append(Line(name.partition(",")[0], places, sizes_kept))
    native, eager = (1e6 * seconds[f"Aaren, {engine}"] / tokens for engine in ("native engine", "torch"))
    grown = carried["Transformer, torch"] / carried["Aaren, torch"]
    return Section(
        title=f"A stream of {tokens:,} tokens",
        about="Two layers of width 64, one token at a time. What Aaren carries does not grow; a Transformer "
        "keeps every token.",
        columns=("", f"carried after {tokens:,} tokens", "time per token, on average"),
        rows=tuple(rows),
        summary=f"stream: {format_bytes(carried['Aaren, torch'])} after {tokens:,} tokens "
        f"(Transformer {grown:,.0f}x), {native:.0f} µs each, torch {eager:.0f}",
        code="session = model.stream()                       # engine='auto': native where it can be\n"
        "answer = session.push(item)\nsaved = session.to_bytes()",
        lines=tuple(lines),
        axes=("tokens", "megabytes carried"),
        numbers={"native_microseconds": native, "times_smaller": grown},
    )


TASKS = (  # seconds: on one core of a server, to tell how long is left
    Task("operator", operator, 20.0, is_alone=True),
    Task("classification", vowels, 60.0),
    Task("events", events, 80.0),
    Task("forecasting", forecast, 20.0),
    Task("policy", policy, 60.0),
    Task("order", order, 80.0),
    Task("stream", stream, 40.0, is_alone=True),
)
