"""What a classifier is fed: tensors that were checked to fit together."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aaren.data.batch import require_shape
from aaren.errors import ShapeError


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class LabelledBatch:
    """Series of one length, padded with zeros at the end, and the class of each."""

    values: Tensor  # (b, t, channels)
    mask: Tensor  # (b, t) bool, True = real
    labels: Tensor  # (b,) int64

    def __post_init__(self) -> None:
        b, t, _ = self.values.shape
        require_shape("mask", self.mask, (b, t))
        require_shape("labels", self.labels, (b,))
        if self.mask.dtype != torch.bool:
            raise ShapeError(f"mask must be bool, True = real; got {self.mask.dtype}.")

    def __len__(self) -> int:
        return len(self.values)
