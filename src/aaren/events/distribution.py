"""NextEvent: when the next event comes and of what kind, as one joint distribution.

The gap may have any distribution with the methods of `GapDistribution`, usually a `LogNormalMixture`; the
mark is drawn from a softmax, independent of the gap given the past.

Everything is computed in float64, whatever the model's dtype: gaps from 1e-9 to 1e9 and scales near 0 stay
finite, and so do their gradients. Scales have no floor: a scale of 40 gives an infinite mean.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from aaren.errors import DataError, ShapeError

PROTOCOL_CLAMP = 1e-5  # the published code keeps each component's cdf this far from 0 and 1
OFFSET = 1e-12  # added to every gap before its logarithm, in the model's unit of time
NARROW = 1e-3  # of standard deviations: a density hardly changes within, error 1e-7
BISECTIONS = 64  # halve a range of logarithms down to float64's last digit
LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Events(NamedTuple):
    """Events as models take them: (b, t) for whole sequences, (b,) for one event per stream."""

    gaps: Tensor  # time since the event before, 0 or more; the first: since observation began, 0 if unknown
    marks: Tensor  # int64, 0 .. num_marks - 1; 0 where there is only one kind


class GapDistribution(Protocol):
    """A distribution of positive numbers, one for each of the `...`."""

    @property
    def shape(self) -> torch.Size:
        """Return the `...`."""

    @property
    def device(self) -> torch.device:
        """Return where its numbers are."""

    def __getitem__(self, index: Tensor | int | slice) -> "GapDistribution":
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
    """The distribution of the next event, for each of the `...` (streams; or streams and positions)."""

    gap: GapDistribution
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
                f"marks must be {tuple(self.shape)} like the distributions, or one number for all; got "
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


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LogNormalMixture:
    """Positive numbers whose logarithm is a mixture of k normals; `...` are streams, positions, whatever.

    >>> mixture = LogNormalMixture(
    ...     log_weights=torch.zeros(1, dtype=torch.float64),
    ...     locations=torch.zeros(1, dtype=torch.float64),
    ...     scales=torch.ones(1, dtype=torch.float64),
    ... )
    >>> [round(float(number), 6) for number in (mixture.median(), mixture.mean(), mixture.survival(1.0))]
    [1.0, 1.648721, 0.5]
    """

    log_weights: Tensor  # (..., k) float64, their exponentials sum to 1
    locations: Tensor  # (..., k) float64, means of the logarithm
    scales: Tensor  # (..., k) float64, standard deviations of the logarithm
    offset: float = 0.0  # added to gaps before the logarithm, so that a gap of 0 has one
    resolution: float = 0.0  # of the clock: gaps are known to half of it; 0: exactly

    @classmethod
    def from_numbers(
        cls,
        numbers: Tensor,
        *,
        time_scale: float = 1.0,
        base: Tensor | None = None,
        resolution: float = 0.0,
    ) -> "LogNormalMixture":
        """Read weights, locations and scales from (..., 3 k) free numbers.

        Args:
            numbers: logits of the weights, locations, and scales before a softplus.
            time_scale: How long the model's unit of time is; the distribution is in the unit that this is in.
            base: (..., 2) mean and standard deviation of the logarithm that numbers are relative to.
            resolution: Of the clock that gaps are measured with.
        """
        logits, locations, raw_scales = numbers.double().chunk(3, dim=-1)
        scales = torch.nn.functional.softplus(raw_scales)
        if base is not None:
            mean, deviation = base.double().unsqueeze(-2).unbind(-1)
            locations, scales = mean + deviation * locations, deviation * scales
        return cls(
            log_weights=logits.log_softmax(-1),
            locations=locations if time_scale == 1.0 else locations + math.log(time_scale),
            scales=scales,
            offset=OFFSET * time_scale,
            resolution=resolution,
        )

    def __getitem__(self, index: Tensor | int | slice) -> "LogNormalMixture":
        """Pick among the first of the `...` axes."""
        return LogNormalMixture(
            log_weights=self.log_weights[index],
            locations=self.locations[index],
            scales=self.scales[index],
            offset=self.offset,
            resolution=self.resolution,
        )

    @property
    def shape(self) -> torch.Size:
        """Return the `...`."""
        return self.locations.shape[:-1]

    @property
    def device(self) -> torch.device:
        """Return where its numbers are."""
        return self.locations.device

    def log_density(self, gaps: Tensor | float) -> Tensor:
        """Return the logarithm of the density at gaps (...); there are none below 0.

        With a resolution it is the mean density over gap ± half of it, the range that rounds to this gap: so
        equal times have a density too, and no narrow component can gain without bound on round numbers.
        """
        if self.resolution:
            return self._log_mass(gaps)
        log_gaps, is_below = self._log(gaps)
        standard = self._standard(log_gaps)
        parts = self.log_weights - 0.5 * standard.square() - self.scales.log()
        return (parts.logsumexp(-1) - log_gaps - LOG_ROOT_TWO_PI).masked_fill(is_below, -torch.inf)

    def _log_mass(self, gaps: Tensor | float) -> Tensor:
        """Return the logarithm of P(gap ± half a resolution), divided by the width of that range."""
        gaps = torch.as_tensor(gaps, dtype=torch.float64, device=self.locations.device)
        high, low = gaps + 0.5 * self.resolution, (gaps - 0.5 * self.resolution).clamp(min=0.0)
        upper, lower = self._standard((high + self.offset).log()), self._standard((low + self.offset).log())
        middle, width = 0.5 * (upper + lower), upper - lower
        is_narrow = width < NARROW
        # The lower tail is where a difference of two distribution functions has all its digits.
        is_right = middle > 0.0
        above, below = torch.where(is_right, -lower, upper), torch.where(is_right, -upper, lower)
        below = torch.where(is_narrow, above - 1.0, below)  # not used, but its gradient must be finite
        log_above, log_below = torch.special.log_ndtr(above), torch.special.log_ndtr(below)
        by_tails = log_above + (-torch.expm1(log_below - log_above)).log()
        by_density = width.log() - 0.5 * middle.square() - LOG_ROOT_TWO_PI
        parts = self.log_weights + torch.where(is_narrow, by_density, by_tails)
        return (parts.logsumexp(-1) - (high - low).log()).masked_fill(gaps < 0.0, -torch.inf)

    def log_survival(self, gaps: Tensor | float) -> Tensor:
        """Return log P(next gap > gaps), accurate in both tails; 0 for gaps below 0."""
        log_gaps, is_below = self._log(gaps)
        log_tails: Tensor = torch.special.log_ndtr(-self._standard(log_gaps))
        return (self.log_weights + log_tails).logsumexp(-1).masked_fill(is_below, 0.0)

    def log_survival_clamped(self, gaps: Tensor | float) -> Tensor:
        """Return log P(next gap > gaps) as the published code computes it.

        Each component's cdf is kept within [1e-5, 1 - 1e-5], and the gradient passes as if it were not.
        """
        log_gaps, _ = self._log(gaps)
        cdf: Tensor = torch.special.ndtr(self._standard(log_gaps))
        clamped = cdf + (cdf.clamp(PROTOCOL_CLAMP, 1.0 - PROTOCOL_CLAMP) - cdf).detach()
        return (self.log_weights.exp() * (1.0 - clamped)).sum(-1).log()

    def survival(self, gaps: Tensor | float) -> Tensor:
        """Return P(next gap > gaps)."""
        return self.log_survival(gaps).exp()

    def cdf(self, gaps: Tensor | float) -> Tensor:
        """Return P(next gap <= gaps)."""
        log_gaps, is_below = self._log(gaps)
        return self._cdf_of_log(log_gaps).masked_fill(is_below, 0.0)

    def mean(self) -> Tensor:
        """Return the mean; infinite where a scale is so large that float64 cannot hold it."""
        logs = self.log_weights + self.locations + 0.5 * self.scales.square()
        return logs.logsumexp(-1).exp() - self.offset

    def median(self) -> Tensor:
        """Return the gap that is exceeded half of the time."""
        return self.quantile(0.5)

    def quantile(self, probability: Tensor | float) -> Tensor:
        """Return the gap below which the next one stays with a probability (...) above 0 and below 1.

        By bisection of the logarithm: a mixture's quantile lies between those of its components.
        """
        wanted = torch.as_tensor(probability, dtype=torch.float64, device=self.locations.device)
        standard: Tensor = torch.special.ndtri(wanted).unsqueeze(-1)
        of_parts = self.locations + self.scales * standard
        low, high = of_parts.amin(-1), of_parts.amax(-1)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            is_low = self._cdf_of_log(middle) < wanted
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
        return ((0.5 * (low + high)).exp() - self.offset).clamp(min=0.0)

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw `count` gaps from every one of the distributions, (count, ...)."""
        flat = self.log_weights.exp().reshape(-1, self.log_weights.shape[-1])
        chosen = torch.multinomial(flat, count, replacement=True, generator=generator)  # (n, count)
        locations = self.locations.reshape_as(flat).gather(1, chosen)
        scales = self.scales.reshape_as(flat).gather(1, chosen)
        noise = torch.randn(chosen.shape, dtype=flat.dtype, device=flat.device, generator=generator)
        drawn = ((locations + scales * noise).exp() - self.offset).clamp(min=0.0)
        return drawn.T.reshape(count, *self.shape)

    def _log(self, gaps: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the logarithms of gaps, of 0 for those below it, and which these are."""
        gaps = torch.as_tensor(gaps, dtype=torch.float64, device=self.locations.device)
        is_below = gaps < 0.0
        return (gaps.masked_fill(is_below, 0.0) + self.offset).log(), is_below

    def _standard(self, log_gaps: Tensor) -> Tensor:
        return (log_gaps.unsqueeze(-1) - self.locations) / self.scales

    def _cdf_of_log(self, log_gaps: Tensor) -> Tensor:
        of_parts: Tensor = torch.special.ndtr(self._standard(log_gaps))
        return (self.log_weights.exp() * of_parts).sum(-1)
