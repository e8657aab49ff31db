"""The baselines of classification: the majority class, 1-nearest-neighbour DTW, MiniRocket.

The last two are aeon's. The same call as `Classifier`, so that they take its place in every experiment. What
is kept on disk is the training part: a reference is fitted again when it is first asked, in the same way.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.errors import ConfigError, DataError, ShapeError, require_extra, unknown_name
from aaren.shapes import Mask

REFERENCES = ("majority", "dtw", "minirocket")  # nothing of them is trained step by step
SHORTEST_MINIROCKET = 9  # steps that its convolutions span


class Estimator(Protocol):
    """The part of a scikit-learn style classifier that is used here."""

    def fit(self, X: object, y: NDArray[np.int64]) -> object:  # noqa: N803  scikit-learn's name
        """Learn from cases."""

    def predict(self, X: object) -> NDArray[np.int64]:  # noqa: N803  scikit-learn's name
        """Name the class of each case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceClassifierConfig:
    """Which reference, and the sizes of its training part."""

    kind: str  # majority, dtw, minirocket
    num_channels: int
    num_classes: int
    length: int
    num_cases: int
    seed: int = 0  # of MiniRocket's biases

    def __post_init__(self) -> None:
        """Report what cannot be."""
        if self.kind not in REFERENCES:
            raise unknown_name("reference", self.kind, REFERENCES)
        if self.kind == "minirocket" and self.length < SHORTEST_MINIROCKET:
            raise ConfigError(
                f"MiniRocket needs series of at least {SHORTEST_MINIROCKET} steps; the longest here has "
                f"{self.length}. Use dtw."
            )


class ReferenceClassifier(nn.Module):
    """Score series by what is known of the training part; 1 for the class that is chosen, 0 for the others.

    >>> config = ReferenceClassifierConfig(
    ...     kind="majority", num_channels=1, num_classes=2, length=3, num_cases=3
    ... )
    >>> model = ReferenceClassifier(config)
    >>> model.fit(torch.zeros(3, 3, 1), torch.ones(3, 3, dtype=torch.bool), torch.tensor([1, 0, 1]))
    >>> model(torch.zeros(1, 3, 1))
    tensor([[0., 1.]])
    """

    config_type: ClassVar[type[ReferenceClassifierConfig]] = ReferenceClassifierConfig
    values: Tensor
    mask: Tensor
    labels: Tensor

    def __init__(self, config: ReferenceClassifierConfig) -> None:
        super().__init__()
        self.config = config
        shape = (config.num_cases, config.length)
        self.register_buffer("values", torch.zeros(*shape, config.num_channels))
        self.register_buffer("mask", torch.zeros(shape, dtype=torch.bool))
        self.register_buffer("labels", torch.zeros(config.num_cases, dtype=torch.int64))
        self._estimator: Estimator | None = None

    def fit(self, values: Tensor, mask: Mask, labels: Tensor) -> None:
        """Take in the training part: (cases, t, channels), (cases, t) bool and (cases,) int64."""
        for name, given in (("values", values), ("mask", mask), ("labels", labels)):
            getattr(self, name).copy_(given)
        self._estimator = None

    def forward(self, values: Tensor, *, mask: Mask | None = None) -> Tensor:
        """Choose a class for each of the series (b, t, channels); scores (b, classes), 1 or 0."""
        if values.ndim != 3 or values.shape[-1] != self.config.num_channels:
            raise DataError(
                f"values must be (b, t, {self.config.num_channels}), the channels of the training part; got "
                f"{tuple(values.shape)}."
            )
        if mask is None:
            mask = values.new_ones(values.shape[:2], dtype=torch.bool)
        if self.config.kind == "majority":
            counts = torch.bincount(self.labels, minlength=self.config.num_classes)
            found = counts.argmax().expand(len(values))
        else:
            self._require_room(mask)
            with warnings.catch_warnings(), _numba_threads():
                # Of numba, when it compiles aeon's distances for series of unequal length; they are right.
                warnings.filterwarnings("ignore", message="unsafe cast from uint64 to int64")
                if self._estimator is None:
                    self._estimator = self._fitted()
                chosen = self._estimator.predict(self._as_aeon(values, mask))
            found = torch.from_numpy(np.asarray(chosen, dtype=np.int64)).to(values.device)
        return F.one_hot(found, self.config.num_classes).to(self.values.dtype)

    def _fitted(self) -> Estimator:
        purpose = f"the reference classifier {self.config.kind!r}"
        estimator: Estimator
        if self.config.kind == "dtw":
            module = require_extra(
                "aeon.classification.distance_based", extra="classification", purpose=purpose
            )
            estimator = module.KNeighborsTimeSeriesClassifier(distance="dtw", n_neighbors=1)
        else:
            module = require_extra(
                "aeon.classification.convolution_based", extra="classification", purpose=purpose
            )
            estimator = module.MiniRocketClassifier(random_state=self.config.seed)
        estimator.fit(self._as_aeon(self.values, self.mask), self.labels.cpu().numpy())
        return estimator

    def _as_aeon(self, values: Tensor, mask: Mask) -> NDArray[np.float64] | list[NDArray[np.float64]]:
        """Return cases as (channels, t) arrays: for DTW of their own lengths, for MiniRocket all padded."""
        is_padded = not bool(self.mask.all() and mask.all())
        panel: NDArray[np.float64] = values.detach().cpu().double().numpy().transpose(0, 2, 1)
        if self.config.kind == "dtw" and is_padded:
            lengths = mask.sum(1).tolist()
            return [np.ascontiguousarray(case[:, :n]) for case, n in zip(panel, lengths, strict=True)]
        if self.config.kind == "dtw":
            return np.ascontiguousarray(panel)
        missing = self.config.length - panel.shape[2]
        return np.pad(panel[:, :, : self.config.length], ((0, 0), (0, 0), (0, max(0, missing))))

    def _require_room(self, mask: Mask) -> None:
        longest = int(mask.sum(1).max()) if len(mask) else 0
        if self.config.kind == "minirocket" and longest > self.config.length:
            raise ShapeError(
                f"MiniRocket, once fitted, knows series of up to {self.config.length} steps; this one has "
                f"{longest}. Cut it, or use dtw, which takes any length."
            )


@contextmanager
def _numba_threads() -> Iterator[None]:
    """Give numba torch's number of threads, and keep it: numba's start changes OpenMP's, so torch's too."""
    numba = require_extra("numba", extra="classification", purpose="a reference classifier of aeon")
    threads, before = torch.get_num_threads(), numba.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)
        torch.set_num_threads(threads)
