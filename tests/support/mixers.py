"""Every mixer alone, the stacks that differ in more than their mixer, and what the laws compare."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from aaren.nn import (
    AarenAttention,
    Conv,
    Encoder,
    EncoderConfig,
    block,
)
from aaren.nn.blocks import state_to_bytes

WIDTH, HEADS, BATCH, LENGTH = 12, 3, 3, 11


def make_encoder(mixer: str, **options: object) -> Encoder:
    sizes = {"width": WIDTH, "num_heads": HEADS, "num_layers": 2, "ff_width": 16}
    return Encoder(EncoderConfig(mixer=mixer, **sizes | options))


def build(name: str) -> torch.nn.Module:
    config = EncoderConfig(width=WIDTH, num_heads=HEADS, num_layers=1, dropout=0.0, mixer=name)
    return block.build_mixer(config)


MIXERS: dict[str, Callable[[], torch.nn.Module]] = {
    **{name: partial(build, name) for name in block.MIXERS},
    "aaren without biases": lambda: AarenAttention(WIDTH, HEADS, qkv_bias=False),
    "folded": lambda: AarenAttention(WIDTH, HEADS).double().fold(),
    "gated": lambda: AarenAttention(WIDTH, HEADS, gates="both"),
    "folded gated": lambda: AarenAttention(WIDTH, WIDTH, gates="both", qkv_bias=False).double().fold(),
    "gated stack, learned decay": lambda: make_encoder("aaren", gates="forget", decay="learned"),
    "aaren stack": lambda: make_encoder("aaren"),
    "aaren stack, learned decay": lambda: make_encoder("aaren", decay="learned", norm="pre", final_norm=True),
    "folded stack, learned decay": lambda: make_encoder("aaren", decay="learned").double().fold(),
    "softmax stack": lambda: make_encoder("softmax"),
    "retnet stack": lambda: make_encoder("retnet", norm="pre"),
    "conv stack, learned decay, sinusoid": lambda: make_encoder(
        "aaren", conv=Conv(kernel=3, dilations=(1, 2), channels=4), decay="learned", position="sinusoid"
    ),
    "stem stack, learned positions": lambda: make_encoder(
        "aaren", conv=Conv(kernel=3, dilations=(1, 3), where="stem"), position="learned", norm="pre"
    ),
    "folded wide stem stack": lambda: (
        make_encoder("aaren", conv=Conv(where="stem", channels=WIDTH), position="sinusoid").double().fold()
    ),
    "stem alone": lambda: make_encoder("aaren", num_layers=0, conv=Conv(kernel=3, where="stem")),
    "gru stack with conv": lambda: make_encoder("gru", conv=Conv(kernel=3)),
    "softmax stack with positions": lambda: make_encoder("softmax", position="sinusoid"),
}
EXACT = {"rtol": 0.0, "atol": 1e-12}


def fold_steps(
    mixer: torch.nn.Module, x: Tensor, state: object, mask: Tensor | None = None
) -> tuple[Tensor, object]:
    outputs = []
    for k in range(x.shape[1]):
        output, state = mixer.step(x[:, k], state, mask=None if mask is None else mask[:, k])
        outputs.append(output)
    return torch.stack(outputs, dim=1), state


def saved(state: object) -> bytes:
    return state_to_bytes(state)


def assert_same_future(mixer: torch.nn.Module, x: Tensor, *states: object) -> None:
    """States are equal if all that follows is equal."""
    futures = [mixer(x, state)[0] for state in states]
    for future in futures[1:]:
        torch.testing.assert_close(future, futures[0], **EXACT)
