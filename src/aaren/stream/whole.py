"""WholeStep: all between a raw row and an answer, as one function that can be recorded.

A model that can be exported has `whole_step(preprocessing)`: what a run learned outside its model (scales,
names, classes) becomes part of the step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from aaren.errors import ConfigError
from aaren.nn.mixer import any_weight
from aaren.stream.session import Steppable, largest


@dataclass(kw_only=True)
class WholeStep:
    """One step of one stream, from raw numbers to named answers."""

    inputs: dict[str, Tensor]  # examples, (1, ...)
    outputs: tuple[str, ...]
    run: Callable[[list[Tensor], Any], tuple[list[Tensor], Any]]  # Any: the model's own state
    state: tuple[object, ...]  # before the first item
    largest: float
    fingerprint: str
    names: dict[str, list[str]] = field(default_factory=dict)  # what numbers of an input or output stand for
    notes: dict[str, str] = field(default_factory=dict)  # units and meanings of inputs and outputs


@runtime_checkable
class Exportable(Protocol):
    """A model that knows its raw rows."""

    def whole_step(self, preprocessing: Mapping[str, Any] | None = None) -> WholeStep:
        """Return its step, with what a run learned outside it."""


def find_whole_step(
    model: nn.Module, *, preprocessing: Mapping[str, Any] | None = None, example: Tensor | None = None
) -> WholeStep:
    """Return the whole step of any model with a stream.

    Args:
        model: one of ours, or your own with `init_state` and `step`.
        preprocessing: what its run learned outside it.
        example: one item of your own model, (1, ...), which shows its shape.
    """
    if example is None:
        if not isinstance(model, Exportable):
            raise ConfigError(
                f"{type(model).__name__} does not say what its items look like: give example=, one item with "
                f"the axis of its stream, such as torch.zeros(1, 64)."
            )
        return model.whole_step(preprocessing)
    return step_of(model, example)


def step_of(model: Any, example: Tensor) -> WholeStep:  # Any: a user's model with the verbs of `Steppable`
    """Return the step of a model whose items are tensors and need no preparation."""
    folded: Steppable[tuple[object, ...]] = model.fold() if hasattr(model, "fold") else model

    def run(inputs: list[Tensor], state: Any) -> tuple[list[Tensor], Any]:
        output, new = folded.step(inputs[0], state)
        return [output], new

    return WholeStep(
        inputs={"item": example},
        outputs=("output",),
        run=run,
        state=folded.init_state(1),
        largest=largest(any_weight(model).dtype),
        fingerprint=folded.fingerprint() if hasattr(folded, "fingerprint") else "",
    )


def numbers_of(preprocessing: Mapping[str, Any] | None, name: str, default: list[float]) -> Tensor:
    """Return scales of a run as float64."""
    return torch.tensor((preprocessing or {}).get(name, default), dtype=torch.float64)


def calendar_marks(seconds: Tensor) -> Tensor:
    """Return hour, weekday, day of month and day of year of times (b,), each from -0.5 to 0.5: (b, 4).

    In operations on tensors only, so that it can be recorded; as `aaren.forecasting.data.time_marks`.

    Args:
        seconds: since 1970-01-01, in the time zone of the data.

    >>> calendar_marks(torch.tensor([1514764800.0], dtype=torch.float64)).tolist()  # 2018-01-01, a Monday
    [[-0.5, -0.5, -0.5, -0.5]]
    """
    days = (seconds / 86400.0).floor()
    hour = ((seconds - days * 86400.0) / 3600.0).floor()
    shifted = days + 3.0
    weekday = shifted - (shifted / 7.0).floor() * 7.0
    # The civil calendar, in years that begin in March.
    since = days + 719468.0
    era = (since / 146097.0).floor()
    day = since - era * 146097.0
    leaps = (day / 1460.0).floor() - (day / 36524.0).floor() + (day / 146096.0).floor()
    year = ((day - leaps) / 365.0).floor()
    of_year = day - (365.0 * year + (year / 4.0).floor() - (year / 100.0).floor())
    month = ((5.0 * of_year + 2.0) / 153.0).floor()
    of_month = of_year - ((153.0 * month + 2.0) / 5.0).floor()
    before = year + era * 400.0 + (month >= 10.0).double() - 1.0  # the last year that is over
    ages = (before / 400.0).floor()
    rest = before - ages * 400.0
    first = ages * 146097.0 + rest * 365.0 + (rest / 4.0).floor() - (rest / 100.0).floor() + 306.0 - 719468.0
    parts = [hour / 23.0, weekday / 6.0, of_month / 30.0, (days - first) / 365.0]
    return torch.stack(parts, dim=-1) - 0.5
