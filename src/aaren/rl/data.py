"""Trajectories in files: D4RL's HDF5, a Minari dataset, or our `.npz`.

HDF5 and `.npz` hold flat arrays: `observations`, `actions`, `rewards`, `terminals` (the environment ended it)
and `timeouts` (a step limit did). Files made here add a `record`. Knows nothing of registered datasets or
batches.

The RL sets of the registry: loaded or generated, and measured for verification.

Knows nothing of models, of batches or of a user's own files (`aaren.rl.data`).
"""

import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aaren.datasets import catalogue as registry
from aaren.datasets.dataset import Dataset, Fact
from aaren.errors import ConfigError, DataError, require_extra
from aaren.files import folders, npz
from aaren.files.archive import parsing, read_bytes, refuse_pickle, require_size
from aaren.rl import classic_control
from aaren.rl.trajectories import Trajectories

if TYPE_CHECKING:
    import h5py
    from minari import MinariDataset


ARRAYS = ("observations", "actions", "rewards", "terminals", "timeouts")


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


def load(name: str) -> Trajectories:
    """Load a registered RL set from disk; "pendulum" and "cartpole" are generated and need no file."""
    if name in classic_control.SETS:
        return classic_control.generate(name)
    dataset = registry.lookup(name)
    if dataset.setting != "rl":
        raise ConfigError(f"{dataset.name} is a {dataset.setting} set; this reads trajectories.")
    verb = "make rl" if dataset.name.endswith("-regen") else "fetch"
    path = folders.require("rl", dataset.files[0], cure=f"Get it with: aaren data {verb} {dataset.name}")
    environment = str(dataset.options.get("environment", ""))
    return read(path, drop_short=True).named(dataset.name, environment)


def measure(dataset: Dataset) -> dict[str, Fact]:
    """Open a registered set and count what the registry states about it."""
    found = load(dataset.name)
    return {
        "state_size": found.state_size,
        "action_size": found.action_size,
        "transitions": found.num_transitions,
        "trajectories": len(found),
        "mean_return": round(float(found.returns.mean()), 1),
    }
