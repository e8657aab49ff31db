"""AarenClassifier: a scikit-learn classifier of time series that can also go along a stream.

Takes what scikit-learn and aeon take: panels are 3-D arrays (cases, channels, steps) or collections of
series; a 2-D table is left to scikit-learn's own checks. Trains with `ClassificationExperiment`, as the lab
does, and answers for whole series or sample by sample.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from numbers import Integral
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aaren.classification.batches import hold_out, pad
from aaren.classification.config import ClassificationConfig
from aaren.classification.data import SHORTEST, Case, require_learnable, steady_statistics
from aaren.classification.experiment import ClassificationExperiment, ClassificationParts
from aaren.classification.model import Classifier, ClassifierConfig, ClassifierSession
from aaren.classification.predict import require_room
from aaren.engine.config import EngineConfig
from aaren.engine.determinism import take_threads
from aaren.engine.loop import fit as fit_experiment
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.progress import choose_observer
from aaren.errors import ConfigError, DataError, MissingDependencyError, ShapeError
from aaren.stream.session import Item, largest, read_numbers

EVALUATION_BATCH = 64  # cases at once, without gradients
SHOWN = 6  # labels that an error names
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


class LabelledSession(ClassifierSession):
    """One or more streams being classified, sample by sample; made by `AarenClassifier.stream()`."""

    def __init__(
        self,
        model: Classifier,
        *,
        classes: NDArray[np.generic],
        mean: NDArray[np.float64],
        deviation: NDArray[np.float64],
        batch_size: int | None = None,
    ) -> None:
        given: object = batch_size  # whatever the type says
        is_integer = isinstance(given, Integral) and not isinstance(given, bool)
        if batch_size is not None and (not is_integer or batch_size < 1):
            raise ConfigError(
                f"batch_size must be None, or an integer of at least 1 for streams side by side; got "
                f"{batch_size!r}."
            )
        super().__init__(model, batch_size=batch_size)
        self.classes = classes
        self._classifier, self._mean, self._deviation = model, mean, deviation

    def push(self, item: Item, **extras: Item) -> Tensor:
        """Take in one sample of every stream and return the class probabilities after it.

        Args:
            item: (b, channels), or (channels,) in a session of one stream; a number if there is one channel.
            **extras: `mask`, (b,) bool: streams with False got no sample and repeat their answer.
        """
        given = read_numbers("a sample", item).cpu().double().numpy()
        channels = len(self._mean)
        if channels == 1 and given.ndim == (0 if self.batch_size is None else 1):
            given = given[..., np.newaxis]
        expected = (channels,) if self.batch_size is None else (self.batch_size, channels)
        if given.shape != expected:
            raise ShapeError(
                f"a sample of this session is {expected}, its channels as in training; got {given.shape}."
            )
        with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused
            scaled = (given - self._mean) / self._deviation
        return super().push(scaled, **extras)

    @property
    def label(self) -> object:
        """Return the most probable class so far; with a batch size an array of them."""
        with torch.no_grad():
            best = self._classifier.read(self.state).argmax(-1).cpu().numpy()
        labels = self.classes[best]
        return labels[0] if self.batch_size is None else labels


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
        standardise: scale every channel to mean 0 and standard deviation 1 over the training cases.
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
        self._require_settings()
        cases, labels = self._read_training(X, y)
        num_channels = check_cases(cases)
        require_comparable(labels)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        require_learnable(numbers.astype(np.int64), where="y")
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
            held, series = series.select(held_out), series.select(kept)
        fitted = fit_experiment(
            ClassificationExperiment(
                ClassificationConfig(
                    rule="clean",
                    standardise="train",
                    optimiser=OptimiserConfig(learning_rate=self.learning_rate),
                    schedule="linear",
                    batch_size=self.batch_size,
                    epochs=self.epochs,
                    patience=self.patience,
                ),
                ClassificationParts(
                    name="X",
                    classes=tuple(map(str, classes)),
                    train=series,
                    validation=held,
                    test=None,
                    mean=mean,
                    deviation=deviation,
                ),
                seed=seed,
                network=config,
            ),
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
        from aaren.engine.run import MODEL, PREPROCESSING
        from aaren.engine.use import open_run
        from aaren.stream.saved import load_model

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

    def _require_settings(self) -> None:
        """Report every number that cannot be."""
        faults = []
        for name in ("epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                faults.append(f"{name} must be an integer; got {value!r}")
            elif value < 1:
                faults.append(f"{name} must be at least 1; got {value}")
        if not 0.0 <= self.validation_fraction < 1.0:
            faults.append(
                f"validation_fraction must be at least 0 and below 1; got {self.validation_fraction}"
            )
        if faults:
            raise ConfigError("; ".join(faults) + ".")

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


def read_panel(panel: object) -> list[Case] | None:
    """Return the cases of a 3-D array or of a collection of series; None for a table, or for nonsense.

    A collection is a list, a tuple, an array of objects or a pandas series; its series are (channels, steps)
    or (steps,). A nested frame has a series in every cell, a row per case and a column per channel.

    >>> [case.shape for case in read_panel([np.zeros((2, 5)), np.ones((2, 7))])]
    [(5, 2), (7, 2)]
    >>> read_panel(np.zeros((4, 10))) is None
    True
    """
    if getattr(panel, "ndim", None) == 3:
        items: Sequence[object] = list(_numbers(panel, "X"))
    else:
        found = _items(panel)
        if found is None:
            return None
        items = found
    if not items:
        raise DataError("X holds no case at all: expected at least one series.")
    axes = {_depth(item) for item in items}
    if axes == {1}:
        return [_numbers(item, f"case {place}").reshape(-1, 1) for place, item in enumerate(items)]
    if axes == {2}:
        return [np.ascontiguousarray(_numbers(item, f"case {place}").T) for place, item in enumerate(items)]
    if 2 in axes:
        raise DataError(
            "a list of series must hold one array (channels, steps) per case; some of these have other axes."
        )
    return None


def is_table(panel: object) -> bool:
    """Tell whether lists of numbers are a table to scikit-learn: all of one length."""
    if not (isinstance(panel, list | tuple) and all(isinstance(row, list | tuple) for row in panel)):
        return False
    return len({len(row) for row in panel}) == 1 and all(_depth(row) == 1 for row in panel)


def from_table(table: Case) -> list[Case]:
    """Return the rows of a table as series of one channel."""
    if table.shape[1] < SHORTEST:
        raise DataError(
            f"X has n_features = {table.shape[1]}: each row of a 2-D array is a series of one channel, and a "
            f"series has at least {SHORTEST} time steps. For other shapes pass (cases, channels, steps)."
        )
    return [row.reshape(-1, 1) for row in table]


def check_cases(cases: Sequence[Case], *, num_channels: int | None = None) -> int:
    """Raise unless all cases are series without gaps and of the same channels; return how many channels."""
    expected = cases[0].shape[1] if num_channels is None else num_channels
    if not expected:
        raise DataError("X, case 0: no channel at all; a panel is (cases, channels, steps).")
    for place, case in enumerate(cases):
        if case.shape[1] != expected:
            whose = "the first case has" if num_channels is None else "the estimator was fitted on"
            raise DataError(
                f"X, case {place}: {case.shape[1]} channel(s); {whose} {expected}. A case is (channels, "
                f"steps), a panel (cases, channels, steps)."
            )
        if len(case) < SHORTEST:
            cure = "Leave it out."
            if expected > 1 and all(len(other) == 1 for other in cases):
                cure = "A panel is (cases, channels, steps): transpose it, X.transpose(0, 2, 1)."
            raise DataError(
                f"X, case {place} has {len(case)} time step(s); a series has at least {SHORTEST}. {cure}"
            )
        if not np.isfinite(case).all():
            step, channel = np.argwhere(~np.isfinite(case))[0]
            raise DataError(
                f"X, case {place} holds {case[step, channel]} (channel {channel}, step {step}); NaN and "
                f"infinity cannot be learned from. Interpolate, or leave the case out."
            )
    return expected


def scale(cases: Sequence[Case], mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> list[Case]:
    """Return cases at the scale of training; what the model, in float32, cannot compute with is refused."""
    most = largest(torch.float32)
    scaled = []
    for place, case in enumerate(cases):
        with np.errstate(over="ignore", invalid="ignore"):
            scaled.append((case - mean) / deviation)
        wrong = ~((np.abs(scaled[-1]) <= most) & np.isfinite(deviation))  # of an infinite one all would be 0
        if wrong.any():
            step, channel = np.argwhere(wrong)[0]
            raise DataError(
                f"X, case {place} holds {case[step, channel]:g} (channel {channel}, step {step}); at the "
                f"scale of training, mean {mean[channel]:g} and standard deviation {deviation[channel]:g}, "
                f"that is too large to compute with. Divide the channel first, or leave the case out."
            )
    return scaled


def batches(cases: Sequence[Case], *, size: int, by_length: bool, least: int) -> Iterator[list[int]]:
    """Part case numbers into batches, if asked so that all cases of a batch are padded to the same length.

    Args:
        cases: all of them.
        size: of a batch, at most.
        by_length: never mix lengths above `least`.
        least: length that shorter cases are padded to anyway.
    """
    groups: dict[int, list[int]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(max(least, len(case)) if by_length else 0, []).append(number)
    for numbers in groups.values():
        yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


def require_comparable(labels: NDArray[np.generic]) -> None:
    """Raise if a label is missing, or if labels are of types that cannot be sorted together."""
    if labels.dtype.kind != "O":
        return
    examples: dict[str, object] = {}
    for place, label in enumerate(labels.ravel().tolist()):
        if label is None:
            raise DataError(f"y: case {place} has no label (None). Leave it out, or give it one.")
        examples.setdefault(type(label).__name__, label)
    try:
        np.unique(labels)
    except TypeError as error:
        raise DataError(
            f"y holds labels of several types: {', '.join(sorted(examples))}, such as "
            f"{' and '.join(repr(examples[name]) for name in sorted(examples))}. Give all the same type: "
            f"y.astype(str)."
        ) from error


def require_seen(labels: NDArray[np.generic], classes: NDArray[np.generic]) -> None:
    """Raise if there are labels that are not among the classes, for they cannot be right."""
    require_comparable(labels)
    known = classes.tolist()
    strange = [label for label in np.unique(labels).tolist() if label not in known]
    if not strange:
        return
    cure = "Leave these cases out, or fit with cases of them."
    if {str(label) for label in strange} <= {str(label) for label in known}:
        cure = f"The same text, another type: y.astype({type(known[0]).__name__})."
    raise DataError(
        f"y holds labels unseen in fit: {', '.join(map(repr, strange[:SHOWN]))}; fit saw "
        f"{', '.join(map(repr, known[:SHOWN]))}. {cure}"
    )


def _numbers(given: object, name: str) -> Case:
    try:
        found = np.asarray(given)
        if found.dtype.kind != "c":
            return found.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        why = str(error).rstrip(".")
        raise DataError(f"{name}: expected numbers of equal length per channel; {why}.") from error
    raise DataError(
        f"{name} holds complex numbers; a series is real. Give real and imaginary parts as two channels."
    )


def _items(panel: object) -> list[object] | None:
    """Return what a collection holds, one item per case; None if it is no collection."""
    if isinstance(panel, list | tuple):
        return list(panel)
    array = panel.to_numpy() if hasattr(panel, "to_numpy") else panel  # of pandas
    if not isinstance(array, np.ndarray) or array.dtype.kind != "O":
        return None
    if array.ndim == 2 and array.size and all(_depth(cell) == 1 for cell in array.flat):
        return [list(row) for row in array]
    return list(array) if array.ndim == 1 else None


def _depth(item: object) -> int:
    """Count the axes of a nested list or array."""
    if hasattr(item, "ndim"):
        return int(item.ndim)
    if isinstance(item, list | tuple):
        return 1 + (_depth(item[0]) if item else 0)
    return 0


def _draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """Draw a seed from what scikit-learn calls a random state."""
    return int(check_random_state(random_state).randint(2**31 - 1))
