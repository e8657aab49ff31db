"""Classifier: a whole series in, one score per class out; with the causal embedding also step by step.

The Transformer of the Time-Series-Library for classification, its causal self-attention replaceable by any
mixer. Knows nothing of labels' names and of how series are standardised.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ConfigError, ShapeError
from aaren.models.classifier_config import ClassifierConfig
from aaren.models.classifier_heads import FlattenedHead, PooledHead
from aaren.models.classifier_session import ClassifierSession
from aaren.models.classifier_state import ClassifierState
from aaren.models.inputs import check_mask, check_streams
from aaren.nn import Encoder
from aaren.nn.dropout import drop
from aaren.nn.embedding import ValueEmbedding, position_encoding
from aaren.nn.fingerprint import fingerprint_around
from aaren.nn.inputs import hide_padding, wrong_kind
from aaren.nn.linear import frozen_copy, refuse_hooks
from aaren.shapes import Activations, Mask, TokenMask

NUM_MARKS = 4  # numbers that describe a date, for a layer that is there and never used


class Classifier(nn.Module):
    """Score the classes of series of up to `length` steps.

    >>> model = Classifier(ClassifierConfig(num_channels=12, num_classes=9, length=29, mixer="softmax"))
    >>> sum(p.numel() for p in model.parameters())
    436233
    >>> model(torch.randn(2, 29, 12)).shape
    torch.Size([2, 9])

    Causal, it goes along a stream:

    >>> config = ClassifierConfig(num_channels=12, num_classes=9, length=29, embedding="causal")
    >>> session = Classifier(config).stream()
    >>> session.push(torch.randn(12)).sum().round(decimals=4)
    tensor(1.)
    """

    config_type: ClassVar[type[ClassifierConfig]] = ClassifierConfig

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
        """Describe what the submodules do not show."""
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
        _require_padding_at_the_end(mask)
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

    def follow(
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
        streams = values.shape[0]
        state = self.init_state(streams, device=values.device) if state is None else self._own(state, streams)
        if mask is None:
            return self._follow(values, state, None)
        before = self.read(state).unsqueeze(1)
        order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)  # real steps to the front
        in_front = hide_padding(values, mask).gather(1, order.unsqueeze(-1).expand_as(values))
        scores, final = self._follow(in_front, state, mask.gather(1, order))
        counts = mask.cumsum(1).unsqueeze(-1).expand(*mask.shape, scores.shape[-1])
        return torch.cat([before, scores], dim=1).gather(1, counts), final

    def step(
        self, row: Tensor, state: ClassifierState, *, mask: TokenMask | None = None
    ) -> tuple[Tensor, ClassifierState]:
        """Take in one step per stream, (b, channels), and return the scores after it, (b, classes).

        Args:
            row: (b, channels).
            state: from `init_state`, `follow` or an earlier `step`.
            mask: (b,) bool; a stream with False keeps its state bit for bit and repeats its scores.
        """
        self._require_causal()
        self._check(row, ("b",), mask)
        state = self._own(state, row.shape[0])
        row = row.to(self.value.weight.dtype)
        if mask is not None:  # what stands in a missing row, even NaN, has no effect
            row = row.masked_fill(~mask.unsqueeze(-1), 0.0)
        position = self._require_room(state.position, 1 if mask is None else mask)
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
        state = self._own(state)
        return self.head.read(state.total, state.position)

    def stream(self, batch_size: int | None = None) -> ClassifierSession:
        """Open a session that holds the state: push steps, read class probabilities.

        Args:
            batch_size: how many streams go side by side; None: one, whose steps and answers lack that axis.
        """
        self._require_causal()
        return ClassifierSession(self.fold(), batch_size=batch_size)

    def fold(self) -> "Classifier":
        """Return a frozen copy for inference; states pass between it and the original."""
        folded = frozen_copy(self)
        refuse_hooks(self.head, "head")  # of which a stream reads the weight
        folded.encoder = self.encoder.fold()
        return folded

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        return fingerprint_around(self.encoder, self)

    def _follow(
        self, values: Tensor, state: ClassifierState, mask: Mask | None
    ) -> tuple[Tensor, ClassifierState]:
        """Take in steps whose padding, if any, stands at the end."""
        steps = values.shape[1]
        counts = torch.full_like(state.position, steps) if mask is None else mask.sum(1)
        self._require_room(state.position, counts)
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

    def _own(self, state: ClassifierState, streams: int | None = None) -> ClassifierState:
        if not isinstance(state, ClassifierState):
            raise wrong_kind(ClassifierState, state)
        if streams is not None:
            check_streams(state.position.shape[0], streams)
        return state

    def _require_causal(self) -> None:
        if not self.config.is_causal:
            raise ConfigError(
                "embedding='circular' looks one step ahead, and its ends see each other, so this model "
                "cannot go along a stream. Train one with embedding='causal' (model aaren-causal)."
            )

    def _require_room(self, position: Tensor, more: Tensor | int) -> Tensor:
        """Return positions that have weights, or say that a stream would become too long."""
        if self.config.head == "pooled":
            return position
        longest = int((position + more).max()) if len(position) else 0
        self._check_length(longest)
        return position.clamp(max=self.config.length - 1)  # of streams at their end that get no step

    def _check_length(self, steps: int) -> None:
        if steps > self.config.length and self.config.head == "flattened":
            raise ShapeError(
                f"the flattened head has weights for {self.config.length} steps, the longest series of "
                f"training; this one has {steps}. Cut it, begin the stream anew (session.reset()), or train "
                f"with head='pooled', which takes any length."
            )

    def _check(self, values: Tensor, axes: tuple[str, ...], mask: Tensor | None) -> None:
        channels = self.config.num_channels
        if values.ndim != len(axes) + 1 or values.shape[-1] != channels:
            raise ShapeError(
                f"values must be ({', '.join(axes)}, {channels}), the channels that this model was built "
                f"for, time before channels; got {tuple(values.shape)}."
            )
        check_mask(mask, values.shape[:-1])


def _require_padding_at_the_end(mask: Mask | None) -> None:
    if mask is None or torch.compiler.is_compiling():
        return
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ShapeError(
            "padding must stand at the end of a series: real steps (True) first, then padding (False). Move "
            "the real steps to the front, or use `follow`, which skips steps anywhere."
        )
