"""Windows of trajectories, padded and normalised, as the Decision Transformer is fed.

By default each trajectory is equally likely: an epoch is one shuffled pass over trajectories, of each one
window that starts anywhere from 0 to length - K; `sampling="length"` draws in proportion to length, as other
code does. An epoch's batches depend on the seed and its number alone, so a run can resume. Every batch is a
gather, without a loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.datasets.numbers import Integers
from aaren.errors import ConfigError, ShapeError, unknown_name
from aaren.rl.data import StateStatistics, Trajectories

Number = TypeVar("Number", bound=np.generic)

SAMPLINGS = ("trajectory", "length")


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class TrajectoryBatch:
    """Windows of K steps; padding is on the right, with zeros and mask False."""

    returns_to_go: Tensor  # (b, k) float32, scaled
    observations: Tensor  # (b, k, state size) float32, normalised
    actions: Tensor  # (b, k, action size) float32, or (b, k) int64
    timesteps: Tensor  # (b, k) int64, counted from the start of the episode, also at padding
    mask: Tensor  # (b, k) bool, True = real

    def __post_init__(self) -> None:
        shape = self.mask.shape
        if len(shape) != 2 or self.mask.dtype != torch.bool:
            raise ShapeError(f"mask must be (b, k) bool; got {tuple(shape)} {self.mask.dtype}.")
        for name in ("returns_to_go", "observations", "actions", "timesteps"):
            tensor: Tensor = getattr(self, name)
            if tensor.shape[:2] != shape:
                raise ShapeError(
                    f"{name} must begin with (b, k) = {tuple(shape)}; got {tuple(tensor.shape)}."
                )

    def __len__(self) -> int:
        return len(self.mask)

    def to(self, device: torch.device | str) -> "TrajectoryBatch":
        """Move every tensor to a device."""
        return TrajectoryBatch(
            returns_to_go=self.returns_to_go.to(device),
            observations=self.observations.to(device),
            actions=self.actions.to(device),
            timesteps=self.timesteps.to(device),
            mask=self.mask.to(device),
        )


class TrajectoryBatches:
    """The batches of a set: iterate for one pass, or `epoch(n)` for the n-th.

    Args:
        trajectories: The set.
        context_steps: K, steps per window.
        batch_size: Windows per batch; a last partial batch is dropped. A set of fewer trajectories than that
            is passed over again until one batch is full.
        sampling: "trajectory": each equally likely, windows end inside. "length": in proportion to length,
            windows start at any step and are padded beyond the end.
        return_scale: Returns-to-go are divided by it.
        wanted: (transitions,), what is asked for at every step; by default the returns-to-go.
        statistics: For normalising states; by default those of the set.
        seed: Epoch n is a function of the seed and n.
    """

    def __init__(
        self,
        trajectories: Trajectories,
        *,
        context_steps: int = 20,
        batch_size: int = 64,
        sampling: str = "trajectory",
        return_scale: float = 1000.0,
        wanted: NDArray[np.float64] | None = None,
        statistics: StateStatistics | None = None,
        seed: int = 0,
    ) -> None:
        if context_steps < 1 or batch_size < 1:
            raise ConfigError(
                f"context_steps and batch_size must be at least 1; got {context_steps}, {batch_size}."
            )
        if sampling not in SAMPLINGS:
            raise unknown_name("sampling of trajectories", sampling, SAMPLINGS)
        self.trajectories = trajectories
        self.context_steps = context_steps
        self.batch_size = batch_size
        self.sampling = sampling
        self.seed = seed
        self.statistics = statistics or trajectories.state_statistics
        # One more row, all zero, is what padding is gathered from.
        self._observations = _with_zero_row(self.statistics.normalise(trajectories.observations))
        self._actions = _with_zero_row(trajectories.actions)
        asked = trajectories.returns_to_go if wanted is None else wanted
        self._returns = _with_zero_row((asked / return_scale).astype(np.float32))

    def __len__(self) -> int:
        if self.sampling == "trajectory":
            return max(1, len(self.trajectories) // self.batch_size)
        return max(1, self.trajectories.num_transitions // (self.batch_size * self.context_steps))

    def __iter__(self) -> Iterator[TrajectoryBatch]:
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[TrajectoryBatch]:
        """Yield the batches of one pass."""
        chosen, starts = self.plan(number)
        for begin in range(0, len(chosen), self.batch_size):
            part = slice(begin, begin + self.batch_size)
            yield self.gather(chosen[part], starts[part])

    def plan(self, number: int) -> tuple[Integers, Integers]:
        """Say which trajectory, from which step on, every window of an epoch shows."""
        rng = np.random.default_rng([self.seed, number])
        count, offsets = len(self) * self.batch_size, self.trajectories.offsets
        if self.sampling == "length":
            rows = rng.integers(self.trajectories.num_transitions, size=count)
            chosen = np.searchsorted(offsets, rows, side="right") - 1
            return chosen, rows - offsets[chosen]
        passes = -(-count // len(self.trajectories))
        chosen = np.concatenate([rng.permutation(len(self.trajectories)) for _ in range(passes)])[:count]
        latest = np.maximum(self.trajectories.lengths[chosen] - self.context_steps, 0)
        return chosen, rng.integers(latest + 1)

    def gather(self, chosen: Integers, starts: Integers) -> TrajectoryBatch:
        """Cut these windows out of the set."""
        timesteps = starts[:, None] + np.arange(self.context_steps)
        mask = timesteps < self.trajectories.lengths[chosen][:, None]
        rows = np.where(mask, self.trajectories.offsets[chosen][:, None] + timesteps, -1)
        return TrajectoryBatch(
            returns_to_go=torch.from_numpy(self._returns[rows]),
            observations=torch.from_numpy(self._observations[rows]),
            actions=torch.from_numpy(self._actions[rows]),
            timesteps=torch.from_numpy(timesteps),
            mask=torch.from_numpy(mask),
        )


def _with_zero_row(array: NDArray[Number]) -> NDArray[Number]:
    return np.concatenate([array, np.zeros_like(array[:1])])
