"""Modules: the Aaren layer, its Transformer counterpart, and stacks of them."""

from aaren.nn.aaren import AarenAttention, FoldedAttention
from aaren.nn.block import Block, EncoderConfig
from aaren.nn.conv import Conv
from aaren.nn.encoder import Encoder, TensorOnly
from aaren.nn.kv_cache import KVCache
from aaren.nn.linear import LinearAttention, MinGRU, Retention
from aaren.nn.mixer import Mixer
from aaren.nn.recurrent import GRU, LSTM
from aaren.nn.softmax import SoftmaxAttention
from aaren.nn.state import EncoderState
from aaren.nn.wkv import WKV

__all__ = [
    "GRU",
    "LSTM",
    "WKV",
    "AarenAttention",
    "Block",
    "Conv",
    "Encoder",
    "EncoderConfig",
    "EncoderState",
    "FoldedAttention",
    "KVCache",
    "LinearAttention",
    "MinGRU",
    "Mixer",
    "Retention",
    "SoftmaxAttention",
    "TensorOnly",
]
