"""Models on disk: a folder with `config.json` (what it is) and `model.safetensors` (its weights).

Self-describing: `load_model` needs the folder alone. Nothing is unpickled and no code comes from it: only the
classes listed here are built. A checksum ties the two files together, so that a half-written folder is
detected.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from aaren.datasets.settings import DataSetting, find_setting, setting_names
from aaren.errors import ConfigError, DataError, unknown_name
from aaren.fields import build, faults_error
from aaren.files.atomic import write_bytes, write_text
from aaren.nn import FoldedAttention
from aaren.version import __version__

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
PREPROCESSING_FILE = "preprocessing.json"


class ModelClass(Protocol):
    """A model that is built from its config alone."""

    config_type: type

    def __call__(self, config: object) -> nn.Module:
        """Build the model."""


def save_model(model: nn.Module, folder: str | Path) -> Path:
    """Write a model into a folder, which is made if need be, and return the folder.

    Files that are there are replaced; at no moment is one of them half a file. Before anything is written, a
    model that could not be loaded again is refused: a folded one, whose keys and queries are gone,
    and one with parts that its config does not describe (adapters, hooks, quantised or pruned layers).
    Weights that layers share are written for each of them: loaded, they are equal and no longer one.
    """
    name = type(model).__name__
    if cast("object", _model_class(name)) is not type(model):
        raise ConfigError(f"{name} is the name of another model that can be saved: rename the class.")
    if any(isinstance(part, FoldedAttention) for part in model.modules()):
        raise ConfigError(
            f"this {name} is folded, for inference alone (as all models that sessions hold are), and could "
            f"not be loaded again. Save the model that was folded."
        )
    _require_as_built(model, _build(cast("ModelClass", type(model)), model.config))
    tensors = {
        key: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for key, value in model.state_dict().items()
    }
    weights = safetensors.torch.save(tensors)
    described = {
        "format_version": FORMAT_VERSION,
        "aaren_version": __version__,
        "class": name,
        "config": asdict(model.config),  # type: ignore[call-overload]  # every model that can be saved has one
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    if getattr(model, "preprocessing", None) is not None:
        described["preprocessing"] = dict(cast("Any", model.preprocessing))
    folder = Path(folder)
    write_bytes(folder / WEIGHTS_FILE, weights)
    write_text(folder / CONFIG_FILE, json.dumps(described, indent=2) + "\n")
    return folder


def load_model(folder: str | Path, *, device: torch.device | str = "cpu") -> nn.Module:
    """Read the model that `save_model` wrote; it comes in evaluation mode.

    The scales and names that its run learned, if any, are its `preprocessing`: its stream takes raw rows.
    """
    folder = Path(folder)
    described = _read_description(folder / CONFIG_FILE)
    model_class = _model_class(str(described.get("class", "")))
    config = _read_config(folder / CONFIG_FILE, model_class.config_type, described.get("config"))
    tensors = _read_weights(folder / WEIGHTS_FILE, str(described.get("weights_sha256", "")))
    model = _build(model_class, config)
    try:
        model.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{folder}: weights and config do not belong together: {reason}") from error
    if hasattr(model, "preprocessing"):
        model.preprocessing = _read_preprocessing(folder, described)
    return model.to(device).eval()


def _read_preprocessing(folder: Path, described: dict[str, Any]) -> Any:  # Any: a mapping, or None
    """Return what a run learned outside its model: kept with it or, of earlier versions, beside it."""
    found, beside = described.get("preprocessing"), folder.parent / PREPROCESSING_FILE
    if found is None and beside.is_file():
        try:
            found = json.loads(beside.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{beside}: the scales of the run cannot be read ({error}).") from error
    if found is not None and not isinstance(found, dict):
        raise DataError(f"{folder}: expected scales and names of a run; got {type(found).__name__}.")
    return found


def _build(model_class: ModelClass, config: object) -> nn.Module:
    # The first weights are drawn only to be overwritten.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return model_class(config)


def _require_as_built(model: nn.Module, fresh: nn.Module) -> None:
    """Raise unless a model consists of what its config builds, so that its weights alone can restore it."""
    parts = {name: type(part) for name, part in fresh.named_modules()}
    shapes = {name: tuple(value.shape) for name, value in fresh.state_dict().items()}
    for name, part in model.named_modules():
        wrong = ""
        if parts.get(name) is not type(part):
            expected = parts[name].__name__ if name in parts else "nothing"
            wrong = f"is a {type(part).__name__}, where the config puts {expected}"
        elif part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            wrong = "has a hook or a forward of its own"
        if wrong:
            raise ConfigError(
                f"{name or 'the model'} {wrong}: it would not come back when loaded. Before saving, merge "
                f"adapters into the weights, make pruning and weight_norm permanent (prune.remove, "
                f"remove_weight_norm, remove_parametrizations), remove hooks, and save the layers that were "
                f"compiled or quantised as they were before."
            )
    for name, value in model.state_dict().items():
        if shapes.pop(name, None) != tuple(value.shape) or value.is_meta:
            raise ConfigError(
                f"the weight {name}, {tuple(value.shape)} on {value.device}, is not one that the model's "
                f"config describes, or has no numbers: the saved model could not be loaded."
            )
    if shapes:
        raise ConfigError(
            f"the model lacks {next(iter(shapes))}, which its config describes: it could not be loaded."
        )


def _read_config(path: Path, config_type: type, values: object) -> object:
    if not isinstance(values, dict):
        raise DataError(f"{path}: expected a config with named values; got {type(values).__name__}.")
    faults: list[str] = []
    config = build(config_type, values, faults)
    if faults:
        raise faults_error(faults, str(path))
    return config


def _read_description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(
            f"no model in {path.parent}: {path.name} is missing. Give the folder that save_model wrote, or "
            f"`model` in a run's folder."
        )
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}).") from error
    if not isinstance(described, dict) or not isinstance(described.get("format_version"), int):
        raise DataError(f"{path}: not the description of a model; expected what save_model wrote.")
    if described["format_version"] > FORMAT_VERSION:
        raise DataError(
            f"{path}: format version {described['format_version']}, written by aaren "
            f"{described.get('aaren_version', '?')}; this aaren ({__version__}) reads up to "
            f"{FORMAT_VERSION}. Upgrade: pip install -U aaren."
        )
    return cast("dict[str, Any]", described)


def _model_class(name: str) -> ModelClass:
    """Find a class that can be saved: every setting lists those of its package."""
    known: dict[str, DataSetting] = {}
    for setting in map(find_setting, setting_names()):
        known.update(dict.fromkeys(setting.saved_models, setting))
    if name not in known:
        raise unknown_name("model class", name, known)
    return cast("ModelClass", getattr(known[name].package, name))


def _read_weights(path: Path, digest: str) -> dict[str, Tensor]:
    if not path.is_file():
        raise DataError(f"no weights: {path} is missing.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{path}: damaged, or of another model than {CONFIG_FILE} beside it: save it again.")
    try:
        return safetensors.torch.load(content)
    except SafetensorError as error:
        raise DataError(f"{path}: not a safetensors file ({error}).") from error
