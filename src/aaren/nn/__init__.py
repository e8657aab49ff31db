"""Modules: the Aaren layer, its Transformer twin, and stacks of them."""

from aaren.nn.aaren_attention import AarenAttention
from aaren.nn.block import Block
from aaren.nn.encoder import Encoder
from aaren.nn.encoder_config import EncoderConfig
from aaren.nn.encoder_state import EncoderState
from aaren.nn.folded_attention import FoldedAttention
from aaren.nn.kv_cache import KVCache
from aaren.nn.mixer import Mixer
from aaren.nn.recurrent_mixers import GRU, LSTM
from aaren.nn.softmax_attention import SoftmaxAttention
from aaren.nn.wkv import WKV

__all__ = [
    "GRU",
    "LSTM",
    "WKV",
    "AarenAttention",
    "Block",
    "Encoder",
    "EncoderConfig",
    "EncoderState",
    "FoldedAttention",
    "KVCache",
    "Mixer",
    "SoftmaxAttention",
]
