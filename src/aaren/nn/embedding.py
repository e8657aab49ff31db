"""Embeddings of series: values by a short convolution, dates by their marks, positions by sines.

The convolution is one matrix product over each row beside its neighbours, which a stream can make row by row:
all it must keep is the last two rows.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ShapeError
from aaren.shapes import Activations, Token

NEIGHBOURS = 3  # rows that the convolution sees at once
BASE = 10_000.0  # of the wavelengths of positions


class ValueEmbedding(nn.Module):
    """A convolution over time, kernel 3, without bias.

    `padding="circular"` is the Time-Series-Library's: row t sees t - 1, t and t + 1, and the ends see each
    other. `padding="causal"` sees t - 2, t - 1 and t, with zeros before the first row, and can be stepped.

    Args:
        num_series: columns of a row.
        width: c, of what comes out.
        padding: "circular" or "causal".
        device: where the parameters are made.
        dtype: what they are made of.

    >>> embed = ValueEmbedding(7, 512)
    >>> embed(torch.randn(2, 96, 7)).shape, embed.weight.numel()
    (torch.Size([2, 96, 512]), 10752)
    """

    def __init__(
        self,
        num_series: int,
        width: int,
        *,
        padding: str = "circular",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_series = num_series
        self.is_causal = padding == "causal"
        # Columns: the earliest row's series, then the next row's, then the latest row's.
        self.weight = nn.Parameter(torch.empty(width, NEIGHBOURS * num_series, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw Kaiming-normal weights: fan-in, the gain of a leaky rectifier with slope 0."""
        nn.init.kaiming_normal_(self.weight, a=0.0, mode="fan_in", nonlinearity="leaky_relu")

    def extra_repr(self) -> str:
        padding = "causal" if self.is_causal else "circular"
        return f"num_series={self.num_series}, width={self.weight.shape[0]}, padding={padding!r}"

    def init_tail(self, batch_size: int, *, device: torch.device | str | None = None) -> Tensor:
        """Return the two rows of zeros before the first, (b, 2, series)."""
        shape = (batch_size, NEIGHBOURS - 1, self.num_series)
        return torch.zeros(shape, dtype=self.weight.dtype, device=device or self.weight.device)

    def forward(self, rows: Tensor, tail: Tensor | None = None) -> Activations:
        """Embed rows (b, t, series); causally, `tail` (b, 2, series) are the rows before them."""
        if rows.shape[-1] != self.num_series:
            raise ShapeError(
                f"rows must be (b, t, series) with {self.num_series} series; got {tuple(rows.shape)}. "
                f"Give the columns that the model was trained on, in the same order."
            )
        if self.is_causal:
            tail = self.init_tail(rows.shape[0], device=rows.device) if tail is None else tail
            padded = torch.cat([tail.to(rows.dtype), rows], dim=1)
        else:
            padded = torch.cat([rows[:, -1:], rows, rows[:, :1]], dim=1)
        steps = rows.shape[1]
        beside = torch.cat([padded[:, first : first + steps] for first in range(NEIGHBOURS)], dim=-1)
        return F.linear(beside, self.weight)

    def step(self, row: Tensor, tail: Tensor) -> Token:
        """Embed one row per stream, (b, series), from it and the two before it."""
        return F.linear(torch.cat([tail.to(row.dtype).flatten(1), row], dim=-1), self.weight)


def position_encoding(steps: int, width: int) -> Tensor:
    """Return sines (even places) and cosines (odd places) of positions 0, 1, ..., (steps, width), float32.

    >>> position_encoding(2, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    # On the CPU even where models are built without memory, on the meta device: these are constants.
    numbers: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
    frequencies = torch.exp(-math.log(BASE) / width * torch.arange(0, width, 2, **numbers))
    angles = torch.arange(steps, **numbers).unsqueeze(1) * frequencies
    encoding = torch.empty(steps, width, **numbers)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles[:, : width // 2].cos()
    return encoding.float()


class SeriesEmbedding(nn.Module):
    """Values, date marks and positions, summed; positions start at 0.

    >>> embed = SeriesEmbedding(7, 512, num_marks=4, max_steps=96)
    >>> sum(p.numel() for p in embed.parameters())
    12800
    """

    def __init__(self, num_series: int, width: int, *, num_marks: int, max_steps: int) -> None:
        super().__init__()
        self.value = ValueEmbedding(num_series, width)
        self.mark = nn.Linear(num_marks, width, bias=False)
        # No buffer: what is not saved cannot be loaded after `to_empty`.
        self._position = position_encoding(max_steps, width)

    def forward(self, rows: Tensor, marks: Tensor) -> Activations:
        """Embed rows (b, t, series) with their marks (b, t, marks)."""
        position = self._position[: rows.shape[1]].to(rows.device, rows.dtype)
        embedded: Activations = self.value(rows) + self.mark(marks) + position
        return embedded
