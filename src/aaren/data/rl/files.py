"""Trajectories in files: D4RL's HDF5, a Minari dataset, or our `.npz`.

HDF5 and `.npz` hold flat arrays: `observations`, `actions`, `rewards`, `terminals` (the environment ended it)
and `timeouts` (a step limit did). Files made here add a `record`. Knows nothing of registered datasets or
batches.
"""

import io
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aaren.data.files import npz
from aaren.data.files.packed import read_bytes, refuse_pickle
from aaren.data.rl.arrays import Trajectories
from aaren.errors import DataError, require_extra

ARRAYS = ("observations", "actions", "rewards", "terminals", "timeouts")


def read(source: str | Path, *, drop_short: bool = False) -> Trajectories:
    """Read a user's trajectories: a `.hdf5` or `.npz` file, or the id of a Minari dataset on this machine."""
    path = Path(source)
    kind = next((suffix for suffix in reversed(path.suffixes) if suffix not in (".gz", ".xz")), "")
    if not path.is_file():
        if isinstance(source, str) and kind not in (".hdf5", ".h5", ".npz"):
            return read_minari(source, drop_short=drop_short)
        raise DataError(f"{path}: no such file.")
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
    try:
        dataset = minari.load_dataset(dataset_id)
    except (FileNotFoundError, ValueError) as error:
        raise DataError(
            f"no Minari dataset {dataset_id!r} on this machine ({error}). "
            f"Get it with: minari download {dataset_id}"
        ) from error
    parts: dict[str, list[NDArray[np.generic]]] = {key: [] for key in ARRAYS}
    for episode in dataset.iterate_episodes():
        if not isinstance(episode.observations, np.ndarray) or not isinstance(episode.actions, np.ndarray):
            raise DataError(
                f"Minari dataset {dataset_id}: flat observations and actions are needed, not nested ones."
            )
        steps = len(episode.rewards)
        ended = np.asarray(episode.terminations, dtype=bool)
        parts["observations"].append(
            episode.observations[:steps].reshape(steps, -1)
        )  # the last one has no action
        parts["actions"].append(episode.actions)
        parts["rewards"].append(episode.rewards)
        parts["terminals"].append(ended)
        limit = np.zeros(steps, dtype=bool)
        limit[-1:] = ~ended[-1:]  # Minari's episodes are whole: what did not terminate was cut there
        parts["timeouts"].append(limit)
    if not parts["rewards"]:
        raise DataError(f"Minari dataset {dataset_id}: it holds no episode.")
    spec = dataset.env_spec
    return Trajectories.from_flat(
        **{key: np.concatenate(values) for key, values in parts.items()},
        drop_short=drop_short,
        name=dataset_id,
        environment="" if spec is None else str(spec.id),
    )


def _read_hdf5(path: Path) -> npz.Arrays:
    h5py = require_extra("h5py", extra="rl", purpose=f"reading {path.name}")
    try:
        with h5py.File(io.BytesIO(read_bytes(path)) if path.suffix in (".gz", ".xz") else path, "r") as file:
            for key in ARRAYS:
                if key not in file:
                    raise DataError(
                        f"{path}: no dataset {key!r}; it has {', '.join(sorted(file)) or 'none'}."
                    )
            return {key: np.asarray(file[key][()]) for key in ARRAYS}
    except OSError as error:
        raise DataError(f"{path}: not a whole HDF5 file ({error}). Fetch it again.") from error


def _from_arrays(path: Path, arrays: npz.Arrays, drop_short: bool) -> Trajectories:
    lengths = {key: len(arrays[key]) for key in ARRAYS}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: all arrays need one row per transition; got {lengths}.")
    record = json.loads(str(arrays["record"].item())) if "record" in arrays else {}
    settings = record.get("settings", {})
    return Trajectories.from_flat(
        **{key: arrays[key] for key in ARRAYS},
        drop_short=drop_short,
        name=str(record.get("name", path)),
        environment=str(settings.get("environment", "")),
        record=record,
    )
