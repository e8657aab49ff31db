"""PolicySession: a policy and its running episodes, held together for people. Push what came, get actions.

The same manners as every `Session`; this one also keeps the return that is still to be collected and the
clock of the episode.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aaren.errors import ConfigError, DataError, ShapeError
from aaren.models.decision_context import find_context
from aaren.models.decision_model import DecisionModel
from aaren.models.decision_state import DecisionState, PolicyState, Steps
from aaren.models.session import Item, Session

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

    >>> from aaren.models import DecisionModelConfig
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
    ) -> None:
        self.policy = model
        self.target_return = model.config.target_return if target_return is None else float(target_return)
        if not np.isfinite(self.target_return):
            raise ConfigError(f"target_return must be a finite number; got {self.target_return}.")
        self.context = find_context(context, model, context_steps)
        super().__init__(model, batch_size=batch_size)  # type: ignore[arg-type]  # steps are no tensors

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
        size = self._num_streams
        real = None if mask is None else self._mask(mask)
        seen = self._read("observation", observation, (size, self.policy.config.state_size), real)
        gained = torch.zeros(size, dtype=torch.float64)
        if reward is not None:
            gained = self._read("reward", reward, (size,), real)
        state = self.state
        left = state.return_to_go - gained.to(state.return_to_go.device)
        with torch.no_grad():
            memory = state.memory
            if action is not None:
                memory = self.context.told(memory, self._unit(action, real), real)
            outputs, memory = self.context.act(self._step(seen, left, state), memory, real)
            chosen = self.policy.to_environment(outputs)
            memory = self.context.told(memory, self.policy.to_unit(chosen), real)
        timestep = state.timestep + 1
        if real is not None:
            left, timestep = (
                torch.where(real, left, state.return_to_go),
                torch.where(real, timestep, state.timestep),
            )
        self.state = PolicyState(memory, left, timestep)
        self.count += 1
        actions: Actions = chosen.cpu().numpy()
        if self.batch_size is not None:
            return actions
        return int(chosen[0]) if self.policy.config.is_discrete else actions[0]  # type: ignore[index]  # (1, a)

    def replay(self, observations: Item, actions: Item, rewards: Item) -> None:
        """Take over episodes that somebody else began: go on as if every step had been pushed.

        Args:
            observations: (b, k, state size), of the first k steps.
            actions: (b, k, action size) or (b, k), that were carried out.
            rewards: (b, k), for these actions; the last one belongs to the next push, which is then given
                none.
        """
        given = np.asarray(actions)
        taken = torch.as_tensor(given[None] if self.batch_size is None else given, device=self._weight.device)
        steps = int(taken.shape[1])
        size = self._num_streams
        seen = self._read("observations", observations, (size, steps, self.policy.config.state_size), None)
        gained = self._read("rewards", rewards, (size, steps), None).to(self._weight.device)
        if steps < 1:
            raise ShapeError("replay needs at least one step; got none: a session begins without.")
        spent = gained.cumsum(1)
        left = self.target_return - (spent - gained)
        times = torch.arange(steps, device=self._weight.device).expand(size, steps)
        with torch.no_grad():
            read = Steps(
                (left / self.policy.config.return_scale).to(self._weight.dtype),
                self.policy.normalise(seen.to(self._weight.device)),
                self.policy.to_unit(taken),
                times,
            )
            memory = self.context.replay(read)
        self.state = PolicyState(memory, self.target_return - spent[:, -1], times[:, -1] + 1)
        self.count = steps

    def keep(self, episodes: Sequence[int] | Tensor) -> None:
        """Go on with some of the episodes only, in the order given."""
        if self.batch_size is None:
            raise ConfigError("a session of one episode has none to leave out: open it with a batch_size.")
        chosen = torch.as_tensor(episodes)
        if chosen.dtype != torch.bool:  # a list of none would be one of floats
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

    def _step(self, seen: Tensor, left: Tensor, state: PolicyState) -> Steps:
        memory = state.memory
        kept = memory.action if isinstance(memory, DecisionState) else memory.steps.actions[:, -1]
        return Steps(
            (left / self.policy.config.return_scale).to(self._weight.dtype),
            self.policy.normalise(seen.to(self._weight.device)),
            torch.zeros_like(kept),  # not chosen yet
            state.timestep,
        )

    def _unit(self, action: Item, real: Tensor | None) -> Tensor:
        size, config = self._num_streams, self.policy.config
        shape = (size,) if config.is_discrete else (size, config.action_size)
        return self.policy.to_unit(self._read("action", action, shape, real).to(self._weight.device))

    def _read(self, name: str, item: Item, shape: tuple[int, ...], real: Tensor | None) -> Tensor:
        """Turn an item into a float64 tensor of this shape, finite wherever its stream takes part."""
        tensor = torch.as_tensor(np.asarray(item), dtype=torch.float64)
        if self.batch_size is None:
            tensor = tensor.unsqueeze(0)
        if tuple(tensor.shape) != shape:
            wanted, came = (shape[1:], tensor.shape[1:]) if self.batch_size is None else (shape, tensor.shape)
            raise ShapeError(f"{name} must be {tuple(wanted)} in this session; got {tuple(came)}.")
        wrong = ~tensor.isfinite().flatten(1).all(1) if tensor.ndim > 1 else ~tensor.isfinite()
        if real is not None:
            wrong &= real.cpu()
        if bool(wrong.any()):
            raise DataError(
                f"the {name} of step {self.count} in episode {int(wrong.nonzero()[0])} is not finite "
                f"({tensor[wrong][0].tolist()}): it would spoil the state for ever. Leave the episode "
                f"out with mask=False, or end it."
            )
        return tensor
