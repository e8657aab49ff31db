"""Offline-RL episodes as flat arrays: trajectories, returns-to-go, state statistics.

Knows nothing of files, of registered datasets, of batches or of models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aaren.datasets.numbers import flags, narrow, numeric, wholes
from aaren.datasets.ragged import Integers, offsets_from_lengths
from aaren.errors import DataError

MIN_STEPS = 2  # a trajectory of one step shows no consequence of an action
STD_FLOOR = 1e-6


class StateStatistics(NamedTuple):
    """Mean and deviation of every number of a state; the deviation has the protocol's 1e-6 added already."""

    mean: NDArray[np.float64]  # (state size,)
    std: NDArray[np.float64]  # (state size,)

    def normalise(self, states: NDArray[np.floating]) -> NDArray[np.float32]:
        """Subtract the mean and divide by the deviation, in float64, and give float32."""
        return ((states - self.mean) / self.std).astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectories:
    """Trajectory i is rows `offsets[i]` to `offsets[i + 1]` of the flat arrays.

    >>> made = Trajectories.from_flat(
    ...     observations=np.zeros((5, 3)), actions=np.zeros((5, 2)), rewards=np.ones(5),
    ...     terminals=np.array([0, 1, 0, 0, 0]), timeouts=np.array([0, 0, 0, 1, 0]),
    ... )
    >>> made.lengths.tolist(), made.returns_to_go.tolist()  # the unfinished fifth step is left out
    ([2, 2], [2.0, 1.0, 2.0, 1.0])
    """

    observations: NDArray[np.float32]  # (transitions, state size)
    actions: NDArray[np.float32] | Integers  # (transitions, action size), or (transitions,) of whole numbers
    rewards: NDArray[np.float32]  # (transitions,)
    offsets: Integers  # (trajectories + 1,)
    is_terminal: NDArray[np.bool_]  # (trajectories,) ended by the environment, not by a step limit
    num_actions: int | None = None  # how many discrete actions exist; None: actions are vectors
    action_low: NDArray[np.float32] | None = None  # (action size,) bounds, where they are known
    action_high: NDArray[np.float32] | None = None
    environment: str = ""  # Gymnasium id, where it is known
    name: str = "trajectories"
    record: Mapping[str, object] = field(default_factory=dict)  # what a made file says about itself

    def __post_init__(self) -> None:
        count = len(self.rewards)
        if self.observations.ndim != 2 or len(self.observations) != count or len(self.actions) != count:
            raise DataError(
                f"{self.name}: one row per transition is needed in all arrays; got observations "
                f"{self.observations.shape}, actions {self.actions.shape}, rewards {self.rewards.shape}."
            )
        if len(self.offsets) < 2 or self.offsets[-1] != count:
            raise DataError(
                f"{self.name}: it holds no finished trajectory (no terminal or timeout flag is set)."
            )
        for label in ("observations", "actions", "rewards"):
            array: NDArray[np.float64] = getattr(self, label)
            is_good = np.isfinite(array).reshape(count, -1).all(axis=1)
            for row in np.flatnonzero(~is_good)[:1]:
                fault = f"not a finite number that float32 can hold ({array[row]})"
                raise DataError(f"{self.name}: {label}, row {row}: {fault}.")
        if not self.state_size or not self.action_size:
            raise DataError(
                f"{self.name}: observations and actions need at least one number; got observations "
                f"{self.observations.shape}, actions {self.actions.shape}."
            )
        narrow(
            self.returns_to_go,
            name=f"{self.name}: the sum of rewards from a step to the end of its episode",
            cure="Give rewards in another unit.",
        )
        for short in np.flatnonzero(self.lengths < MIN_STEPS)[:1]:
            raise DataError(
                f"{self.name}: trajectory {short} (row {self.offsets[short]}) has one step; "
                f"at least {MIN_STEPS} are needed. Leave such ones out with drop_short=True."
            )

    @classmethod
    def from_flat(
        cls,
        *,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminals: ArrayLike,
        timeouts: ArrayLike,
        drop_short: bool = False,
        name: str = "trajectories",
        environment: str = "",
        record: Mapping[str, object] | None = None,
    ) -> "Trajectories":
        """Split flat arrays after every terminal or timeout flag; a last piece without one is left out.

        Args:
            observations: (transitions, state size).
            actions: (transitions, action size), or (transitions,): whole numbers from 0 are discrete actions.
            rewards: (transitions,).
            terminals: (transitions,), True or 1 where the environment ended an episode.
            timeouts: (transitions,), True or 1 where a step limit did.
            drop_short: Leave out episodes of one step instead of refusing them.
            name: For errors and records.
            environment: Gymnasium id, where it is known.
            record: What a made file says about itself.
        """
        ended, cut = flags(terminals, name=f"{name}: terminals"), flags(timeouts, name=f"{name}: timeouts")
        seen = numeric(observations, name=f"{name}: observations")
        earned = numeric(rewards, name=f"{name}: rewards")
        chosen = numeric(actions, name=f"{name}: actions")
        is_discrete = chosen.ndim == 1 and chosen.dtype.kind in "iu"
        shapes: dict[str, NDArray[np.generic]] = {"rewards": earned, "terminals": ended, "timeouts": cut}
        sizes = {len(array) if array.ndim else -1 for array in (seen, chosen, *shapes.values())}
        if len(sizes) > 1 or seen.ndim != 2 or chosen.ndim > 2 or any(a.ndim != 1 for a in shapes.values()):
            shapes |= {"observations": seen, "actions": chosen}
            found = ", ".join(f"{label} {array.shape}" for label, array in shapes.items())
            raise DataError(
                f"{name}: one row per transition is needed in all arrays: observations (n, state size), "
                f"actions (n,) or (n, action size), rewards, terminals and timeouts (n,); got {found}."
            )
        lasts = np.flatnonzero(ended | cut)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), lasts + 1])
        rows = int(offsets[-1])
        kept = np.diff(offsets) >= MIN_STEPS if drop_short else np.ones(len(lasts), dtype=bool)
        inside = np.flatnonzero(np.repeat(kept, np.diff(offsets)))
        acted: NDArray[np.float32] | Integers
        if is_discrete:
            acted = wholes(chosen[:rows], name=f"{name}: actions")[inside]
        else:
            acted = _single_precision((chosen if chosen.ndim == 2 else chosen[:, None])[inside])
        return cls(
            observations=_single_precision(seen[inside]),
            actions=acted,
            rewards=_single_precision(earned[inside]),
            offsets=offsets_from_lengths(np.diff(offsets)[kept]),
            is_terminal=ended[lasts][kept],
            num_actions=int(chosen[:rows].max()) + 1 if is_discrete and rows else None,
            environment=environment,
            name=name,
            record=record or {},
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_transitions(self) -> int:
        """Steps in all trajectories."""
        return len(self.rewards)

    @property
    def state_size(self) -> int:
        """Numbers in an observation."""
        return int(self.observations.shape[1])

    @property
    def action_size(self) -> int:
        """Numbers in an action, or how many discrete actions there are."""
        return self.num_actions if self.num_actions is not None else int(self.actions.shape[1])

    @cached_property
    def lengths(self) -> Integers:
        """Steps per trajectory, (trajectories,)."""
        return np.diff(self.offsets)

    @cached_property
    def returns(self) -> NDArray[np.float64]:
        """Sum of rewards per trajectory, (trajectories,)."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.offsets[:-1])

    @cached_property
    def returns_to_go(self) -> NDArray[np.float64]:
        """Sum of the rewards from each step to the end of its trajectory, undiscounted, (transitions,)."""
        rewards = self.rewards.astype(np.float64)
        before = np.cumsum(rewards) - rewards  # of all steps before, also in other trajectories
        ends = before[self.offsets[:-1]] + self.returns
        return np.repeat(ends, self.lengths) - before

    @cached_property
    def state_statistics(self) -> StateStatistics:
        """Mean and population deviation (plus 1e-6) over all states of the set, in float64."""
        states = self.observations.astype(np.float64)
        return StateStatistics(states.mean(axis=0), states.std(axis=0) + STD_FLOOR)

    def named(self, name: str, environment: str = "") -> "Trajectories":
        """Give the set another name and, where it is not known yet, an environment."""
        return replace(self, name=name, environment=self.environment or environment)

    def with_bounds(self, low: float, high: float) -> "Trajectories":
        """Note between which numbers the environment's actions lie."""
        return replace(
            self,
            action_low=np.full(self.action_size, low, dtype=np.float32),
            action_high=np.full(self.action_size, high, dtype=np.float32),
        )


def _single_precision(values: NDArray[np.generic]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what becomes infinite is told with its row
        return values.astype(np.float32, copy=False)
