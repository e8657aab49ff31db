"""ClassifierSession: streams of raw samples being classified, and decided early if asked for."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import ShapeError
from aaren.stream.engine import Request
from aaren.stream.raw import scaled_by
from aaren.stream.session import Item, Session, StateT, Steppable, read_numbers

DECISIONS = 10  # at a stream of the length of training, where the rule of early stopping may decide


class Readable(Steppable[StateT], Protocol[StateT]):
    """A classifier for inference, whose state can be asked for scores."""

    config: Any  # of one of the two classifiers
    preprocessing: Mapping[str, Any] | None

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


class ClassifierSession(Session[StateT]):
    """One or more streams being classified, sample by sample; made by `stream()` of a model or an estimator.

    Args:
        model: a folded classifier; the scales of its `preprocessing` are applied to samples.
        classes: of the estimator; None: those of `preprocessing`, or numbers.
        batch_size: how many streams go side by side; None: one, whose samples and answers lack that axis.
        threshold: decide as soon as a class is this probable; None: never.
        decided_at: after how many samples a decision may fall.
        engine: "native" (the C runtime), "torch", or "auto": native where the model can be lowered.
    """

    def __init__(
        self,
        model: Readable[StateT],
        *,
        classes: NDArray[np.generic] | None = None,
        batch_size: int | None = None,
        threshold: float | None = None,
        decided_at: Sequence[int] = (),
        engine: str = "auto",
    ) -> None:
        self._channels = model.config.num_channels
        if classes is None:
            names = (model.preprocessing or {}).get("classes") or range(model.config.num_classes)
            classes = np.asarray(names)
        self.classes, self._classifier = classes, model
        self.threshold, self._decision_steps = threshold, np.asarray(decided_at, dtype=np.int64)
        raw = scaled_by(model, model.preprocessing, self._channels)
        super().__init__(raw, batch_size=batch_size, engine=engine)

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
        sample = read_numbers("a sample", item)
        if self._channels == 1 and sample.ndim == (0 if self.batch_size is None else 1):
            sample = sample.unsqueeze(-1)
        expected = (self._channels,) if self.batch_size is None else (self.batch_size, self._channels)
        if sample.shape != expected:
            raise ShapeError(
                f"a sample of this session is {expected}, its channels as in training; got "
                f"{tuple(sample.shape)}."
            )
        probabilities = to_probabilities(super().push(sample, **extras))
        if self.threshold is not None:
            self._decide(probabilities if self.batch_size is not None else probabilities.unsqueeze(0))
        return probabilities

    def _request(self, item: Any, extras: dict[str, Any]) -> Request | None:
        samples = np.asarray(item)
        if self._channels == 1 and samples.ndim == 1:
            samples = samples[:, np.newaxis]
        if self.threshold is not None or samples.dtype.kind not in "iuf":
            return None
        return super()._request(samples, extras)

    def _answers(self, parts: list[Tensor]) -> Sequence[Tensor]:
        return to_probabilities(parts[0]).unbind()

    def finish(self) -> Tensor:
        """Return the class probabilities of series that end here, as `predict_proba` gives them.

        They differ from the last answer only where series of training had several lengths: a stream does not
        know that nothing more will come.
        """
        with torch.no_grad():
            probabilities = self._classifier.finish(self.state).softmax(-1)
        return probabilities.squeeze(0) if self.batch_size is None else probabilities

    @property
    def label(self) -> object:
        """Return the most probable class so far; with a batch size an array of them."""
        with torch.no_grad():
            best = self._classifier.read(self.state).argmax(-1).cpu().numpy()
        labels = self.classes[best]
        return labels[0] if self.batch_size is None else labels

    @property
    def is_decided(self) -> bool | NDArray[np.bool_]:
        """Tell whether the rule of early stopping has decided; with a batch size an array."""
        decided: NDArray[np.bool_] = self._decided_at > 0
        return bool(decided[0]) if self.batch_size is None else decided

    @property
    def decided_at(self) -> int | NDArray[np.int64]:
        """Return after how many samples it did, 0: not yet; with a batch size an array."""
        return int(self._decided_at[0]) if self.batch_size is None else self._decided_at.copy()

    @property
    def decision(self) -> object:
        """Return the class that was decided on, None: not yet; with a batch size an array of objects."""
        decisions = self.classes.astype(object)[self._decided]
        decisions[self._decided_at == 0] = None
        return decisions[0] if self.batch_size is None else decisions

    def _decide(self, probabilities: Tensor) -> None:
        """Decide where the rule may: as often as when it was validated, and never again."""
        position = self.state.position.cpu().numpy()  # type: ignore[attr-defined]  # of every classifier
        surest, best = (part.cpu().numpy() for part in probabilities.max(-1))
        is_new = (
            (self._decided_at == 0) & np.isin(position, self._decision_steps) & (surest >= self.threshold)
        )
        self._decided_at[is_new], self._decided[is_new] = position[is_new], best[is_new]


def to_probabilities(scores: Tensor) -> Tensor:
    """Return the softmax of the scores of streams, the same bits for one row as among many.

    On a CPU it is NumPy's: torch divides two dozen rows among its threads, and where other processes use the
    cores they wait for each other for milliseconds.
    """
    if not scores.is_cpu or scores.dtype not in (torch.float32, torch.float64):
        return scores.softmax(-1)
    values = scores.detach().numpy()
    found = np.exp(values - values.max(-1, keepdims=True))
    return torch.from_numpy(found / found.sum(-1, keepdims=True))
