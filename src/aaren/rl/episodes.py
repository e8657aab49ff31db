"""Recorded episodes, in any of several forms, as trajectories.

A dataset's name, a file, a Minari dataset, `Trajectories`, or a list with one entry per episode: a dict, or
an object such as Minari's, with `observations`, `actions` and `rewards`, or a tuple of these three.
"""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aaren.datasets import catalogue as registry
from aaren.datasets.numbers import flags, numeric, refuse_masked
from aaren.errors import DataError, unknown_name
from aaren.rl import data as recorded
from aaren.rl.data import Trajectories

PARTS = ("observations", "actions", "rewards")
CLOSE = 0.75  # how alike a name is to one that is meant
Episodes = Any  # a name, a path, Trajectories, a Minari dataset, or a list of episodes


def read_episodes(given: Episodes, *, drop_short: bool = False) -> Trajectories:
    """Turn recorded episodes, in any form of this module's head, into trajectories."""
    if isinstance(given, Trajectories):
        return given
    if isinstance(given, str) and not os.path.exists(given):  # noqa: PTH110
        if given in _names():
            return recorded.load(given)
        if get_close_matches(given, _names(), n=1, cutoff=CLOSE):
            raise unknown_name("dataset of episodes", given, _names())
    if isinstance(given, str | Path):
        return recorded.read(given, drop_short=drop_short)
    name, environment = "episodes", ""
    if hasattr(given, "iterate_episodes"):  # a Minari dataset that is open
        spec = getattr(given, "env_spec", None)
        environment = "" if spec is None else str(spec.id)
        given = list(given.iterate_episodes())
    if isinstance(given, Mapping):
        if set(recorded.ARRAYS) <= set(given):  # flat arrays, as in a D4RL file
            return Trajectories.from_flat(
                **{key: given[key] for key in recorded.ARRAYS}, drop_short=drop_short, name=name
            )
        given = [given]
    if not isinstance(given, Sequence | np.ndarray) or len(given) == 0:
        raise DataError(
            f"episodes must be a dataset's name, a file, a Minari dataset, or a list with one entry per "
            f"episode, each with {', '.join(PARTS)}; got {_kind(given)}.{_hint(given)}"
        )
    parts: dict[str, list[NDArray[Any]]] = {key: [] for key in recorded.ARRAYS}
    for number, episode in enumerate(given):
        found = _read_episode(episode, f"episode {number}")
        for key, array in found.items():
            before = parts[key][0] if parts[key] else array
            if array.shape[1:] != before.shape[1:] or (array.dtype.kind in "iu") != (
                before.dtype.kind in "iu"
            ):
                raise DataError(
                    f"episode {number}: {key} {array.shape} of {array.dtype}, but episode 0 has "
                    f"{before.shape} of {before.dtype}: all must be of one environment."
                )
            parts[key].append(array)
    return Trajectories.from_flat(
        **{key: np.concatenate(values) for key, values in parts.items()},
        drop_short=drop_short,
        name=name,
        environment=environment,
    )


def _read_episode(episode: object, name: str) -> dict[str, NDArray[Any]]:
    """Return one episode's flat arrays; a last observation without an action is left out."""
    given: dict[str, Any]
    if isinstance(episode, Mapping):
        given = dict(episode)
    elif isinstance(episode, tuple | list) and len(episode) == len(PARTS):
        given = dict(zip(PARTS, episode, strict=True))
    else:
        given = {key: getattr(episode, key) for key in (*PARTS, "terminations") if hasattr(episode, key)}
    missing = [key for key in PARTS if key not in given]
    if missing:
        raise DataError(
            f"{name}: expected {', '.join(PARTS)}; {', '.join(missing)} missing in {_kind(episode)}."
            f"{_hint(episode)}"
        )
    given["actions"] = _as_numbers(given["actions"], name)
    seen, acted, earned = (numeric(given[key], name=f"{name}: {key}") for key in PARTS)
    steps = len(earned) if earned.ndim == 1 else -1
    if seen.ndim == 1:
        seen = seen[:, None]  # observations of one number
    if (
        steps < 1
        or not seen.ndim
        or not acted.ndim
        or len(acted) != steps
        or len(seen) not in (steps, steps + 1)
    ):
        raise DataError(
            f"{name}: one observation, action and reward per step are needed (one more observation, the "
            f"last, will do); got observations {seen.shape}, actions {acted.shape}, rewards {earned.shape}."
        )
    for key, array in zip(PARTS, (seen, acted, earned), strict=True):
        wrong = ~np.isfinite(array)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            raise DataError(
                f"{name}: {key} at {place} is {array[place]}; finite numbers are needed. Leave the episode "
                f"out, or end it before."
            )
    ended = given.get("terminations", given.get("terminated", given.get("terminal", False)))
    flagged = flags(ended, name=f"{name}: terminated").reshape(-1)
    if not len(flagged):
        raise DataError(f"{name}: terminated is empty; True or False is needed, or one for every step.")
    is_terminal = bool(flagged[-1])
    last = np.arange(steps) == steps - 1
    acted = acted[:, 0] if acted.ndim == 2 and acted.dtype.kind in "iu" and acted.shape[1] == 1 else acted
    return {
        "observations": seen[:steps].reshape(steps, -1),
        "actions": acted,
        "rewards": earned,
        "terminals": last & is_terminal,
        "timeouts": last & (not is_terminal),
    }


def _as_numbers(actions: Any, name: str) -> Any:  # Any: whatever holds them
    """Return actions of two kinds, True and False, as 0 and 1; say what to do with names."""
    refuse_masked(actions, name=f"{name}: actions")
    try:
        found = np.asarray(actions)
    except ValueError:  # of several lengths, which `numeric` reports
        return actions
    if found.dtype.kind in "US":
        raise DataError(
            f"{name}: actions are text, such as {str(found.flat[0])!r}; number them from 0, alike in all "
            f"episodes: [names.index(action) for action in actions]."
        )
    return found.astype(np.int64) if found.dtype.kind == "b" else actions


def _hint(given: object) -> str:
    """Show how to bring steps into the form that is wanted."""
    if hasattr(given, "iloc"):
        return (
            " Split a frame of steps: [{'observations': rows[['x', 'y']].to_numpy(), 'actions': "
            "rows['action'].to_numpy(), 'rewards': rows['reward'].to_numpy()} for _, rows in "
            "frame.groupby('episode')]."
        )
    first = given[0] if isinstance(given, Sequence) and len(given) else None
    if isinstance(first, tuple | list) and len(first) == len(PARTS):
        return " Of steps (observation, action, reward) make three lists: tuple(zip(*steps))."
    return ""


def _names() -> set[str]:
    rows = (*registry.DATASETS, *registry.EXTRAS)
    return {row.name for row in rows if row.setting == "rl"} | set(recorded.CONTROL_SETS)


def _kind(given: object) -> str:
    if isinstance(given, Mapping):
        return f"{type(given).__name__} of {', '.join(map(repr, list(given)[:8])) or 'nothing'}"
    size = f" of {len(given)}" if isinstance(given, Sequence | np.ndarray) else ""
    return f"{type(given).__name__}{size}"
