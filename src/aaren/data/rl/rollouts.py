"""Make an offline-RL dataset by rolling out behaviour policies: several processes, resumable, bit for bit.

Episode k of behaviour p depends on the seed, p and k alone. So it does not matter how many processes there
are, in which order they finish, or whether the work was stopped: finished episodes are kept in shards and
taken up again by the next call with the same settings. "Bit for bit" holds on one machine with one set of
versions, which the file's record names. Trains nothing.
"""

import hashlib
import json
import platform
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import numpy as np

from aaren.data.files import folders, npz
from aaren.data.files.atomic import locked
from aaren.data.rl import policies
from aaren.data.rl.episode_shards import EpisodeKey, EpisodeShards
from aaren.data.rl.episodes import Episode
from aaren.data.rl.recipes import Recipe, recipe_for
from aaren.data.rl.reference_scores import normalised_score
from aaren.data.rl.rollout_schedule import RolloutSchedule
from aaren.data.rl.rollout_worker import PolicyUse, RolloutWorker
from aaren.errors import ConfigError, DataError, require_extra
from aaren.version import __version__

Progress: TypeAlias = Callable[
    [str, int, int | None], None
]  # dataset, transitions so far, transitions in all
Settings: TypeAlias = dict[str, object]

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
    equal shares, up to one episode.

    Args:
        name: Robot and quality, with or without "-regen".
        policy: Your own policies instead of the recipe's, in the layout of `aaren.data.rl.policies`: for
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
    filename = f"{recipe.name}.npz"
    found = folders.find("rl", filename)
    if found is not None:
        return _require_same(found, settings)
    target = folders.place("rl", filename)
    with locked(target):
        if target.is_file():  # another process has just made it
            return _require_same(target, settings)
        shards = EpisodeShards(target.parent / ".shards" / f"{recipe.name}-{_key(settings)}")
        shares = [-(-transitions // len(uses))] * len(
            uses
        )  # at most: what one has too much, the next has less
        _run(recipe, uses, seed, shares, shards, progress, workers)
        _assemble(target, recipe, settings, list(zip(behaviours, uses, strict=True)), shards.episodes)
        shards.remove()
    return target


def read_record(path: Path) -> dict[str, object]:
    """Read what a made file says about itself: settings, versions, returns of its behaviours."""
    arrays = npz.load(path, required=("record",))
    record: dict[str, object] = json.loads(str(arrays["record"].item()))
    return record


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
    schedule = RolloutSchedule(
        shares, {key: len(episode.rewards) for key, episode in shards.episodes.items()}
    )
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
    """Put the first episodes of every behaviour into one file, with a record of what they are."""
    transitions = int(str(settings["transitions"]))
    chosen: list[Episode] = []
    described: list[dict[str, object]] = []
    total = 0
    for part, (policy, use) in enumerate(behaviours):
        goal = round(transitions * (part + 1) / len(behaviours))
        taken: list[Episode] = []
        while total < goal:
            taken.append(episodes[EpisodeKey(part, len(taken))])
            total += len(taken[-1].rewards)
        chosen += taken
        described.append(_describe(recipe, policy, use, taken))
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
