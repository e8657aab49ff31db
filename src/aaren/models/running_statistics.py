"""Mean and deviation of each series over the past of a stream, older rows weighing less.

Attention with all scores alike is a mean, and with decay an exponentially weighted one: so this is a scan
over rows and their squares, with the scan's state, masks and two verbs. Nothing is learned and no gradient
passes.
"""

import math

import torch
from torch import Tensor

from aaren.nn.scan_step import scan_step
from aaren.ops import ScanState, read, scan_attention
from aaren.shapes import Mask, TokenMask

EPSILON = 1e-5  # under the square root of the variance


class RunningStatistics:
    """The rule; what has been seen is in a ScanState of one head, float64.

    Squares are taken of the rows as they are: series should come roughly scaled, with means not thousands of
    deviations away from 0.

    Args:
        num_series: columns of a row.
        half_life_steps: a row this old weighs half.

    >>> statistics = RunningStatistics(1, half_life_steps=float("inf"))
    >>> mean, deviation, _ = statistics.follow(torch.tensor([[[1.0], [3.0]]]), statistics.init_state(1))
    >>> mean.flatten(), deviation[0, 1]
    (tensor([1., 2.]), tensor([1.0000]))
    """

    def __init__(self, num_series: int, *, half_life_steps: float) -> None:
        self.num_series = num_series
        self.log_decay = -math.log(2.0) / half_life_steps

    def init_state(self, batch_size: int, *, device: torch.device | str | None = None) -> ScanState:
        """Return the state before the first row."""
        return ScanState.empty((batch_size, 1), 2 * self.num_series, device=device)

    @torch.no_grad()
    def follow(
        self, rows: Tensor, state: ScanState, *, mask: Mask | None = None
    ) -> tuple[Tensor, Tensor, ScanState]:
        """Return mean and deviation after each row, (b, t, series), in the rows' dtype, and the state."""
        precise = rows.to(state.m.dtype).unsqueeze(2)
        log_decay = precise.new_full((*rows.shape[:2], 1), self.log_decay)
        if mask is not None:
            log_decay = log_decay.masked_fill(~mask.unsqueeze(-1), 0.0)
        moments, state = scan_attention(
            torch.zeros_like(log_decay),
            torch.cat([precise, precise.square()], dim=-1),
            mask=mask,
            log_decay=log_decay,
            initial_state=state,
        )
        return (*_mean_and_deviation(moments.squeeze(2), rows.dtype), state)

    @torch.no_grad()
    def step(
        self, row: Tensor, state: ScanState, *, mask: TokenMask | None = None
    ) -> tuple[Tensor, Tensor, ScanState]:
        """Return mean and deviation after one more row per stream, (b, series), and the state."""
        precise = row.to(state.m.dtype).unsqueeze(1)
        log_decay = precise.new_full((row.shape[0], 1), self.log_decay)
        moments, state = scan_step(
            state,
            torch.zeros_like(log_decay),
            torch.cat([precise, precise.square()], dim=-1),
            mask=mask,
            log_decay=log_decay,
        )
        return (*_mean_and_deviation(moments.squeeze(1), row.dtype), state)

    @torch.no_grad()
    def read(self, state: ScanState, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return mean and deviation as they stand, (b, series); both 0 before the first row."""
        mean, deviation = _mean_and_deviation(read(state).squeeze(1), dtype)
        return mean, torch.where(state.u == 0, 0.0, deviation)


def _mean_and_deviation(moments: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    mean, square = moments.chunk(2, dim=-1)
    variance = (square - mean.square()).clamp(min=0.0)
    return mean.to(dtype), (variance + EPSILON).sqrt().to(dtype)
