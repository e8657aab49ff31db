"""A program of the C runtime: its operations, their codes (those of `runtime.h`), where everything lies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aaren.export.header import DEFINES, ENUMS, STRUCTS
from aaren.export.record import Ref
from aaren.nn.blocks import Leaf

KINDS, CODES, REDUCTIONS = (
    tuple(name.lower() for name in ENUMS[table]) for table in ("kinds", "codes", "reductions")
)
TYPES = {
    getattr(torch, dtype): ENUMS["aaren_types"][f"AAREN_{name}"]
    for dtype, name in (
        ("float32", "F32"),
        ("float64", "F64"),
        ("int64", "I64"),
        ("bool", "BOOL"),
        ("int8", "I8"),
    )
}
WEIGHTS, STATE, SCRATCH, INPUT = ENUMS["aaren_blocks"].values()
OK, BAD_INPUT, BAD_INDEX, BAD_OUTPUT, BAD_STATE, BAD_TIME, BAD_WEIGHTS = ENUMS["aaren_codes"].values()
NONE = 2**32 - 1
PANEL = DEFINES["PANEL"]
ALIGNMENT = 32  # of what lies in the weights and scratch blocks
OP, FIELD = STRUCTS["aaren_op"], STRUCTS["aaren_field"]


@dataclass
class Op:
    """One operation of a program, before operands have addresses; the first operand is written."""

    kind: str
    operands: list[Ref | None]
    size: tuple[int, ...]
    strides: list[tuple[int, ...]] = field(default_factory=list)
    code: int = 0
    numbers: tuple[float, float] = (0.0, 0.0)
    mask: Ref | None = None
    num_written: int = 1  # the first operands, which are written
    parts: tuple[Ref, ...] = ()  # of a scan: the old m, u and w, each where it is

    def first(self, count: int) -> list[Ref]:
        """Return the first operands, none of which may be missing."""
        found = [ref for ref in self.operands[:count] if ref is not None]
        assert len(found) == count
        return found


@dataclass
class Program:
    """All that the runtime needs to know."""

    ops: NDArray[Any]
    weights: bytes
    inputs: list[Leaf]
    outputs: list[Leaf]
    states: list[Leaf]
    input_bytes: int
    output_bytes: int
    state_bytes: int
    scratch_bytes: int
    output_at: int
    largest: float

    def input_fields(self) -> NDArray[Any]:
        """Return what the runtime checks of items."""
        return self.fields(self.inputs, [self.largest] * len(self.inputs))

    def output_fields(self) -> NDArray[Any]:
        """Return what the runtime checks of answers."""
        return self.fields(self.outputs, [math.inf] * len(self.outputs))

    def fields(self, leaves: Sequence[Leaf], limits: Sequence[float]) -> NDArray[Any]:
        """Return what the runtime checks of inputs or outputs: numbers that are finite and not too large."""
        rows = [
            (leaf, limit)
            for leaf, limit in zip(leaves, limits, strict=True)
            if leaf.dtype.is_floating_point and leaf.count
        ]
        table = np.zeros(len(rows), FIELD)
        for row, (leaf, largest) in zip(table, rows, strict=True):
            row["offset"], row["count"], row["type"] = leaf.offset, leaf.count, TYPES[leaf.dtype]
            limit = min(largest, torch.finfo(leaf.dtype).max)
            row["low"], row["high"] = -limit, limit
        return table


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of numbers that lie end to end.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))
