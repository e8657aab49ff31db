"""Embeddings of series: values by a short convolution, dates by their marks, positions by sines.

The convolution is one matrix product over each row beside its neighbours, which a stream can make row by row:
all it must keep is the last two rows.
"""

import math
import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ConfigError, ShapeError, StateError
from aaren.nn.checks import wrong_kind
from aaren.ops.state import default_state_dtype, may_read
from aaren.ops.tracing import is_traced
from aaren.shapes import Activations, Mask, Token, TokenMask

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


def wave_frequencies(width: int) -> Tensor:
    """Return the frequencies of the sines and cosines of an encoding, (ceil(width / 2),), float64."""
    # On the CPU even where models are built without memory, on the meta device: these are constants.
    places = torch.arange(0, width, 2, dtype=torch.float64, device="cpu")
    return torch.exp(-math.log(BASE) / width * places)


def encode_waves(moments: Tensor, frequencies: Tensor, width: int) -> Tensor:
    """Return sines (even places) and cosines (odd places) of positions or times, (*): (*, width)."""
    angles = moments.unsqueeze(-1) * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


def position_encoding(steps: int, width: int) -> Tensor:
    """Return sines (even places) and cosines (odd places) of positions 0, 1, ..., (steps, width), float32.

    >>> position_encoding(2, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    positions = torch.arange(steps, dtype=torch.float64, device="cpu")
    return encode_waves(positions, wave_frequencies(width), width).float()


class PositionState(NamedTuple):
    """The number of items that a stream has seen."""

    num_items: Tensor  # (b,) int64: real items so far


class Position(nn.Module):
    """Add to every item where it stands: by sines of its position, or by a learned table.

    Positions count real items from 0, whatever padding stands between them; a stream keeps the count. Phases
    are computed in float64, so that a long stream stays exact. What a model has learned of sines does not
    reach beyond the positions that it was trained on: the first item beyond them brings a warning.

    Args:
        kind: "sinusoid" or "learned".
        width: c.
        max_positions: rows of the learned table; later items are refused.
        device: where the parameters are made.
        dtype: what they are made of.

    >>> position = Position("sinusoid", 4)
    >>> x, state = position(torch.zeros(1, 2, 4))
    >>> x[0, 0], state.num_items
    (tensor([0., 1., 0., 1.]), tensor([2]))
    """

    def __init__(
        self,
        kind: str,
        width: int,
        *,
        max_positions: int = 1024,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.width = width
        self.table: nn.Parameter | None = None
        if kind == "learned":
            self.table = nn.Parameter(torch.empty(max_positions, width, device=device, dtype=dtype))
            self.reset_parameters()
        # No buffer: these stay float64 when the model is cast, as the phase of a long stream needs it.
        self._frequencies = wave_frequencies(width)
        self.trained_length = 0  # items of the longest sequence in training, in this process; 0: unknown
        self._has_warned = False

    def reset_parameters(self) -> None:
        """Draw the table from N(0, 0.02), small beside the items."""
        if self.table is not None:
            nn.init.normal_(self.table, std=0.02)

    def extra_repr(self) -> str:
        rows = "" if self.table is None else f", max_positions={self.table.shape[0]}"
        return f"kind={self.kind!r}, width={self.width}{rows}"

    def init_state(self, batch_size: int, *, device: torch.device | str | None = None) -> PositionState:
        """Return the count before the first item."""
        return PositionState(torch.zeros(batch_size, dtype=torch.int64, device=device))

    def forward(
        self,
        x: Activations,
        state: PositionState | None = None,
        *,
        mask: Mask | None = None,
    ) -> tuple[Activations, PositionState]:
        """Add the encodings of positions to a whole sequence, (b, t, c)."""
        if state is not None:
            self._check_state(state, x.shape[0])
        if mask is None:
            places = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
            counts = torch.full((x.shape[0],), x.shape[1], device=x.device)
        else:
            places = (mask.cumsum(1) - 1).clamp(min=0)
            counts = mask.sum(1)
        if state is not None:
            places, counts = places + state.num_items.unsqueeze(1), counts + state.num_items
        if self.table is not None and mask is not None:  # what is no item has no place
            places = places.masked_fill(~mask, 0)
        return x + self._encode(places).to(x.dtype), PositionState(counts)

    def step(
        self, x: Token, state: PositionState, *, mask: TokenMask | None = None
    ) -> tuple[Token, PositionState]:
        """Add the encoding of its position to one item per stream, (b, c)."""
        self._check_state(state, x.shape[0])
        places, counts = state.num_items, state.num_items + (1 if mask is None else mask)
        if self.table is not None and mask is not None:
            places = places.masked_fill(~mask, 0)
        return x + self._encode(places).to(x.dtype), PositionState(counts)

    def _encode(self, places: Tensor) -> Tensor:
        if self.table is None:
            if not self._has_warned:
                self._watch_length(places)
            precise = places.to(default_state_dtype(places.device))
            frequencies = self._frequencies.to(precise.device, precise.dtype)
            return encode_waves(precise, frequencies, self.width)
        # A traced step does not read data: there, the table itself refuses an index that it does not have.
        if not is_traced() and places.numel():
            last = int(places.max())
            if last >= self.table.shape[0]:
                raise ConfigError(
                    f"position='learned' has a table of max_positions={self.table.shape[0]}; an item came at "
                    f"position {last}. Start the stream again with init_state, or train with a larger "
                    f"max_positions. Decay and a convolution need no positions."
                )
        return F.embedding(places, self.table)

    def _watch_length(self, places: Tensor) -> None:
        """Note how far training reaches, and warn once of an item beyond, where numbers may be read."""
        is_watched = self.training or self.trained_length > 0
        if not is_watched or not may_read(places) or not places.numel():
            return
        length = int(places.max()) + 1
        if self.training:
            self.trained_length = max(self.trained_length, length)
        elif length > self.trained_length:
            self._has_warned = True
            warnings.warn(
                f"position='sinusoid': item {length} came, beyond the {self.trained_length} that this model "
                f"was trained on, where its outputs are not to be relied on. Train on longer sequences, or "
                f"let decay='learned' and conv=Conv() tell the order.",
                stacklevel=2,
            )

    def _check_state(self, state: PositionState, batch_size: int) -> None:
        if not isinstance(state, PositionState):
            raise wrong_kind(PositionState, state)
        if state.num_items.shape != (batch_size,):
            raise StateError(
                f"this encoder needs a count for each of {batch_size} streams; got "
                f"{tuple(state.num_items.shape)}. Start again with init_state({batch_size}), or pick streams "
                f"with select."
            )


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
