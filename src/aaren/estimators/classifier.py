"""AarenClassifier: a scikit-learn classifier of time series that can also go along a stream.

Takes what scikit-learn and aeon take, trains with the one engine, and answers batch-wise or sample by sample.
Reading of inputs is in `classifier_input`, the training plan in `classifier_experiment`.
"""

import copy
import json
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from aaren.data.classification.checks import require_learnable
from aaren.data.classification.hold_out import hold_out
from aaren.data.classification.loading import steady_statistics
from aaren.errors import ConfigError, DataError, MissingDependencyError
from aaren.estimators.classifier_experiment import EVALUATION_BATCH, ArrayExperiment, FitSettings
from aaren.estimators.classifier_input import (
    Case,
    batches,
    check_cases,
    from_table,
    is_table,
    pad,
    read_panel,
    scale,
)
from aaren.estimators.classifier_labels import require_comparable, require_seen
from aaren.estimators.classifier_stream import LabelledSession
from aaren.models import Classifier, ClassifierConfig
from aaren.tasks.classification_files import require_room
from aaren.tasks.classification_parts import select
from aaren.train.config import EngineConfig
from aaren.train.determinism import take_threads
from aaren.train.loop import fit as fit_experiment
from aaren.train.observe import choose_observer

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


class AarenClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classify time series; with the causal embedding also while they come in.

    X is a 3-D array (cases, channels, steps), a 2-D array of series of one channel, or a list of series of
    any lengths, each (channels, steps) or (steps,).

    Args:
        width: of the model; with num_layers the knob for capacity.
        num_heads: must divide width.
        num_layers: of the encoder.
        ff_width: inner width of its feed-forward part; None: twice the width.
        dropout: while training.
        mixer: "aaren", "softmax" (a Transformer), "gru", "lstm" or "wkv".
        embedding: "causal", or "circular" as published, which cannot be streamed.
        head: "pooled", which takes series of any length, or "flattened" as published, with weights for every
            step up to the longest series of training and an error for longer ones.
        standardise: scale every channel to mean 0 and deviation 1 over the training cases.
        epochs: passes over the cases; the learning rate falls to 0 over them.
        batch_size: cases per update.
        learning_rate: the highest.
        validation_fraction: of the cases, held out to choose the epoch; 0: train on all, keep the last.
        patience: epochs without improvement on the held-out cases before training ends.
        random_state: an int makes fits repeatable.
        device: "auto", "cpu" or "cuda".
        threads: of torch while fitting; 0: as many as torch likes.
        verbose: show progress.

    >>> steps, starts = np.arange(20), np.arange(40)[:, np.newaxis]
    >>> X = np.sin(np.where(starts % 2, 0.9, 0.3) * steps + starts)
    >>> classifier = AarenClassifier(width=16, num_layers=1, epochs=20, random_state=0)
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
        width: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        ff_width: int | None = None,
        dropout: float = 0.1,
        mixer: str = "aaren",
        embedding: str = "causal",
        head: str = "pooled",
        standardise: bool = True,
        epochs: int = 30,
        batch_size: int = 16,
        learning_rate: float = 1e-3,
        validation_fraction: float = 0.0,
        patience: int = 10,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        threads: int = 0,
        verbose: bool = False,
    ) -> None:
        self.width = width
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.ff_width = ff_width
        self.dropout = dropout
        self.mixer = mixer
        self.embedding = embedding
        self.head = head
        self.standardise = standardise
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
        take_threads()
        settings = FitSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            validation_fraction=self.validation_fraction,
            patience=self.patience,
        )
        cases, labels = self._read_training(X, y)
        num_channels = check_cases(cases)
        require_comparable(labels)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        require_learnable(torch.from_numpy(numbers), where="y")
        mean, deviation = np.zeros(num_channels), np.ones(num_channels)
        if self.standardise:
            with np.errstate(over="ignore", invalid="ignore"):  # `scale` refuses what comes of it
                mean, deviation = steady_statistics(cases)
        length = max(len(case) for case in cases)
        config = self._config(num_channels, len(classes), length)
        series = pad(scale(cases, mean, deviation), numbers.astype(np.int64), length=length)
        held = None
        seed = int(_draw_seed(self.random_state))
        if self.validation_fraction:
            kept, held_out = hold_out(series.labels, self.validation_fraction, seed=seed)
            held, series = select(series, held_out), select(series, kept)
        fitted = fit_experiment(
            ArrayExperiment(config, settings, series, held, seed=seed),
            seed=seed,
            engine=EngineConfig(device=self.device, threads=self.threads),  # type: ignore[arg-type]  # it checks
            observer=choose_observer(None) if self.verbose else None,
            name="AarenClassifier",
            is_guest=True,
        )
        self.model_ = cast("Classifier", fitted.model.to("cpu"))
        self.classes_, self.mean_, self.deviation_ = classes, mean, deviation
        self.n_channels_, self.length_ = num_channels, length
        self.n_iter_ = round(fitted.status.update / max(1, -(-len(series) // self.batch_size)))
        return self

    def predict_proba(self, X: object) -> NDArray[np.float64]:  # noqa: N803  scikit-learn's name
        """Return the probability of every class, (cases, classes), in the order of `classes_`."""
        cases = scale(self._read(X), self.mean_, self.deviation_)
        # In float64, so that an answer does not depend on what else is in the batch.
        model = copy.deepcopy(self.model_).double().eval()
        found = np.empty((len(cases), len(self.classes_)))
        # The ends of a circular series see each other, and so would padding that others in the batch need.
        parted = batches(
            cases, size=EVALUATION_BATCH, by_length=not model.config.is_causal, least=self.length_
        )
        with torch.no_grad():
            for numbers in parted:
                some = [cases[number] for number in numbers]
                longest = max(len(case) for case in some)
                part = pad(some, np.zeros(len(some), dtype=np.int64), length=longest)
                found[numbers] = model(part.values, mask=part.mask).softmax(-1).numpy()
        return found

    def predict(self, X: object) -> NDArray[np.generic]:  # noqa: N803  scikit-learn's name
        """Return the most probable class of every case."""
        best = self.predict_proba(X).argmax(axis=1)
        return cast("NDArray[np.generic]", self.classes_[best])

    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Return the accuracy; labels that `fit` never saw are refused, for they cannot be right."""
        check_is_fitted(self, "model_")
        require_seen(np.asarray(y), self.classes_)
        return float(super().score(X, y, sample_weight))

    def stream(self, batch_size: int | None = None) -> LabelledSession:
        """Open a session: push raw samples one by one, read class probabilities after each.

        Args:
            batch_size: how many streams go side by side; None: one, whose samples lack that axis.
        """
        check_is_fitted(self, "model_")
        return LabelledSession(
            self.model_.fold(),
            classes=self.classes_,
            mean=self.mean_,
            deviation=self.deviation_,
            batch_size=batch_size,
        )

    @classmethod
    def from_run(cls, folder: str | Path) -> "AarenClassifier":
        """Return the model of a finished `aaren train classification` run as a fitted estimator.

        It takes raw values and scales them as TRAIN was scaled.
        """
        from aaren.models import load_model
        from aaren.train.run import MODEL, PREPROCESSING
        from aaren.train.use import open_run

        folder = Path(folder)
        run, _ = open_run(folder)
        model = load_model(folder / MODEL)
        learned = json.loads((folder / PREPROCESSING).read_text(encoding="utf-8"))
        if not isinstance(model, Classifier) or learned["is_normalised_across_channels"]:
            raise ConfigError(
                f"the run in {folder} ({' '.join(map(str, run.cell().values()))}) is no trained classifier "
                f"of series scaled by TRAIN alone; use `aaren predict`."
            )
        config = model.config
        names = ["width", "num_heads", "num_layers", "ff_width", "dropout", "mixer", "embedding", "head"]
        estimator = cls(**{name: getattr(config, name) for name in names})
        estimator.model_, estimator.classes_ = model, np.array(learned["classes"])
        estimator.mean_ = np.array(learned["mean"])
        estimator.deviation_ = np.array(learned["deviation"]) + np.finfo(np.float64).eps
        estimator.n_channels_, estimator.length_ = config.num_channels, config.length
        return estimator

    def _config(self, num_channels: int, num_classes: int, length: int) -> ClassifierConfig:
        return ClassifierConfig(
            num_channels=num_channels,
            num_classes=num_classes,
            length=length,
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            ff_width=2 * self.width if self.ff_width is None else self.ff_width,
            dropout=self.dropout,
            mixer=self.mixer,
            embedding=self.embedding,
            head=self.head,
        )

    def _read_training(self, X: object, y: ArrayLike | None) -> tuple[list[Case], NDArray[np.generic]]:  # noqa: N803
        cases = None if y is None or is_table(X) else read_panel(X)
        if cases is None:
            table, labels = validate_data(self, X, y, dtype=np.float64)
            return from_table(table), labels
        labels = column_or_1d(y, warn=True)
        check_consistent_length(cases, labels)
        if hasattr(self, "n_features_in_"):
            del self.n_features_in_  # of an earlier fit to a table
        return cases, labels

    def _read(self, X: object) -> list[Case]:  # noqa: N803
        check_is_fitted(self, "model_")
        cases = read_panel(X)
        if cases is None and hasattr(self, "n_features_in_"):
            self._require_same_width(X)
            cases = from_table(validate_data(self, X, reset=False, dtype=np.float64))
        elif cases is None:
            cases = from_table(check_array(X, dtype=np.float64))
        check_cases(cases, num_channels=self.n_channels_)
        for place, case in enumerate(cases):
            require_room(self.model_.config, len(case), where=f"X, case {place}")
        return cases

    def _require_same_width(self, X: object) -> None:  # noqa: N803
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if len(shape) == 2 and shape[1] != self.n_features_in_:
            raise DataError(  # in scikit-learn's words, which its own checks look for, and with the cure
                f"X has {shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                f"features as input: a table has the length of the fitted one. For series of another pass "
                f"X[:, np.newaxis], a panel (cases, channels, steps)."
            )


def _draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """Draw a seed from what scikit-learn calls a random state."""
    return int(check_random_state(random_state).randint(2**31 - 1))
