"""Attention as an RNN (Feng et al., 2024): parallel like a Transformer in training, recurrent in use."""

from aaren.version import __version__

__all__ = ["__version__"]
