"""Models on disk: a folder with `config.json` (what it is) and `model.safetensors` (its weights).

Self-describing: `load_model` needs the folder alone. Nothing is unpickled and no code comes from it: only the
classes listed by the settings are built. `checksums.json` (`aaren.files.checksums`) covers every file of the
folder; what was saved is compared with it, and the config with the weights, before anything is built.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from aaren.datasets.settings import DataSetting, find_setting, setting_names
from aaren.errors import AarenError, ConfigError, DataError, unknown_name
from aaren.fields import build, faults_error
from aaren.files.checksums import read_files, write_files
from aaren.nn import FoldedAttention
from aaren.version import __version__

FORMAT_VERSION = 2
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"


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
    write_files(Path(folder), model_files(model))
    return Path(folder)


def model_files(model: nn.Module) -> dict[str, bytes]:
    """Return the files of a model by name, for `write_files`, together with what else is saved with it."""
    name = type(model).__name__
    if cast("object", _model_class(name)) is not type(model):
        raise ConfigError(f"{name} is the name of another model that can be saved: rename the class.")
    if any(isinstance(part, FoldedAttention) for part in model.modules()):
        raise ConfigError(
            f"this {name} is folded, for inference alone (as all models that sessions hold are), and could "
            f"not be loaded again. Save the model that was folded."
        )
    _require_as_built(model, _build(cast("ModelClass", type(model)), model.config, device="meta"))
    tensors = {
        key: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for key, value in model.state_dict().items()
    }
    described = {
        "format_version": FORMAT_VERSION,
        "aaren_version": __version__,
        "class": name,
        "config": asdict(model.config),  # type: ignore[call-overload]  # every model that can be saved has one
    }
    if getattr(model, "preprocessing", None) is not None:
        described["preprocessing"] = dict(cast("Any", model.preprocessing))
    return {
        WEIGHTS_FILE: safetensors.torch.save(tensors),
        CONFIG_FILE: (json.dumps(described, indent=2) + "\n").encode(),
    }


def load_model(folder: str | Path, *, device: torch.device | str = "cpu") -> nn.Module:
    """Read the model that `save_model` wrote; it comes in evaluation mode.

    The scales and names that its run learned, if any, are its `preprocessing`: its stream takes raw rows.
    """
    folder = Path(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise DataError(
            f"no model in {folder}: {CONFIG_FILE} is missing. Give the folder that save_model wrote, or "
            f"`model` in a run's folder."
        )
    files = read_files(folder, CONFIG_FILE, WEIGHTS_FILE)
    described = _read_description(folder / CONFIG_FILE, files[CONFIG_FILE])
    model_class = _model_class(str(described.get("class", "")))
    config = _read_config(folder / CONFIG_FILE, model_class.config_type, described.get("config"))
    tensors = _read_weights(folder / WEIGHTS_FILE, files[WEIGHTS_FILE])
    _require_sizes(folder, model_class, config, tensors)
    model = _build(model_class, config, device="cpu")
    model.load_state_dict(tensors, strict=True, assign=True)
    preprocessing = described.get("preprocessing")
    if preprocessing is not None and not isinstance(preprocessing, dict):
        raise DataError(f"{folder}: expected scales and names of a run; got {preprocessing!r}.")
    if hasattr(model, "preprocessing"):
        model.preprocessing = cast("Any", preprocessing)
    return model.to(device).eval()


def _build(model_class: ModelClass, config: object, *, device: str) -> nn.Module:
    # The first weights are drawn only to be overwritten.
    with torch.random.fork_rng(devices=[]), torch.device(device):
        return model_class(config)


def _require_sizes(
    folder: Path, model_class: ModelClass, config: object, tensors: Mapping[str, Tensor]
) -> None:
    """Raise unless a config describes exactly these weights, before memory is taken for what it describes."""
    most = max(_numbers_of_layers(asdict(config)), default=0)  # type: ignore[call-overload]  # a dataclass
    if most > len(tensors):  # each has a weight at least
        reason = f"{most} layers and {len(tensors)} weights"
    else:
        try:
            sizes = {
                name: tuple(value.shape)
                for name, value in _build(model_class, config, device="meta").state_dict().items()
            }
        except AarenError:
            raise
        except (MemoryError, OverflowError, RuntimeError, TypeError, ValueError) as error:
            raise DataError(f"{folder}: no model can be built from {CONFIG_FILE} ({error}).") from error
        stored = {name: tuple(value.shape) for name, value in tensors.items()}
        wrong = next((name for name in {**sizes, **stored} if sizes.get(name) != stored.get(name)), None)
        if wrong is None:
            return
        reason = f"{wrong} is {sizes.get(wrong)} by the config and {stored.get(wrong)} among the weights"
    raise DataError(f"{folder}: weights and config do not belong together: {reason}. Save the model again.")


def _numbers_of_layers(values: Mapping[str, object]) -> Iterator[int]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers_of_layers(value)
        elif name.endswith("layers") and isinstance(value, int):
            yield value


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


def _read_description(path: Path, content: bytes) -> dict[str, Any]:
    try:
        described = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error}).") from error
    if not isinstance(described, dict) or described.get("format_version") != FORMAT_VERSION:
        version = described.get("format_version") if isinstance(described, dict) else None
        raise DataError(
            f"{path}: format version {version}; this aaren ({__version__}) reads {FORMAT_VERSION}. Save the "
            f"model again, or upgrade: pip install -U aaren."
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


def _read_weights(path: Path, content: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(content)
    except SafetensorError as error:
        raise DataError(f"{path}: not a safetensors file ({error}).") from error
