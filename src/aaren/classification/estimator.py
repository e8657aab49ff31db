"""AarenClassifier: random causal convolutions pooled by running means, with ridge heads, as a stream.

It takes what scikit-learn and aeon take, is fitted in closed form, and answers for whole series or sample by
sample.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aaren.classification.batches import LabelledSeries, pad
from aaren.classification.data import Case, require_learnable, steady_statistics
from aaren.classification.early_stop import EarlyStop, LeftOut
from aaren.classification.frames import (
    check_cases,
    from_table,
    is_table,
    match_labels,
    read_panel,
    refuse_fill_values,
    require_comparable,
    require_rows,
    require_seen,
    scale,
    warn_if_transposed,
)
from aaren.classification.random_convolutions import BLOCK_VALUES, POSITIONS, FeatureClassifier
from aaren.classification.ridge_classifier import (
    MOST_EXACT,
    SIZES,
    choose_features,
    fit_features,
    predict_left_out,
)
from aaren.classification.session import ClassifierSession, Readable, decision_steps
from aaren.engine.config import EngineConfig
from aaren.engine.determinism import repeatable
from aaren.engine.estimator import Estimator, Learned, RandomState
from aaren.engine.progress import Observer
from aaren.errors import ConfigError, DataError, MissingDependencyError, require_extra, unknown_name
from aaren.export.whole import WholeStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVALUATION_BATCH = 64  # cases at once
OURS, BASELINE, MAJORITY = "AarenClassifier", "ridge on the values", "most frequent class"
EARLY_LOSS = 0.02  # of accuracy, that `stop_at="auto"` may cost
PROFILED_STEPS = 20
SAY_SECONDS = 2.0  # between two lines of progress
# A base class cannot wait until it is used; this module is imported only when its estimator is asked for.
try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingDependencyError(
        "AarenClassifier needs scikit-learn 1.6 or newer: pip install 'aaren[classification]'"
    ) from error


class AarenClassifier(Estimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classify time series, whole or while they come in.

    X is a 3-D array (cases, channels, steps), a 2-D array or frame of series of one channel, one per row, a
    list of series of any lengths, each (channels, steps) or (steps,), or a frame with an index of series and
    time and a column per channel.

    Args:
        size: "default", about 25 kB of state for a stream, or "small", below 8 kB.
        random_state: an int makes fits repeatable, None does not.
        threads: of torch while fitting; 0: as torch chooses.
        verbose: show progress, and at the end state size and time per sample.

    >>> steps, starts = np.arange(20), np.arange(40)[:, np.newaxis]
    >>> X = np.sin(np.where(starts % 2, 0.9, 0.3) * steps + starts)
    >>> classifier = AarenClassifier()
    >>> classifier.fit(X, np.where(np.arange(40) % 2, "fast", "slow")).score(X, ["slow", "fast"] * 20) > 0.9
    True
    >>> session = classifier.stream()
    >>> for sample in X[0]:
    ...     probabilities = session.push(sample)
    >>> str(session.label)
    'slow'
    """

    def __init__(
        self,
        *,
        size: str = "default",
        random_state: RandomState = 0,
        threads: int = 0,
        verbose: bool | int = False,
    ) -> None:
        self.size = size
        self.random_state = random_state
        self.threads = threads
        self.verbose = verbose

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: object, y: ArrayLike | None) -> "AarenClassifier":  # noqa: N803  scikit-learn's name
        """Train on labelled series."""
        if self.size not in SIZES:
            raise unknown_name("size", str(self.size), SIZES)
        cases, labels = self._read_training(X, y)
        num_channels = check_cases(cases)
        warn_if_transposed(cases)
        require_comparable(labels)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        require_learnable(numbers.astype(np.int64), where="y")
        refuse_fill_values(cases)
        with np.errstate(over="ignore", invalid="ignore"):  # `scale` refuses what comes of it
            mean, deviation = steady_statistics(cases)
        length = max(len(case) for case in cases)
        series = pad(scale(cases, mean, deviation), numbers.astype(np.int64), length=length)
        observer = self._observer()
        begin = time.perf_counter()
        self.model_, self.left_out_ = self._fit_model(series, len(classes), observer=observer)
        self.classes_, self.mean_, self.deviation_ = classes, mean, deviation
        self.n_channels_, self.length_ = num_channels, length
        self.model_.preprocessing = {
            "classes": [str(label) for label in classes.tolist()],
            "mean": mean.tolist(),
            "deviation": deviation.tolist(),
        }
        self._compare(series)
        if self.verbose:
            observer.say(self._summary(time.perf_counter() - begin))
            observer.say(self.table())
        return self

    def table(self) -> str:
        """Return the accuracy on training cases that were left out, ours and the baselines', and the verdict.

        The baseline is linear: ridge regression on the values of a series, and the same cases left out.
        """
        check_is_fitted(self, "model_")
        if not self.held_out_:
            return (
                f"There is no comparison with baselines: every case is left out in turn only of up to "
                f"{MOST_EXACT:,} cases."
            )
        lines = [f"{'on cases left out':28} accuracy"]
        lines += [f"{name:28} {found:.3f}" for name, found in self.held_out_.items()]
        gain, error = self.gain_
        lines.append(f"{OURS} is better by {gain:.3f} ± {error:.3f}")
        if gain < 0.0:
            lines[-1] = f"{BASELINE} is better by {-gain:.3f} ± {error:.3f}: use the baseline."
        elif gain <= error:
            lines[-1] += ", which may be chance: the baseline will do."
        return "\n".join(lines)

    def _compare(self, series: LabelledSeries) -> None:
        """Compare with the baseline where every case was left out in turn."""
        self.held_out_: dict[str, float] = {}
        self.gain_ = math.nan, math.nan
        if len(self.left_out_.labels) != len(series):
            return  # more cases than can be left out in turn
        labels, count = series.labels, len(self.classes_)
        with repeatable(EngineConfig(threads=self.threads), seed=0):
            theirs = (predict_left_out(series, count) == labels).double()
        ours = (self.left_out_.probabilities[:, -1].argmax(-1) == labels).double()
        most = float(torch.bincount(labels, minlength=count).max()) / len(labels)
        self.held_out_ = {OURS: float(ours.mean()), BASELINE: float(theirs.mean()), MAJORITY: most}
        self.gain_ = float((ours - theirs).mean()), float((ours - theirs).std() / len(labels) ** 0.5)

    def predict_proba(self, X: object) -> NDArray[np.float64]:  # noqa: N803  scikit-learn's name
        """Return the probability of every class, (cases, classes), in the order of `classes_`."""
        cases = scale(self._read(X), self.mean_, self.deviation_)
        return self._ask(cases, lambda model, part: model(part.values, mask=part.mask))

    def predict_proba_at(self, X: object, fraction: float) -> NDArray[np.float64]:  # noqa: N803
        """Return the probabilities after a fraction of each series, rounded up to whole steps, as a stream.

        Args:
            X: as in `predict_proba`.
            fraction: of every series, above 0 and at most 1; at 1 the series is complete.
        """
        if not 0.0 < fraction <= 1.0:
            raise ConfigError(f"fraction must be above 0 and at most 1; got {fraction}.")
        if fraction == 1.0:
            return self.predict_proba(X)
        cases = scale(self._read(X), self.mean_, self.deviation_)

        def ask(model: FeatureClassifier, part: LabelledSeries) -> Tensor:
            steps = torch.ceil(part.mask.sum(1).double() * fraction - 1e-8).long().clamp(min=1)
            return model.score_prefixes(part.values, steps.unsqueeze(1), mask=part.mask).squeeze(1)

        return self._ask(cases, ask)

    def predict(self, X: object) -> NDArray[np.generic]:  # noqa: N803  scikit-learn's name
        """Return the most probable class of every case."""
        best = self.predict_proba(X).argmax(axis=1)
        return cast("NDArray[np.generic]", self.classes_[best])

    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Return the accuracy; labels that `fit` never saw are refused."""
        check_is_fitted(self, "model_")
        labels = match_labels(X, y)
        require_seen(np.asarray(labels), self.classes_)
        return float(super().score(X, labels, sample_weight))

    def stream(
        self,
        batch_size: int | None = None,
        *,
        stop_at: float | str | EarlyStop | None = None,
        engine: str = "auto",
    ) -> "ClassifierSession[tuple[object, ...]]":
        """Open a session: push raw samples one by one, read class probabilities after each.

        Args:
            batch_size: how many streams go side by side; None: one, whose samples lack that axis.
            stop_at: decide (`session.is_decided`, `session.decision`) as soon as a class is this probable;
                "auto": the threshold that costs at most two points of accuracy, see `early_stop`. The rule
                is evaluated ten times over the length of training, as often as it was validated.
            engine: "native" (the C runtime), "torch", or "auto": native where the model can be lowered.
        """
        check_is_fitted(self, "model_")
        return ClassifierSession(
            cast("Readable[tuple[object, ...]]", self.model_.fold()),
            classes=self.classes_,
            batch_size=batch_size,
            threshold=self._threshold(stop_at),
            decided_at=decision_steps(self.length_),
            engine=engine,
        )

    def early_stop(self, *, loss: float = EARLY_LOSS) -> EarlyStop:
        """Return the lowest threshold of `stop_at` that costs at most so much accuracy, and its accuracy.

        It is validated on training cases, each left out of the fit in turn. A margin of one standard error is
        kept; a threshold above 1, which is never reached, means that no early decision keeps within the loss.

        Args:
            loss: of accuracy against waiting for the end, 0.02 = two points.
        """
        check_is_fitted(self, "model_")
        return self.left_out_.choose(loss)

    def plot_early_stop(self, *, loss: float = EARLY_LOSS, axes: "Axes | None" = None) -> "Axes":
        """Draw accuracy against the share of a series that is waited for, by threshold of `stop_at`.

        Args:
            loss: of accuracy; the threshold that keeps to it is marked.
            axes: of matplotlib, to draw into; None: new ones.
        """
        check_is_fitted(self, "model_")
        left_out = self.left_out_
        if axes is None:
            pyplot = require_extra("matplotlib.pyplot", extra="report", purpose="plot_early_stop")
            axes = cast("Axes", pyplot.subplots(figsize=(6, 4), layout="constrained")[1])
        found = left_out.curve(np.linspace(0.3, 1.0, 71).tolist())
        axes.plot([100 * stop.share_seen for stop in found], [100 * stop.accuracy for stop in found])
        axes.axhline(100 * found[0].full_accuracy, color="grey", linestyle=":", label="waiting for the end")
        chosen = left_out.choose(loss)
        name = f"stop_at={chosen.threshold:.2f}: at most {100 * loss:.0f} points lost"
        axes.plot([100 * chosen.share_seen], [100 * chosen.accuracy], "o", label=name)
        axes.set_xlabel("part of the series seen, %")
        axes.set_ylabel("accuracy of cases left out, %")
        axes.legend()
        return axes

    def whole_step(self) -> WholeStep:
        """Return what is exported: from a raw sample to the probabilities of the classes."""
        check_is_fitted(self, "model_")
        return self.model_.whole_step()

    def _require_fitted(self) -> None:
        check_is_fitted(self, "model_")

    def _state_dict(self) -> Learned:
        labels = self.classes_.tolist()
        if not all(isinstance(label, str | int | float | bool) for label in labels):
            raise ConfigError(
                f"labels that are saved must be text, numbers or booleans; got {type(labels[0]).__name__}. "
                f"Fit with y.astype(str)."
            )
        return Learned(
            model=self.model_,
            facts={
                "classes": {"dtype": self.classes_.dtype.str, "values": labels},
                "length": self.length_,
                "num_features": getattr(self, "n_features_in_", None),
                "held_out": dict(self.held_out_),
                "gain": list(self.gain_) if self.held_out_ else None,
            },
            arrays={"mean": self.mean_, "deviation": self.deviation_}
            | {name: getattr(self.left_out_, name).numpy() for name in LeftOut.__slots__},
        )

    def _restore(self, learned: Learned) -> None:
        facts: dict[str, Any] = dict(learned.facts)
        self.model_ = cast("FeatureClassifier", learned.model)
        self.classes_ = np.array(facts["classes"]["values"], dtype=np.dtype(facts["classes"]["dtype"]))
        self.mean_, self.deviation_ = learned.arrays["mean"], learned.arrays["deviation"]
        self.n_channels_, self.length_ = len(self.mean_), facts["length"]
        if facts["num_features"] is not None:
            self.n_features_in_ = facts["num_features"]
        self.held_out_ = facts["held_out"]
        self.gain_ = tuple(facts["gain"] or (math.nan, math.nan))
        self.left_out_ = LeftOut(
            **{name: torch.from_numpy(learned.arrays[name]) for name in LeftOut.__slots__}
        )

    def _fit_model(
        self, series: LabelledSeries, num_classes: int, *, observer: Observer
    ) -> tuple[FeatureClassifier, LeftOut]:
        told = time.monotonic()

        def on_step(done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told > SAY_SECONDS:
                told = time.monotonic()
                observer.say(f"AarenClassifier: {done} of {total} cases and heads done")

        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with repeatable(EngineConfig(threads=self.threads), seed=seed):
            config = choose_features(series, num_classes=num_classes, size=self.size, seed=seed)
            return fit_features(series, config, seed=seed, on_step=on_step)

    def _threshold(self, stop_at: float | str | EarlyStop | None) -> float | None:
        if stop_at is None:
            return None
        if isinstance(stop_at, EarlyStop):
            return stop_at.threshold
        if isinstance(stop_at, str):
            if stop_at != "auto":
                raise unknown_name("stop_at", stop_at, ["auto"])
            return self.early_stop().threshold
        given: object = stop_at  # whatever the type says
        if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not given > 0.0:
            raise ConfigError(
                f"stop_at must be a probability above 0, 'auto', or what early_stop returned; got {given!r}."
            )
        return float(given)

    def _ask(
        self, cases: Sequence[Case], ask: Callable[[FeatureClassifier, LabelledSeries], Tensor]
    ) -> NDArray[np.float64]:
        # In float64, so that an answer does not depend on what else is in the batch.
        model = copy.deepcopy(self.model_).double().eval()
        probabilities = np.empty((len(cases), len(self.classes_)))
        size = max(1, min(EVALUATION_BATCH, BLOCK_VALUES // (max(map(len, cases)) * len(POSITIONS))))
        with torch.no_grad():
            for start in range(0, len(cases), size):
                batch = cases[start : start + size]
                part = pad(batch, np.zeros(len(batch), dtype=np.int64), length=max(map(len, batch)))
                probabilities[start : start + size] = ask(model, part).softmax(-1).numpy()
        return probabilities

    def _summary(self, seconds: float) -> str:
        """Say what a stream will cost."""
        session, row = self.stream(), torch.from_numpy(self.mean_)
        session.push(row)
        begin = time.perf_counter()
        for _ in range(PROFILED_STEPS):
            session.push(row)
        each = (time.perf_counter() - begin) / PROFILED_STEPS
        size, stop = self.model_.init_state(1).nbytes, self.early_stop()
        return (
            f"AarenClassifier: fitted in {seconds:.1f} s; a stream keeps {size:,} bytes and takes "
            f"{1e6 * each:,.0f} µs per sample; accuracy {stop.full_accuracy:.3f} on cases left out, "
            f"{stop.accuracy:.3f} after {100 * stop.share_seen:.0f} % of a series with stop_at='auto' "
            f"({stop.threshold:.2f})."
        )

    def _read_training(self, X: object, y: ArrayLike | None) -> tuple[list[Case], NDArray[np.generic]]:  # noqa: N803
        cases = None if y is None or is_table(X) else read_panel(X)
        if cases is None:
            require_rows(X)
            table, labels = validate_data(self, X, y, dtype=np.float64)
            return from_table(table), labels
        labels = column_or_1d(match_labels(X, y), warn=True)
        check_consistent_length(cases, labels)
        if hasattr(self, "n_features_in_"):
            del self.n_features_in_  # of an earlier fit to a table
        return cases, labels

    def _read(self, X: object) -> list[Case]:  # noqa: N803
        check_is_fitted(self, "model_")
        cases = read_panel(X)
        if cases is None:
            require_rows(X)
        if cases is None and hasattr(self, "n_features_in_"):
            self._require_same_width(X)
            cases = from_table(validate_data(self, X, reset=False, dtype=np.float64))
        elif cases is None:
            cases = from_table(check_array(X, dtype=np.float64))
        check_cases(cases, num_channels=self.n_channels_)
        return cases

    def _require_same_width(self, X: object) -> None:  # noqa: N803
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if len(shape) == 2 and shape[1] != self.n_features_in_:
            raise DataError(  # in scikit-learn's words, which its own checks look for, and with what to do
                f"X has {shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                f"features as input: a table has the length of the fitted one. For series of another pass "
                f"X[:, np.newaxis], a panel (cases, channels, steps)."
            )
