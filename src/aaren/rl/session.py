"""PolicySession: a policy and its running episodes, held together for users. Push what came, get actions.

A `Session` that also keeps the return still to be collected and the clock of the episode. What the policy
sees of the episode so far is its context:

window    the latest K steps, every token computed again at every step; the published way
carried   the whole episode in the model's state: constant work per step (Aaren), a growing cache (softmax)
reset     the same, reset every K steps: constant work, 1 to K steps of context in turn
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.errors import ConfigError, DataError, ShapeError, unknown_name
from aaren.nn.checks import largest, wrong_kind
from aaren.nn.state import reset
from aaren.ops.tracing import is_traced, require
from aaren.rl.model import DecisionModel, DecisionState, PolicyState, Steps, StepWindow
from aaren.stream.engine import Request
from aaren.stream.rows import RowPath, number, numbers
from aaren.stream.session import Item, Session, largest_of, read_numbers

CONTEXTS = ("window", "carried", "reset")
Memory: TypeAlias = DecisionState | StepWindow
Actions = NDArray[np.float32] | NDArray[np.int64] | int


class PolicySession(Session[PolicyState]):
    """One or more episodes under way; made by `model.stream()`.

    Args:
        model: A model for inference, usually folded.
        batch_size: How many episodes go side by side; None: one, whose observations and actions lack that
            axis.
        target_return: What to ask for, in the environment's unit; None: the model's own.
        context: "carried", "reset" or "window".
        context_steps: K of window and reset; None: the model's own.
        engine: "torch", "native" or "auto".

    >>> from aaren.rl import DecisionModelConfig
    >>> model = DecisionModel(DecisionModelConfig(state_size=3, action_size=1, width=16, num_layers=1))
    >>> session = model.stream(target_return=100.0)
    >>> session.push([0.1, 0.2, 0.3]).shape       # before the first action there is no reward
    (1,)
    >>> action = session.push([0.1, 0.1, 0.3], 2.5)   # what the last action brought
    >>> float(session.state.return_to_go)
    97.5
    """

    def __init__(
        self,
        model: DecisionModel,
        *,
        batch_size: int | None = None,
        target_return: float | None = None,
        context: str = "carried",
        context_steps: int | None = None,
        engine: str = "torch",
    ) -> None:
        self.policy = model
        self.target_return = model.config.target_return if target_return is None else float(target_return)
        weight = model.action_head.weight
        if not abs(self.target_return / model.config.return_scale) <= largest(weight.dtype):
            raise ConfigError(
                f"target_return must be a finite number that {weight.dtype} can hold; got "
                f"{self.target_return}."
            )
        self.context = find_context(context, model, context_steps)
        super().__init__(model, batch_size=batch_size, engine=engine)  # type: ignore[arg-type]  # steps are no tensors

    def push(  # type: ignore[override]  # an observation and a reward come in, an action goes out
        self,
        observation: Item,
        reward: Item | None = None,
        *,
        action: Item | None = None,
        mask: Tensor | list[bool] | None = None,
    ) -> Actions:
        """Take in what every episode shows now and return what to do.

        Args:
            observation: (b, state size), as the environment gives it.
            reward: (b,), for the action before; None: 0, as before the first action.
            action: (b, ...) what was carried out instead of the action before, if it was another one.
            mask: (b,) bool; an episode with False stands still, and its action means nothing.

        Returns:
            (b, action size) float32 in the environment's bounds, or (b,) numbers of discrete actions; without
            b in a session of one episode.
        """
        size, state = self._num_streams, self.state
        real = None if mask is None else self._mask(mask)
        seen = self._read("observation", observation, (size, self.policy.config.state_size))
        gained = torch.zeros_like(state.return_to_go)
        if reward is not None:
            gained = self._read("reward", reward, (size,))
        left = self._left(state, gained)
        if real is None and action is None and self._native is not None:
            self._native.compile((), self.act, [seen[:1], gained[:1]], state)
            parts = self._run_native(Request((), [seen, gained]))
            if parts is not None:
                return self._as_actions(parts[0])
        carried_out = None if action is None else self._read("action", action, self._action_shape(size))
        with torch.no_grad():
            states = self._held("observation", seen, self.policy.normalise(seen), real)
            returns = self._held("reward", gained, self._scaled(left), real)
            memory = state.memory
            if carried_out is not None:
                memory = self.context.record_actions(memory, self._unit("action", carried_out, real), real)
            step = Steps(returns, states, self._not_chosen(state), state.timestep)
            outputs, memory = self.context.act(step, memory, real)
            self._require_finite_answer(outputs if real is None else outputs[real])
            chosen = self.policy.to_environment(outputs)
            memory = self.context.record_actions(memory, self.policy.to_unit(chosen), real)
        timestep = state.timestep + 1
        if real is not None:
            left, timestep = (
                torch.where(real, left, state.return_to_go),
                torch.where(real, timestep, state.timestep),
            )
        self.state = PolicyState(memory, left, timestep)
        self.count += 1
        return self._as_actions(chosen)

    def _as_actions(self, chosen: Tensor) -> Actions:
        actions: Actions = chosen.cpu().numpy()
        if self.batch_size is not None:
            return actions
        return int(chosen[0]) if self.policy.config.is_discrete else actions[0]  # type: ignore[index]  # (1, a)

    def act(self, inputs: list[Tensor], state: PolicyState) -> tuple[list[Tensor], PolicyState]:
        """Take in observations (b, state size) and rewards (b,); return actions, and what they are read from.

        The whole way of a push, as what records it needs it.
        """
        left = self._left(state, inputs[1])
        states, returns = self.policy.normalise(inputs[0]), self._scaled(left)
        require((states.abs() <= self._largest).all(-1) & (returns.abs() <= self._largest))
        step = Steps(returns, states, self._not_chosen(state), state.timestep)
        outputs, memory = self.context.act(step, state.memory, None)
        chosen = self.policy.to_environment(outputs)
        memory = self.context.record_actions(memory, self.policy.to_unit(chosen), None)
        return [chosen, outputs], PolicyState(memory, left, state.timestep + 1)

    def _request(self, item: Any, extras: dict[str, Any]) -> Request | None:
        if not extras.keys() <= {"reward"}:
            return None
        gained = extras.get("reward")
        return Request((), [item, np.zeros(len(item)) if gained is None else gained])

    def _answers(self, parts: list[Tensor]) -> Sequence[Any]:
        return list(parts[0].numpy())

    def replay(self, observations: Item, actions: Item, rewards: Item) -> None:
        """Take over episodes played by another policy, as if every step had been pushed.

        Args:
            observations: (b, k, state size), of the first k steps.
            actions: (b, k, action size) or (b, k), that were carried out.
            rewards: (b, k), for these actions; the last one belongs to the next push, which is then given
                none.
        """
        config, size = self.policy.config, self._num_streams
        came = read_numbers("actions", actions)
        axis = 0 if self.batch_size is None else 1
        steps = came.shape[axis] if came.ndim > axis else 0
        if steps < 1:
            raise ShapeError("replay needs at least one step; got none: a session begins without.")
        taken = self._read("actions", came, (size, steps, *self._action_shape(size)[1:]))
        seen = self._read("observations", observations, (size, steps, config.state_size))
        gained = self._read("rewards", rewards, (size, steps))
        spent = gained.cumsum(1) if config.counts_rewards else torch.zeros_like(gained)
        gained = gained if config.counts_rewards else spent
        left = self.target_return - (spent - gained)
        times = torch.arange(steps, device=self._weight.device).expand(size, steps)
        with torch.no_grad():
            read = Steps(
                self._held("rewards", gained, self._scaled(left), None),
                self._held("observations", seen, self.policy.normalise(seen), None),
                self._unit("actions", taken, None),
                times,
            )
            remaining = self.target_return - spent[:, -1]
            self._held("rewards", gained, self._scaled(remaining), None)
            memory = self.context.replay(read)
        self.state = PolicyState(memory, remaining, times[:, -1] + 1)
        self.count = steps

    def keep(self, episodes: Sequence[int] | Tensor) -> None:
        """Keep some of the episodes only, in the order given."""
        if self.batch_size is None:
            raise ConfigError("a session of one episode has none to leave out: open it with a batch_size.")
        chosen = read_numbers("episodes", episodes)
        if chosen.dtype != torch.bool:  # a list of none would be one of floats
            wrong = ~((chosen == chosen.to(torch.int64)) & (chosen >= 0) & (chosen < self.batch_size))
            if bool(wrong.any()):
                raise DataError(
                    f"episodes are whole numbers from 0 to {self.batch_size - 1}; got "
                    f"{chosen[wrong][0].item():g}."
                )
            chosen = chosen.to(torch.int64)
        self.state = self.state.select(chosen)
        self.batch_size = len(self.state.timestep)

    def _empty(self) -> PolicyState:
        size, device = self._num_streams, self._weight.device
        return PolicyState(
            self.context.init_memory(size),
            torch.full((size,), self.target_return, dtype=torch.float64, device=device),
            torch.zeros(size, dtype=torch.int64, device=device),
        )

    def _left(self, state: PolicyState, gained: Tensor) -> Tensor:
        """Return what is still to be collected."""
        counted = gained if self.policy.config.counts_rewards else gained * 0.0  # NaN stays: it is refused
        return state.return_to_go - counted

    def _not_chosen(self, state: PolicyState) -> Tensor:
        """Return actions that stand for those of a step before they are known."""
        memory = state.memory
        kept = memory.action if isinstance(memory, DecisionState) else memory.steps.actions[:, -1]
        return torch.zeros_like(kept)

    def _action_shape(self, size: int) -> tuple[int, ...]:
        config = self.policy.config
        return (size,) if config.is_discrete else (size, config.action_size)

    def _scaled(self, returns: Tensor) -> Tensor:
        return (returns / self.policy.config.return_scale).to(self._weight.dtype)

    def _unit(self, name: str, actions: Tensor, real: Tensor | None) -> Tensor:
        """Return actions as the model reads them; discrete ones must be whole and among those there are."""
        config = self.policy.config
        if not config.is_discrete:
            return self._held(name, actions, self.policy.to_unit(actions), real)
        whole = actions.nan_to_num(-1.0).to(torch.int64)
        wrong = (whole != actions) | (whole < 0) | (whole >= config.action_size)
        if real is not None:
            wrong &= real.view(-1, *[1] * (wrong.ndim - 1))
        if bool(wrong.any()):
            raise DataError(
                f"the {name} of step {self.count} in episode {int(wrong.nonzero()[0][0])}: expected a whole "
                f"number from 0 to {config.action_size - 1}; got {float(actions[wrong][0]):g}."
            )
        return whole

    def _held(self, name: str, given: Tensor, scaled: Tensor, real: Tensor | None) -> Tensor:
        """Return what was scaled for the model, or say what in a taking part episode it cannot hold."""
        if largest_of(scaled) <= self._largest:
            return scaled
        wrong = ~(scaled.abs() <= self._largest).view(len(scaled), -1).all(1)
        if real is not None:
            wrong &= real
        if bool(wrong.any()):
            came = given[wrong][0]
            what = f"too large for {scaled.dtype}" if bool(came.isfinite().all()) else "not finite"
            raise DataError(
                f"the {name} of step {self.count} in episode {int(wrong.nonzero()[0])} is {what} "
                f"({came.tolist()}): it would spoil the state for good. Leave the episode out with "
                f"mask=False, or end it."
            )
        return scaled

    def _read(self, name: str, item: Item, shape: tuple[int, ...]) -> Tensor:
        """Turn an item into a float64 tensor of this shape."""
        tensor = read_numbers(name, item).to(self._weight.device, torch.float64)
        if self.batch_size is None:
            tensor = tensor.unsqueeze(0)
        if tuple(tensor.shape) != shape:
            wanted, came = (shape[1:], tensor.shape[1:]) if self.batch_size is None else (shape, tensor.shape)
            hint = (
                f" Flatten it: np.reshape({name}, {tuple(wanted)})."
                if math.prod(came) == math.prod(wanted)
                else ""
            )
            raise ShapeError(f"{name} must be {tuple(wanted)} in this session; got {tuple(came)}.{hint}")
        return tensor


class SessionPlayer:
    """A policy session as a player of a `Simulator`, in all episodes at once."""

    def __init__(self, session: PolicySession) -> None:
        self.session = session

    def act(
        self, observations: NDArray[np.float64], rewards: NDArray[np.float64] | None
    ) -> NDArray[np.generic]:
        """Push what happened."""
        return cast("NDArray[np.generic]", self.session.push(observations, rewards))

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with some of the episodes only."""
        self.session.keep(rows)


def find_context(name: str, model: DecisionModel, context_steps: int | None = None) -> "Context":
    """Build a context by its name; K is the model's own unless given."""
    if name not in CONTEXTS:
        raise unknown_name("context", name, CONTEXTS)
    steps = model.config.context_steps if context_steps is None else context_steps
    if steps < 1:
        raise ConfigError(f"context_steps must be at least 1; got {steps}.")
    if name == "window":
        return WindowContext(model, steps)
    return CarriedContext(model, steps if name == "reset" else None)


class Context(ABC):
    """A way of remembering."""

    @abstractmethod
    def init_memory(self, batch_size: int) -> Memory:
        """Return what is known before the first step."""

    @abstractmethod
    def act(self, step: Steps, memory: Memory, mask: Tensor | None) -> tuple[Tensor, Memory]:
        """Take in one step per stream (no axis k) and say its action, as `DecisionModel.forward` does."""

    @abstractmethod
    def record_actions(self, memory: Memory, actions: Tensor, mask: Tensor | None) -> Memory:
        """Record which actions were carried out in the latest step."""

    @abstractmethod
    def replay(self, steps: Steps) -> Memory:
        """Return what is known after at least one whole step, all streams counted from their first one."""


class CarriedContext(Context):
    """The model's own state, carried from step to step, or reset every so many steps."""

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
            if is_traced() or bool(is_due.any()):
                memory = reset(memory, is_due, self.model.init_state(1))
        return self.model.step(step, memory, mask=mask)

    def record_actions(self, memory: Memory, actions: Tensor, mask: Tensor | None) -> DecisionState:
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

    def record_actions(self, memory: Memory, actions: Tensor, mask: Tensor | None) -> StepWindow:
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


class ObservationRows(RowPath):
    """`{"observation": [0.1, 0.2], "reward": 1.0}` in; `{"action": [...]}` out. A key is an episode."""

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, DecisionModel):
            raise ConfigError(f"a {type(model).__name__} has no stream: train --model aaren.")
        super().__init__(model)
        self.state_size = model.config.state_size

    def example(self, time: str) -> dict[str, Any]:
        del time
        return {"observation": [0.0] * self.state_size, "reward": 0.0}

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        del time
        reward = number(row, "reward") if "reward" in row else 0.0  # before the first action there is none
        return numbers(row, "observation", self.state_size), {"reward": reward}

    def answers(
        self, found: Sequence[Any], rows: Sequence[Mapping[str, Any]], time: str
    ) -> list[dict[str, Any]]:
        del rows, time
        return [{"action": action.tolist()} for action in found]
