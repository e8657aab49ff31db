"""Checkpoints: everything that a stopped run needs to resume bit for bit, written atomically.

A checkpoint is a folder `update-000000120` with safetensors files and a manifest that holds their sha256 and
everything that is not a tensor; the one before is kept. Nothing is pickled.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.engine.config import differences
from aaren.engine.plan import RunStatus
from aaren.errors import ConfigError, StateError
from aaren.files.archive import file_sha256
from aaren.files.atomic import remove_leftovers, replacing

FORMAT = 3
MOST = 2  # checkpoints on disk: the newest and the one before
MANIFEST = "manifest.json"
_PREFIX = "update-"
SHARE_OF_TIME = 0.02  # of a run that may go into saving
HARMLESS = ("changed", "engine.checkpoint_seconds", "engine.predictions")  # keys that may differ
_FACTS = ("config", "threads", "status")

Tensors = Mapping[str, Tensor]


@dataclass(kw_only=True, eq=False, slots=True)
class TrainingState:
    """Everything that changes while a run trains."""

    model: nn.Module
    optimiser: Optimizer | None
    status: RunStatus
    device: torch.device
    best: dict[str, Tensor] | None = None  # the weights of the best evaluation

    def keep_best(self) -> None:
        """Remember the weights as they are now."""
        state = self.model.state_dict()
        if self.best is None:
            self.best = {name: tensor.detach().clone() for name, tensor in state.items()}
        else:
            for name, tensor in state.items():
                self.best[name].copy_(tensor)


@dataclass(kw_only=True, eq=False, slots=True)
class Checkpoints:
    """Saves and restores the training state of one run."""

    folder: Path
    config: Mapping[str, object]  # the run's, as a mapping; a checkpoint of another one is refused
    every_seconds: float = 30.0
    saved_update: int = -1
    saved_at: float = field(default_factory=time.monotonic)
    save_seconds: float = 0.0

    def is_due(self) -> bool:
        """Say whether it is time: not too often, and never more than a small share of the run's time."""
        wait = max(self.every_seconds, self.save_seconds / SHARE_OF_TIME) if self.every_seconds else 0.0
        return time.monotonic() - self.saved_at >= wait

    def save(self, training: TrainingState, say: Callable[[str], None]) -> None:
        """Write a checkpoint; if the disk is full the run continues with the checkpoints there are."""
        update = training.status.update
        if update == self.saved_update:
            return
        begin = time.monotonic()
        tensors: dict[str, Mapping[str, Tensor]] = {
            "model": training.model.state_dict(),
            "random": _random_state(training.device),
        }
        facts: dict[str, object] = {
            "config": self.config,
            "threads": torch.get_num_threads(),
            "status": training.status.to_json(),
        }
        if training.best is not None:
            tensors["best"] = training.best
        if training.optimiser is not None:
            tensors["optimiser"], facts["optimiser"] = _take_apart(training.optimiser)
        try:
            save(self.folder, update, Checkpoint(tensors=tensors, facts=facts))
        except OSError as error:
            say(f"no checkpoint at update {update}: {error}. Training continues; the last one is kept.")
        self.saved_at, self.saved_update = time.monotonic(), update
        self.save_seconds = self.saved_at - begin

    def restore(self, training: TrainingState, say: Callable[[str], None]) -> bool:
        """Bring a fresh training state to where the newest whole checkpoint was; False if there is none."""
        newest = load_newest(self.folder, complain=say, facts=_FACTS)
        if newest is None:
            return False
        facts = newest.facts
        require_same_config(
            cast("Mapping[str, object]", facts["config"]), self.config, where=str(self.folder.parent)
        )
        torch.set_num_threads(cast("int", facts["threads"]))
        training.model.load_state_dict(newest.tensors["model"])
        if "best" in newest.tensors:
            training.best = {
                name: tensor.to(training.device) for name, tensor in newest.tensors["best"].items()
            }
        if training.optimiser is not None:
            _put_together(training.optimiser, newest.tensors["optimiser"], facts["optimiser"])
        _restore_random_state(newest.tensors["random"], training.device)
        training.status = RunStatus.from_json(cast("Mapping[str, object]", facts["status"]))
        self.saved_update = training.status.update
        return True


def require_same_config(old: Mapping[str, object], new: Mapping[str, object], *, where: str) -> None:
    """Refuse to resume with another config in the same folder, naming every key that differs."""
    changes = [line for line in differences(old, new) if line.split(": ")[0] not in HARMLESS]
    if changes:
        raise ConfigError(
            f"{where} holds a run of another config: {'; '.join(changes)}. "
            "Use the same values, or another folder (--out)."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Named groups of tensors, and all the rest as JSON."""

    tensors: Mapping[str, Tensors]
    facts: Mapping[str, object]


def save(folder: Path, update: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and drop the oldest; on any failure the ones before stay as they are.

    Raises:
        OSError: The disk is full or not writable; nothing is left behind.
    """
    try:
        # One that is replaced is a damaged one of the same moment: the run came by again.
        with replacing(folder / f"{_PREFIX}{update:09d}") as place:
            place.mkdir()
            digests = {}
            for name, tensors in checkpoint.tensors.items():
                path = place / f"{name}.safetensors"
                save_file(_separate(tensors), path)
                digests[path.name] = file_sha256(path)
            manifest = {"format": FORMAT, "update": update, "files": digests, "facts": checkpoint.facts}
            text = json.dumps(manifest)
            outer = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}
            (place / MANIFEST).write_text(json.dumps(outer), encoding="utf-8")
    except SafetensorError as error:
        raise OSError(str(error)) from error
    for old in _newest_first(folder)[MOST:]:
        shutil.rmtree(old, ignore_errors=True)


def load_newest(
    folder: Path, *, complain: Callable[[str], None], facts: Collection[str] = ()
) -> Checkpoint | None:
    """Read the newest checkpoint that is whole; a damaged one is named, and the one before is taken.

    Args:
        folder: Where checkpoints are.
        complain: Called with a message for every one that is damaged.
        facts: What a whole one must hold beside tensors.
    """
    remove_leftovers(folder, f"{_PREFIX}*")
    places = _newest_first(folder)
    for place in places:
        try:
            return _load(place, facts)
        except (StateError, OSError) as error:
            complain(f"the checkpoint {place.name} is damaged ({error}); taking the one before.")
    if places:
        complain("no checkpoint is whole: starting from the beginning.")
    return None


def remove(folder: Path) -> None:
    """Delete all checkpoints; a finished run needs none."""
    shutil.rmtree(folder, ignore_errors=True)


def _take_apart(optimiser: Optimizer) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Split an optimiser's state into tensors and plain values."""
    state = optimiser.state_dict()
    tensors, values = {}, {}
    for index, entry in state["state"].items():
        for name, value in entry.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value
            else:
                values[f"{index}.{name}"] = value
    return tensors, {"values": values, "groups": state["param_groups"]}


def _put_together(optimiser: Optimizer, tensors: Mapping[str, Tensor], rest: object) -> None:
    """Undo `_take_apart` into a fresh optimiser of the same parameters."""
    plain = cast("dict[str, dict[str, object]]", rest)
    state: dict[int, dict[str, object]] = {}
    for key, value in {**tensors, **plain["values"]}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    groups = [
        {name: tuple(value) if name == "betas" else value for name, value in group.items()}
        for group in cast("list[dict[str, list[float]]]", plain["groups"])
    ]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def _random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the state of the random generators that a run draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _restore_random_state(states: Tensors, device: torch.device) -> None:
    """Set the generators back to what `_random_state` returned."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def _load(place: Path, needed: Collection[str]) -> Checkpoint:
    try:
        outer = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        text = str(outer["content"])
        if hashlib.sha256(text.encode()).hexdigest() != outer["sha256"]:
            raise StateError("its manifest has another checksum")
        manifest = json.loads(text)
        version, files, facts = manifest["format"], manifest["files"], manifest["facts"]
    except FileNotFoundError as error:
        raise StateError("it has no manifest") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(
            str(error) if isinstance(error, StateError) else "its manifest is not readable"
        ) from error
    if version != FORMAT:
        raise StateError(f"it has format {version}; this version of aaren reads format {FORMAT}")
    if not isinstance(files, dict) or not isinstance(facts, dict) or not facts.keys() >= set(needed):
        raise StateError("its manifest is not readable")
    tensors = {}
    for name, digest in files.items():
        path = place / name
        if path.parent != place:
            raise StateError(f"its manifest names a file elsewhere, {name}")
        if not path.is_file() or file_sha256(path) != digest:
            raise StateError(f"{name} is missing or has another checksum")
        # Cloned, because arithmetic may round differently on memory that is aligned differently.
        try:
            tensors[path.stem] = {key: value.clone() for key, value in load_file(path).items()}
        except SafetensorError as error:
            raise StateError(f"{name} is not readable ({error})") from error
    return Checkpoint(tensors=tensors, facts=facts)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_PREFIX}*"), reverse=True) if folder.is_dir() else []


def _separate(tensors: Tensors) -> dict[str, Tensor]:
    """Bring tensors to the CPU; those that share memory (tied weights) are copied, as safetensors asks."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().to("cpu").contiguous()
        separate[name] = plain.clone() if plain.data_ptr() in seen else plain
        seen.add(plain.data_ptr())
    return separate
