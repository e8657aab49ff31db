"""LabelledSession: streams of raw samples being classified, and decided early if asked for."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.classification.model import ClassifierSession
from aaren.errors import ConfigError, ShapeError
from aaren.stream.engine import Request
from aaren.stream.session import Item, StateT, Steppable, read_numbers

DECISIONS = 10  # at a stream of the length of training, where the rule of early stopping may decide


class Readable(Steppable[StateT], Protocol[StateT]):
    """A model whose state can be asked for scores."""

    def read(self, state: StateT) -> Tensor:
        """Return the scores of each stream as it stands."""

    def finish(self, state: StateT) -> Tensor:
        """Return the scores of series that end here."""


def decision_steps(length: int) -> list[int]:
    """Return the samples at which the rule is evaluated, in a series as long as the longest of training.

    >>> decision_steps(41)
    [4, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    """
    count = min(DECISIONS, length - 1)
    return [round((length - 1) * k / count) for k in range(1, count + 1)]


class LabelledSession(ClassifierSession[StateT]):
    """One or more streams being classified, sample by sample; made by `AarenClassifier.stream()`."""

    def __init__(
        self,
        model: Readable[StateT],
        *,
        classes: NDArray[np.generic],
        mean: NDArray[np.float64],
        deviation: NDArray[np.float64],
        batch_size: int | None = None,
        threshold: float | None = None,
        decided_at: Sequence[int] = (),
        engine: str = "torch",
    ) -> None:
        given: object = batch_size  # whatever the type says
        is_integer = isinstance(given, Integral) and not isinstance(given, bool)
        if batch_size is not None and (not is_integer or batch_size < 1):
            raise ConfigError(
                f"batch_size must be None, or an integer of at least 1 for streams side by side; got "
                f"{batch_size!r}."
            )
        self.threshold, self._decision_steps = threshold, np.asarray(decided_at, dtype=np.int64)
        super().__init__(model, batch_size=batch_size, engine=engine)
        self.classes = classes
        self._classifier, self._mean, self._deviation = model, mean, deviation

    def reset(self) -> None:
        """Forget all samples and decisions."""
        super().reset()
        self._decided_at = np.zeros(self._num_streams, dtype=np.int64)
        self._decided = np.zeros(self._num_streams, dtype=np.int64)

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
        probabilities = super().push(scaled, **extras)
        if self.threshold is not None:
            self._decide(probabilities if self.batch_size is not None else probabilities.unsqueeze(0))
        return probabilities

    def _request(self, item: Any, extras: dict[str, Any]) -> Request | None:
        given, channels = np.asarray(item), len(self._mean)
        if channels == 1 and given.ndim == 1:
            given = given[:, np.newaxis]
        if self.threshold is not None or given.dtype.kind not in "iuf" or given.shape[1:] != (channels,):
            return None
        with np.errstate(over="ignore"):
            scaled = (given.astype(np.float64) - self._mean) / self._deviation
        return super()._request(scaled, extras)

    def finish(self) -> Tensor:
        """Return the class probabilities of series that end here, as `predict_proba` gives them.

        They differ from the last answer only where series of training had several lengths: a stream does not
        know that nothing more will come.
        """
        with torch.no_grad():
            found = self._classifier.finish(self.state).softmax(-1)
        return found.squeeze(0) if self.batch_size is None else found

    @property
    def label(self) -> object:
        """Return the most probable class so far; with a batch size an array of them."""
        with torch.no_grad():
            best = self._classifier.read(self.state).argmax(-1).cpu().numpy()
        labels = self.classes[best]
        return labels[0] if self.batch_size is None else labels

    @property
    def is_decided(self) -> bool | NDArray[np.bool_]:
        """Tell whether the rule of early stopping has spoken; with a batch size an array."""
        found: NDArray[np.bool_] = self._decided_at > 0
        return bool(found[0]) if self.batch_size is None else found

    @property
    def decided_at(self) -> int | NDArray[np.int64]:
        """Return after how many samples it did, 0: not yet; with a batch size an array."""
        return int(self._decided_at[0]) if self.batch_size is None else self._decided_at.copy()

    @property
    def decision(self) -> object:
        """Return the class that was decided on, None: not yet; with a batch size an array of objects."""
        found = self.classes.astype(object)[self._decided]
        found[self._decided_at == 0] = None
        return found[0] if self.batch_size is None else found

    def _decide(self, probabilities: Tensor) -> None:
        """Decide where the rule may: as often as when it was validated, and never again."""
        position = self.state.position.cpu().numpy()  # type: ignore[attr-defined]  # of every classifier
        surest, best = (part.cpu().numpy() for part in probabilities.max(-1))
        is_new = (
            (self._decided_at == 0) & np.isin(position, self._decision_steps) & (surest >= self.threshold)
        )
        self._decided_at[is_new], self._decided[is_new] = position[is_new], best[is_new]
