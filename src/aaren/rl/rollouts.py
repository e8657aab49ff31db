"""Make an offline-RL dataset by rolling out behaviour policies: several processes, resumable, bit for bit.

Episode k of behaviour p depends on the seed, p and k alone. So it does not matter how many processes there
are, in which order they finish, or whether the work was stopped: finished episodes are kept in shards and
taken up again by the next call with the same settings. "Bit for bit" holds on one machine with one set of
versions, which the file's record names.

A recipe names the public policies that stand in for D4RL's where its files are unavailable. Levels of score
are alike; the algorithms are not: D4RL rolled out SAC policies, these come from PPO, TRPO, ARS, A2C, SAC and
TQC. "Medium-replay" is rollouts from snapshots of one training run, an approximation of D4RL's replay buffer,
with neighbours filled in where the run leaves a hole. Its snapshots have equal numbers of episodes, because
training draws episodes, not steps: with equal numbers of steps nearly all would be the short ones of policies
that fall at once. Medium and expert have equal numbers of steps, as in D4RL. Actions are drawn, as in D4RL,
except where a policy has mean actions only.
"""

import hashlib
import json
import platform
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from aaren.datasets.numbers import flags, narrow, wholes
from aaren.errors import ConfigError, DataError, require_extra, unknown_name
from aaren.files import folders, npz
from aaren.files.archive import parsing
from aaren.files.lock import locked_file
from aaren.rl import policies
from aaren.rl.environments import normalised_score
from aaren.rl.rollout_worker import Episode, PolicyUse, RolloutWorker
from aaren.version import __version__

Progress: TypeAlias = Callable[
    [str, int, int | None], None
]  # dataset, transitions so far, transitions in all
Settings: TypeAlias = dict[str, object]
SHARD_TRANSITIONS = 10_000  # a few seconds of work
SUFFIX = "-regen"
QUALITIES = ("medium", "medium-replay", "medium-expert")
_ARRAYS = ("part", "number", "steps", "is_terminal", "observations", "actions", "rewards")
_GUESS_STEPS = 1000.0  # length of an episode before any has been seen
_POLL_SECONDS = 0.2
_SOURCES = (
    "DLR-RM/rl-trained-agents, openai/imitation (expert_policies), modestyachts/ARS (trained_policies), "
    "berkeleydeeprlcourse/homework (hw1/experts), Farama-Foundation/minari-dataset-generation-scripts"
)


def make(
    name: str,
    *,
    policy: Sequence[str | Path] | None = None,
    transitions: int = 200_000,
    seed: int = 0,
    progress: Progress | None = None,
    workers: int = 2,
) -> Path:
    """Roll out a dataset such as "hopper-medium" into the data folder, as `rl/hopper-medium-regen.npz`.

    Whole episodes are kept, so the file holds up to one episode more than asked for. All behaviours have
    equal shares, up to one episode: of the episodes in medium-replay, of the transitions elsewhere.

    Args:
        name: Robot and quality, with or without "-regen".
        policy: Your own policies instead of the recipe's, in the layout of `aaren.rl.policies`: for
            medium-expert first the medium, then the expert one; otherwise any number. A series counts with
            all its snapshots, `series.npz@it080` with one.
        transitions: How many to make.
        seed: Of environments and actions.
        progress: Called now and then with the name, the transitions so far and the total.
        workers: Processes; the result does not depend on their number.

    Returns:
        The file; if it exists already, made with the same settings, nothing is run.
    """
    if transitions < 1 or workers < 1:
        raise ConfigError(f"transitions and workers must be at least 1; got {transitions} and {workers}.")
    for module in ("gymnasium", "mujoco"):
        require_extra(module, extra="rl", purpose=f"rolling out {name}")
    recipe = recipe_for(name)
    uses = _recipe_uses(recipe) if policy is None else _given_uses(recipe, policy)
    behaviours = [policies.load(use.path) for use in uses]
    settings: Settings = {
        "environment": recipe.environment,
        "seed": seed,
        "transitions": transitions,
        "behaviours": [
            {"policy": loaded.name, "sha256": loaded.sha256, "is_sampled": use.is_sampled, "noise": use.noise}
            for loaded, use in zip(behaviours, uses, strict=True)
        ],
    }
    if recipe.takes_turns:
        settings["shares"] = "episodes"
    filename = f"{recipe.name}.npz"
    found = folders.find("rl", filename)
    if found is not None:
        return _require_same(found, settings)
    target = folders.place("rl", filename)
    with locked_file(target):
        if target.is_file():  # another process has just made it
            return _require_same(target, settings)
        shards = EpisodeShards(target.parent / ".shards" / f"{recipe.name}-{_key(settings)}")
        count = 1 if recipe.takes_turns else len(uses)
        shares = [-(-transitions // count)] * count  # at most: what one has too much, the next has less
        _run(recipe, uses, seed, shares, shards, progress, workers)
        _assemble(target, recipe, settings, list(zip(behaviours, uses, strict=True)), shards.episodes)
        shards.remove()
    return target


def read_record(path: Path) -> dict[str, object]:
    """Read what a made file says about itself: settings, versions, returns of its behaviours."""
    arrays = npz.load(path, required=("record",))
    record: dict[str, object] = json.loads(str(arrays["record"].item()))
    return record


class Ingredient(NamedTuple):
    """A policy file of the `rl` data folder, without its suffix, and how it is used."""

    policy: str  # "name" or "series@snapshot"
    is_sampled: bool = True
    noise: float = 0.0  # added to actions


class Recipe(NamedTuple):
    """An environment and the behaviours that share a dataset equally."""

    name: str  # such as "hopper-medium-regen"
    environment: str  # Gymnasium id
    ingredients: tuple[Ingredient, ...]
    takes_turns: bool = False  # one episode of each, and again; False: equal numbers of transitions


def recipe_for(name: str) -> Recipe:
    """Find the recipe of a dataset, with or without "-regen".

    >>> recipe_for("ant-medium-expert").ingredients[1].policy
    'berkeley_Ant'
    """
    robot, _, quality = name.lower().removesuffix(SUFFIX).partition("-")
    if robot not in ENVIRONMENTS or quality not in QUALITIES:
        known = (f"{robot}-{quality}{SUFFIX}" for robot in ENVIRONMENTS for quality in QUALITIES)
        raise unknown_name("dataset to roll out", name, known)
    ingredients: tuple[Ingredient, ...]
    if quality == "medium":
        ingredients = (_MEDIUM[robot],)
    elif quality == "medium-expert":
        ingredients = (_MEDIUM[robot], _EXPERT[robot])
    else:
        ingredients = _REPLAY[robot]
    name = f"{robot}-{quality}{SUFFIX}"
    return Recipe(name, ENVIRONMENTS[robot], ingredients, takes_turns=quality == "medium-replay")


ENVIRONMENTS = {
    "halfcheetah": "HalfCheetah-v4",
    "hopper": "Hopper-v4",
    "walker2d": "Walker2d-v4",
    "ant": "Ant-v4",
}


def _series(robot: str, *iterations: int) -> tuple[Ingredient, ...]:
    return tuple(Ingredient(f"oai_trpo_{robot}_series@it{iteration:03d}") for iteration in iterations)


_MEDIUM = {
    "halfcheetah": Ingredient("zoo_ppo_HalfCheetah"),
    "hopper": Ingredient("zoo_sac_Hopper"),
    "walker2d": _series("Walker2d", 80)[0],
    "ant": _series("Ant", 260)[0],
}
_EXPERT = {
    "halfcheetah": Ingredient("zoo_tqc_HalfCheetah"),
    "hopper": _series("Hopper", 380)[0],
    "walker2d": Ingredient("berkeley_Walker2d"),
    "ant": Ingredient("berkeley_Ant"),
}
_REPLAY = {
    "halfcheetah": (
        *_series("HalfCheetah", *range(0, 501, 20)),
        Ingredient("zoo_ars_HalfCheetah", is_sampled=False),
    ),
    # The run jumps from a score of 18 (it020) to 85 (it040): the medium policy with less and less noise on
    # its actions fills the hole, at about 26, 32 and 39.
    "hopper": (
        *_series("Hopper", 0, 20),
        Ingredient("zoo_a2c_Hopper_best"),
        Ingredient("zoo_a2c_Hopper"),
        Ingredient("zoo_sac_Hopper", noise=0.3),
        Ingredient("zoo_sac_Hopper", noise=0.2),
        Ingredient("zoo_sac_Hopper", noise=0.1),
        Ingredient("zoo_sac_Hopper"),
    ),
    "walker2d": (*_series("Walker2d", 0, 20, 40, 60, 80), Ingredient("zoo_a2c_Walker2d")),
    "ant": _series("Ant", *range(0, 261, 20)),
}


class EpisodeKey(NamedTuple):
    """Which episode: the number of its behaviour, and its own number within that."""

    part: int
    number: int


def episode_at(share: int, place: int, *, turns: int) -> EpisodeKey:
    """Say which episode is at a place of a share that so many behaviours fill in turn.

    >>> [episode_at(0, place, turns=2) for place in (0, 1, 2)][1:]
    [EpisodeKey(part=1, number=0), EpisodeKey(part=0, number=1)]
    """
    number, turn = divmod(place, turns)
    return EpisodeKey(share * turns + turn, number)


class RolloutSchedule:
    """Hands out the episodes 0, 1, 2, ... of each share until their lengths add up to it.

    A share is that of one behaviour, or of `turns` behaviours whose episodes alternate.

    >>> schedule = RolloutSchedule([5, 5], {EpisodeKey(0, 0): 7})
    >>> schedule.next(), schedule.transitions
    (EpisodeKey(part=1, number=0), 5)
    """

    def __init__(self, shares: list[int], finished: Mapping[EpisodeKey, int], *, turns: int = 1) -> None:
        self._shares, self._turns = shares, turns
        self._steps: list[dict[int, int]] = [{} for _ in shares]  # by the place in the share
        self._under_way: list[set[int]] = [set() for _ in shares]
        self._is_stopped = False
        self._changed = threading.Condition()
        for key, steps in finished.items():
            share, place = self._place(key)
            self._steps[share][place] = steps

    @property
    def transitions(self) -> int:
        """Transitions so far that count towards the shares."""
        with self._changed:
            return sum(
                min(sum(steps.values()), share)
                for steps, share in zip(self._steps, self._shares, strict=True)
            )

    def next(self) -> EpisodeKey | None:
        """Give the next episode to run; None when there is nothing more to do."""
        with self._changed:
            while not self._is_stopped:
                for number, share in enumerate(self._shares):
                    if self._expected(number) < share:
                        return self._hand_out(number)
                if not any(self._under_way):
                    break
                self._changed.wait()
        return None

    def finish(self, key: EpisodeKey, steps: int) -> None:
        """Note that an episode is done."""
        share, place = self._place(key)
        with self._changed:
            self._under_way[share].discard(place)
            self._steps[share][place] = steps
            self._changed.notify_all()

    def stop(self) -> None:
        """Hand out nothing more; whoever waits is told."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _place(self, key: EpisodeKey) -> tuple[int, int]:
        share, turn = divmod(key.part, self._turns)
        return share, key.number * self._turns + turn

    def _expected(self, share: int) -> float:
        steps, under_way = self._steps[share], self._under_way[share]
        mean = sum(steps.values()) / len(steps) if steps else _GUESS_STEPS
        return sum(steps.values()) + mean * len(under_way)

    def _hand_out(self, share: int) -> EpisodeKey:
        place = 0
        while place in self._steps[share] or place in self._under_way[share]:
            place += 1
        self._under_way[share].add(place)
        return episode_at(share, place, turns=self._turns)


class EpisodeShards:
    """All episodes of one folder of shards; new ones are written every few thousand transitions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.episodes: dict[EpisodeKey, Episode] = {}
        self._waiting: list[EpisodeKey] = []
        self._next = 0
        for path in sorted(path for path in folder.glob("*.npz") if path.stem.isdecimal()):
            self._next = int(path.stem) + 1
            try:
                self.episodes.update(_read(path))
            except DataError:
                path.unlink()

    def add(self, key: EpisodeKey, episode: Episode) -> None:
        """Keep an episode; it is safe on disk after the next `flush` at the latest."""
        self.episodes[key] = episode
        self._waiting.append(key)
        if sum(len(self.episodes[waiting].rewards) for waiting in self._waiting) >= SHARD_TRANSITIONS:
            self.flush()

    def flush(self) -> None:
        """Write what is not yet on disk."""
        if not self._waiting:
            return
        kept = [self.episodes[key] for key in self._waiting]
        arrays: npz.Arrays = {
            "part": np.array([key.part for key in self._waiting]),
            "number": np.array([key.number for key in self._waiting]),
            "steps": np.array([len(episode.rewards) for episode in kept]),
            "is_terminal": np.array([episode.is_terminal for episode in kept]),
            "observations": np.concatenate([episode.observations for episode in kept]),
            "actions": np.concatenate([episode.actions for episode in kept]),
            "rewards": np.concatenate([episode.rewards for episode in kept]),
        }
        npz.save(self.folder / f"{self._next:06d}.npz", arrays, compressed=False)
        self._next += 1
        self._waiting.clear()

    def remove(self) -> None:
        """Delete the folder, when its episodes have found their place."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # others may have shards beside it
            self.folder.parent.rmdir()


def _recipe_uses(recipe: Recipe) -> list[PolicyUse]:
    uses = []
    for ingredient in recipe.ingredients:
        file, at, snapshot = ingredient.policy.partition("@")
        path = folders.find("rl", f"{file}.npz")
        if path is None:
            raise DataError(
                f"{recipe.name} is rolled out from the policy rl/{file}.npz, which is in none of "
                f"{', '.join(map(str, folders.roots()))}. Give your own with --policy FILE.npz (layout: "
                f"docs/data-events-rl.md). Public policies to convert, on GitHub: {_SOURCES}. "
                "Nothing is trained here."
            )
        uses.append(PolicyUse(f"{path}{at}{snapshot}", ingredient.is_sampled, ingredient.noise))
    return uses


def _given_uses(recipe: Recipe, given: Sequence[str | Path]) -> list[PolicyUse]:
    paths: list[str] = []
    for path in map(str, given):
        snapshots = [] if "@" in path else policies.list_snapshots(Path(path))
        paths += [f"{path}@{snapshot}" for snapshot in snapshots] or [path]
    if "medium-expert" in recipe.name and len(paths) != 2:
        raise ConfigError(f"{recipe.name} needs two policies, first medium, then expert; got {len(paths)}.")
    if not paths:
        raise ConfigError(f"{recipe.name} needs at least one policy.")
    return [PolicyUse(path, policies.load(path).is_random, 0.0) for path in paths]


def _require_same(path: Path, settings: Settings) -> Path:
    made_with = read_record(path).get("settings")
    if made_with != settings:
        raise DataError(
            f"{path} exists and was made with other settings: {made_with}. Delete or move it first."
        )
    return path


def _key(settings: Settings) -> str:
    """Name the settings and versions: shards of others must not be mixed in."""
    return hashlib.sha256(json.dumps([settings, _versions()], sort_keys=True).encode()).hexdigest()[:16]


def _versions() -> dict[str, str]:
    return {package: version(package) for package in ("gymnasium", "mujoco", "numpy")}


def _run(
    recipe: Recipe,
    uses: list[PolicyUse],
    seed: int,
    shares: list[int],
    shards: EpisodeShards,
    progress: Progress | None,
    count: int,
) -> None:
    """Fill the shards: one thread per process asks the schedule, waits for its episode and keeps it."""
    finished = {key: len(episode.rewards) for key, episode in shards.episodes.items()}
    schedule = RolloutSchedule(shares, finished, turns=len(uses) // len(shares))
    failures: list[BaseException] = []
    keeping = threading.Lock()

    def work() -> None:
        worker = RolloutWorker(recipe.environment, uses, seed)
        try:
            while (key := schedule.next()) is not None:
                episode = worker.roll_out(key.part, key.number)
                with keeping:
                    shards.add(key, episode)
                schedule.finish(key, len(episode.rewards))
        except Exception as error:
            failures.append(error)
            schedule.stop()
        finally:
            worker.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_POLL_SECONDS)
                if progress is not None:
                    progress(recipe.name, schedule.transitions, sum(shares))
    finally:  # also when interrupted: what is finished is kept for the next call
        schedule.stop()
        for thread in threads:
            thread.join()
        shards.flush()
    if failures:
        raise failures[0]


def _assemble(
    target: Path,
    recipe: Recipe,
    settings: Settings,
    behaviours: list[tuple[policies.Policy, PolicyUse]],
    episodes: dict[EpisodeKey, Episode],
) -> None:
    """Put the first episodes of every share into one file, with a record of what they are."""
    transitions = int(str(settings["transitions"]))
    shares = 1 if recipe.takes_turns else len(behaviours)
    chosen: list[Episode] = []
    taken: list[list[Episode]] = [[] for _ in behaviours]
    total = 0
    for share in range(shares):
        goal = round(transitions * (share + 1) / shares)
        place = 0
        while total < goal:
            key = episode_at(share, place, turns=len(behaviours) // shares)
            chosen.append(episodes[key])
            taken[key.part].append(chosen[-1])
            total += len(chosen[-1].rewards)
            place += 1
    described = [
        _describe(recipe, policy, use, own) for (policy, use), own in zip(behaviours, taken, strict=True)
    ]
    record = {
        "name": recipe.name,
        "settings": settings,
        "behaviours": described,
        "episodes": len(chosen),
        "transitions": total,
        "versions": {**_versions(), "aaren": __version__, "python": platform.python_version()},
        "machine": platform.machine(),
    }
    lasts = np.cumsum([len(episode.rewards) for episode in chosen]) - 1
    terminals, timeouts = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    is_terminal = np.array([episode.is_terminal for episode in chosen])
    terminals[lasts], timeouts[lasts] = is_terminal, ~is_terminal
    arrays: npz.Arrays = {
        "observations": np.concatenate([episode.observations for episode in chosen]),
        "actions": np.concatenate([episode.actions for episode in chosen]),
        "rewards": np.concatenate([episode.rewards for episode in chosen]),
        "terminals": terminals,
        "timeouts": timeouts,
        "record": np.asarray(json.dumps(record)),
    }
    npz.save(target, arrays, compressed=False)


def _describe(
    recipe: Recipe, policy: policies.Policy, use: PolicyUse, episodes: list[Episode]
) -> dict[str, object]:
    """Say what a behaviour collected, as measured in the episodes that are kept."""
    returns = np.array([episode.rewards.sum(dtype=np.float64) for episode in episodes])
    mean = float(returns.mean()) if len(returns) else None
    return {
        "policy": policy.name,
        "algorithm": policy.algorithm,
        "source": policy.source,
        "is_sampled": use.is_sampled,
        "noise": use.noise,
        "episodes": len(episodes),
        "transitions": int(sum(len(episode.rewards) for episode in episodes)),
        "mean_return": mean,
        "std_return": float(returns.std(ddof=1)) if len(returns) > 1 else None,
        "normalised_score": None if mean is None else normalised_score(recipe.environment, mean),
    }


def _read(path: Path) -> dict[EpisodeKey, Episode]:
    arrays = npz.load(path, required=_ARRAYS)
    with parsing(path, "a shard of episodes"):
        bounds = np.cumsum(wholes(arrays["steps"], name=f"{path}: steps"))[:-1]
        observations, actions, rewards = (
            np.split(narrow(arrays[name], name=f"{path}: {name}"), bounds)
            for name in ("observations", "actions", "rewards")
        )
        numbers = zip(arrays["part"].tolist(), arrays["number"].tolist(), strict=True)
        ends = flags(arrays["is_terminal"], name=f"{path}: is_terminal").tolist()
        return {
            EpisodeKey(*number): Episode(observations[i], actions[i], rewards[i], ends[i])
            for i, number in enumerate(numbers)
        }
