"""Attention as an RNN, computed every way: pure functions on tensors."""

from aaren.ops.attend import attend
from aaren.ops.dispatch import scan_attention
from aaren.ops.state import ScanState, combine, decay, read, step, update

__all__ = ["ScanState", "attend", "combine", "decay", "read", "scan_attention", "step", "update"]
