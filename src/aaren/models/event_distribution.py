"""NextEvent: when the next event comes and of what kind, as one joint law. Knows no model.

The gap may follow any law with the verbs of `GapLaw`; the mark is drawn from a softmax, independent of the
gap given the past.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.errors import DataError, ShapeError


class Events(NamedTuple):
    """Events as models take them: (b, t) for whole sequences, (b,) for one event per stream."""

    gaps: Tensor  # time since the event before, 0 or more; the first: since observation began, 0 if unknown
    marks: Tensor  # int64, 0 .. num_marks - 1; 0 where there is only one kind


class GapLaw(Protocol):
    """A law of positive numbers, one for each of the `...`."""

    @property
    def shape(self) -> torch.Size:
        """Return the `...`."""

    @property
    def device(self) -> torch.device:
        """Return where its numbers are."""

    def __getitem__(self, index: Tensor | int | slice) -> "GapLaw":
        """Pick among the first axis."""

    def log_density(self, gaps: Tensor | float) -> Tensor:
        """Return the logarithm of the density."""

    def log_survival(self, gaps: Tensor | float) -> Tensor:
        """Return log P(next gap > gaps)."""

    def log_survival_clamped(self, gaps: Tensor | float) -> Tensor:
        """Return the same with the published code's clamp."""

    def cdf(self, gaps: Tensor | float) -> Tensor:
        """Return P(next gap <= gaps)."""

    def mean(self) -> Tensor:
        """Return the mean."""

    def quantile(self, probability: Tensor | float) -> Tensor:
        """Return the gap below which the next one stays with this probability."""

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw (count, ...) gaps."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class NextEvent:
    """What a model says of the next event, for each of the `...` (streams; or streams and positions)."""

    gap: GapLaw
    mark_logits: Tensor | None = None  # (..., num_marks); None: there is only one kind

    def __getitem__(self, index: Tensor | int | slice) -> "NextEvent":
        """Pick among the first axis."""
        return NextEvent(
            gap=self.gap[index], mark_logits=None if self.mark_logits is None else self.mark_logits[index]
        )

    @property
    def shape(self) -> torch.Size:
        """Return the `...`."""
        return self.gap.shape

    @property
    def mark_probabilities(self) -> Tensor:
        """Return the probability of each kind, (..., num_marks), float64."""
        if self.mark_logits is None:
            return torch.ones(*self.shape, 1, dtype=torch.float64, device=self.gap.device)
        return self.mark_logits.double().softmax(-1)

    def log_density(self, gaps: Tensor | float, marks: Tensor | int | None = None) -> Tensor:
        """Return the log-density of gaps (...), or of gaps and marks (...) together."""
        log_density = self.gap.log_density(gaps)
        return log_density if marks is None else log_density + self.log_mark(marks)

    def density(self, gaps: Tensor | float, marks: Tensor | int | None = None) -> Tensor:
        """Return the density of gaps (...), or of gaps and marks (...) together."""
        return self.log_density(gaps, marks).exp()

    def log_mark(self, marks: Tensor | int) -> Tensor:
        """Return the log-probability of marks (...), or of one mark for all of the `...`."""
        kinds = torch.as_tensor(marks, device=self.gap.device)
        num_marks = 1 if self.mark_logits is None else self.mark_logits.shape[-1]
        is_kind = (kinds >= 0) & (kinds < num_marks) & (kinds == kinds.to(torch.int64))
        if not bool(is_kind.all()):
            raise DataError(
                f"a mark is a kind of event, a whole number from 0 to {num_marks - 1}; got "
                f"{kinds[~is_kind].flatten()[0].item()}."
            )
        try:
            shape = np.broadcast_shapes(kinds.shape, self.shape)
        except ValueError as error:
            raise ShapeError(
                f"marks must be {tuple(self.shape)} like the laws, or one number for all; got "
                f"{tuple(kinds.shape)}."
            ) from error
        if self.mark_logits is None:
            return torch.zeros(shape, dtype=torch.float64, device=kinds.device)
        logits = self.mark_logits.expand(*shape, num_marks).reshape(-1, num_marks)
        wanted = kinds.to(torch.int64).expand(shape).reshape(-1)
        return -F.cross_entropy(logits, wanted, reduction="none").view(shape)

    def survival(self, gaps: Tensor | float) -> Tensor:
        """Return the probability that nothing comes within gaps (...)."""
        return self.gap.log_survival(gaps).exp()

    def quantile(self, probability: Tensor | float) -> Tensor:
        """Return the gap within which the next event comes with a probability above 0 and below 1."""
        chosen = torch.as_tensor(probability, dtype=torch.float64)
        if not bool(((chosen > 0.0) & (chosen < 1.0)).all()):
            raise DataError(f"a quantile's probability lies between 0 and 1, both excluded; got {chosen}.")
        return self.gap.quantile(probability)

    def median(self) -> Tensor:
        """Return the gap within which the next event comes half of the time."""
        return self.gap.quantile(0.5)

    def mean(self) -> Tensor:
        """Return the mean gap, the point forecast of the published code; heavy tails move it far."""
        return self.gap.mean()

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Events:
        """Draw `count` next events for each of the `...`: gaps and marks (count, ...)."""
        gaps = self.gap.sample(count, generator=generator)
        if self.mark_logits is None:
            return Events(gaps, torch.zeros(gaps.shape, dtype=torch.int64, device=gaps.device))
        flat = self.mark_probabilities.flatten(0, -2) if self.shape else self.mark_probabilities.unsqueeze(0)
        marks = torch.multinomial(flat, count, replacement=True, generator=generator)
        return Events(gaps, marks.T.reshape(gaps.shape))
