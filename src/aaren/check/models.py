"""Every trained model of every setting: loss, gradients, steps, and 20 updates beside those of the CPU.

Models are found through the settings: those of their tables, at the size of the profile `smoke`, on its
generated data.
"""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from aaren.check.outcome import (
    LAYER_LIMITS,
    TRAINING_LIMIT,
    Errors,
    Outcome,
    SkippedError,
    attempt,
    auto_is,
    difference,
)
from aaren.datasets.settings import setting_names
from aaren.engine.batches import map_batch, move
from aaren.engine.config import EngineConfig, RunConfig, override
from aaren.engine.determinism import repeatable
from aaren.engine.distributed import SINGLE
from aaren.engine.experiment import Batch, Experiment
from aaren.engine.loop import Update
from aaren.engine.plan import Moment
from aaren.engine.presets import make_run
from aaren.engine.setting import find_setting
from aaren.errors import AarenError
from aaren.fields import flatten, to_mapping
from aaren.nn.state import map_tensors

NUM_UPDATES = 20
MAX_STEPS = 8
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Subject:
    experiment: Experiment[Batch]
    model: nn.Module  # untrained, float32, on the CPU
    batch: Batch


def check_models(device: torch.device) -> Iterator[Callable[[], Outcome]]:
    """Yield one check per setting and model."""
    for setting in setting_names():
        for name in _model_names(setting):
            check = partial(_check_model, setting, name, device)
            yield partial(attempt, "model", f"{setting} {name}", torch.float32, check)


def _model_names(setting: str) -> list[str]:
    groups = [group for profile in ("smoke", "cpu") for group in find_setting(setting).grid(profile)]
    names = dict.fromkeys(name for group in groups for name in group.models if name not in group.seedless)
    return [name for name in names if not _is_reference(_make_run(setting, name))]


def _make_run(setting: str, model: str) -> RunConfig:
    """Return the smallest run of a model, without dropout: devices draw different random numbers."""
    found = find_setting(setting)
    run = make_run(setting, found.grid("smoke")[0].datasets[0], model=model, profile="smoke")
    rates = [
        key
        for key, value in flatten(to_mapping(run)).items()
        if key.endswith("dropout") and isinstance(value, float)
    ]
    return override(run, [f"{key}=0.0" for key in rates])


def _is_reference(run: RunConfig) -> bool:
    """Tell whether a model is fitted at once, or not at all: there is nothing to train on a device."""
    return bool(getattr(run.task, "is_reference", False))


def _check_model(setting: str, name: str, device: torch.device) -> Errors:
    subject = _open(setting, name)
    if not any(parameter.requires_grad for parameter in subject.model.parameters()):
        raise SkippedError("fitted at once, without gradients")
    exact = copy.deepcopy(subject.model).double()
    tested = copy.deepcopy(subject.model).to(device)
    with auto_is("naive"), _noting_calls(exact) as calls:
        batch = map_batch(subject.batch, lambda part: part.double() if part.is_floating_point() else part)
        wanted = _loss_and_gradients(subject.experiment, exact, batch)
    found = _loss_and_gradients(subject.experiment, tested, move(subject.batch, device))
    errors = {
        "forward": difference(found[:1], wanted[:1]),
        "backward": difference(found[1:], wanted[1:]),
    }
    stepped = _step_error(exact, tested, calls, device)
    if stepped is not None:
        errors["step"] = stepped
    limits = dict.fromkeys(errors, LAYER_LIMITS[torch.float32])
    # On a CPU, through the backend that other devices use.
    here = [_train(subject, CPU, None), _train(subject, device, "chunked" if device.type == "cpu" else None)]
    errors["20 updates"], limits["20 updates"] = difference(here[1:], here[:1]), TRAINING_LIMIT
    return errors, limits


def _open(setting: str, name: str) -> _Subject:
    run = _make_run(setting, name)
    with repeatable(EngineConfig(device="cpu"), seed=0):
        experiment = find_setting(setting).open(run.task, seed=0)
        model = experiment.build_model()
        return _Subject(experiment=experiment, model=model, batch=next(iter(experiment.batches(0))))


def _loss_and_gradients(experiment: Experiment[Batch], model: nn.Module, batch: Batch) -> list[Tensor]:
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = experiment.loss(model, batch)
    gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    return [loss.detach().reshape(1), *gradients]


@contextmanager
def _noting_calls(model: nn.Module) -> Iterator[list[dict[str, Any]]]:  # Any: whatever models take
    """Note what a model is given while its loss is computed, by the verb that takes whole sequences."""
    calls: list[dict[str, Any]] = []
    verbs = [verb for verb in ("forward", "encode") if hasattr(model, verb)]
    for verb in verbs:
        run = getattr(model, verb)

        def noting(*args: Any, run: Callable[..., Any] = run, **options: Any) -> Any:
            calls.append(dict(inspect.signature(run).bind(*args, **options).arguments))
            return run(*args, **options)

        object.__setattr__(model, verb, noting)
    yield calls
    for verb in verbs:
        object.__delattr__(model, verb)


def _step_error(exact: Any, tested: Any, calls: list[dict[str, Any]], device: torch.device) -> float | None:
    """Compare steps on the device with the whole sequence in float64; None: this model cannot be stepped."""
    if not calls or not hasattr(exact, "step"):
        return None
    first = next(iter(calls[0].values()))  # the sequence; what comes with it is named
    options = {name: calls[0][name] for name in ("marks", "mask") if calls[0].get(name) is not None}
    batch_size, length = _tensors(first)[0].shape[:2]
    length = min(length, MAX_STEPS)
    first = map_tensors(lambda part: part[:, :length], first)
    options = {name: part[:, :length] for name, part in options.items()}
    try:
        state = tested.init_state(batch_size)
    except AarenError:  # a model of whole series only
        return None
    whole = exact.score_steps if hasattr(exact, "score_steps") else exact.forward
    outputs: list[list[Tensor]] = []
    with torch.no_grad():
        with auto_is("naive"):
            wanted = _tensors(whole(first, **options)[0])
        for k in range(length):
            item, extras = (
                map_tensors(lambda part, k=k: _to(part[:, k], device), thing)  # type: ignore[misc]  # as above
                for thing in (first, tuple(options.values()))
            )
            output, state = tested.step(item, state, **dict(zip(options, extras, strict=True)))
            outputs.append(_tensors(output))
    found = [torch.stack(parts, dim=1) for parts in zip(*outputs, strict=True)]
    if "mask" in options:  # what is said at padding means nothing
        wanted, found = ([_hide(part, options["mask"]) for part in parts] for parts in (wanted, found))
    return difference(found, wanted)


def _hide(outputs: Tensor, mask: Tensor) -> Tensor:
    shape = (*mask.shape, *[1] * (outputs.ndim - 2))
    return torch.where(mask.to(outputs.device).view(shape), outputs, 0.0)


def _to(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device, torch.float32) if tensor.is_floating_point() else tensor.to(device)


def _tensors(thing: object) -> list[Tensor]:
    """Return all tensors in a tensor, a tuple or an object such as a distribution, in a fixed order."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, tuple | list):
        return [tensor for part in thing for tensor in _tensors(part)]
    if dataclasses.is_dataclass(thing):
        return _tensors([getattr(thing, part.name) for part in dataclasses.fields(thing)])
    return _tensors(list(vars(thing).values())) if hasattr(thing, "__dict__") else []


def _train(subject: _Subject, device: torch.device, backend: str | None) -> Tensor:
    """Return the losses of the first updates."""
    engine = EngineConfig(device="cpu")
    with repeatable(engine, seed=0), auto_is(backend):
        model = copy.deepcopy(subject.model).to(device)
        update = Update(
            subject.experiment,
            model,
            subject.experiment.build_optimiser(model),
            engine=engine,
            world=SINGLE,
            device=device,
        )
        losses: list[Tensor] = []
        epoch = 0
        while len(losses) < NUM_UPDATES:
            for batch in islice(subject.experiment.batches(epoch), NUM_UPDATES - len(losses)):
                losses.append(update(batch, Moment(len(losses), epoch)))
            epoch += 1
        return torch.stack(losses)
