"""Models on disk: a folder with `config.json` (what it is) and `model.safetensors` (its weights).

Self-describing: `load_model` needs the folder alone. Nothing is unpickled and no code comes from it: only the
classes listed here are built. A checksum ties the two files together, so that a half-written folder is
noticed.
"""

import hashlib
import importlib
import json
import os
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, Protocol, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from aaren.errors import ConfigError, DataError, unknown_name
from aaren.nn import FoldedAttention
from aaren.version import __version__

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"

# The class's name: where it is. One line per model that can be saved.
MODELS = {
    "Forecaster": "aaren.models.forecaster",
    "StreamingForecaster": "aaren.models.streaming_forecaster",
    "RepeatLast": "aaren.models.reference_forecasters",
    "SeasonalNaive": "aaren.models.reference_forecasters",
    "LinearForecaster": "aaren.models.reference_forecasters",
    "Classifier": "aaren.models.classifier",
    "ReferenceClassifier": "aaren.models.reference_classifiers",
    "EventModel": "aaren.models.event_model",
    "EventReference": "aaren.models.event_references",
    "DecisionModel": "aaren.models.decision_model",
    "RandomPolicy": "aaren.models.reference_policies",
    "BehaviourPolicy": "aaren.models.reference_policies",
}


class ModelClass(Protocol):
    """A model that is built from its config alone."""

    config_type: type

    def __call__(self, config: object) -> nn.Module:
        """Build the model."""


def save_model(model: nn.Module, folder: str | Path) -> Path:
    """Write a model into a folder, which is made if need be, and return the folder.

    Files that are there are replaced; at no moment is one of them half a file. A folded model is refused:
    its keys and queries cannot be had back.
    """
    name = type(model).__name__
    if MODELS.get(name) != type(model).__module__:
        raise unknown_name("model class", name, MODELS)
    if any(isinstance(part, FoldedAttention) for part in model.modules()):
        raise ConfigError(
            f"this {name} is folded, for inference alone (as all models that sessions hold are), and could "
            f"not be loaded again. Save the model that was folded."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.detach().to("cpu").contiguous() for key, value in model.state_dict().items()}
    weights = safetensors.torch.save(tensors)
    described = {
        "format_version": FORMAT_VERSION,
        "aaren_version": __version__,
        "class": name,
        "config": asdict(model.config),  # type: ignore[call-overload]  # every class of MODELS has one
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    _replace(folder / WEIGHTS_FILE, weights)
    _replace(folder / CONFIG_FILE, (json.dumps(described, indent=2) + "\n").encode())
    return folder


def load_model(folder: str | Path, *, device: torch.device | str = "cpu") -> nn.Module:
    """Read the model that `save_model` wrote; it comes in evaluation mode."""
    folder = Path(folder)
    described = _read_description(folder / CONFIG_FILE)
    model_class = _model_class(str(described.get("class", "")))
    config = build_config(model_class.config_type, described.get("config"), where=str(folder / CONFIG_FILE))
    tensors = _read_weights(folder / WEIGHTS_FILE, str(described.get("weights_sha256", "")))
    with torch.random.fork_rng(devices=[]):  # the first weights are drawn only to be overwritten
        model = model_class(config)
    try:
        model.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{folder}: weights and config do not belong together: {reason}") from error
    return model.to(device).eval()


def build_config(config_type: type, values: object, *, where: str) -> object:
    """Build a config dataclass from a mapping; every unknown and every missing key is named."""
    if not isinstance(values, dict):
        raise DataError(f"{where}: expected a config with named values; got {type(values).__name__}.")
    known = {field.name: field for field in fields(config_type)}
    faults = [str(unknown_name("key", key, known)) for key in values if key not in known]
    faults += [
        f"missing key {name!r}"
        for name, field in known.items()
        if name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if faults:
        raise ConfigError(f"{where}: {' '.join(faults)}")
    return config_type(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )


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
    if name not in MODELS:
        raise unknown_name("model class", name, MODELS)
    return cast("ModelClass", getattr(importlib.import_module(MODELS[name]), name))


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


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
