"""AarenClassifier: a scikit-learn classifier of time series that can also be streamed.

By default its model is a `FeatureClassifier`, fitted in closed form; on request a network, trained with
`ClassificationExperiment` as the lab does, or both. It answers for whole series or sample by sample.
"""

import copy
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aaren.classification.batches import LabelledSeries, hold_out, pad
from aaren.classification.blend import BlendedClassifier, blend
from aaren.classification.config import ClassificationConfig
from aaren.classification.data import Case, require_learnable, steady_statistics
from aaren.classification.experiment import ClassificationParts
from aaren.classification.features import BLOCK_VALUES, POSITIONS, FeatureClassifier
from aaren.classification.model import Classifier, ClassifierConfig
from aaren.classification.network import (
    CLIP_NORM,
    NOISE,
    SMOOTHING,
    STILL_FALLING,
    WEIGHT_DECAY,
    NetworkExperiment,
    is_still_improving,
    judge_prefixes,
)
from aaren.classification.panels import (
    batches,
    check_cases,
    from_table,
    is_table,
    match_labels,
    read_panel,
    require_comparable,
    require_rows,
    require_seen,
    scale,
    warn_if_transposed,
)
from aaren.classification.predict import require_room
from aaren.classification.ridge import (
    MOST_EXACT,
    SIZES,
    EarlyStop,
    LeftOut,
    fit_features,
    plan_features,
    predict_left_out,
    sure_gain,
)
from aaren.classification.session import LabelledSession, Readable, decision_steps
from aaren.engine.config import EngineConfig
from aaren.engine.determinism import repeatable
from aaren.engine.estimator import RandomState, Settings, reading, saved_random_state
from aaren.engine.loop import fit as fit_experiment
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import RunStatus
from aaren.engine.progress import Observer, choose_observer
from aaren.errors import ConfigError, DataError, MissingDependencyError, require_extra, unknown_name
from aaren.files.checksums import read_files, write_files
from aaren.nn.conv import Conv
from aaren.stream.saved import load_model, model_files
from aaren.stream.whole import WholeStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVALUATION_BATCH = 64  # cases at once, without gradients
OURS, BASELINE, MAJORITY = "AarenClassifier", "ridge on the values", "most frequent class"
MODELS = ("features", "network", "both")
RECIPES = (None, "paper")
HELD_OUT = 0.2  # of the cases, where `model="both"` asks whether averaging pays
EARLY_LOSS = 0.02  # of accuracy, that `stop_at="auto"` may cost
PROFILED_STEPS = 20
STEM_KERNEL, STEM_DILATIONS = 9, (1, 2, 4, 8)
SAY_SECONDS = 2.0  # between two lines of progress
ESTIMATOR_FILE, LEFT_OUT_FILE = "estimator.json", "left_out.safetensors"
Model: TypeAlias = Classifier | FeatureClassifier | BlendedClassifier
# A base class cannot wait until it is used; this module is imported only when its estimator is asked for.
try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingDependencyError(
        "AarenClassifier needs scikit-learn 1.6 or newer: pip install 'aaren[classification]'"
    ) from error


class AarenClassifier(Settings, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classify time series, whole or while they come in.

    X is a 3-D array (cases, channels, steps), a 2-D array or frame of series of one channel, one per row, a
    list of series of any lengths, each (channels, steps) or (steps,), or a frame with an index of series and
    time and a column per channel.

    Args:
        model: "features": random causal convolutions pooled by Aaren, heads solved in closed form, in
            seconds. "network": a causal convolution stem and Aaren layers, trained. "both": the mean of
            their probabilities where that is better on held-out cases, beyond chance, otherwise the
            features alone.
        size: of the features: "default", about 45 kB of state for a stream, or "small", below 8 kB.
        recipe: "paper": the network as published, which cannot be streamed; the settings of the network
            below are then ignored.
        width: of the network; with num_layers it sets the capacity.
        num_heads: must divide width.
        num_layers: of the encoder; 0: the stem alone, to see what the layers add to it.
        ff_width: inner width of its feed-forward part; None: twice the width.
        dropout: while training.
        mixer: "aaren", "softmax" (a Transformer), "gru", "lstm", "wkv", "linear", "retnet" or "mingru".
        stem: put a stack of causal convolutions before the layers, which are otherwise blind to order.
        embedding: "causal", or "circular" as published, which cannot be streamed.
        head: "pooled", which takes series of any length, or "flattened" as published, with weights for every
            step up to the longest series of training and an error for longer ones.
        standardise: scale every channel to mean 0 and standard deviation 1 over the training cases.
        updates: of the network's weights, at least; the learning rate falls to 0 over them.
        epochs: passes over the cases instead; None: as many as `updates` need.
        batch_size: cases per update.
        learning_rate: the highest.
        validation_fraction: of the cases, held out to choose the network's epoch; 0: train on all, keep the
            last.
        patience: epochs without improvement on the held-out cases before training ends.
        random_state: an int makes fits repeatable, None does not.
        device: of the network's training: "auto", "cpu" or "cuda".
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
        model: str = "features",
        size: str = "default",
        recipe: str | None = None,
        width: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        ff_width: int | None = None,
        dropout: float = 0.2,
        mixer: str = "aaren",
        stem: bool = True,
        embedding: str = "causal",
        head: str = "pooled",
        standardise: bool = True,
        updates: int = 1000,
        epochs: int | None = None,
        batch_size: int = 32,
        learning_rate: float = 2e-3,
        validation_fraction: float = 0.0,
        patience: int = 10,
        random_state: RandomState = 0,
        device: str = "auto",
        threads: int = 0,
        verbose: bool | int = False,
    ) -> None:
        self.model = model
        self.size = size
        self.recipe = recipe
        self.width = width
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.ff_width = ff_width
        self.dropout = dropout
        self.mixer = mixer
        self.stem = stem
        self.embedding = embedding
        self.head = head
        self.standardise = standardise
        self.updates = updates
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.device = device
        self.threads = threads
        self.verbose = verbose

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: object, y: ArrayLike | None) -> "AarenClassifier":  # noqa: N803  scikit-learn's name
        """Train on labelled series."""
        self._require_settings()
        cases, labels = self._read_training(X, y)
        num_channels = check_cases(cases)
        warn_if_transposed(cases)
        require_comparable(labels)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        require_learnable(numbers.astype(np.int64), where="y")
        mean, deviation = np.zeros(num_channels), np.ones(num_channels)
        if self.standardise:
            with np.errstate(over="ignore", invalid="ignore"):  # `scale` refuses what comes of it
                mean, deviation = steady_statistics(cases)
        length = max(len(case) for case in cases)
        series = pad(scale(cases, mean, deviation), numbers.astype(np.int64), length=length)
        seed = int(_draw_seed(self.random_state))
        observer = choose_observer(None) if self.verbose else Observer()
        begin = time.perf_counter()
        names = tuple(map(str, classes))
        self.model_, self.left_out_, status = self._fit_model(series, names, seed=seed, observer=observer)
        self.classes_, self.mean_, self.deviation_ = classes, mean, deviation
        self.n_channels_, self.length_ = num_channels, length
        self.n_iter_ = 1 if status is None else status.curve[-1]["epoch"]
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
                f"There is no comparison with baselines: every case is left out in turn only by "
                f"model='features', of up to {MOST_EXACT:,} cases."
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
        self.held_out_, self.gain_ = {}, (math.nan, math.nan)
        if self.left_out_ is None or len(self.left_out_.labels) != len(series):
            return  # a network, or more cases than can be left out in turn
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

        def ask(model: Model, part: LabelledSeries) -> Tensor:
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
    ) -> "LabelledSession[tuple[object, ...]]":
        """Open a session: push raw samples one by one, read class probabilities after each.

        Args:
            batch_size: how many streams go side by side; None: one, whose samples lack that axis.
            stop_at: decide (`session.is_decided`, `session.decision`) as soon as a class is this probable;
                "auto": the threshold that costs at most two points of accuracy, see `early_stop`. The rule
                is evaluated ten times over the length of training, as often as it was validated.
            engine: "native" (the C runtime), "torch", or "auto": native where the model can be lowered.
        """
        check_is_fitted(self, "model_")
        return LabelledSession(
            cast("Readable[tuple[object, ...]]", self.model_.fold()),
            classes=self.classes_,
            mean=self.mean_,
            deviation=self.deviation_,
            batch_size=batch_size,
            threshold=self._threshold(stop_at),
            decided_at=decision_steps(self.length_),
            engine=engine,
        )

    def early_stop(self, *, loss: float = EARLY_LOSS) -> EarlyStop:
        """Return the lowest threshold of `stop_at` that costs at most so much accuracy, and its accuracy.

        It is validated on training cases that were left out of the fit: of the features each in turn, of a
        network those of `validation_fraction`. A margin of one standard error is kept; a threshold above
        1, which is never reached, means that no early decision keeps within the loss.

        Args:
            loss: of accuracy against waiting for the end, 0.02 = two points.
        """
        return self._left_out().choose(loss)

    def plot_early_stop(self, *, loss: float = EARLY_LOSS, axes: "Axes | None" = None) -> "Axes":
        """Draw accuracy against the share of a series that is waited for, by threshold of `stop_at`.

        Args:
            loss: of accuracy; the threshold that keeps to it is marked.
            axes: of matplotlib, to draw into; None: new ones.
        """
        left_out = self._left_out()
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
        self.model_.preprocessing = self._learned()
        return self.model_.whole_step()

    def _learned(self) -> dict[str, list[str] | list[float]]:
        return {
            "classes": [str(label) for label in self.classes_.tolist()],
            "mean": self.mean_.tolist(),
            "deviation": self.deviation_.tolist(),
        }

    def save(self, folder: str | Path) -> Path:
        """Write the fitted estimator into a folder, which is made if need be, and return the folder.

        Nothing is pickled: weights are safetensors, the rest is JSON. Labels are text, numbers or booleans.
        """
        check_is_fitted(self, "model_")
        labels = self.classes_.tolist()
        if not all(isinstance(label, str | int | float | bool) for label in labels):
            raise ConfigError(
                f"labels that are saved must be text, numbers or booleans; got {type(labels[0]).__name__}. "
                f"Fit with y.astype(str)."
            )
        self.model_.preprocessing = self._learned()
        settings = {**self.get_params(), "random_state": saved_random_state(self.random_state)}
        described = {
            "settings": {name: _plain(value) for name, value in settings.items()},
            "classes": {"dtype": self.classes_.dtype.str, "values": labels},
            "mean": self.mean_.tolist(),
            "deviation": self.deviation_.tolist(),
            "length": self.length_,
            "num_iterations": self.n_iter_,
            "num_features": getattr(self, "n_features_in_", None),
            "held_out": self.held_out_,
            "gain": self.gain_ if self.held_out_ else None,
        }
        files = {
            **model_files(self.model_),
            ESTIMATOR_FILE: (json.dumps(described, indent=2) + "\n").encode(),
        }
        if self.left_out_ is not None:
            tensors = {name: getattr(self.left_out_, name).contiguous() for name in LeftOut.__slots__}
            files[LEFT_OUT_FILE] = safetensors.torch.save(tensors)
        write_files(Path(folder), files)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "AarenClassifier":
        """Return the estimator that `save` wrote."""
        folder = Path(folder)
        path = folder / ESTIMATOR_FILE
        if not path.is_file():
            raise DataError(
                f"no estimator in {folder}: {path.name} is missing. Give the folder that "
                f"AarenClassifier.save wrote; for that of a run use AarenClassifier.from_run."
            )
        with reading(folder, cls.__name__):
            return cls._from_description(folder, read_files(folder, ESTIMATOR_FILE))

    @classmethod
    def _from_description(cls, folder: Path, files: Mapping[str, bytes]) -> "AarenClassifier":
        described = json.loads(files[ESTIMATOR_FILE])
        estimator = cls(**described["settings"])
        estimator.model_ = cast("Model", load_model(folder))
        found = described["classes"]
        estimator.classes_ = np.array(found["values"], dtype=np.dtype(found["dtype"]))
        estimator.mean_, estimator.deviation_ = np.array(described["mean"]), np.array(described["deviation"])
        estimator.n_channels_, estimator.length_ = len(estimator.mean_), described["length"]
        estimator.n_iter_ = described["num_iterations"]
        if described["num_features"] is not None:
            estimator.n_features_in_ = described["num_features"]
        estimator.held_out_ = described["held_out"]
        estimator.gain_ = tuple(described["gain"] or (math.nan, math.nan))
        estimator.left_out_ = None
        if LEFT_OUT_FILE in files:
            estimator.left_out_ = LeftOut(**safetensors.torch.load(files[LEFT_OUT_FILE]))
        return estimator

    @classmethod
    def from_run(cls, folder: str | Path) -> "AarenClassifier":
        """Return the model of a finished `aaren train classification` run as a fitted estimator.

        It takes raw values and scales them as TRAIN was scaled.
        """
        from aaren.engine.use import open_run, read_model

        folder = Path(folder)
        run, _ = open_run(folder)
        model, learned = read_model(folder)
        if not isinstance(model, Model) or learned["is_normalised_across_channels"]:
            raise ConfigError(
                f"the run in {folder} ({' '.join(map(str, run.cell().values()))}) is no trained classifier "
                f"of series scaled by TRAIN alone; use `aaren predict`."
            )
        config = model.config
        estimator = cls()
        if isinstance(config, ClassifierConfig):
            names = ["width", "num_heads", "num_layers", "ff_width", "dropout", "mixer", "embedding", "head"]
            settings = {name: getattr(config, name) for name in names}
            estimator = cls(model="network", stem=config.conv is not None, **settings)
        estimator.model_, estimator.classes_ = model, np.array(learned["classes"])
        estimator.mean_ = np.array(learned["mean"])
        estimator.deviation_ = np.array(learned["deviation"]) + np.finfo(np.float64).eps
        estimator.n_channels_, estimator.length_ = config.num_channels, config.length
        estimator.left_out_, estimator.n_iter_ = None, 1
        estimator.held_out_, estimator.gain_ = {}, (math.nan, math.nan)
        return estimator

    def _fit_model(
        self, series: LabelledSeries, names: tuple[str, ...], *, seed: int, observer: Observer
    ) -> tuple[Model, LeftOut | None, RunStatus | None]:
        """Fit the chosen model; return also its scores on left-out cases, and how a network was trained."""
        if self.model == "features" and self.recipe is None:
            return *self._fit_features(series, names, seed=seed, observer=observer), None
        if self.model != "both":
            return self._fit_network(series, names, seed=seed, observer=observer)
        kept, held = hold_out(series.labels, self.validation_fraction or HELD_OUT, seed=seed)
        part, judges = series.select(kept), series.select(held)
        features, _ = self._fit_features(part, names, seed=seed, observer=observer)
        network, _, _ = self._fit_network(part, names, seed=seed, observer=observer)
        losses = {
            name: F.cross_entropy(_scores(model, judges), judges.labels, reduction="none")
            for name, model in (("features", features), ("both", blend(features, network)))
        }
        self.losses_ = {name: float(of_cases.mean()) for name, of_cases in losses.items()}
        pays = sure_gain(losses["features"], losses["both"]) > 0.0
        observer.say(
            f"log loss of {len(judges)} held-out cases: features {self.losses_['features']:.3f}, both "
            f"{self.losses_['both']:.3f}; "
            f"{'both are' if pays else 'no gain beyond chance, the features alone are'} fitted to all cases"
        )
        features, left_out = self._fit_features(series, names, seed=seed, observer=observer)
        if not pays:
            return features, left_out, None
        network, _, status = self._fit_network(series, names, seed=seed, observer=observer)
        return blend(features, network), None, status

    def _fit_features(
        self, series: LabelledSeries, names: tuple[str, ...], *, seed: int, observer: Observer
    ) -> tuple[FeatureClassifier, LeftOut]:
        config = plan_features(
            num_channels=series.values.shape[2],
            num_classes=len(names),
            lengths=series.mask.sum(1).tolist(),
            size=self.size,
        )
        told = time.monotonic()

        def on_step(done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told > SAY_SECONDS:
                told = time.monotonic()
                observer.say(f"AarenClassifier: {done} of {total} cases and heads done")

        engine = EngineConfig(device=self.device, threads=self.threads)  # type: ignore[arg-type]  # it checks
        with repeatable(engine, seed=seed):
            return fit_features(series, config, seed=seed, on_step=on_step)

    def _fit_network(
        self, series: LabelledSeries, names: tuple[str, ...], *, seed: int, observer: Observer
    ) -> tuple[Classifier, LeftOut | None, RunStatus]:
        held = None
        if self.validation_fraction:
            kept, held_out = hold_out(series.labels, self.validation_fraction, seed=seed)
            held, series = series.select(held_out), series.select(kept)
        channels = series.values.shape[2]
        is_published = self.recipe == "paper"
        training = ClassificationConfig(rule="clean", standardise="train")  # as published
        if not is_published:
            epochs = self.epochs or -(-self.updates // -(-len(series) // self.batch_size))
            training = ClassificationConfig(
                rule="clean",
                standardise="train",
                optimiser=OptimiserConfig(
                    name="adamw", learning_rate=self.learning_rate, weight_decay=WEIGHT_DECAY
                ),
                schedule="linear",
                batch_size=self.batch_size,
                epochs=epochs,
                patience=self.patience,
                clip_norm=CLIP_NORM,
            )
        experiment = NetworkExperiment(
            training,
            ClassificationParts(
                name="X",
                classes=names,
                train=series,
                validation=held,
                test=None,
                mean=np.zeros(channels),
                deviation=np.ones(channels),
            ),
            seed=seed,
            network=self._network_config(channels, len(names), series.values.shape[1]),
            smoothing=0.0 if is_published else SMOOTHING,
            noise=0.0 if is_published else NOISE,
        )
        fitted = fit_experiment(
            experiment,
            seed=seed,
            engine=EngineConfig(device=self.device, threads=self.threads),  # type: ignore[arg-type]  # it checks
            observer=observer,
            name="AarenClassifier",
        )
        self.is_still_improving_ = is_still_improving(fitted.status)
        if self.is_still_improving_:
            said = (
                f"the network was still improving after {fitted.status.update} updates: its loss fell by "
                f"more than {100 * STILL_FALLING:.0f} % over the last fifth. Raise updates or epochs."
            )
            observer.say(said)
            if self.epochs is None and not is_published:  # not the user's choice
                warnings.warn(said, ConvergenceWarning, stacklevel=4)
        model = cast("Classifier", fitted.model.to("cpu"))
        left_out = None if held is None or not model.is_causal else judge_prefixes(model, held)
        return model, left_out, fitted.status

    def _network_config(self, num_channels: int, num_classes: int, length: int) -> ClassifierConfig:
        published = ClassifierConfig(num_channels=num_channels, num_classes=num_classes, length=length)
        if self.recipe == "paper":
            return published
        return replace(
            published,
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            ff_width=2 * self.width if self.ff_width is None else self.ff_width,
            dropout=self.dropout,
            mixer=self.mixer,
            embedding=self.embedding,
            head=self.head,
            norm="pre" if self.stem else "post",
            conv=Conv(kernel=STEM_KERNEL, dilations=STEM_DILATIONS, where="stem", channels=self.width)
            if self.stem
            else None,
        )

    def _require_settings(self) -> None:
        """Report every setting that cannot be."""
        for kind, name, known in (
            ("model", self.model, MODELS),
            ("size", self.size, tuple(SIZES)),
            ("recipe", self.recipe, RECIPES),
        ):
            if name not in known:
                raise unknown_name(kind, str(name), [str(one) for one in known])
        faults = []
        for name in ("updates", "batch_size", "patience", "epochs"):
            value = getattr(self, name)
            if value is None and name == "epochs":
                continue
            if isinstance(value, bool) or not isinstance(value, Integral):
                faults.append(f"{name} must be an integer; got {value!r}")
            elif value < 1:
                faults.append(f"{name} must be at least 1; got {value}")
        if not 0.0 <= self.validation_fraction < 1.0:
            faults.append(
                f"validation_fraction must be at least 0 and below 1; got {self.validation_fraction}"
            )
        if self.recipe == "paper" and self.model == "both":
            faults.append("recipe='paper' is a network that cannot be streamed: set model='network'")
        if faults:
            raise ConfigError("; ".join(faults) + ".")

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

    def _left_out(self) -> LeftOut:
        check_is_fitted(self, "model_")
        if self.left_out_ is None:
            raise ConfigError(
                "nothing was left out of this fit, so no rule of stopping can be validated. Fit with "
                "model='features', or a network with validation_fraction=0.2; or give stop_at a probability."
            )
        return self.left_out_

    def _ask(
        self, cases: Sequence[Case], ask: Callable[[Model, LabelledSeries], Tensor]
    ) -> NDArray[np.float64]:
        # In float64, so that an answer does not depend on what else is in the batch.
        model = copy.deepcopy(self.model_).double().eval()
        found = np.empty((len(cases), len(self.classes_)))
        size = EVALUATION_BATCH
        if not isinstance(model, Classifier):
            size = max(1, min(size, BLOCK_VALUES // (max(map(len, cases)) * len(POSITIONS))))
        # The ends of a circular series see each other, and so would padding that others in the batch need.
        parted = batches(cases, size=size, by_length=not model.is_causal, least=self.length_)
        with torch.no_grad():
            for numbers in parted:
                some = [cases[number] for number in numbers]
                longest = max(len(case) for case in some)
                part = pad(some, np.zeros(len(some), dtype=np.int64), length=longest)
                found[numbers] = ask(model, part).softmax(-1).numpy()
        return found

    def _summary(self, seconds: float) -> str:
        """Say what a stream will cost."""
        said = f"AarenClassifier: fitted in {seconds:.1f} s"
        if self.model_.is_causal:
            session = self.stream()
            row = torch.from_numpy(self.mean_)
            session.push(row)
            begin = time.perf_counter()
            for _ in range(PROFILED_STEPS):
                session.push(row)
            each = (time.perf_counter() - begin) / PROFILED_STEPS
            size = self.model_.init_state(1).nbytes
            said += f"; a stream keeps {size:,} bytes and takes {1e6 * each:,.0f} µs per sample"
        if self.left_out_ is not None:
            stop = self.early_stop()
            said += (
                f"; accuracy {stop.full_accuracy:.3f} on cases left out, {stop.accuracy:.3f} after "
                f"{100 * stop.share_seen:.0f} % of a series with stop_at='auto' ({stop.threshold:.2f})"
            )
        return said + "."

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
        if isinstance(self.model_, Classifier):
            for place, case in enumerate(cases):
                require_room(self.model_.config, len(case), where=f"X, case {place}")
        return cases

    def _require_same_width(self, X: object) -> None:  # noqa: N803
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if len(shape) == 2 and shape[1] != self.n_features_in_:
            raise DataError(  # in scikit-learn's words, which its own checks look for, and with what to do
                f"X has {shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                f"features as input: a table has the length of the fitted one. For series of another pass "
                f"X[:, np.newaxis], a panel (cases, channels, steps)."
            )


@torch.no_grad()
def _scores(model: Model, series: LabelledSeries) -> Tensor:
    return torch.cat(
        [
            model(series.values[part], mask=series.mask[part])
            for part in torch.split(torch.arange(len(series)), EVALUATION_BATCH)
        ]
    )


def _plain(value: object) -> object:
    """Turn a number of numpy into one of Python, for JSON."""
    return value.item() if isinstance(value, np.generic) else value


def _draw_seed(random_state: RandomState) -> int:
    """Draw a seed from what scikit-learn calls a random state."""
    return int(check_random_state(random_state).randint(2**31 - 1))
