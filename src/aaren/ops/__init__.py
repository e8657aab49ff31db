"""Attention as an RNN, computed every way: pure functions on tensors."""

from aaren.ops.state import ScanState, combine, decay, read, update

__all__ = ["ScanState", "combine", "decay", "read", "update"]
