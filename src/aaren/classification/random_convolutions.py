"""FeatureClassifier: random causal convolutions, pooled by running means, read by linear heads; for streams.

A sample's values are 0 or 1: is a dilated causal convolution, or a channel, above a threshold? Their mean
over time, which is attention with equal scores, is the share of time above each threshold: ROCKET's pooling.
Where it helps, the convolutions also see each channel as a signed fourth root, which brings six orders of
magnitude to less than two, and its change since the sample before. Pooled features cannot tell when something
happened: where that decides, the heads also weigh the values themselves, each by its place in the series; a
stream keeps one running sum of that per head and class. Nothing here is trained by gradients:
`ridge_classifier` draws the kernels and solves for the heads.

Everything up to the pooled features is exact, so that a stream and a batch round alike: samples are
rounded to multiples of 1/4096, kernels weigh them by -1 and 2, and thresholds lie between multiples. All sums
are sums of integers, in float32 below 2^24. The weights of places are integers too, and their sums stay below
2^53.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aaren.classification.model import classify_raw, require_padding_at_the_end
from aaren.errors import ConfigError, ShapeError, require_at_least
from aaren.export.whole import WholeStep
from aaren.nn.checks import check_model_state, hide_padding
from aaren.nn.mixer import frozen_copy
from aaren.nn.state import State, hash_weights, tensors_of
from aaren.ops.checks import check_mask
from aaren.shapes import Mask, TokenMask

if TYPE_CHECKING:
    from aaren.classification.session import ClassifierSession

UNIT = 4096.0  # parts of a standard deviation that a sample is rounded to
LARGEST = 32.0  # standard deviations that a sample is clipped to
TAPS = 9  # of a kernel
MOST_CHANNELS = 9  # of a kernel: 9 channels x 12 x 32 x 4096 is still below 2^24
POSITIONS = tuple(combinations(range(TAPS), 3))  # of the weights 2; the other six are -1: MiniRocket's 84
LARGEST_PLACE = 2.0**20  # a weight of a place; 2^20 x 32 x 4096 x 2^16 is 2^53
MOST_PLACED = 1 << 16  # values at places: steps x channels
CHUNK_STEPS = 2048  # at once
BLOCK_VALUES = 1 << 21  # values at once
FEW_STREAMS = 8  # up to which each stream's own head is fetched, instead of asking all heads


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureClassifierConfig:
    """The sizes of a `FeatureClassifier`; `plan_features` chooses them for data."""

    num_channels: int
    num_classes: int
    length: int  # steps of the longest series of training
    dilations: tuple[int, ...]  # ascending
    num_thresholds: tuple[int, ...]  # of each of the 84 kernels, by dilation
    num_levels: int = 16  # thresholds of each channel itself
    num_spans: int = 10  # of time before `length`, each with a head of its own
    has_roots: bool = False  # convolutions and levels also see the signed fourth root of every channel
    has_changes: bool = False  # and its change since the sample before
    has_places: bool = False  # the heads also weigh the values of the first `length` steps, each by its place

    def __post_init__(self) -> None:
        """Report sizes that cannot be."""
        require_at_least(self, num_channels=1, num_classes=2, length=1, num_levels=0, num_spans=0)
        if len(self.dilations) != len(self.num_thresholds) or not self.dilations:
            raise ConfigError(
                f"num_thresholds has one number per dilation; got {len(self.num_thresholds)} for "
                f"{len(self.dilations)} dilations."
            )
        if min(self.dilations) < 1 or min(self.num_thresholds) < 1:
            raise ConfigError("dilations and num_thresholds must be at least 1.")
        if self.has_places and self.length * self.num_channels > MOST_PLACED:
            raise ConfigError(
                f"has_places takes at most {MOST_PLACED:,} values of a series, steps times channels; got "
                f"{self.length} times {self.num_channels}."
            )

    @property
    def num_inputs(self) -> int:
        """Return how many numbers of a sample the convolutions see."""
        return self.num_channels * (1 + self.has_roots + self.has_changes)

    @property
    def num_convolved(self) -> int:
        """Return how many values of a sample come from convolutions."""
        return len(POSITIONS) * sum(self.num_thresholds)

    @property
    def num_features(self) -> int:
        """Return how many values a sample has; the heads see their means."""
        return self.num_convolved + self.num_inputs * self.num_levels

    @property
    def reach(self) -> int:
        """Return how many samples before the newest one the convolutions see."""
        return (TAPS - 1) * max(self.dilations)

    @property
    def state_bytes(self) -> int:
        """Return the bytes of the state of one stream."""
        placed = (self.num_spans + 1) * self.num_classes if self.has_places else 0
        return 4 * self.reach * self.num_inputs + 8 + 8 * (self.num_features + placed)


class _FeatureParts(NamedTuple):
    tail: Tensor  # (b, reach, inputs) float32  the last samples in units, zeros before the first
    position: Tensor  # (b,) int64  steps so far
    placed: tuple[Tensor, ...]  # (b, heads * classes)  if there are places: values by their weights
    total: Tensor  # (b, features)  the sum of their values: w of an Aaren state with scores 0


class FeatureClassifierState(_FeatureParts, State):
    """All that is remembered of a prefix; its size does not depend on its length."""

    __slots__ = ()


class FeatureClassifier(nn.Module):
    """Score the classes of series, whole or after every sample.

    >>> config = FeatureClassifierConfig(
    ...     num_channels=3, num_classes=2, length=50, dilations=(1, 2, 4), num_thresholds=(2, 2, 2)
    ... )
    >>> model = FeatureClassifier(config)
    >>> model(torch.randn(5, 50, 3)).shape, config.num_features
    (torch.Size([5, 2]), 552)
    >>> session = model.stream()
    >>> session.push(torch.randn(3)), session.state.nbytes == config.state_bytes
    (tensor([0.5000, 0.5000]), True)
    """

    config_type: ClassVar[type[FeatureClassifierConfig]] = FeatureClassifierConfig
    preprocessing: Mapping[str, Any] | None = None  # of its run: classes and scales, which `stream` applies
    is_causal = True
    channels: Tensor
    thresholds: Tensor
    levels: Tensor
    pivots: Tensor
    gains: Tensor
    change_gains: Tensor
    span_ends: Tensor
    places: Tensor
    place_unit: Tensor

    def __init__(self, config: FeatureClassifierConfig) -> None:
        super().__init__()
        self.config = config
        dilations = len(config.dilations)
        # Which inputs each kernel sums over, (dilations, kernels, inputs) of 0 and 1.
        self.register_buffer("channels", torch.ones(dilations, len(POSITIONS), config.num_inputs))
        self.register_buffer("thresholds", torch.full((config.num_convolved,), 0.5))  # in units
        self.register_buffer("levels", torch.full((config.num_inputs, config.num_levels), 0.5))
        if config.has_roots:  # the roots are taken of distances from a pivot; gains are powers of 2
            self.register_buffer("pivots", torch.zeros(config.num_channels))
            self.register_buffer("gains", torch.ones(config.num_channels))
        if config.has_changes:  # powers of 2, at least 1: changes in units stay integers
            self.register_buffer("change_gains", torch.ones(config.num_channels))
        self.register_buffer("span_ends", torch.arange(config.num_spans))  # the last step of each span
        # No buffers: constants that never change, whatever dtype the model is given.
        kernels = [[2.0 if tap in places else -1.0 for tap in range(TAPS)] for places in POSITIONS]
        lags = [config.reach - d * (TAPS - 1 - tap) for d in config.dilations for tap in range(TAPS)]
        with torch.device("cpu"):  # also in a model that is built on "meta"
            self._pattern = torch.tensor(kernels)  # (kernels, taps), oldest first
            self._lags = torch.tensor(lags).view(-1, TAPS)  # places in the window of a step
            counts = torch.tensor(config.num_thresholds).repeat_interleave(len(POSITIONS))
            self._sources = torch.arange(len(counts)).repeat_interleave(counts)  # kernels of the thresholds
        self._folded_kernels: list[Tensor] = []
        heads = config.num_spans + 1  # the last one: from `length` on, and for complete series
        self.weight = nn.Parameter(torch.zeros(heads, config.num_classes, config.num_features))
        self.bias = nn.Parameter(torch.zeros(heads, config.num_classes))
        if config.has_places:  # integers, and what one of them is worth in the scores of a unit
            shape = (config.length, heads * config.num_classes, config.num_channels)
            self.register_buffer("places", torch.zeros(shape))
            self.register_buffer("place_unit", torch.zeros(()))

    def extra_repr(self) -> str:
        config = self.config
        return (
            f"dilations={config.dilations}, features={config.num_features}, state={config.state_bytes} bytes"
        )

    def forward(self, values: Tensor, *, mask: Mask | None = None) -> Tensor:
        """Score complete series.

        Args:
            values: (b, t, channels), scaled as in training.
            mask: (b, t) bool, True = real; padding stands at the end and may hold anything.

        Returns:
            (b, classes); a softmax of them gives calibrated probabilities.
        """
        self._check(values, ("b", "t"), mask)
        require_padding_at_the_end(mask)
        lengths = self._lengths(values, mask)
        pooled = self.pool(values, lengths.unsqueeze(1), mask=mask).squeeze(1)
        placed = self._place_prefixes(values, lengths.unsqueeze(1), mask)
        heads = torch.full_like(lengths, self.config.num_spans)
        return self._score(pooled, tuple(some.squeeze(1) for some in placed), lengths, heads)

    def score_prefixes(self, values: Tensor, steps: Tensor, *, mask: Mask | None = None) -> Tensor:
        """Score prefixes of series, as a stream would after so many steps.

        Args:
            values: (b, t, channels).
            steps: (b, n) int64, lengths of n prefixes of each series.
            mask: (b, t) bool, padding at the end.

        Returns:
            (b, n, classes).
        """
        self._check(values, ("b", "t"), mask)
        require_padding_at_the_end(mask)
        pooled, placed = self.pool(values, steps, mask=mask), self._place_prefixes(values, steps, mask)
        return self._score(pooled, placed, steps, self._heads(steps))

    def pool(self, values: Tensor, steps: Tensor, *, mask: Mask | None = None) -> Tensor:
        """Return the pooled features (b, n, features), float64, of prefixes of so many steps (b, n)."""
        units = self._inputs(hide_padding(values, mask), None)
        t, n = units.shape[1], steps.shape[1]
        window = self._before(units, None)
        seen = torch.arange(t, device=units.device) < steps.unsqueeze(-1)  # (b, n, t)
        total = torch.zeros(len(units), n, self.config.num_features, dtype=torch.float64, device=units.device)
        for start in range(0, t, CHUNK_STEPS):
            stop = min(t, start + CHUNK_STEPS)
            asked = seen[:, :, start:stop].float()
            for first, block in self._values(window, start, stop):  # counts: exact in float32, in any order
                total[..., first : first + block.shape[-1]] += torch.bmm(asked, block)
        return total / steps.clamp(min=1).unsqueeze(-1)

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> FeatureClassifierState:
        """Return the state before the first sample; sums in float64, or in `dtype`."""
        config = self.config
        device, dtype = device or self.weight.device, dtype or torch.float64
        return FeatureClassifierState(
            tail=torch.zeros(batch_size, config.reach, config.num_inputs, device=device),
            position=torch.zeros(batch_size, dtype=torch.int64, device=device),
            total=torch.zeros(batch_size, config.num_features, dtype=dtype, device=device),
            placed=(torch.zeros(batch_size, self.places.shape[1], dtype=torch.float64, device=device),)
            if config.has_places
            else (),
        )

    def score_steps(
        self, values: Tensor, state: FeatureClassifierState | None = None, *, mask: Mask | None = None
    ) -> tuple[Tensor, FeatureClassifierState]:
        """Take in many samples at once and score the classes after every one of them.

        Args:
            values: (b, t, channels).
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real, in any order. A step with False is no step: the scores there are
                the last ones.
        """
        self._check(values, ("b", "t"), mask)
        if state is None:
            state = self.init_state(values.shape[0], device=values.device)
        check_model_state(state, FeatureClassifierState, values.shape[0])
        if mask is None:
            mask = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        before = self.read(state).unsqueeze(1)
        order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)  # real steps to the front
        in_front = hide_padding(values, mask).gather(1, order.unsqueeze(-1).expand_as(values))
        is_real, found = mask.gather(1, order), [before]
        size = max(1, BLOCK_VALUES // max(1, values.shape[0] * self.config.num_features))
        for start in range(0, values.shape[1], size):
            part = slice(start, start + size)
            scores, state = self._score_chunk(in_front[:, part], state, is_real[:, part])
            found.append(scores)
        counts = mask.cumsum(1).unsqueeze(-1).expand(*mask.shape, before.shape[-1])
        return torch.cat(found, dim=1).gather(1, counts), state

    def step(
        self, row: Tensor, state: FeatureClassifierState, *, mask: TokenMask | None = None
    ) -> tuple[Tensor, FeatureClassifierState]:
        """Take in one sample per stream, (b, channels), and return the scores after it, (b, classes).

        Args:
            row: (b, channels), scaled as in training.
            state: from `init_state`, `score_steps` or an earlier `step`.
            mask: (b,) bool; a stream with False keeps its state bit for bit and repeats its scores.
        """
        self._check(row, ("b",), mask)
        check_model_state(state, FeatureClassifierState, row.shape[0])
        if mask is not None:  # what stands in a missing row, even NaN, has no effect
            row = row.masked_fill(~mask.unsqueeze(-1), 0.0)
        units = self._inputs(row.unsqueeze(1), state).squeeze(1)
        window = torch.cat([state.tail, units.unsqueeze(1)], dim=1)  # (b, reach + 1, inputs)
        taps = window[:, self._lags.to(row.device)].flatten(2)  # (b, dilations, taps * channels)
        pairs = zip(taps.unbind(1), self._kernels(), strict=True)
        responses = torch.stack([some @ kernels for some, kernels in pairs], dim=1)  # (b, dilations, kernels)
        is_above = responses.flatten(1)[:, self._sources.to(row.device)] > self.thresholds
        is_high = (units.unsqueeze(-1) > self.levels).flatten(1)
        values = torch.cat([is_above, is_high], dim=1).to(state.total.dtype)
        after = FeatureClassifierState(
            tail=window[:, 1:],
            position=state.position + 1,
            total=state.total + values,
            placed=tuple(placed + self._place(units, state.position) for placed in state.placed),
        )
        if mask is not None:

            def keep(new: Tensor, old: Tensor) -> Tensor:
                return torch.where(mask.view(-1, *[1] * (new.ndim - 1)), new, old)

            after = pytree.tree_map(keep, after, state)
        return self._read(after), after

    def read(self, state: FeatureClassifierState) -> Tensor:
        """Return the scores of each stream as it stands, (b, classes); no sample is taken in."""
        check_model_state(state, FeatureClassifierState)
        return self._read(state)

    def finish(self, state: FeatureClassifierState) -> Tensor:
        """Return the scores (b, classes) of series that end here: what `forward` gives for them."""
        check_model_state(state, FeatureClassifierState)
        heads = torch.full_like(state.position, self.config.num_spans)
        return self._score(self._pooled(state), state.placed, state.position, heads)

    def stream(
        self, batch_size: int | None = None, *, engine: str = "auto"
    ) -> "ClassifierSession[FeatureClassifierState]":
        """Open a session that holds the state: push samples, read class probabilities.

        Args:
            batch_size: how many streams go side by side; None: one, whose samples and answers lack that axis.
            engine: "native" (the C runtime), "torch", or "auto": native where the model can be lowered.
        """
        from aaren.classification.session import ClassifierSession

        return ClassifierSession(self.fold(), batch_size=batch_size, engine=engine)

    def whole_step(self) -> WholeStep:
        """Return the step from a raw sample to class probabilities."""
        return classify_raw(self, self.config.num_channels)

    def fold(self) -> "FeatureClassifier":
        """Return a frozen copy for inference; states pass between it and the original."""
        folded = frozen_copy(self)
        folded._folded_kernels = self._kernels()
        return folded

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        return hash_weights(tensors_of(self))[:16]

    def _score_chunk(
        self, values: Tensor, state: FeatureClassifierState, mask: Mask
    ) -> tuple[Tensor, FeatureClassifierState]:
        """Take in some steps whose padding stands at the end; all their prefixes are held at once."""
        units = self._inputs(values, state)
        b, t, _ = units.shape
        window, dtype = self._before(units, state.tail), state.total.dtype
        is_real = mask.unsqueeze(-1)
        values = torch.cat([block for _, block in self._values(window, 0, t)], dim=-1)
        totals = state.total.unsqueeze(1) + (values.to(dtype) * is_real).cumsum(1)
        positions = state.position.unsqueeze(1) + mask.cumsum(1)
        counts = mask.sum(1)
        streams = torch.arange(b, device=units.device)
        last = counts.unsqueeze(1) + torch.arange(self.config.reach, device=units.device)
        placed = tuple(
            before.unsqueeze(1) + (self._place(units, positions - 1) * is_real).cumsum(1)
            for before in state.placed
        )
        final = FeatureClassifierState(
            tail=window[streams.unsqueeze(1), last],
            position=positions[:, -1],
            total=totals[:, -1],
            placed=tuple(some[:, -1] for some in placed),
        )
        pooled = totals / positions.clamp(min=1).unsqueeze(-1)
        return self._score(pooled, placed, positions, self._heads(positions)), final

    def _place(self, units: Tensor, position: Tensor) -> Tensor:
        """Weigh samples (..., channels) by their places (...), (..., heads * classes); 0 beyond `length`."""
        length = self.config.length
        weights = self.places[position.clamp(min=0, max=length - 1)].double()
        is_known = (position < length).unsqueeze(-1)
        own = units[..., : self.config.num_channels].double()
        return (weights * own.unsqueeze(-2)).sum(-1) * is_known

    def _place_prefixes(self, values: Tensor, steps: Tensor, mask: Mask | None) -> tuple[Tensor, ...]:
        """Return what `placed` is after so many steps (b, n): one (b, n, heads * classes), if any."""
        if not self.config.has_places:
            return ()
        length = min(values.shape[1], self.config.length)
        units = self._units(hide_padding(values, mask))[:, :length, : self.config.num_channels].double()
        items = torch.einsum("btc,tkc->btk", units, self.places[:length].double())
        seen = torch.arange(length, device=units.device) < steps.unsqueeze(-1)  # (b, n, t)
        return (torch.bmm(seen.double(), items),)

    def _units(self, values: Tensor) -> Tensor:
        """Round to units: integers in float32. First to float32, so that copies in float64 agree."""
        inputs = values.float()
        if self.config.has_roots:
            distances = inputs - self.pivots.float()
            roots = distances.abs().sqrt().sqrt() * self.gains.float()  # sqrt is rounded alike everywhere
            inputs = torch.cat([inputs, torch.where(distances < 0.0, -roots, roots)], dim=-1)
        return (inputs * UNIT + 0.5).floor().clamp(-LARGEST * UNIT, LARGEST * UNIT)

    def _inputs(self, values: Tensor, state: FeatureClassifierState | None) -> Tensor:
        """Return what the convolutions see of samples (b, t, channels) after a state, (b, t, inputs)."""
        units = self._units(values)
        if not self.config.has_changes:
            return units
        own = units[..., : self.config.num_channels]
        first = own[:, :1]
        if state is not None:
            before = state.tail[:, -1:, : self.config.num_channels]
            first = torch.where(state.position.view(-1, 1, 1) > 0, before, first)
        changes = (own - torch.cat([first, own[:, :-1]], dim=1)) * self.change_gains.float()
        return torch.cat([units, changes.clamp(-LARGEST * UNIT, LARGEST * UNIT)], dim=-1)

    def _before(self, units: Tensor, tail: Tensor | None) -> Tensor:
        """Return the samples with those before them, (b, reach + t, inputs)."""
        if tail is None:
            tail = units.new_zeros(units.shape[0], self.config.reach, units.shape[2])
        return torch.cat([tail, units], dim=1)

    def _values(self, window: Tensor, start: int, stop: int) -> Iterator[tuple[int, Tensor]]:
        """Walk through the values of samples start to stop, in blocks (b, t, some) of 0.0 and 1.0.

        Args:
            window: (b, reach + t, inputs), see `_before`.
            start: the first sample.
            stop: the sample after the last one.

        Yields:
            Each block's first place among the values, and the block.
        """
        config, first, steps = self.config, 0, stop - start
        b, kernels = window.shape[0], len(POSITIONS)
        for number, (dilation, count) in enumerate(zip(config.dilations, config.num_thresholds, strict=True)):
            begins = [config.reach + start - dilation * (TAPS - 1 - tap) for tap in range(TAPS)]
            taps = torch.cat([window[:, begin : begin + steps] for begin in begins], dim=-1)
            responses = taps @ self._kernels()[number]  # (b, t, kernels)
            size = kernels * count
            above = responses.unsqueeze(-1) > self.thresholds[first : first + size].view(kernels, count)
            yield first, above.view(b, steps, size).float()
            first += size
        units = window[:, config.reach + start : config.reach + stop]
        if config.num_levels:
            yield first, (units.unsqueeze(-1) > self.levels).flatten(2).float()

    def _kernels(self) -> list[Tensor]:
        """Return the kernels of each dilation, (taps * inputs, kernels) float32."""
        if self._folded_kernels:
            return self._folded_kernels
        patterns = self._pattern.to(self.channels.device).unsqueeze(-1)  # (kernels, taps, 1)
        return [(patterns * channels.float().unsqueeze(1)).flatten(1).T for channels in self.channels]

    def _read(self, state: FeatureClassifierState) -> Tensor:
        return self._score(self._pooled(state), state.placed, state.position, self._heads(state.position))

    def _pooled(self, state: FeatureClassifierState) -> Tensor:
        """Return the features (b, features)."""
        return state.total / state.position.clamp(min=1).unsqueeze(-1)

    def _heads(self, position: Tensor) -> Tensor:
        """Return which head is responsible after so many steps."""
        return (position.unsqueeze(-1) > self.span_ends).sum(-1)

    def _score(self, pooled: Tensor, placed: tuple[Tensor, ...], position: Tensor, heads: Tensor) -> Tensor:
        """Return the scores (..., classes) of features (..., features) after so many steps (...) by heads."""
        pooled = pooled.to(self.weight.dtype)
        if pooled.ndim == 2 and pooled.shape[0] <= FEW_STREAMS:
            scores = (self.weight[heads] @ pooled.unsqueeze(-1)).squeeze(-1)
        else:
            every = torch.einsum("...f,skf->...sk", pooled, self.weight)
            chosen = heads.view(*heads.shape, 1, 1).expand(*heads.shape, 1, every.shape[-1])
            scores = every.gather(-2, chosen).squeeze(-2)
        for some in placed:
            each = some.view(*some.shape[:-1], -1, self.config.num_classes)  # (..., heads, classes)
            is_chosen = heads.unsqueeze(-1) == torch.arange(each.shape[-2], device=heads.device)
            scores = scores + ((each * is_chosen.unsqueeze(-1)).sum(-2) * self.place_unit).to(scores.dtype)
        return (scores + self.bias[heads]) * (position > 0).unsqueeze(-1)  # of nothing: all alike

    def _lengths(self, values: Tensor, mask: Mask | None) -> Tensor:
        if mask is None:
            return torch.full((values.shape[0],), values.shape[1], device=values.device)
        return mask.sum(1)

    def _check(self, values: Tensor, axes: tuple[str, ...], mask: Tensor | None) -> None:
        channels = self.config.num_channels
        if values.ndim != len(axes) + 1 or values.shape[-1] != channels:
            raise ShapeError(
                f"values must be ({', '.join(axes)}, {channels}), the channels that this model was built "
                f"for, time before channels; got {tuple(values.shape)}."
            )
        check_mask(mask, values.shape[:-1], "(b, t)" if len(axes) == 2 else "(b,)")
