"""Recorded episodes as flat arrays: a user's files, and the registered or generated sets by name.

Files are D4RL's HDF5, a Minari dataset, or our `.npz`. HDF5 and `.npz` hold flat arrays: `observations`,
`actions`, `rewards`, `terminals` (the environment ended it) and `timeouts` (a step limit did); files made by
`benchmarks/rl_data` add a `record`. `pendulum` and `cartpole` are generated with scripted policies, some of
whose episodes act badly on purpose, so that returns differ and a model can be asked for good ones.
"""

import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aaren.datasets import catalogue as registry
from aaren.datasets.dataset import Dataset, Fact
from aaren.datasets.numbers import Integers, flags, narrow, numeric, offsets_from_lengths, wholes
from aaren.errors import ConfigError, DataError, require_extra, unknown_name
from aaren.files import folders, npz
from aaren.files.archive import parsing, read_bytes, refuse_pickle, require_size
from aaren.rl.environments import build_environment

if TYPE_CHECKING:
    import h5py
    from minari import MinariDataset


MIN_STEPS = 2  # a trajectory of one step shows no consequence of an action
STD_FLOOR = 1e-6
FILL_VALUE, FILL_FACTOR = 1e9, 1e6  # above the first, so many times as far from the median as most others
ARRAYS = ("observations", "actions", "rewards", "terminals", "timeouts")


class StateStatistics(NamedTuple):
    """Mean and standard deviation of every number of a state; the latter has the protocol's 1e-6 added."""

    mean: NDArray[np.float64]  # (state size,)
    std: NDArray[np.float64]  # (state size,)

    def normalise(self, states: NDArray[np.floating]) -> NDArray[np.float32]:
        """Subtract the mean and divide by the standard deviation, in float64, and give float32."""
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
        _refuse_fill_values(self.observations, f"{self.name}: observations")
        if self.num_actions is None:
            _refuse_fill_values(self.actions, f"{self.name}: actions")
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
        if len(lasts) and not kept.any():
            raise DataError(
                f"{name}: every episode has one step, which shows no consequence of an action; at least "
                f"{MIN_STEPS} are needed."
            )
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
        """Mean and population standard deviation (plus 1e-6) over all states of the set, in float64."""
        states = self.observations.astype(np.float64)
        return StateStatistics(states.mean(axis=0), states.std(axis=0) + STD_FLOOR)

    def named(self, name: str, environment: str = "") -> "Trajectories":
        """Give the set another name and, where it is not known yet, an environment."""
        return replace(self, name=name, environment=self.environment or environment)

    def select(self, episodes: Integers) -> "Trajectories":
        """Return some of the episodes, in the order given."""
        chosen = np.asarray(episodes, dtype=np.int64)
        spans = [np.arange(self.offsets[one], self.offsets[one + 1]) for one in chosen]
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *spans])
        return replace(
            self,
            observations=self.observations[rows],
            actions=self.actions[rows],
            rewards=self.rewards[rows],
            offsets=offsets_from_lengths(self.lengths[chosen]),
            is_terminal=self.is_terminal[chosen],
        )

    def with_bounds(self, low: float, high: float) -> "Trajectories":
        """Note between which numbers the environment's actions lie."""
        return replace(
            self,
            action_low=np.full(self.action_size, low, dtype=np.float32),
            action_high=np.full(self.action_size, high, dtype=np.float32),
        )


def load(name: str) -> Trajectories:
    """Load a registered RL set from disk; "pendulum" and "cartpole" are generated and need no file."""
    if name in CONTROL_SETS:
        return generate(name)
    dataset = registry.lookup(name)
    if dataset.setting != "rl":
        raise ConfigError(f"{dataset.name} is a {dataset.setting} set; this reads trajectories.")
    cure = f"Get it with: aaren data fetch {dataset.name}"
    if dataset.name.endswith("-regen"):
        cure = f"Make it, in a clone of the repository: {dataset.source}"
    path = folders.require("rl", dataset.files[0], cure=cure)
    environment = str(dataset.options.get("environment", ""))
    return read(path, drop_short=True).named(dataset.name, environment)


def measure(dataset: Dataset) -> dict[str, Fact]:
    """Open a registered set and count what the catalogue states about it."""
    found = load(dataset.name)
    return {
        "state_size": found.state_size,
        "action_size": found.action_size,
        "transitions": found.num_transitions,
        "trajectories": len(found),
        "mean_return": round(float(found.returns.mean()), 1),
    }


def read(source: str | Path, *, drop_short: bool = False) -> Trajectories:
    """Read a user's trajectories: a `.hdf5` or `.npz` file, or the id of a Minari dataset on this machine."""
    path = Path(source)
    kind = next((suffix for suffix in reversed(path.suffixes) if suffix not in (".gz", ".xz")), "")
    is_name = isinstance(source, str) and kind not in (".hdf5", ".h5", ".npz")
    if is_name and not os.path.exists(path):  # noqa: PTH110  # of names that no disk can hold, pathlib raises
        return read_minari(str(source), drop_short=drop_short)
    refuse_pickle(path)
    if kind in (".hdf5", ".h5"):
        return _from_arrays(path, _read_hdf5(path), drop_short)
    if kind == ".npz":
        return _from_arrays(path, npz.load(path, required=ARRAYS), drop_short)
    raise DataError(
        f"{path}: expected .hdf5, .h5 or .npz, or the id of a Minari dataset; got {kind or 'no suffix'!r}."
    )


def read_minari(dataset_id: str, *, drop_short: bool = False) -> Trajectories:
    """Read a Minari dataset that is on this machine (`minari download ID` brings one)."""
    minari = require_extra("minari", extra="rl", purpose=f"reading the Minari dataset {dataset_id}")
    local = require_extra("minari.storage", extra="rl", purpose=f"reading the Minari dataset {dataset_id}")
    with parsing(f"Minari dataset {dataset_id}", "a whole dataset", cure=f"minari download {dataset_id}"):
        _refuse_foreign(dataset_id, Path(local.get_dataset_path(dataset_id)) / "data")
        dataset = minari.load_dataset(dataset_id)
        parts = _episodes(dataset_id, dataset)
        spec = dataset.env_spec
        return Trajectories.from_flat(
            **{key: np.concatenate(values) for key, values in parts.items()},
            drop_short=drop_short,
            name=dataset_id,
            environment="" if spec is None else str(spec.id),
        )


def generate(name: str, *, episodes: int = 60, seed: int = 0) -> Trajectories:
    """Run the scripted policy, with a third each of skilled, clumsy and random episodes."""
    if name not in CONTROL_SETS:
        raise unknown_name("classic-control set", name, CONTROL_SETS)
    return record_episodes(CONTROL_SETS[name], name=name, episodes=episodes, seed=seed)


def record_episodes(chosen: "ControlSet", *, name: str, episodes: int, seed: int) -> Trajectories:
    """Run a scripted policy, with a third each of skilled, clumsy and random episodes."""
    environment, max_steps = build_environment(chosen.environment)
    observations: list[NDArray[np.float64]] = []
    actions: list[float] = []
    rewards: list[float] = []
    terminals: list[bool] = []
    timeouts: list[bool] = []
    for number in range(episodes):
        start, draws = np.random.SeedSequence((seed, number)).spawn(2)
        rng, level = np.random.default_rng(draws), _LEVELS[number % len(_LEVELS)]
        observation, _ = environment.reset(seed=int(start.generate_state(1)[0]))
        for step in range(1, max_steps + 1):
            action = chosen.random(rng) if rng.random() < level else chosen.scripted(observation)
            observations.append(np.asarray(observation, dtype=np.float64))
            actions.append(action)
            given = int(action) if chosen.is_discrete else np.array([action], dtype=np.float32)
            observation, reward, is_terminal, _, _ = environment.step(given)
            rewards.append(float(reward))
            terminals.append(bool(is_terminal))
            timeouts.append(step == max_steps and not is_terminal)
            if is_terminal:
                break
    made = Trajectories.from_flat(
        observations=np.stack(observations),
        actions=np.array(actions, dtype=np.int64 if chosen.is_discrete else np.float32),
        rewards=np.array(rewards),
        terminals=np.array(terminals),
        timeouts=np.array(timeouts),
        name=name,
        environment=chosen.environment,
    )
    return made if chosen.is_discrete else made.with_bounds(-chosen.bound, chosen.bound)


_LEVELS = (0.0, 0.3, 1.0)  # share of random actions in an episode: skilled, clumsy, random


class ControlSet(NamedTuple):
    """An environment, its scripted policy, and its random one."""

    environment: str
    scripted: Callable[[NDArray[np.float64]], float]
    random: Callable[[np.random.Generator], float]
    is_discrete: bool
    bound: float  # of continuous actions


def swing_up(observation: NDArray[np.float64]) -> float:
    """Torque in [-2, 2] for (cos, sin, speed) of a pendulum whose angle is 0 when it stands."""
    cosine, sine, speed = observation
    if cosine > 0.9:  # near the top: a spring and a brake
        torque = -10.0 * np.arctan2(sine, cosine) - 2.5 * speed
    else:  # push along the motion while there is less energy than at rest on the top
        energy = speed**2 / 6.0 + 5.0 * (cosine - 1.0)
        direction = 1.0 if speed == 0.0 else np.sign(speed)
        torque = -2.0 * direction * np.sign(energy)
    return float(np.clip(torque, -2.0, 2.0))


def balance(observation: NDArray[np.float64]) -> float:
    """Push 0 (left) or 1 (right) for (position, speed, angle, turning speed) of a cart and its pole."""
    position, speed, angle, turning = observation
    return float(angle + 0.3 * turning + 0.02 * position + 0.05 * speed > 0.0)


CONTROL_SETS = {
    "pendulum": ControlSet("Pendulum-v1", swing_up, lambda rng: float(rng.uniform(-2.0, 2.0)), False, 2.0),
    "cartpole": ControlSet("CartPole-v1", balance, lambda rng: float(rng.integers(2)), True, 1.0),
}


def _read_hdf5(path: Path) -> npz.Arrays:
    h5py = require_extra("h5py", extra="rl", purpose=f"reading {path.name}")
    content = read_bytes(path)
    arrays: npz.Arrays = {}
    with (
        parsing(path, "a whole HDF5 file", cure="Fetch it again."),
        h5py.File(io.BytesIO(content), "r") as file,
    ):
        _require_arrays(path, file)
        require_size(path, sum(file[key].nbytes for key in ARRAYS), len(content))
        arrays = {key: np.asarray(file[key][()]) for key in ARRAYS}
    return arrays


def _require_arrays(path: Path, group: "h5py.Group") -> None:
    """Raise unless these are plain arrays of this very file: a link could read any other file of the disk."""
    h5py = require_extra("h5py", extra="rl", purpose=f"reading {path.name}")
    for name in ARRAYS:
        link = group.get(name, getlink=True)
        if link is None:
            raise DataError(f"{path}: no dataset {name!r}; it has {', '.join(sorted(group)) or 'none'}.")
        if not isinstance(link, h5py.HardLink):
            raise DataError(f"{path}: {name!r} is a link, which could show any file of this disk: refused.")
        found = group[name]
        if not isinstance(found, h5py.Dataset) or found.shape is None or found.dtype.kind not in "iufb":
            raise DataError(f"{path}: {name!r} must be an array of numbers; got {found!r}.")
        _require_own(path, name, found)


def _require_own(path: Path, name: str, array: "h5py.Dataset") -> None:
    if array.external or array.is_virtual:
        raise DataError(
            f"{path}: the numbers of {name!r} are stored in other files: refused. Copy them here."
        )


def _from_arrays(path: Path, arrays: npz.Arrays, drop_short: bool) -> Trajectories:
    record = _record(path, arrays["record"]) if "record" in arrays else {}
    settings = record.get("settings", {})
    environment = settings.get("environment", "") if isinstance(settings, dict) else ""
    return Trajectories.from_flat(
        **{key: arrays[key] for key in ARRAYS},
        drop_short=drop_short,
        name=str(record.get("name", path)),
        environment=str(environment),
        record=record,
    )


def _record(path: Path, written: NDArray[np.generic]) -> dict[str, object]:
    """Read what a made file says about itself."""
    with parsing(path, "a file with a readable record", cure="Leave the record out, or make the file again."):
        record: object = json.loads(str(written.item()))
    if not isinstance(record, dict):
        raise DataError(f"{path}: its record must be a JSON object. Leave it out, or make the file again.")
    return record


def _refuse_foreign(dataset_id: str, folder: Path) -> None:
    """Raise for a Minari dataset that would import what it names, or read files outside its folder."""
    described = folder / "metadata.json"
    if not os.path.exists(described):  # noqa: PTH110  # of names that no disk can hold, pathlib raises
        raise DataError(
            f"no Minari dataset {dataset_id!r} on this machine (no {described}). "
            f"Get it with: minari download {dataset_id}"
        )
    metadata = json.loads(described.read_text(encoding="utf-8"))
    if not isinstance(metadata, dict) or not {"observation_space", "action_space"} <= metadata.keys():
        # Minari would build the environment to see its spaces, from any module that the file names.
        raise DataError(
            f"Minari dataset {dataset_id}: its metadata.json does not describe observation_space and "
            f"action_space. Make or download it again with a newer Minari."
        )
    h5py = require_extra("h5py", extra="rl", purpose=f"reading the Minari dataset {dataset_id}")
    for path in folder.rglob("*.hdf5"):
        with h5py.File(path, "r") as file:
            _refuse_links(path, file)


def _refuse_links(path: Path, group: "h5py.Group") -> None:
    import h5py

    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise DataError(f"{path}: {name!r} is a link, which could show any file of this disk: refused.")
        found = group[name]
        if isinstance(found, h5py.Group):
            _refuse_links(path, found)
        else:
            _require_own(path, name, found)
            require_size(path, found.nbytes, path.stat().st_size)


def _episodes(dataset_id: str, dataset: "MinariDataset") -> dict[str, list[NDArray[np.generic]]]:
    parts: dict[str, list[NDArray[np.generic]]] = {key: [] for key in ARRAYS}
    for episode in dataset.iterate_episodes():
        if not isinstance(episode.observations, np.ndarray) or not isinstance(episode.actions, np.ndarray):
            raise DataError(
                f"Minari dataset {dataset_id}: flat observations and actions are needed, not nested ones."
            )
        steps = len(episode.rewards)
        ended = np.asarray(episode.terminations, dtype=bool)
        # The last observation has no action.
        parts["observations"].append(episode.observations[:steps].reshape(steps, -1))
        parts["actions"].append(episode.actions)
        parts["rewards"].append(episode.rewards)
        parts["terminals"].append(ended)
        limit = np.zeros(steps, dtype=bool)
        limit[-1:] = ~ended[-1:]  # Minari's episodes are whole: what did not terminate was cut there
        parts["timeouts"].append(limit)
    if not parts["rewards"]:
        raise DataError(f"Minari dataset {dataset_id}: it holds no episode.")
    return parts


def _refuse_fill_values(values: NDArray[np.generic], name: str) -> None:
    """Raise for a number by which, were its column scaled by it, all others would be the same."""
    for column in np.flatnonzero((np.abs(values) > FILL_VALUE).any(axis=0)):
        numbers = np.asarray(values[:, column], dtype=np.float64)
        distances = np.abs(numbers - np.median(numbers))
        row = int(distances.argmax())
        if distances[row] > FILL_FACTOR * np.quantile(distances, 0.9):
            raise DataError(
                f"{name}, row {row}: {numbers[row]:g} in column {column}, where other numbers are about "
                f"{np.median(numbers):g}: it seems to stand for a missing value. Leave the episode out."
            )


def _single_precision(values: NDArray[np.generic]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what becomes infinite is told with its row
        return values.astype(np.float32, copy=False)
