"""Checkpoints that survive anything: whole or not there, checksummed, the one before kept.

A checkpoint is a folder `update-000000120` with safetensors files and a manifest that holds their sha256 and
everything that is not a tensor. It is written under another name, flushed to the disk, and renamed. Nothing
is pickled. Knows nothing of training: tensors by name in, tensors by name out.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from aaren.errors import StateError

FORMAT = 1
KEPT = 2  # checkpoints on disk: the newest and the one before
MANIFEST = "manifest.json"
_PREFIX = "update-"

Tensors = Mapping[str, Tensor]


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
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".partial-{os.getpid()}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        digests = {}
        for name, tensors in checkpoint.tensors.items():
            path = partial / f"{name}.safetensors"
            save_file(_separate(tensors), path)
            digests[path.name] = _flush_and_digest(path)
        manifest = {"format": FORMAT, "update": update, "files": digests, "facts": checkpoint.facts}
        text = json.dumps(manifest)
        with (partial / MANIFEST).open("w", encoding="utf-8") as file:
            json.dump({"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}, file)
            file.flush()
            os.fsync(file.fileno())
        _flush_folder(partial)
        final = folder / f"{_PREFIX}{update:09d}"
        if final.exists():  # a damaged one of the same moment: the run came by again
            shutil.rmtree(final)
        partial.rename(final)
        _flush_folder(folder)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for old in _newest_first(folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def load_newest(
    folder: Path, *, complain: Callable[[str], None], facts: Collection[str] = ()
) -> Checkpoint | None:
    """Read the newest checkpoint that is whole; a damaged one is named, and the one before is taken.

    Args:
        folder: Where checkpoints are.
        complain: Told of every one that is damaged.
        facts: What a whole one must hold beside tensors.
    """
    for leftover in folder.glob(".partial-*"):  # of a process that was killed while it wrote
        shutil.rmtree(leftover, ignore_errors=True)
    found = _newest_first(folder)
    for place in found:
        try:
            return _load(place, facts)
        except (StateError, OSError) as error:
            complain(f"the checkpoint {place.name} is damaged ({error}); taking the one before.")
    if found:
        complain("no checkpoint is whole: starting from the beginning.")
    return None


def remove(folder: Path) -> None:
    """Delete all checkpoints; a finished run needs none."""
    shutil.rmtree(folder, ignore_errors=True)


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
        if not path.is_file() or _digest(path) != digest:
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


def _flush_and_digest(path: Path) -> str:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
