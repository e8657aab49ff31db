"""WholeStep: what is exported, from raw numbers to named answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from aaren.errors import ConfigError
from aaren.nn.checks import largest
from aaren.nn.mixer import any_weight
from aaren.nn.state import fingerprint_of


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

    def whole_step(self) -> WholeStep:
        """Return its step, with what its `preprocessing` says."""


def find_whole_step(model: nn.Module | Exportable, *, example: Tensor | None = None) -> WholeStep:
    """Return the whole step of any model with a stream.

    Args:
        model: one of ours, fitted estimators too, or your own with `init_state` and `step`.
        example: one item of your own model, (1, ...), which shows its shape.
    """
    if example is None:
        if not isinstance(model, Exportable):
            raise ConfigError(
                f"{type(model).__name__} does not say what its items look like: give example=, one item with "
                f"the axis of its stream, such as torch.zeros(1, 64)."
            )
        return model.whole_step()
    return step_of(model, example)


def step_of(model: Any, example: Tensor) -> WholeStep:  # Any: a user's model with the verbs of `Steppable`
    """Return the step of a model whose items are tensors and need no preparation."""
    folded = model.fold() if hasattr(model, "fold") else model

    def run(inputs: list[Tensor], state: Any) -> tuple[list[Tensor], Any]:
        output, new = folded.step(inputs[0], state)
        return [output], new

    return WholeStep(
        inputs={"item": example},
        outputs=("output",),
        run=run,
        state=folded.init_state(1),
        largest=largest(any_weight(model).dtype),
        fingerprint=fingerprint_of(folded),
    )
