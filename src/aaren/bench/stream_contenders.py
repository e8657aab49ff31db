"""The contenders of `aaren bench stream` and `aaren bench train`, and their sizes.

Every contender is an `Encoder` that differs from the others in its mixer alone. There is no dropout: it would
cost the Transformer its fast attention kernel in training and is off in a stream anyway.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from aaren.nn import Encoder, EncoderConfig

SEED = 20240523

# The paper's comparable models are one block each, without embedding or head; the other is a small stack.
PAPER, SMALL = "paper", "small"
SIZES: Mapping[str, EncoderConfig] = {
    PAPER: EncoderConfig(width=512, num_heads=4, num_layers=1, ff_width=2048, dropout=0.0),
    SMALL: EncoderConfig(width=64, num_heads=4, num_layers=4, ff_width=256, dropout=0.0),
}

AAREN, CACHED_QUERY, FOLDED = "aaren", "aaren_cached_query", "aaren_folded"
TRANSFORMER, GRU, LSTM = "transformer", "gru", "lstm"
LABELS: Mapping[str, str] = {
    FOLDED: "Aaren, folded",
    CACHED_QUERY: "Aaren, W_q q kept",
    AAREN: "Aaren",
    TRANSFORMER: "Transformer, KV cache",
    GRU: "GRU",
    LSTM: "LSTM",
}
_MIXERS = {TRANSFORMER: "softmax", GRU: "gru", LSTM: "lstm"}


class ConstantProjection(nn.Module):
    """W_q q + b_q, computed once: stands in for an Aaren layer's W_q while the weights do not change."""

    projected: Tensor

    def __init__(self, projected: Tensor) -> None:
        super().__init__()
        self.register_buffer("projected", projected)

    def forward(self, query: Tensor) -> Tensor:  # noqa: ARG002 - the query is constant: that is the point
        """Return what W_q made of the query."""
        return self.projected


def size_title(size: str) -> str:
    """Describe a size in words.

    >>> size_title(PAPER)
    'one block of width 512, feed-forward 2,048, 4 heads'
    """
    config = SIZES[size]
    layers = "one block" if config.num_layers == 1 else f"{config.num_layers} layers"
    return f"{layers} of width {config.width}, feed-forward {config.inner_width:,}, {config.num_heads} heads"


def build(size: str, contender: str) -> Encoder:
    """Build a contender with weights that depend on nothing but its name and size; for training or to fold.

    >>> sum(parameter.numel() for parameter in build(PAPER, TRANSFORMER).parameters())
    3152384
    >>> sum(parameter.numel() for parameter in build(PAPER, AAREN).parameters())
    3152896
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        encoder = Encoder(replace(SIZES[size], mixer=_MIXERS.get(contender, "aaren")))
    if contender == FOLDED:
        return encoder.fold()
    if contender == CACHED_QUERY:
        _keep_projected_queries(encoder)
    return encoder


def count_parameters(encoder: Encoder) -> int:
    """Return how many numbers were, or could be, trained."""
    return sum(parameter.numel() for parameter in encoder.parameters())


@torch.no_grad()
def _keep_projected_queries(encoder: Encoder) -> None:
    for module in list(encoder.modules()):
        query, projection = getattr(module, "query", None), getattr(module, "q_proj", None)
        if isinstance(query, Tensor) and isinstance(projection, nn.Linear):
            module.register_module("q_proj", ConstantProjection(projection(query)))
