"""Classifier: a whole series in, one score per class out; with the causal embedding also step by step.

The Transformer of the Time-Series-Library for classification, its causal self-attention replaceable by any
mixer. Both heads are sums over time, so a stream has an answer after every step: `amounts` is what each step
adds to the total, `read` turns a total into scores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ConfigError, ShapeError, require_at_least, unknown_name
from aaren.export.whole import WholeStep
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.nn.checks import check_model_state, hide_padding, largest
from aaren.nn.dropout import drop
from aaren.nn.embedding import ValueEmbedding, position_encoding
from aaren.nn.mixer import frozen_copy
from aaren.nn.state import State, fingerprint_around
from aaren.ops.checks import check_mask
from aaren.ops.tracing import is_traced
from aaren.shapes import Activations, Mask, Token, TokenMask
from aaren.stream.raw import Scaled, names_in, scaled_by
from aaren.stream.session import Steppable

if TYPE_CHECKING:
    from aaren.classification.session import ClassifierSession

EMBEDDINGS = ("circular", "causal")
HEADS = ("flattened", "pooled")
NUM_MARKS = 4  # numbers that describe a date, for a layer that is there and never used


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierConfig:
    """What a `Classifier` is made of.

    `embedding="circular"` is the Time-Series-Library's convolution: centred, and its ends see each other. It
    gives the published comparison and cannot be streamed. `"causal"` sees the past alone and can.

    `head="flattened"` is the published one, with weights for every step up to `length`; `"pooled"` takes the
    mean over time, and with the causal embedding it has no positions either: streams of any length.

    >>> ClassifierConfig(num_channels=12, num_classes=9, length=29, head="mean")
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: unknown head 'mean'; Known: flattened, pooled.
    """

    num_channels: int  # numbers in a step
    num_classes: int
    length: int  # steps of the longest series; only the pooled head takes longer ones
    width: int = 128
    num_heads: int = 8
    ff_width: int = 256
    num_layers: int = 3
    dropout: float = 0.1
    mixer: str = "aaren"  # or softmax: the Transformer
    embedding: str = "circular"
    head: str = "flattened"

    def __post_init__(self) -> None:
        """Report a setting that is unknown or contradicts another one."""
        for kind, name, known in (("embedding", self.embedding, EMBEDDINGS), ("head", self.head, HEADS)):
            if name not in known:
                raise unknown_name(kind, name, known)
        require_at_least(self, num_channels=1, num_classes=2, length=1)
        self.encoder  # noqa: B018  builds, and so checks, the encoder's config

    @property
    def is_causal(self) -> bool:
        """Tell whether the model can be streamed."""
        return self.embedding == "causal"

    @property
    def has_positions(self) -> bool:
        """Tell whether steps have positions; an endless stream would exceed those seen in training."""
        return not (self.is_causal and self.head == "pooled")

    @property
    def encoder(self) -> EncoderConfig:
        """Return the encoder's config."""
        return EncoderConfig.of(self, final_norm=True)


class _ClassifierParts(NamedTuple):
    encoder: EncoderState
    tail: Tensor  # (b, 2, channels)  the last two steps, for the convolution
    position: Tensor  # (b,) int64  steps so far
    total: Tensor  # (b, classes) or, pooled, (b, c)  what the head has summed up; always float64


class ClassifierState(_ClassifierParts, State):
    """With an Aaren its size depends on the model and the number of streams, never on how many steps came."""

    __slots__ = ()


class Classifier(nn.Module):
    """Score the classes of series of up to `length` steps.

    >>> model = Classifier(ClassifierConfig(num_channels=12, num_classes=9, length=29, mixer="softmax"))
    >>> sum(p.numel() for p in model.parameters())
    436233
    >>> model(torch.randn(2, 29, 12)).shape
    torch.Size([2, 9])

    A causal one can be streamed:

    >>> config = ClassifierConfig(num_channels=12, num_classes=9, length=29, embedding="causal")
    >>> session = Classifier(config).stream()
    >>> session.push(torch.randn(12)).sum().round(decimals=4)
    tensor(1.)
    """

    config_type: ClassVar[type[ClassifierConfig]] = ClassifierConfig
    preprocessing: Mapping[str, Any] | None = None  # of its run: classes and scales, which `stream` applies

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.value = ValueEmbedding(config.num_channels, config.width, padding=config.embedding)
        # The base code makes a layer for dates and never uses it; the published totals count its weights.
        self.mark = None if config.is_causal else nn.Linear(NUM_MARKS, config.width, bias=False)
        if config.has_positions:
            # No buffer: what is not saved cannot be loaded after `to_empty`.
            self._position = position_encoding(config.length, config.width)
        self.encoder = Encoder(config.encoder)
        self.head: FlattenedHead | PooledHead
        if config.head == "flattened":
            self.head = FlattenedHead(
                length=config.length, width=config.width, num_classes=config.num_classes
            )
        else:
            self.head = PooledHead(width=config.width, num_classes=config.num_classes)

    def extra_repr(self) -> str:
        return f"length={self.config.length}, head={self.config.head!r}"

    def forward(self, values: Tensor, *, mask: Mask | None = None) -> Tensor:
        """Score whole series.

        Args:
            values: (b, t, channels). Shorter than `length` is as good as padded to it.
            mask: (b, t) bool, True = real; padding stands at the end and may hold anything.

        Returns:
            (b, classes); a softmax of them gives probabilities.
        """
        self._check(values, ("b", "t"), mask)
        self._check_length(values.shape[1])
        require_padding_at_the_end(mask)
        values = hide_padding(values.to(self.value.weight.dtype), mask)
        missing = self.config.length - values.shape[1]
        if missing > 0 and not self.config.is_causal:  # where the series ends, its beginning follows
            if mask is None:
                mask = values.new_ones(values.shape[:2], dtype=torch.bool)
            values, mask = F.pad(values, (0, 0, 0, missing)), F.pad(mask, (0, missing))
        x = self.value(values)
        if self.config.has_positions:
            x = x + self._positions(values.shape[1]).to(x.device, x.dtype)
        # Padding follows all that is real, so causality alone hides it.
        encoded, _ = self.encoder(self._drop(x))
        scores: Tensor = self.head(hide_padding(self._finish(encoded), mask), mask)
        return scores

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> ClassifierState:
        """Return the state before the first step, for `batch_size` streams."""
        self._require_causal()
        device = device or self.value.weight.device
        return ClassifierState(
            encoder=self.encoder.init_state(batch_size, dtype=dtype, device=device),
            tail=self.value.init_tail(batch_size, device=device),
            position=torch.zeros(batch_size, dtype=torch.int64, device=device),
            total=torch.zeros(batch_size, self.head.total_size, dtype=torch.float64, device=device),
        )

    def score_steps(
        self, values: Tensor, state: ClassifierState | None = None, *, mask: Mask | None = None
    ) -> tuple[Tensor, ClassifierState]:
        """Take in many steps at once and score the classes after every one of them.

        Args:
            values: (b, t, channels).
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real, in any order. A step with False is no step: the scores there are
                the last ones.

        Returns:
            The scores after each step, (b, t, classes), the last of them what `forward` gives for the whole
            series; and the state.
        """
        self._require_causal()
        self._check(values, ("b", "t"), mask)
        values = values.to(self.value.weight.dtype)
        if state is None:
            state = self.init_state(values.shape[0], device=values.device)
        check_model_state(state, ClassifierState, values.shape[0])
        if mask is None:
            return self._score_steps(values, state, None)
        before = self.read(state).unsqueeze(1)
        order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)  # real steps to the front
        in_front = hide_padding(values, mask).gather(1, order.unsqueeze(-1).expand_as(values))
        scores, final = self._score_steps(in_front, state, mask.gather(1, order))
        counts = mask.cumsum(1).unsqueeze(-1).expand(*mask.shape, scores.shape[-1])
        return torch.cat([before, scores], dim=1).gather(1, counts), final

    def step(
        self, row: Tensor, state: ClassifierState, *, mask: TokenMask | None = None
    ) -> tuple[Tensor, ClassifierState]:
        """Take in one step per stream, (b, channels), and return the scores after it, (b, classes).

        Args:
            row: (b, channels).
            state: from `init_state`, `score_steps` or an earlier `step`.
            mask: (b,) bool; a stream with False keeps its state bit for bit and repeats its scores.
        """
        self._require_causal()
        self._check(row, ("b",), mask)
        check_model_state(state, ClassifierState, row.shape[0])
        row = row.to(self.value.weight.dtype)
        if mask is not None:  # what stands in a missing row, even NaN, has no effect
            row = row.masked_fill(~mask.unsqueeze(-1), 0.0)
        position = self._check_positions(state.position, 1 if mask is None else mask)
        x = self.value.step(row, state.tail)
        if self.config.has_positions:
            x = x + self._position.to(x.device)[position].to(x.dtype)
        output, encoded = self.encoder.step(self._drop(x), state.encoder, mask=mask)
        after = ClassifierState(
            encoder=encoded,
            tail=torch.cat([state.tail[:, 1:], row.to(state.tail.dtype).unsqueeze(1)], dim=1),
            position=state.position + 1,
            total=state.total + self.head.amount(self._finish(output), position),
        )
        if mask is not None:
            after = after._replace(
                tail=torch.where(mask[:, None, None], after.tail, state.tail),
                position=torch.where(mask, after.position, state.position),
                total=torch.where(mask.unsqueeze(-1), after.total, state.total),
            )
        return self.read(after), after

    def read(self, state: ClassifierState) -> Tensor:
        """Return the scores of each stream as it stands, (b, classes); no step is taken in."""
        check_model_state(state, ClassifierState)
        return self.head.read(state.total, state.position)

    def finish(self, state: ClassifierState) -> Tensor:
        """Return the scores of series that end here, (b, classes): those that they have."""
        return self.read(state)

    def score_prefixes(self, values: Tensor, steps: Tensor, *, mask: Mask | None = None) -> Tensor:
        """Score prefixes of series: as a stream would, or each as a series of its own.

        Args:
            values: (b, t, channels).
            steps: (b, n) int64, lengths of n prefixes of each series.
            mask: (b, t) bool, padding at the end.

        Returns:
            (b, n, classes).
        """
        if self.is_causal:
            scores, _ = self.score_steps(values, mask=mask)
            return scores.gather(1, (steps - 1).unsqueeze(-1).expand(*steps.shape, scores.shape[-1]))
        places = torch.arange(values.shape[1], device=values.device)
        return torch.stack([self(values, mask=places < some.unsqueeze(1)) for some in steps.unbind(1)], dim=1)

    @property
    def is_causal(self) -> bool:
        """Tell whether the model can be streamed."""
        return self.config.is_causal

    def stream(
        self, batch_size: int | None = None, *, engine: str = "auto"
    ) -> "ClassifierSession[ClassifierState]":
        """Open a session that holds the state: push steps, read class probabilities.

        Args:
            batch_size: how many streams go side by side; None: one, whose steps and answers lack that axis.
            engine: "native" (the C runtime), "torch", or "auto": native where the model can be lowered.
        """
        self._require_causal()
        from aaren.classification.session import ClassifierSession

        return ClassifierSession(self.fold(), batch_size=batch_size, engine=engine)

    def whole_step(self) -> WholeStep:
        """Return the step from a raw sample to class probabilities."""
        self._require_causal()
        return classify_raw(self, self.config.num_channels)

    def fold(self) -> "Classifier":
        """Return a frozen copy for inference; states pass between it and the original."""
        folded = frozen_copy(self)
        folded.encoder = self.encoder.fold()
        return folded

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        return fingerprint_around(self.encoder, self)

    def _score_steps(
        self, values: Tensor, state: ClassifierState, mask: Mask | None
    ) -> tuple[Tensor, ClassifierState]:
        """Take in steps whose padding, if any, stands at the end."""
        steps = values.shape[1]
        counts = torch.full_like(state.position, steps) if mask is None else mask.sum(1)
        self._check_positions(state.position, counts)
        places = state.position.unsqueeze(1) + torch.arange(steps, device=values.device)
        if self.config.head == "flattened":
            places = places.clamp(max=self.config.length - 1)  # of padding beyond the end
        x = self.value(values, state.tail)
        if self.config.has_positions:
            x = x + self._position.to(x.device)[places].to(x.dtype)
        outputs, encoded = self.encoder(self._drop(x), state.encoder, mask=mask)
        amounts = self.head.amounts(hide_padding(self._finish(outputs), mask), places)
        totals = state.total.unsqueeze(1) + amounts.double().cumsum(1)
        passed = torch.arange(1, steps + 1, device=values.device).clamp(max=counts.unsqueeze(1))
        scores = self.head.read(totals, state.position.unsqueeze(1) + passed)
        streams = torch.arange(len(values), device=values.device)
        rows = torch.cat([state.tail, values.to(state.tail.dtype)], dim=1)
        final = ClassifierState(
            encoder=encoded,
            tail=torch.stack([rows[streams, counts + place] for place in range(2)], dim=1),
            position=state.position + counts,
            total=torch.cat([state.total.unsqueeze(1), totals], dim=1)[streams, counts],
        )
        return scores, final

    def _finish(self, encoded: Tensor) -> Tensor:
        """Bring the encoder's outputs into the form that the head sums up."""
        return self._drop(F.gelu(encoded))

    def _positions(self, steps: int) -> Activations:
        known = self._position
        return known[:steps] if steps <= len(known) else position_encoding(steps, self.config.width)

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.config.dropout) if self.training else x

    def _require_causal(self) -> None:
        if not self.config.is_causal:
            raise ConfigError(
                "embedding='circular' looks one step ahead, and its ends see each other, so this model "
                "cannot be streamed. Train one with embedding='causal' (model aaren-causal)."
            )

    def _check_positions(self, position: Tensor, more: Tensor | int) -> Tensor:
        """Return positions that have weights, or say that a stream would become too long."""
        if self.config.head == "pooled":
            return position
        if is_traced():  # a program refuses a position that the table does not have
            last = position.clamp(max=self.config.length - 1)
            return torch.where(more, position, last) if isinstance(more, Tensor) else position
        self._check_length(int((position + more).max()) if len(position) else 0)
        return position.clamp(max=self.config.length - 1)  # of streams at their end that get no step

    def _check_length(self, steps: int) -> None:
        if steps > self.config.length and self.config.head == "flattened":
            raise ShapeError(
                f"the flattened head has weights for {self.config.length} steps, the longest series of "
                f"training; this one has {steps}. Cut it, start the stream again (session.reset()), or train "
                f"with head='pooled', which takes any length."
            )

    def _check(self, values: Tensor, axes: tuple[str, ...], mask: Tensor | None) -> None:
        channels = self.config.num_channels
        if values.ndim != len(axes) + 1 or values.shape[-1] != channels:
            raise ShapeError(
                f"values must be ({', '.join(axes)}, {channels}), the channels that this model was built "
                f"for, time before channels; got {tuple(values.shape)}."
            )
        check_mask(mask, values.shape[:-1], "(b, t)" if len(axes) == 2 else "(b,)")


def classify_raw(model: Any, num_channels: int) -> WholeStep:
    """Return the step of a classifier (Any: one of the three) from a raw sample to class probabilities."""
    raw: Steppable[Any] = scaled_by(model.fold(), model.preprocessing, num_channels)

    def run(given: list[Tensor], state: Any) -> tuple[list[Tensor], Any]:
        scores, state = raw.step(given[0] if isinstance(raw, Scaled) else given[0].float(), state)
        return [scores.softmax(-1)], state

    classes = names_in(model.preprocessing, "classes")
    return WholeStep(
        inputs={"sample": torch.zeros(1, num_channels, dtype=torch.float64)},
        outputs=("probabilities",),
        run=run,
        state=raw.init_state(1),
        largest=largest(torch.float32),
        fingerprint=model.fingerprint(),
        names={"probabilities": classes} if classes else {},
        notes={"sample": "one value per channel, as in the training data"},
    )


class FlattenedHead(nn.Linear):
    """One linear layer over all steps end to end, as in the Time-Series-Library: every step has its weights.

    What step t adds to the scores is W_t h_t, so a stream needs the sum alone and not the steps.

    >>> head = FlattenedHead(length=29, width=128, num_classes=9)
    >>> sum(p.numel() for p in head.parameters())
    33417
    """

    def __init__(self, *, length: int, width: int, num_classes: int) -> None:
        super().__init__(length * width, num_classes)
        self.length, self.width, self.num_classes = length, width, num_classes

    @property
    def total_size(self) -> int:
        """Return how many numbers a stream must keep: its scores so far."""
        return self.num_classes

    def forward(self, x: Activations, mask: Mask | None = None) -> Tensor:
        """Score whole series, (b, t, c) with zeros at padding, to (b, classes)."""
        del mask  # zeros add nothing
        # The steps that are not there would be zeros: their weights are left out instead.
        return F.linear(x.flatten(1), self.weight[:, : x.shape[1] * self.width], self.bias)

    def amounts(self, x: Activations, positions: Tensor) -> Tensor:
        """Return what each step adds, (b, t, classes), from x (b, t, c) at positions (b, t)."""
        if not len(x):  # no stream, and none to compare positions with
            return x.new_zeros(*x.shape[:2], self.num_classes)
        weight = self.weight.view(self.num_classes, self.length, self.width)
        if bool((positions == positions[:1]).all()):  # nearly always: the streams began together
            return torch.einsum("btc,ktc->btk", x, weight[:, positions[0]])
        return torch.stack(
            [torch.einsum("tc,ktc->tk", x[stream], weight[:, positions[stream]]) for stream in range(len(x))]
        )

    def amount(self, x: Token, position: Tensor) -> Tensor:
        """Return what one step adds, (b, classes), from x (b, c) at position (b,)."""
        weight = self.weight.view(self.num_classes, self.length, self.width)
        return torch.einsum("bc,kbc->bk", x, weight[:, position])

    def read(self, total: Tensor, count: Tensor) -> Tensor:
        """Return the scores (..., classes) of totals (..., classes)."""
        del count
        return (total + self.bias).to(self.weight.dtype)


class PooledHead(nn.Linear):
    """One linear layer of the mean over time: no step has weights of its own, so series may be of any length.

    >>> PooledHead(width=128, num_classes=9)(torch.randn(2, 1000, 128)).shape
    torch.Size([2, 9])
    """

    def __init__(self, *, width: int, num_classes: int) -> None:
        super().__init__(width, num_classes)

    @property
    def total_size(self) -> int:
        """Return how many numbers a stream must keep: the sum of all steps."""
        return self.in_features

    def forward(self, x: Activations, mask: Mask | None = None) -> Tensor:
        """Score whole series, (b, t, c) with zeros at padding, to (b, classes)."""
        count = torch.tensor(x.shape[1], device=x.device) if mask is None else mask.sum(1)
        return self.read(x.sum(1), count)

    def amounts(self, x: Activations, positions: Tensor) -> Tensor:
        """Return what each step adds: itself."""
        del positions
        return x

    def amount(self, x: Token, position: Tensor) -> Tensor:
        """Return what one step adds: itself."""
        del position
        return x

    def read(self, total: Tensor, count: Tensor) -> Tensor:
        """Return the scores (..., classes) of totals (..., c) of so many steps (...)."""
        mean = total / count.clamp(min=1).unsqueeze(-1)
        return F.linear(mean.to(self.weight.dtype), self.weight, self.bias)


def require_padding_at_the_end(mask: Mask | None) -> None:
    """Raise if a real step follows padding."""
    if mask is None or is_traced():
        return
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ShapeError(
            "padding must stand at the end of a series: real steps (True) first, then padding (False). Move "
            "the real steps to the front, or use `score_steps`, which skips steps anywhere."
        )
