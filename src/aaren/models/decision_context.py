"""What a policy sees of the episode so far: the latest K steps, all of them, or those since the last reset.

window    the latest K steps, every token computed again at every step; the published way
carried   the whole episode in the model's state: constant work per step (Aaren), a growing cache (softmax)
reset     the same, begun anew every K steps: constant work, 1 to K steps of context in turn

Knows no environment, no reward and no session.
"""

from abc import ABC, abstractmethod
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from aaren.errors import ConfigError, unknown_name
from aaren.models.decision_model import DecisionModel
from aaren.models.decision_state import DecisionState, Steps, StepWindow
from aaren.nn import KVCache
from aaren.nn.inputs import wrong_kind

CONTEXTS = ("window", "carried", "reset")
Memory: TypeAlias = DecisionState | StepWindow
TreeT = TypeVar("TreeT")


class Context(ABC):
    """A way of remembering."""

    @abstractmethod
    def init_memory(self, batch_size: int) -> Memory:
        """Return what is known before the first step."""

    @abstractmethod
    def act(self, step: Steps, memory: Memory, mask: Tensor | None) -> tuple[Tensor, Memory]:
        """Take in one step per stream (no axis k) and say its action, as `DecisionModel.forward` does."""

    @abstractmethod
    def told(self, memory: Memory, actions: Tensor, mask: Tensor | None) -> Memory:
        """Note which actions were carried out in the latest step."""

    @abstractmethod
    def replay(self, steps: Steps) -> Memory:
        """Return what is known after at least one whole step, all streams counted from their first one."""


def find_context(name: str, model: DecisionModel, context_steps: int | None = None) -> Context:
    """Build a context by its name; K is the model's own unless given."""
    if name not in CONTEXTS:
        raise unknown_name("context", name, CONTEXTS)
    steps = model.config.context_steps if context_steps is None else context_steps
    if steps < 1:
        raise ConfigError(f"context_steps must be at least 1; got {steps}.")
    if name == "window":
        return WindowContext(model, steps)
    return CarriedContext(model, steps if name == "reset" else None)


class CarriedContext(Context):
    """The model's own state, carried from step to step, or begun anew every so many steps."""

    def __init__(self, model: DecisionModel, reset_every: int | None = None) -> None:
        self.model = model
        self.reset_every = reset_every

    def init_memory(self, batch_size: int) -> DecisionState:
        """Return the model's empty state."""
        return self.model.init_state(batch_size)

    def act(self, step: Steps, memory: Memory, mask: Tensor | None) -> tuple[Tensor, DecisionState]:
        """Feed the waiting action, return and state: one forward of three tokens."""
        if not isinstance(memory, DecisionState):
            raise wrong_kind(DecisionState, memory)
        if self.reset_every is not None:
            is_due = (step.timesteps % self.reset_every == 0) & memory.has_action
            if mask is not None:
                is_due &= mask
            if bool(is_due.any()):
                memory = _where(is_due, self.model.init_state(len(is_due)), memory)
        return self.model.step(step, memory, mask=mask)

    def told(self, memory: Memory, actions: Tensor, mask: Tensor | None) -> DecisionState:
        """Let these actions wait for the next step."""
        if not isinstance(memory, DecisionState):
            raise wrong_kind(DecisionState, memory)
        return memory.with_action(actions if mask is None else _choose(mask, actions, memory.action))

    def replay(self, steps: Steps) -> DecisionState:
        """Read the steps since the last reset, all at once."""
        last = steps.timesteps.shape[1] - 1
        begin = 0 if self.reset_every is None else last - last % self.reset_every
        memory: DecisionState = self.model(Steps(*(part[:, begin:] for part in steps)))[1]
        return memory


class WindowContext(Context):
    """The latest steps as they came; the model reads them all again at every step."""

    def __init__(self, model: DecisionModel, steps: int) -> None:
        self.model = model
        self.steps = steps

    def init_memory(self, batch_size: int) -> StepWindow:
        """Return a window without a step."""
        config, weight = self.model.config, self.model.timestep_embedding.weight
        shape = (batch_size, self.steps)
        if config.is_discrete:
            actions = weight.new_zeros(shape, dtype=torch.int64)
        else:
            actions = weight.new_zeros((*shape, config.action_size))
        steps = Steps(
            weight.new_zeros(shape),
            weight.new_zeros((*shape, config.state_size)),
            actions,
            weight.new_zeros(shape, dtype=torch.int64),
        )
        return StepWindow(steps, weight.new_zeros(batch_size, dtype=torch.int64))

    def act(self, step: Steps, memory: Memory, mask: Tensor | None) -> tuple[Tensor, StepWindow]:
        """Slide the window on and compute all of its tokens."""
        if not isinstance(memory, StepWindow):
            raise wrong_kind(StepWindow, memory)
        slid = Steps(
            *(
                torch.cat([old[:, 1:], new.unsqueeze(1).to(old.dtype)], dim=1)
                for old, new in zip(memory.steps, step, strict=True)
            )
        )
        filled = (memory.filled + 1).clamp(max=self.steps)
        if mask is not None:
            slid = Steps(*(_choose(mask, new, old) for new, old in zip(slid, memory.steps, strict=True)))
            filled = torch.where(mask, filled, memory.filled)
        longest = max(1, int(filled.max())) if len(filled) else 1
        seen = Steps(*(part[:, -longest:] for part in slid))
        places = torch.arange(longest, 0, -1, device=filled.device)
        is_filled = places <= filled.unsqueeze(1)
        outputs, _ = self.model(seen, mask=None if bool(is_filled.all()) else is_filled)
        return outputs[:, -1], StepWindow(slid, filled)

    def told(self, memory: Memory, actions: Tensor, mask: Tensor | None) -> StepWindow:
        """Write these actions beside the latest step."""
        if not isinstance(memory, StepWindow):
            raise wrong_kind(StepWindow, memory)
        kept = memory.steps.actions
        latest = actions.to(kept.dtype)
        if mask is not None:
            latest = _choose(mask, latest, kept[:, -1])
        changed = torch.cat([kept[:, :-1], latest.unsqueeze(1)], dim=1)
        return memory._replace(steps=memory.steps._replace(actions=changed))

    def replay(self, steps: Steps) -> StepWindow:
        """Keep the latest steps."""
        batch_size, count = steps.timesteps.shape
        empty = self.init_memory(batch_size)
        filled = Steps(
            *(
                torch.cat([old, new.to(old.dtype)], dim=1)[:, -self.steps :]
                for old, new in zip(empty.steps, steps, strict=True)
            )
        )
        return StepWindow(filled, torch.full_like(empty.filled, min(count, self.steps)))


def _choose(mask: Tensor, chosen: Tensor, other: Tensor) -> Tensor:
    """Take each stream from one of two tensors."""
    return torch.where(mask.view(-1, *[1] * (chosen.ndim - 1)), chosen.to(other.dtype), other)


def _where(mask: Tensor, empty: TreeT, state: TreeT) -> TreeT:
    """Return the state with some streams begun anew."""
    mixed: object
    if isinstance(state, Tensor):
        assert isinstance(empty, Tensor)
        mixed = _choose(mask, empty, state)
    elif isinstance(state, KVCache):
        mixed = KVCache.of(  # in its own memory: the slots that become free are written to
            state.keys[:, :, : state.length].clone(),
            state.values[:, :, : state.length].clone(),
            state.ends.masked_fill(mask, 0),
            window=state.window,
        )
    else:
        assert isinstance(state, tuple)
        assert isinstance(empty, tuple)
        parts = [_where(mask, new, old) for new, old in zip(empty, state, strict=True)]
        mixed = type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return mixed  # type: ignore[return-value]  # of the same kind as `state`
