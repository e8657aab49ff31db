"""EventModel: times and marks in; a mixture of log-normals over the next gap, a softmax over the next mark.

The encoder of the Transformer Hawkes Process with the intensity-free decoder, as the paper's base code has
it: mark embedding, time encoding added before every layer, and any mixer over time.

Beyond the published: logarithms of gaps as encoding, a short convolution, periods of a clock, and a base that
all numbers of the heads are relative to, the Markov chain of `aaren.events.references`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ConfigError, require_at_least, unknown_name
from aaren.events.distribution import Events, LogNormalMixture
from aaren.events.forecaster import EventForecaster, EventState
from aaren.events.references import MarkovTables
from aaren.nn import AarenAttention, Block, Encoder, EncoderConfig, SoftmaxAttention
from aaren.nn.block import HEADED
from aaren.nn.checks import check_model_state
from aaren.nn.conv import Conv
from aaren.nn.mixer import frozen_copy
from aaren.nn.state import fingerprint_around
from aaren.shapes import Activations, LogDecay, Mask, Token, TokenMask

ENCODINGS = ("gaps", "times", "log-gaps")
LONGEST_PERIOD = 10_000.0  # of the time encoding, over 2π
SHORTEST_LOG_PERIOD, LONGEST_LOG_PERIOD = 1.0, 64.0  # of the encoding of logarithms, in nats
SHORTEST_GAP = 1e-6  # in the model's unit, added before the logarithm where the clock has no resolution
HARMONICS = 3  # of every period of the clock
SHORTEST_HALF_LIFE, LONGEST_HALF_LIFE = 2.0, 128.0  # where learned time decay begins, in the model's unit


@dataclass(frozen=True, kw_only=True, slots=True)
class EventModelConfig:
    """What an `EventModel` is made of; the defaults are the published ones.

    >>> EventModelConfig(encoding="gap")
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: unknown encoding 'gap'; did you mean 'gaps'? Known: gaps, log-gaps, times.
    """

    num_marks: int = 1  # kinds of events; 1: unmarked
    width: int = 64
    num_heads: int = 1
    num_layers: int = 2
    ff_width: int = 64
    dropout: float = 0.1
    activation: str = "gelu"
    mixer: str = "aaren"  # or softmax: the Transformer; gru, lstm, wkv
    num_components: int = 8  # log-normals in the mixture
    encoding: str = "gaps"  # of what sines and cosines are: the gap before, its logarithm, or the time so far
    time_scale: float = 1.0  # the model's unit of time, in that of the data; 12.5: gaps are divided by 12.5
    time_decay: str | None = None  # "learned": aaren only, every head learns how fast time makes it forget
    spare_heads: bool = False  # the base code's heads that no output depends on, for its parameter total
    conv: Conv | None = None  # a short causal convolution over the events
    periods: tuple[float, ...] = ()  # of the clock, in the data's unit: 24 and 168 where that is hours
    resolution: float = 0.0  # of the clock, in the data's unit; above 0, events may come at equal times
    base: str | None = None  # "markov": the heads correct a Markov chain with log-normal gaps

    def __post_init__(self) -> None:
        """Report a setting that is unknown or contradicts another one."""
        require_at_least(self, num_marks=1, num_components=1)
        if self.width % 2:
            raise ConfigError(f"width must be even, for pairs of sine and cosine; got {self.width}.")
        if self.encoding not in ENCODINGS:
            raise unknown_name("encoding", self.encoding, ENCODINGS)
        if not (math.isfinite(self.time_scale) and self.time_scale > 0.0):
            raise ConfigError(f"time_scale must be positive and finite; got {self.time_scale}.")
        if not all(math.isfinite(period) and period > 0.0 for period in self.periods):
            raise ConfigError(f"periods must be positive and finite; got {list(self.periods)}.")
        if not (math.isfinite(self.resolution) and self.resolution >= 0.0):
            raise ConfigError(f"resolution must be 0 or more and finite; got {self.resolution}.")
        if self.base not in (None, "markov"):
            raise unknown_name("base", str(self.base), ["markov"])
        if self.time_decay not in (None, "learned"):
            raise unknown_name("time_decay", str(self.time_decay), ["learned"])
        if self.time_decay is not None and self.mixer != "aaren":
            raise ConfigError(f"time_decay={self.time_decay!r} needs mixer='aaren'; got {self.mixer!r}.")
        self.encoder  # noqa: B018  builds, and so checks, the encoder's config

    @property
    def encoder(self) -> EncoderConfig:
        """Return the encoder's config."""
        # The published models' queries, keys and values have no biases; other mixers take no such option.
        has_bias = self.mixer not in HEADED
        return EncoderConfig.of(self, qkv_bias=has_bias, norm_eps=1e-6)


class EventModel(EventForecaster):
    """Predict after every event when the next one comes and of what kind.

    >>> model = EventModel(EventModelConfig(num_marks=22)).eval()
    >>> sum(p.numel() for p in model.parameters())  # the Transformer's 58,670 and 2 queries of 64
    58798
    >>> coming, state = model(Events(torch.rand(2, 50), torch.randint(22, (2, 50))))
    >>> coming.shape, coming.mark_probabilities.shape, state.nbytes
    (torch.Size([2, 50]), torch.Size([2, 50, 22]), 2672)
    >>> coming, state = model.step(Events(torch.rand(2), torch.tensor([3, 7])), state)
    >>> coming.median().shape, coming.survival(1.0).shape, state.nbytes
    (torch.Size([2]), torch.Size([2]), 2672)
    """

    config_type: ClassVar[type[EventModelConfig]] = EventModelConfig

    def __init__(self, config: EventModelConfig) -> None:
        super().__init__()
        self.config = config
        self.num_marks = config.num_marks
        self.mark_embedding = nn.Embedding(config.num_marks + 1, config.width, padding_idx=0)
        self.encoder = Encoder(config.encoder)
        self.gap_hidden = nn.Linear(config.width, config.width)
        self.gap_numbers = nn.Linear(config.width, 3 * config.num_components)
        has_marks = config.num_marks > 1 or config.spare_heads
        self.mark_head = nn.Linear(config.width, config.num_marks) if has_marks else None
        self.spare_mark_head = nn.Linear(config.width, config.num_marks) if config.spare_heads else None
        self.spare_time_head = nn.Linear(config.width, 1, bias=False) if config.spare_heads else None
        self.clock = nn.Linear(2 * HARMONICS * len(config.periods), config.width) if config.periods else None
        self.base: MarkovTables | None = MarkovTables(config.num_marks) if config.base is not None else None
        self.decay_rate: nn.Parameter | None = None
        if config.time_decay is not None:
            self.decay_rate = nn.Parameter(_first_rates(config.num_heads))
        # No buffer: these stay float64 when the model is cast, as the phase of a long time needs it.
        exponents = torch.arange(0, config.width, 2, dtype=torch.float64, device="cpu") / config.width
        self._frequencies = LONGEST_PERIOD**-exponents
        if config.encoding == "log-gaps":
            ratio = SHORTEST_LOG_PERIOD / LONGEST_LOG_PERIOD
            self._frequencies = 2.0 * math.pi / SHORTEST_LOG_PERIOD * ratio**exponents
        self._floor = config.resolution / config.time_scale / 2.0 or SHORTEST_GAP
        self._draw_projections()
        if self.base is not None:
            self._begin_at_base()

    def extra_repr(self) -> str:
        shown = ("num_components", "encoding", "time_scale", "time_decay")
        return ", ".join(f"{name}={getattr(self.config, name)!r}" for name in shown)

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> EventState:
        """Return the state before the first event, for `batch_size` streams, observed from time 0."""
        weight = self.mark_embedding.weight
        device = device or weight.device
        zeros = torch.zeros(batch_size, dtype=torch.float64, device=device)
        return EventState(
            encoder=self.encoder.init_state(batch_size, dtype=dtype, device=device),
            output=torch.zeros(batch_size, self._known_width, dtype=weight.dtype, device=device),
            time=zeros,
            start=zeros.clone(),
            num_events=zeros.to(torch.int64),
        )

    def encode(
        self, events: Events, state: EventState | None = None, *, mask: Mask | None = None
    ) -> tuple[Activations, EventState]:
        """Take in whole sequences; see `EventForecaster.encode`."""
        self.check(events, mask, ("b", "t"))
        before = self.init_state(len(events.gaps), device=events.gaps.device) if state is None else state
        check_model_state(before, EventState, len(events.gaps))
        gaps, rows = self._inputs(events, mask)
        outputs, encoded = self.encoder(
            self._embed(rows, lambda: before.time.unsqueeze(1) + _sum_so_far(gaps)),
            None if state is None else before.encoder,
            mask=mask,
            inject=self._encode_time(self._moments(gaps, before)),
            log_decay=self._log_decay(gaps),
        )
        outputs = self._with_last_kind(outputs, rows)
        if gaps.shape[1] == 0:
            return outputs, before
        output = outputs[:, -1]
        num_events = before.num_events + (gaps.shape[1] if mask is None else mask.sum(1))
        if mask is not None:
            places = torch.arange(1, gaps.shape[1] + 1, device=mask.device)
            last = (mask * places).amax(1)  # 0: no event at all
            found = outputs[torch.arange(len(outputs), device=mask.device), (last - 1).clamp(min=0)]
            output = torch.where((last > 0).unsqueeze(-1), found, before.output.to(found.dtype))
        return outputs, EventState(encoded, output, before.time + gaps.sum(1), before.start, num_events)

    def encode_one(
        self, event: Events, state: EventState, *, mask: TokenMask | None = None
    ) -> tuple[Token, EventState]:
        """Take in one event per stream; see `EventForecaster.encode_one`."""
        self.check(event, mask, ("b",))
        check_model_state(state, EventState, event.gaps.shape[0])
        gaps, rows = self._inputs(event, mask)
        time = state.time + gaps
        output, encoded = self.encoder.step(
            self._embed(rows, lambda: time),
            state.encoder,
            mask=mask,
            inject=self._encode_time(time - state.start if self.config.encoding == "times" else gaps),
            log_decay=self._log_decay(gaps),
        )
        output = self._with_last_kind(output, rows)
        if mask is not None:
            output = torch.where(mask.unsqueeze(-1), output, state.output.to(output.dtype))
            time = torch.where(mask, time, state.time)
        return output, EventState(
            encoded, output, time, state.start, state.num_events + (1 if mask is None else mask)
        )

    def decode_gap(self, outputs: Tensor) -> LogNormalMixture:
        """Turn what is known, (..., c), into the distribution of the next gap, in the data's unit of time."""
        known, last = self._split(outputs)
        numbers = self.gap_numbers(self.gap_hidden(known).tanh())
        return LogNormalMixture.from_numbers(
            numbers,
            time_scale=self.config.time_scale,
            base=None if self.base is None else F.embedding(last, self.base.gaps),
            resolution=self.config.resolution,
        )

    def decode_marks(self, outputs: Tensor) -> Tensor | None:
        """Turn what is known, (..., c), into logits of the next mark; None: only one kind."""
        if self.mark_head is None or self.num_marks == 1:
            return None
        known, last = self._split(outputs)
        logits: Tensor = self.mark_head(known)
        return logits if self.base is None else logits + self.base.look_up(last)

    def fold(self) -> "EventModel":
        """Return a frozen copy for inference; states pass between it and the original."""
        folded = frozen_copy(self)
        folded.encoder = self.encoder.fold()
        return folded

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        return fingerprint_around(self.encoder, self)

    def _inputs(self, events: Events, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return gaps in float64 and rows of the embedding, both 0 at padding."""
        gaps, rows = events.gaps.double(), events.marks + 1
        if mask is not None:
            gaps, rows = gaps.masked_fill(~mask, 0.0), rows.masked_fill(~mask, 0)
        return gaps, rows

    def _moments(self, gaps: Tensor, state: EventState) -> Tensor:
        """Return what is encoded of each event of a sequence, (b, t): its gap, or the time so far."""
        if self.config.encoding != "times":
            return gaps
        return (state.time - state.start).unsqueeze(1) + _sum_so_far(gaps)

    def _encode_time(self, moments: Tensor) -> Tensor:
        """Return sines (even places) and cosines (odd places), (..., c)."""
        moments = moments / self.config.time_scale
        if self.config.encoding == "log-gaps":
            moments = (moments + self._floor).log()
        angles = moments.unsqueeze(-1) * self._frequencies.to(moments.device)
        pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
        return pairs.flatten(-2).to(self.mark_embedding.weight.dtype)

    def _log_decay(self, gaps: Tensor) -> LogDecay | None:
        """Return how much each head forgets over each gap, (..., h)."""
        if self.decay_rate is None:
            return None
        moments = (gaps / self.config.time_scale).to(self.decay_rate.dtype)
        log_decay: Tensor = -F.softplus(self.decay_rate) * moments.unsqueeze(-1)
        return log_decay

    def _embed(self, rows: Tensor, times: Callable[[], Tensor]) -> Tensor:
        """Return what goes into the encoder, (..., c): the kind of each event and, with periods, its time."""
        embedded: Tensor = self.mark_embedding(rows)
        if self.clock is None:
            return embedded
        moments = times()
        turns = torch.stack([moments / period for period in self.config.periods], dim=-1)
        turns = turns - turns.floor()  # sines of large numbers are imprecise, and slow
        angles = torch.cat([2.0 * math.pi * order * turns for order in range(1, HARMONICS + 1)], dim=-1)
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        placed: Tensor = self.clock(waves.to(embedded.dtype))
        return embedded + placed

    @property
    def _known_width(self) -> int:
        return int(self.config.width) + (self.base is not None)

    def _with_last_kind(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Add the row of the latest kind as one more number, which the base is looked up with."""
        return outputs if self.base is None else torch.cat([outputs, rows.unsqueeze(-1).to(outputs)], dim=-1)

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the encoder knows and the row of the latest kind."""
        if self.base is None:
            return outputs, outputs.new_zeros(outputs.shape[:-1], dtype=torch.int64)
        return outputs[..., :-1], outputs[..., -1].to(torch.int64)

    @torch.no_grad()
    def _begin_at_base(self) -> None:
        """Start the heads near zero: the untrained model is nearly its base."""
        k = self.config.num_components
        self.gap_numbers.weight.mul_(0.1)
        self.gap_numbers.bias.zero_()
        self.gap_numbers.bias[k : 2 * k] = torch.linspace(-0.5, 0.5, k) if k > 1 else 0.0
        self.gap_numbers.bias[2 * k :] = math.log(math.expm1(0.95))
        if self.mark_head is not None:
            self.mark_head.weight.mul_(0.1)
            self.mark_head.bias.zero_()

    @torch.no_grad()
    def draw_to_base(self, *, gaps: float, kinds: float) -> None:
        """Keep these shares, in [0, 1], of what the heads add to the base; 0 leaves the base alone."""
        self.gap_numbers.weight.mul_(gaps)
        self.gap_numbers.bias.mul_(gaps)
        self.gap_numbers.bias[2 * self.config.num_components :] += (1.0 - gaps) * math.log(math.expm1(1.0))
        if self.mark_head is not None:
            self.mark_head.weight.mul_(kinds)
            self.mark_head.bias.mul_(kinds)

    @torch.no_grad()
    def _draw_projections(self) -> None:
        """Draw the projections of queries, keys and values as the base code does: Xavier-uniform."""
        for block in self.encoder.layers:
            assert isinstance(block, Block)
            if isinstance(block.mixer, AarenAttention | SoftmaxAttention):
                for projection in (block.mixer.q_proj, block.mixer.k_proj, block.mixer.v_proj):
                    nn.init.xavier_uniform_(projection.weight)


def _sum_so_far(gaps: Tensor) -> Tensor:
    # On the CPU: CUDA has no deterministic cumulative sum of floats.
    return gaps.cpu().cumsum(1).to(gaps.device)


def _first_rates(num_heads: int) -> Tensor:
    """Spread the heads' half-lives evenly (in ratio) over the range above; softplus gives the rates."""
    half_lives = torch.linspace(math.log(SHORTEST_HALF_LIFE), math.log(LONGEST_HALF_LIFE), num_heads).exp()
    return (math.log(2.0) / half_lives).expm1().log()
