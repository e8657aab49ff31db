"""The baselines of event models: no memory at all, or of the latest event alone.

A Poisson process (exponential gaps) and a renewal process (log-normal gaps), with marks by their frequency;
and a Markov chain of marks with log-normal gaps by the latest mark. All are fitted at once. The same methods
as `EventModel`, so that they take its place in every experiment.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import DataError, require_at_least, unknown_name
from aaren.events.distribution import PROTOCOL_CLAMP, Events, GapDistribution, LogNormalMixture
from aaren.events.forecaster import EventForecaster, EventState
from aaren.nn import EncoderState
from aaren.nn.checks import check_model_state
from aaren.nn.mixer import frozen_copy
from aaren.shapes import Activations, Mask, Token, TokenMask

DISTRIBUTIONS = ("poisson", "renewal", "markov")
MOST_CHAINED = 2_000  # kinds with a row of the chain each; with more, marks come by their frequency
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # of the frequencies within a row, to try
FEW_GAPS = 5.0  # so many gaps of all kinds are added to those of each


@dataclass(frozen=True, kw_only=True, slots=True)
class EventReferenceConfig:
    """Which distribution the gaps follow, and how many kinds of events there are."""

    distribution: str = "poisson"  # or renewal, markov
    num_marks: int = 1
    resolution: float = 0.0  # of the clock, in the unit of the data

    def __post_init__(self) -> None:
        """Report a setting that is unknown."""
        if self.distribution not in DISTRIBUTIONS:
            raise unknown_name("distribution", self.distribution, DISTRIBUTIONS)
        require_at_least(self, num_marks=1)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Exponential:
    """Gaps at a constant rate, without memory.

    >>> gap = Exponential(rates=torch.tensor([2.0], dtype=torch.float64))
    >>> float(gap.mean()), round(float(gap.survival(0.5)), 6), round(float(gap.quantile(0.5)), 6)
    (0.5, 0.367879, 0.346574)
    """

    rates: Tensor  # (...) float64, events per unit of time

    def __getitem__(self, index: Tensor | int | slice) -> "Exponential":
        """Pick among the first axis."""
        return Exponential(rates=self.rates[index])

    @property
    def shape(self) -> torch.Size:
        """Return the `...`."""
        return self.rates.shape

    @property
    def device(self) -> torch.device:
        """Return where its numbers are."""
        return self.rates.device

    def log_density(self, gaps: Tensor | float) -> Tensor:
        """Return log rate - rate · gap; there are no gaps below 0."""
        log_density = self.rates.log() - self.rates * gaps
        return log_density.masked_fill(self._is_below(gaps), -torch.inf)

    def log_survival(self, gaps: Tensor | float) -> Tensor:
        """Return - rate · gap; that a gap is above a number below 0 is certain."""
        return (-self.rates * gaps).masked_fill(self._is_below(gaps), 0.0)

    def log_survival_clamped(self, gaps: Tensor | float) -> Tensor:
        """Return the same, its cdf kept within [1e-5, 1 - 1e-5] as the published code does."""
        return (1.0 - self.cdf(gaps).clamp(PROTOCOL_CLAMP, 1.0 - PROTOCOL_CLAMP)).log()

    def survival(self, gaps: Tensor | float) -> Tensor:
        """Return P(next gap > gaps)."""
        return self.log_survival(gaps).exp()

    def cdf(self, gaps: Tensor | float) -> Tensor:
        """Return P(next gap <= gaps)."""
        return -torch.expm1(self.log_survival(gaps))

    def mean(self) -> Tensor:
        """Return 1 / rate."""
        return 1.0 / self.rates

    def quantile(self, probability: Tensor | float) -> Tensor:
        """Return - log(1 - probability) / rate."""
        wanted = torch.as_tensor(probability, dtype=torch.float64, device=self.rates.device)
        return -torch.log1p(-wanted) / self.rates

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw (count, ...) gaps."""
        uniform = torch.rand(
            (count, *self.shape), dtype=torch.float64, device=self.rates.device, generator=generator
        )
        return self.quantile(uniform)

    def _is_below(self, gaps: Tensor | float) -> Tensor:
        return torch.as_tensor(gaps, device=self.rates.device) < 0.0


class MarkovTables(nn.Module):
    """What comes after each kind: the mean and standard deviation of log gap, and how likely each kind is.

    Row 0 is for an unknown kind, row k + 1 for kind k. They are fitted by counting and never trained.
    """

    def __init__(self, num_marks: int) -> None:
        super().__init__()
        chained = num_marks if num_marks <= MOST_CHAINED else 0
        self.gaps = nn.Parameter(torch.tensor([0.0, 1.0]).repeat(num_marks + 1, 1), requires_grad=False)
        self.marks = nn.Parameter(
            torch.full((chained + 1, num_marks), -math.log(num_marks)), requires_grad=False
        )

    def look_up(self, rows: Tensor) -> Tensor:
        """Return the logarithms of the chain's probabilities after these kinds, (..., marks)."""
        return F.embedding(rows if len(self.marks) > 1 else torch.zeros_like(rows), self.marks)

    @torch.no_grad()
    def forget_chain(self) -> None:
        """Let kinds come by their frequency."""
        self.marks.copy_(self.marks[:1].expand_as(self.marks))

    @torch.no_grad()
    def fit(self, gaps: Tensor, marks: Tensor, last: Tensor) -> None:
        """Count.

        A row of the chain is mixed with the frequencies of all marks, as strongly as explains best each
        mark by all the others (leave one out). Rare kinds borrow from the gaps of all.

        Args:
            gaps: (n,) above 0.
            marks: (n,) of the events at the end of these gaps.
            last: (n,) of those before.
        """
        num_marks = self.marks.shape[1]
        logs = gaps.double().log()
        mean, variance = logs.mean(), logs.var(correction=0).clamp(min=1e-12)
        counts = torch.bincount(last, minlength=num_marks).double()
        means = (logs.new_zeros(num_marks).index_add(0, last, logs) + FEW_GAPS * mean) / (counts + FEW_GAPS)
        squares = logs.new_zeros(num_marks).index_add(0, last, (logs - means[last]).square())
        deviations = ((squares + FEW_GAPS * variance) / (counts + FEW_GAPS)).sqrt().clamp(min=1e-6)
        self.gaps.copy_(
            torch.cat([torch.stack([mean, variance.sqrt()])[None], torch.stack([means, deviations], 1)])
        )
        shares = torch.bincount(marks, minlength=num_marks).double() + 1.0
        shares /= shares.sum()
        self.marks[0] = shares.log()
        if len(self.marks) == 1:
            return
        pairs = torch.bincount(last * num_marks + marks, minlength=num_marks**2).view(num_marks, -1).double()
        one, other = pairs.nonzero(as_tuple=True)
        seen, of_row = pairs[one, other], counts[one]
        left_out = [
            float((seen * ((seen - 1 + a * shares[other]) / (of_row - 1 + a)).log()).sum()) for a in STRENGTHS
        ]
        strength = STRENGTHS[int(np.argmax(left_out))]
        self.marks[1:] = ((pairs + strength * shares) / (counts + strength).unsqueeze(1)).log()


class EventReference(EventForecaster):
    """The same distribution after every event, whatever came before; of a Markov chain, after every kind.

    >>> model = EventReference(EventReferenceConfig(distribution="poisson", num_marks=2))
    >>> model.fit(torch.tensor([0.5, 1.5]), torch.tensor([0, 0]))
    >>> found, state = model.step(Events(torch.tensor([1.0]), torch.tensor([1])), model.init_state(1))
    >>> found.mean(), found.mark_probabilities
    (tensor([1.], dtype=torch.float64), tensor([[0.7500, 0.2500]], dtype=torch.float64))
    """

    config_type: ClassVar[type[EventReferenceConfig]] = EventReferenceConfig

    def __init__(self, config: EventReferenceConfig) -> None:
        super().__init__()
        self.config = config
        self.num_marks = config.num_marks
        # The mean of the gap, or the mean of its logarithm, and that one's standard deviation.
        self.numbers = nn.Parameter(torch.tensor([1.0, 1.0], dtype=torch.float64), requires_grad=False)
        self.mark_logits = nn.Parameter(
            torch.zeros(config.num_marks, dtype=torch.float64), requires_grad=False
        )
        self.tables = MarkovTables(config.num_marks) if config.distribution == "markov" else None

    @torch.no_grad()
    def fit(self, gaps: Tensor, marks: Tensor, last: Tensor | None = None) -> None:
        """Set the numbers of greatest likelihood.

        Args:
            gaps: (n,) all known gaps, above 0.
            marks: (n,) 0 .. num_marks - 1. One is added to every count, so that no kind is impossible.
            last: (n,) the marks before these; a Markov chain needs them.
        """
        gaps = gaps.double()
        if self.config.resolution:
            gaps = gaps.clamp(min=0.25 * self.config.resolution)
        if len(gaps) < 2 or not bool((gaps > 0.0).all()):
            raise DataError("fitting needs two gaps or more, all of them positive.")
        if self.tables is not None:
            if last is None:
                raise DataError("a Markov chain is fitted with the marks before: fit(gaps, marks, last).")
            self.tables.fit(gaps, marks, last)
            return
        if self.config.distribution == "poisson":
            self.numbers.copy_(torch.stack([gaps.mean(), torch.ones_like(gaps[0])]))
        else:
            logs = gaps.log()
            self.numbers.copy_(torch.stack([logs.mean(), logs.std(correction=0).clamp(min=1e-6)]))
        self.mark_logits.copy_((torch.bincount(marks, minlength=self.num_marks).double() + 1.0).log())

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> EventState:
        """Return a clock at 0; nothing else is remembered but, of a Markov chain, the latest kind."""
        del dtype
        zeros = torch.zeros(batch_size, dtype=torch.float64, device=device or self.numbers.device)
        known = zeros.new_zeros(batch_size, 0 if self.tables is None else 1)
        return EventState(EncoderState(()), known, zeros, zeros.clone(), zeros.to(torch.int64))

    def encode(
        self, events: Events, state: EventState | None = None, *, mask: Mask | None = None
    ) -> tuple[Activations, EventState]:
        """Let the clock run; nothing is known, (b, t, 0), or only the latest kind, (b, t, 1)."""
        self.check(events, mask, ("b", "t"))
        gaps = events.gaps.double()
        count = len(gaps)
        state = self.init_state(count, device=gaps.device) if state is None else state
        check_model_state(state, EventState, count)
        total = (gaps if mask is None else gaps.masked_fill(~mask, 0.0)).sum(1)
        came = gaps.shape[1] if mask is None else mask.sum(1)
        after = state._replace(time=state.time + total, num_events=state.num_events + came)
        if self.tables is None:
            return gaps.new_zeros(*gaps.shape, 0), after
        rows = events.marks + 1 if mask is None else (events.marks + 1).masked_fill(~mask, 0)
        places = torch.arange(1, gaps.shape[1] + 1, device=gaps.device)
        latest = (places * (rows > 0)).max(dim=1, keepdim=True).values if gaps.shape[1] else None
        if latest is not None:
            found = rows.gather(1, (latest - 1).clamp(min=0)).to(gaps)
            after = after._replace(output=torch.where(latest > 0, found, state.output))
        return rows.to(gaps).unsqueeze(-1), after

    def encode_one(
        self, event: Events, state: EventState, *, mask: TokenMask | None = None
    ) -> tuple[Token, EventState]:
        """Let the clock run."""
        self.check(event, mask, ("b",))
        gaps = event.gaps.double()
        check_model_state(state, EventState, len(gaps))
        gaps = gaps if mask is None else gaps.masked_fill(~mask, 0.0)
        came = 1 if mask is None else mask
        state = state._replace(time=state.time + gaps, num_events=state.num_events + came)
        if self.tables is None:
            return state.output, state
        rows = (event.marks + 1).to(gaps).unsqueeze(-1)
        rows = rows if mask is None else torch.where(mask.unsqueeze(-1), rows, state.output)
        return rows, state._replace(output=rows)

    def decode_gap(self, outputs: Tensor) -> GapDistribution:
        """Return the one distribution, or that of the latest kind, (...)."""
        if self.tables is not None:
            numbers = F.embedding(outputs.squeeze(-1).to(torch.int64), self.tables.gaps).double()
            return LogNormalMixture(
                log_weights=torch.zeros_like(numbers[..., :1]),
                locations=numbers[..., :1],
                scales=numbers[..., 1:],
                resolution=self.config.resolution,
            )
        shape = outputs.shape[:-1]
        first, second = self.numbers.unbind()
        if self.config.distribution == "poisson":
            return Exponential(rates=(1.0 / first).expand(shape))
        return LogNormalMixture(
            log_weights=torch.zeros_like(first).expand(*shape, 1),
            locations=first.expand(*shape, 1),
            scales=second.expand(*shape, 1),
            resolution=self.config.resolution,
        )

    def decode_marks(self, outputs: Tensor) -> Tensor | None:
        """Return the logarithms of the frequencies, (..., marks); None: only one kind."""
        if self.num_marks == 1:
            return None
        if self.tables is not None:
            return self.tables.look_up(outputs.squeeze(-1).to(torch.int64))
        return self.mark_logits.expand(*outputs.shape[:-1], self.num_marks)

    def fold(self) -> "EventReference":
        """Return a frozen copy."""
        return frozen_copy(self)

    def fingerprint(self) -> str:
        """Return a short name of the fitted numbers and of what they mean."""
        numbers = b"".join(part.detach().cpu().numpy().tobytes() for part in self.parameters())
        return hashlib.sha256(repr(self.config).encode() + numbers).hexdigest()[:16]
