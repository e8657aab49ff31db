"""Heads of a classifier: from the encoder's outputs over time to one score per class.

Both are sums over time, so an answer can be had after every step: `amounts` says what each step adds to the
total, `read` turns a total into scores. Know nothing of encoders and streams.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.shapes import Activations, Mask, Token


class FlattenedHead(nn.Linear):
    """One linear layer over all steps end to end, as in the Time-Series-Library: every step has its weights.

    What step t adds to the scores is W_t h_t, so a stream needs the sum alone and not the steps.

    >>> head = FlattenedHead(length=29, width=128, num_classes=9)
    >>> sum(p.numel() for p in head.parameters())
    33417
    """

    def __init__(self, *, length: int, width: int, num_classes: int) -> None:
        super().__init__(length * width, num_classes)
        self.length, self.width, self.num_classes = length, width, num_classes

    @property
    def total_size(self) -> int:
        """Return how many numbers a stream must keep: its scores so far."""
        return self.num_classes

    def forward(self, x: Activations, mask: Mask | None = None) -> Tensor:
        """Score whole series, (b, t, c) with zeros at padding, to (b, classes)."""
        del mask  # zeros add nothing
        # The steps that are not there would be zeros: their weights are left out instead.
        return F.linear(x.flatten(1), self.weight[:, : x.shape[1] * self.width], self.bias)

    def amounts(self, x: Activations, positions: Tensor) -> Tensor:
        """Return what each step adds, (b, t, classes), from x (b, t, c) at positions (b, t)."""
        if not len(x):  # no stream, and none to compare positions with
            return x.new_zeros(*x.shape[:2], self.num_classes)
        weight = self.weight.view(self.num_classes, self.length, self.width)
        if bool((positions == positions[:1]).all()):  # nearly always: the streams began together
            return torch.einsum("btc,ktc->btk", x, weight[:, positions[0]])
        return torch.stack(
            [torch.einsum("tc,ktc->tk", x[stream], weight[:, positions[stream]]) for stream in range(len(x))]
        )

    def amount(self, x: Token, position: Tensor) -> Tensor:
        """Return what one step adds, (b, classes), from x (b, c) at position (b,)."""
        weight = self.weight.view(self.num_classes, self.length, self.width)
        return torch.einsum("bc,kbc->bk", x, weight[:, position])

    def read(self, total: Tensor, count: Tensor) -> Tensor:
        """Return the scores (..., classes) of totals (..., classes)."""
        del count
        return (total + self.bias).to(self.weight.dtype)


class PooledHead(nn.Linear):
    """One linear layer of the mean over time: no step has weights of its own, so series may be of any length.

    >>> PooledHead(width=128, num_classes=9)(torch.randn(2, 1000, 128)).shape
    torch.Size([2, 9])
    """

    def __init__(self, *, width: int, num_classes: int) -> None:
        super().__init__(width, num_classes)

    @property
    def total_size(self) -> int:
        """Return how many numbers a stream must keep: the sum of all steps."""
        return self.in_features

    def forward(self, x: Activations, mask: Mask | None = None) -> Tensor:
        """Score whole series, (b, t, c) with zeros at padding, to (b, classes)."""
        count = torch.tensor(x.shape[1], device=x.device) if mask is None else mask.sum(1)
        return self.read(x.sum(1), count)

    def amounts(self, x: Activations, positions: Tensor) -> Tensor:
        """Return what each step adds: itself."""
        del positions
        return x

    def amount(self, x: Token, position: Tensor) -> Tensor:
        """Return what one step adds: itself."""
        del position
        return x

    def read(self, total: Tensor, count: Tensor) -> Tensor:
        """Return the scores (..., classes) of totals (..., c) of so many steps (...)."""
        mean = total / count.clamp(min=1).unsqueeze(-1)
        return F.linear(mean.to(self.weight.dtype), self.weight, self.bias)
