"""Encoder: a stack of blocks with `forward`, `step` and one state."""

import hashlib
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.fields import unknown_key
from aaren.nn.block import Block, EncoderConfig, build_conv
from aaren.nn.block import FeedForward as FeedForward
from aaren.nn.block import build_mixer as build_mixer
from aaren.nn.checks import check_sequence, check_token, hide_padding, wrong_kind
from aaren.nn.conv import CausalConv, ConvState
from aaren.nn.embedding import Position, PositionState
from aaren.nn.mixer import LayerState, any_weight, frozen_copy
from aaren.nn.state import EncoderState, describe_config, hash_weights, tensors_of
from aaren.shapes import Activations, LogDecay, Mask, Token, TokenMask


class Encoder(nn.Module):
    """A stack of blocks: train it over whole sequences, then step it along a stream.

    Args:
        config: what it is made of, or
        device: where the parameters are made.
        dtype: what they are made of.
        **options: the fields of an `EncoderConfig`, without one.

    >>> encoder = Encoder(width=32, num_heads=4, num_layers=2).eval()
    >>> y, state = encoder(torch.randn(3, 20, 32))
    >>> y_next, state = encoder.step(torch.randn(3, 32), state)
    >>> y_next.shape, state.nbytes
    (torch.Size([3, 32]), 1920)
    """

    def __init__(
        self,
        config: EncoderConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,  # Any: the values of fields
    ) -> None:
        super().__init__()
        config = _settle_config(config, options)
        self.config = config
        self.stem: CausalConv | None = None
        if config.conv is not None and config.conv.where == "stem":
            self.stem = build_conv(config, device=device, dtype=dtype)
        self.position: Position | None = None
        if config.position != "none":
            self.position = Position(
                config.position,
                config.width,
                max_positions=config.max_positions,
                device=device,
                dtype=dtype,
            )
        self.layers = nn.ModuleList(
            Block(config, device=device, dtype=dtype) for _ in range(config.num_layers)
        )
        self.final_norm: nn.LayerNorm | None = None
        if config.final_norm:
            self.final_norm = nn.LayerNorm(config.width, eps=config.norm_eps, device=device, dtype=dtype)
        # States before the first block.
        self._num_front = (self.stem is not None) + (self.position is not None)
        # Where nothing happens to an item before the first mixer, that one checks it: once is enough.
        self._checks_items = config.norm == "pre" or config.conv is not None or config.position != "none"

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> EncoderState:
        """Return the state of all layers before the first item, for `batch_size` streams."""
        self._check_layers()
        front: list[LayerState] = []
        if self.stem is not None:
            front.append(self.stem.init_state(batch_size, dtype=dtype, device=device))
        if self.position is not None:
            front.append(self.position.init_state(batch_size, device=device or any_weight(self).device))
        return EncoderState(
            tuple(block.init_state(batch_size, dtype=dtype, device=device) for block in self._blocks()),
            tuple(front),
        )

    def forward(
        self,
        x: Activations,
        state: EncoderState | None = None,
        *,
        mask: Mask | None = None,
        inject: Activations | None = None,
        log_decay: LogDecay | None = None,
    ) -> tuple[Activations, EncoderState]:
        """Encode a whole sequence.

        Args:
            x: (b, t, c).
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real. Padding may hold anything; its outputs mean nothing.
            inject: (b, t, c), added before every layer, as event models add the encoded time.
            log_decay: (b, t, h), <= 0, for every layer alike; a learned decay comes on top.
        """
        check_sequence(x, self.config.width, mask)
        if inject is not None:
            _check_inject(inject, x)
            inject = hide_padding(inject, mask)
        y = hide_padding(x, mask)
        before: tuple[LayerState | None, ...] = (None,) * len(self.layers)
        front: tuple[LayerState | None, ...] = (None, None)
        if state is not None:
            self._check_state(state)
            before, front = state.layers, state.front
        found: list[LayerState] = []
        if self.stem is not None:
            y, stem_state = self.stem(y, front[0], mask=mask)
            found.append(cast("ConvState", stem_state))
        if self.position is not None:
            y, count = self.position(y, front[len(found)], mask=mask)
            found.append(cast("PositionState", count))
        states = []
        for block, layer_state in zip(self.layers, before, strict=True):
            y = y if inject is None else y + inject
            y, layer_state = block(y, layer_state, mask=mask, log_decay=log_decay)
            states.append(layer_state)
        y = y if self.final_norm is None else self.final_norm(y)
        return y, EncoderState(tuple(states), tuple(found))

    def step(
        self,
        x: Token,
        state: EncoderState,
        *,
        mask: TokenMask | None = None,
        inject: Token | None = None,
        log_decay: Tensor | None = None,
    ) -> tuple[Token, EncoderState]:
        """Encode one item per stream, (b, c); a stream whose mask is False keeps its state bit for bit."""
        if self._checks_items or mask is not None:
            check_token(x, self.config.width, mask)
        self._check_state(state)
        if inject is not None:
            _check_inject(inject, x)
            inject = hide_padding(inject, mask)
        if mask is not None:
            x = hide_padding(x, mask)
        front: list[LayerState] = []
        if self.stem is not None:
            x, stem_state = self.stem.step(x, cast("ConvState", state.front[0]), mask=mask)
            front.append(stem_state)
        if self.position is not None:
            x, count = self.position.step(x, cast("PositionState", state.front[len(front)]), mask=mask)
            front.append(count)
        states = []
        for block, layer_state in zip(self.layers, state.layers, strict=True):
            x = x if inject is None else x + inject
            x, layer_state = cast("Block", block).step(x, layer_state, mask=mask, log_decay=log_decay)
            states.append(layer_state)
        x = x if self.final_norm is None else self.final_norm(x)
        return x, EncoderState(tuple(states), tuple(front))

    def fold(self) -> "Encoder":
        """Return a frozen copy for inference, every layer folded; states pass between it and the original."""
        self._check_layers()
        folded = frozen_copy(self)
        folded.layers = nn.ModuleList(block.fold() for block in self._blocks())
        return folded

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states; the folded copy has the same.

        All that makes a state counts: weights, and how the config says they are used. What `final_norm` does
        comes after the last state and does not count; nor does dropout.
        """
        self._check_layers()
        digest = hashlib.sha256(describe_config(replace(self.config, final_norm=False)).encode())
        convs = [self.stem, *(block.conv for block in self._blocks())]
        for extra in [*convs, self.position]:
            if extra is not None:
                digest.update(hash_weights(tensors_of(extra)).encode())
        for block in self._blocks():
            digest.update(block.mixer.fingerprint().encode())
            for part in (block.mixer_norm, block.feed_forward, block.feed_forward_norm, block.decay):
                digest.update(hash_weights([] if part is None else tensors_of(part)).encode())
        return digest.hexdigest()[:16]

    def _blocks(self) -> "list[Block]":
        """Return all layers; a wrapped one (compiled, checkpointed) passes on the block's methods."""
        return cast("list[Block]", list(self.layers))

    def _check_layers(self) -> None:
        for place, layer in enumerate(self.layers):
            missing = [verb for verb in ("init_state", "step", "fold", "mixer") if not hasattr(layer, verb)]
            if missing:
                raise ConfigError(
                    f"layer {place} is a {type(layer).__name__}, which has no {', '.join(missing)}: it must "
                    f"do all that a Block does. Let the wrapper hand on the attributes of what it wraps, as "
                    f"torch.compile does, or put the Block itself back."
                )

    def _check_state(self, state: EncoderState) -> None:
        if not isinstance(state, EncoderState):
            raise wrong_kind(EncoderState, state)
        if len(state.layers) != len(self.layers):
            raise StateError(
                f"this encoder has {len(self.layers)} layers; the state is one of {len(state.layers)}. A "
                f"state fits only the model it was made by: start again with init_state."
            )
        if len(state.front) != self._num_front:
            raise StateError(
                f"this encoder keeps {self._num_front} states before its first block (a stem's, a count of "
                f"items); got {len(state.front)}. A state fits only the model it was made by: start again "
                f"with init_state."
            )


class TensorOnly(nn.Module):
    """A layer or a stack as a module from tensor to tensor, for `nn.Sequential`: its state is left out.

    >>> model = nn.Sequential(nn.Linear(3, 32), TensorOnly(Encoder(width=32, num_heads=4)), nn.Linear(32, 2))
    >>> model(torch.randn(5, 20, 3)).shape
    torch.Size([5, 20, 2])
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Activations) -> Activations:
        """Return what the layer makes of whole sequences, (b, t, c), without its state."""
        outputs: Activations = self.layer(x)[0]
        return outputs


def _settle_config(config: EncoderConfig | None, options: dict[str, Any]) -> EncoderConfig:
    """Return the config that was given, or make one of the options."""
    if config is None:
        names = [field.name for field in fields(EncoderConfig)]
        for name in options:
            if name not in names:
                raise ConfigError(f"Encoder: {unknown_key(name, names)}")
        return EncoderConfig(**options)
    if not isinstance(config, EncoderConfig):
        raise ConfigError(
            f"Encoder takes an EncoderConfig, or its fields by name: Encoder(width=64, num_heads=4); got "
            f"{config!r}."
        )
    if options:
        raise ConfigError(
            f"Encoder takes a config or its fields, not both; got a config and {', '.join(options)}. Use "
            f"dataclasses.replace(config, ...)."
        )
    return config


def _check_inject(inject: Tensor, x: Tensor) -> None:
    if inject.shape != x.shape:
        raise ShapeError(
            f"inject is added to x, so it must be {tuple(x.shape)} too; got {tuple(inject.shape)}."
        )
