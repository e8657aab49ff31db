"""EncoderState: what a stack of layers remembers of its streams, as one value.

Encoder: a stack of blocks with `forward`, `step` and one state. Knows no embedding and no head.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.nn import state as state_tree
from aaren.nn.block import Block
from aaren.nn.encoder_config import EncoderConfig
from aaren.nn.inputs import check_sequence, check_token, hide_padding, wrong_kind
from aaren.nn.linear import frozen_copy
from aaren.nn.state import describe_config, hash_weights, state_from_bytes, state_to_bytes, tensors_of
from aaren.ops.state import Target
from aaren.shapes import Activations, LogDecay, Mask, SequenceBounds, Token, TokenMask


class EncoderState(NamedTuple):
    """The states of all layers, first to last."""

    layers: tuple[tuple[object, ...], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, all layers together."""
        return state_tree.count_bytes(self)

    def to(
        self,
        *targets: Target,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "EncoderState":
        """Return the state in another floating dtype, on another device, or both, as a tensor's `to` does."""
        return state_tree.convert(self, *targets, dtype=dtype, device=device)

    def detach(self) -> "EncoderState":
        """Return the state cut off from the graph that made it."""
        return state_tree.detach(self)

    def clone(self) -> "EncoderState":
        """Return a copy in its own memory."""
        return state_tree.clone(self)

    def select(self, streams: Sequence[int] | Tensor) -> "EncoderState":
        """Return the states of some streams, in the order given; an index may come twice."""
        return state_tree.select(self, streams)

    def to_bytes(self, *, fingerprint: str = "") -> bytes:
        """Return the state as bytes that `from_bytes` checks; `fingerprint` names the model's weights."""
        return state_to_bytes(self, fingerprint=fingerprint)

    @classmethod
    def from_bytes(cls, blob: bytes, *, like: "EncoderState", fingerprint: str = "") -> "EncoderState":
        """Return the state that `to_bytes` wrote.

        Args:
            blob: what `to_bytes` returned.
            like: any state of the model that is to go on, for instance `encoder.init_state(1)`: sizes must
                agree.
            fingerprint: `encoder.fingerprint()`, to refuse a state that other weights made; "" does not ask.
        """
        return state_from_bytes(blob, like=like, fingerprint=fingerprint)


class Encoder(nn.Module):
    """A stack of blocks: train it over whole sequences, then step it along a stream.

    >>> encoder = Encoder(EncoderConfig(width=32, num_heads=4, num_layers=2)).eval()
    >>> y, state = encoder(torch.randn(3, 20, 32))
    >>> y_next, state = encoder.step(torch.randn(3, 32), state)
    >>> y_next.shape, state.nbytes
    (torch.Size([3, 32]), 1920)
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(
            Block(config, device=device, dtype=dtype) for _ in range(config.num_layers)
        )
        self.final_norm: nn.LayerNorm | None = None
        if config.final_norm:
            self.final_norm = nn.LayerNorm(config.width, eps=config.norm_eps, device=device, dtype=dtype)

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> EncoderState:
        """Return the state of all layers before the first item, for `batch_size` streams."""
        self._check_layers()
        return EncoderState(
            tuple(block.init_state(batch_size, dtype=dtype, device=device) for block in self._blocks())
        )

    def forward(
        self,
        x: Activations,
        state: EncoderState | None = None,
        *,
        mask: Mask | None = None,
        inject: Activations | None = None,
        log_decay: LogDecay | None = None,
        cu_seqlens: SequenceBounds | None = None,
    ) -> tuple[Activations, EncoderState]:
        """Encode a whole sequence.

        Args:
            x: (b, t, c).
            state: what came before; default: nothing.
            mask: (b, t) bool, True = real. Padding may hold anything; its outputs mean nothing.
            inject: (b, t, c), added before every layer, as event models add the encoded time.
            log_decay: (b, t, h), <= 0, for every layer alike; a learned decay comes on top.
            cu_seqlens: (n + 1,) int: n sequences end to end in one row; states have one row per sequence.
        """
        check_sequence(x, self.config.width, mask, cu_seqlens)
        _check_inject(inject, x)
        x = hide_padding(x, mask)
        inject = None if inject is None else hide_padding(inject, mask)
        before = (None,) * len(self.layers) if state is None else self._layer_states(state)
        states = []
        for block, layer_state in zip(self._blocks(), before, strict=True):
            x = x if inject is None else x + inject
            x, layer_state = block(x, layer_state, mask=mask, log_decay=log_decay, cu_seqlens=cu_seqlens)
            states.append(layer_state)
        return (x if self.final_norm is None else self.final_norm(x)), EncoderState(tuple(states))

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
        check_token(x, self.config.width, mask)
        _check_inject(inject, x)
        x = hide_padding(x, mask)
        inject = None if inject is None else hide_padding(inject, mask)
        states = []
        for block, layer_state in zip(self._blocks(), self._layer_states(state), strict=True):
            x = x if inject is None else x + inject
            x, layer_state = block.step(x, layer_state, mask=mask, log_decay=log_decay)
            states.append(layer_state)
        return (x if self.final_norm is None else self.final_norm(x)), EncoderState(tuple(states))

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
        for block in self._blocks():
            digest.update(block.mixer.fingerprint().encode())
            for part in (block.mixer_norm, block.feed_forward, block.feed_forward_norm, block.decay):
                digest.update(hash_weights([] if part is None else tensors_of(part)).encode())
        return digest.hexdigest()[:16]

    def _blocks(self) -> list[Block]:
        """Return all layers; one that is wrapped (compiled, checkpointed) hands on what a block can do."""
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

    def _layer_states(self, state: EncoderState) -> tuple[tuple[object, ...], ...]:
        if not isinstance(state, EncoderState):
            raise wrong_kind(EncoderState, state)
        if len(state.layers) != len(self.layers):
            raise StateError(
                f"this encoder has {len(self.layers)} layers; the state is one of {len(state.layers)}. A "
                f"state fits only the model it was made by: start anew with init_state."
            )
        return state.layers


def _check_inject(inject: Tensor | None, x: Tensor) -> None:
    if inject is not None and inject.shape != x.shape:
        raise ShapeError(
            f"inject is added to x, so it must be {tuple(x.shape)} too; got {tuple(inject.shape)}."
        )
