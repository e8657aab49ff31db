"""LabelledSession: a stream of raw samples, standardised as in training, and the class that they suggest."""

from numbers import Integral

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import ConfigError, ShapeError
from aaren.models import Classifier
from aaren.models.classifier_session import ClassifierSession
from aaren.models.inputs import read_numbers
from aaren.models.session import Item


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
