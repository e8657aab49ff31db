"""DecisionModel: returns-to-go, states and actions in, the action to take out; as Transformer or Aaren.

Token order is that of the Decision Transformer: return, state, action, step after step; the action is read at
the state. Inside, a step is the group (action before it, return, state), so that a sequence and a stream are
cut at the same places: the last action waits in the state until the next step. With `is_fused` a step is one
token, the sum of the three: a third of the work, and the wanted return and the last action stand in the token
that chooses, where a mean over all tokens so far would dilute them. What of an episode is seen, and which
return is asked for, is up to `PolicySession`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aaren.errors import ConfigError, ShapeError, unknown_name
from aaren.export.whole import WholeStep
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.nn.checks import check_model_state, hide_padding
from aaren.nn.mixer import frozen_copy
from aaren.nn.state import State, fingerprint_around
from aaren.ops.checks import check_mask
from aaren.ops.tracing import is_traced
from aaren.shapes import Activations, Mask

if TYPE_CHECKING:
    from aaren.rl.session import PolicySession


MIXERS = ("aaren", "softmax")
ACTIONS = ("box", "discrete")


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionModelConfig:
    """What a `DecisionModel` is made of. Aaren and Transformer differ in one word: `mixer`.

    >>> DecisionModelConfig(state_size=4, action_size=2, mixer="softmacs")
    Traceback (most recent call last):
    ...
    aaren.errors.ConfigError: unknown mixer 'softmacs'; did you mean 'softmax'? Known: aaren, softmax.
    """

    state_size: int  # numbers in an observation
    action_size: int  # numbers in an action, or how many discrete actions there are
    actions: str = "box"  # vectors between bounds, or "discrete": one of several, by classification
    width: int = 512
    num_heads: int = 4
    num_layers: int = 4
    ff_width: int | None = None  # default: 4 * width
    dropout: float = 0.1
    mixer: str = "aaren"  # or softmax: the Decision Transformer
    is_fused: bool = False  # one token per step instead of three
    sees_actions: bool = True  # False, fused only: a policy cannot learn to repeat what it did last
    counts_rewards: bool = True  # False: what is asked for stays the same through an episode
    norm: str = "post"  # or "pre", with one more norm after the last block
    max_steps: int = 4096  # rows of the timestep table; later steps use its last row
    timestep_std: float = 1.0  # of the table's initial numbers; 1, as published, drowns a state for long
    context_steps: int = 20  # K: steps in a window, and between resets
    return_scale: float = 1000.0  # returns-to-go are divided by it
    target_return: float = 0.0  # what a session asks for unless told otherwise

    def __post_init__(self) -> None:
        """Report every setting that cannot be."""
        faults = [
            f"{name} must be at least 1; got {getattr(self, name)}"
            for name in ("state_size", "action_size", "max_steps", "context_steps")
            if getattr(self, name) < 1
        ]
        for name in ("return_scale", "timestep_std"):
            if not getattr(self, name) > 0.0:
                faults.append(f"{name} must be above 0; got {getattr(self, name)}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        if self.actions not in ACTIONS:
            raise unknown_name("kind of actions", self.actions, ACTIONS)
        if self.mixer not in MIXERS:
            raise unknown_name("mixer", self.mixer, MIXERS)
        if not (self.sees_actions or self.is_fused):
            raise ConfigError("sees_actions=False needs is_fused=True: otherwise actions are tokens.")
        self.encoder  # noqa: B018  builds, and so checks, the encoder's config

    @property
    def is_discrete(self) -> bool:
        """Tell whether an action is one of several."""
        return self.actions == "discrete"

    @property
    def tokens_per_step(self) -> int:
        """Return how many tokens a step is: the action before it, the return, the state; or all in one."""
        return 1 if self.is_fused else 3

    @property
    def encoder(self) -> EncoderConfig:
        """Return the encoder's config: dropout on the attention's result, none inside the feed-forward."""
        return EncoderConfig.of(
            self, dropout_on="output", ff_inner_dropout=False, final_norm=self.norm == "pre"
        )


class Steps(NamedTuple):
    """Steps of episodes as the model reads them: scaled returns, normalised states, unit actions."""

    returns_to_go: Tensor  # (b, k)
    states: Tensor  # (b, k, state size)
    actions: Tensor  # (b, k, action size) in [-1, 1], or (b, k) int64
    timesteps: Tensor  # (b, k) int64, counted from the start of the episode


class _DecisionParts(NamedTuple):
    encoder: EncoderState
    action: Tensor  # (b, action size) or (b,) int64
    has_action: Tensor  # (b,) bool; False before the first step


class DecisionState(_DecisionParts, State):
    """After some steps: the encoder's state, and the last action, which is fed with the next step."""

    __slots__ = ()

    def with_action(self, action: Tensor) -> "DecisionState":
        """Return the state with the last step's action replaced by the one that was carried out."""
        return self._replace(action=action.to(self.action.dtype))


class _WindowParts(NamedTuple):
    steps: Steps  # k = the window's length
    filled: Tensor  # (b,) int64, how many slots hold a step


class StepWindow(_WindowParts, State):
    """The latest steps of every stream, the newest in the last slot; some may be empty."""

    __slots__ = ()


class _PolicyParts(NamedTuple):
    memory: DecisionState | StepWindow
    return_to_go: Tensor  # (b,) float64, still to be collected, in the environment's unit
    timestep: Tensor  # (b,) int64, of the next observation


class PolicyState(_PolicyParts, State):
    """A running episode: what the model remembers of it, and its counts."""

    __slots__ = ()


class DecisionModel(nn.Module):
    """Choose actions that should collect a wanted return, learned from recorded episodes.

    >>> model = DecisionModel(DecisionModelConfig(state_size=11, action_size=3)).eval()
    >>> sum(p.numel() for p in model.parameters())  # the Transformer's 14,724,623 and 4 queries of 512
    14726671
    >>> steps = Steps(torch.rand(2, 20), torch.randn(2, 20, 11), torch.zeros(2, 20, 3),
    ...               torch.arange(20).expand(2, 20))
    >>> actions, state = model(steps)
    >>> actions.shape, state.nbytes  # of two streams
    (torch.Size([2, 20, 3]), 33306)
    """

    config_type: ClassVar[type[DecisionModelConfig]] = DecisionModelConfig
    state_mean: Tensor
    state_std: Tensor
    action_low: Tensor
    action_high: Tensor

    def __init__(self, config: DecisionModelConfig) -> None:
        super().__init__()
        self.config = config
        width, state_size, action_size = config.width, config.state_size, config.action_size
        self.timestep_embedding = nn.Embedding(config.max_steps, width)
        with torch.no_grad():
            self.timestep_embedding.weight.mul_(config.timestep_std)
        self.return_embedding = nn.Linear(1, width)
        self.state_embedding = nn.Linear(state_size, width)
        self.action_embedding: nn.Module = nn.Identity()
        if config.sees_actions:
            self.action_embedding = (
                nn.Embedding(action_size, width) if config.is_discrete else nn.Linear(action_size, width)
            )
        # Blocks that normalise what they read need no norm before, which would take a state's size away.
        self.embedding_norm: nn.Module = nn.Identity() if config.norm == "pre" else nn.LayerNorm(width)
        self.encoder = Encoder(config.encoder)
        self.action_head = nn.Linear(width, action_size)
        # The base code's heads for the next return and state, which get no loss: for its parameter total.
        self.spare_return_head = nn.Linear(width, 1)
        self.spare_state_head = nn.Linear(width, state_size)
        # What the environment's numbers are scaled by; part of the weights, so that a saved policy is whole.
        self.register_buffer("state_mean", torch.zeros(state_size, dtype=torch.float64))
        self.register_buffer("state_std", torch.ones(state_size, dtype=torch.float64))
        bounds = 0 if config.is_discrete else action_size
        self.register_buffer("action_low", -torch.ones(bounds, dtype=torch.float64))
        self.register_buffer("action_high", torch.ones(bounds, dtype=torch.float64))

    def extra_repr(self) -> str:
        shown = ("actions", "context_steps", "return_scale", "target_return")
        return ", ".join(f"{name}={getattr(self.config, name)!r}" for name in shown)

    @torch.no_grad()
    def set_scales(
        self,
        *,
        state_mean: Tensor,
        state_std: Tensor,
        action_low: Tensor | None = None,
        action_high: Tensor | None = None,
    ) -> None:
        """Take over by what the environment's observations and actions are scaled."""
        self.state_mean.copy_(state_mean)
        self.state_std.copy_(state_std)
        if action_low is not None and action_high is not None:
            self.action_low.copy_(action_low)
            self.action_high.copy_(action_high)

    def normalise(self, observations: Tensor) -> Tensor:
        """Turn raw observations (..., state size) into what `forward` reads."""
        normalised = (observations.double() - self.state_mean) / self.state_std
        return normalised.to(self.timestep_embedding.weight.dtype)

    def to_unit(self, actions: Tensor) -> Tensor:
        """Turn an environment's actions into what `forward` reads: bounds to [-1, 1]; discrete ones stay."""
        if self.config.is_discrete:
            return actions
        middle, half = self._middle_and_half()
        return ((actions.double() - middle) / half).to(self.timestep_embedding.weight.dtype)

    def to_environment(self, outputs: Tensor) -> Tensor:
        """Turn what `forward` says, (..., action size), into actions; discrete: the most probable one."""
        if self.config.is_discrete:
            return outputs.argmax(-1)
        middle, half = self._middle_and_half()
        return (outputs.double() * half + middle).float()

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> DecisionState:
        """Return the state before the first step of `batch_size` episodes."""
        weight = self.timestep_embedding.weight
        device = device or weight.device
        if self.config.is_discrete:
            action = torch.zeros(batch_size, dtype=torch.int64, device=device)
        else:
            action = torch.zeros(batch_size, self.config.action_size, dtype=weight.dtype, device=device)
        nothing = torch.zeros(batch_size, dtype=torch.bool, device=device)
        return DecisionState(self.encoder.init_state(batch_size, dtype=dtype, device=device), action, nothing)

    def forward(
        self, steps: Steps, state: DecisionState | None = None, *, mask: Mask | None = None
    ) -> tuple[Tensor, DecisionState]:
        """Say the action at every step from what came before it and the step's own return and state.

        Args:
            steps: Whose actions are those that were taken; the one of a step is seen by later steps only.
            state: What came before; default: nothing.
            mask: (b, k) bool, True = real.

        Returns:
            Actions in [-1, 1], (b, k, action size), or logits where actions are discrete; and the state.
        """
        self._check(steps, state, mask)
        if mask is not None:  # nothing in padding, not even NaN, may reach a weight's gradient
            steps = steps._replace(
                returns_to_go=steps.returns_to_go.masked_fill(~mask, 0.0),
                states=hide_padding(steps.states, mask),
            )
        before = self.init_state(len(steps.timesteps), device=steps.states.device) if state is None else state
        previous, final_action, was_any = _previous(steps, before, mask)
        has_action = before.has_action | (True if mask is None else mask.any(1))
        if self.config.is_fused:
            tokens = self._fused_tokens(steps, previous, was_any)
            outputs, encoded = self.encoder(tokens, None if state is None else state.encoder, mask=mask)
            return self._decode(outputs), DecisionState(encoded, final_action, has_action)
        tokens, is_real = self._tokens(steps, previous, was_any, mask)
        skipped = 0
        if state is None or not bool(state.has_action.any()):
            # There is no action before the first step: leave its token out rather than mask it.
            tokens, skipped = tokens[:, 1:], 1
            is_real = None if mask is None or is_real is None else is_real[:, 1:]
        elif is_real is not None and bool(is_real.all()):
            is_real = None
        outputs, encoded = self.encoder(tokens, None if state is None else state.encoder, mask=is_real)
        per_step = self.config.tokens_per_step
        at_states = outputs[:, per_step - 1 - skipped :: per_step]
        return self._decode(at_states), DecisionState(encoded, final_action, has_action)

    def step(
        self, step: Steps, state: DecisionState, *, mask: Tensor | None = None
    ) -> tuple[Tensor, DecisionState]:
        """Take in one step per stream: the waiting action, return and state, as one forward of three tokens.

        Args:
            step: Without the axis k. Its action need not be known yet: `with_action` puts it into the state.
            state: From `init_state`, `forward` or an earlier `step`.
            mask: (b,) bool; a stream with False keeps its state.
        """
        whole = Steps(*(part.unsqueeze(1) for part in step))
        if is_traced() or self.config.is_fused:
            return self._step_tokens(whole, state, mask)
        outputs, state = self.forward(whole, state, mask=None if mask is None else mask.unsqueeze(1))
        return outputs.squeeze(1), state

    def _step_tokens(
        self, step: Steps, state: DecisionState, mask: Tensor | None
    ) -> tuple[Tensor, DecisionState]:
        """Take in one step per stream token by token, whatever the numbers: `step` for what records it."""
        real = torch.ones_like(state.has_action) if mask is None else mask
        previous = step._replace(actions=state.action.unsqueeze(1), timesteps=step.timesteps - 1)
        had_action = state.has_action.unsqueeze(1)
        if self.config.is_fused:
            if not is_traced():
                self._check(step, state, None if mask is None else mask.unsqueeze(1))
            tokens = self._fused_tokens(step, previous, had_action)
            output, encoded = self.encoder.step(tokens[:, 0], state.encoder, mask=mask)
        else:
            tokens, is_real = self._tokens(step, previous, had_action, real.unsqueeze(1))
            assert is_real is not None
            encoded, output = state.encoder, tokens[:, 0]
            for place in range(tokens.shape[1]):
                # Only the action before the first step may be missing, where no step is masked.
                is_there = is_real[:, place] if place == 0 or mask is not None else None
                output, encoded = self.encoder.step(tokens[:, place], encoded, mask=is_there)
        action, has_action = step.actions.squeeze(1).to(state.action.dtype), real | state.has_action
        if mask is not None:
            action = torch.where(mask.view(-1, *[1] * (action.ndim - 1)), action, state.action)
        return self._decode(output), DecisionState(encoded, action, has_action)

    def fold(self) -> "DecisionModel":
        """Return a frozen copy for inference; states pass between it and the original."""
        folded = frozen_copy(self)
        folded.encoder = self.encoder.fold()
        return folded

    def fingerprint(self) -> str:
        """Return a short name of these weights, to be kept with saved states."""
        return fingerprint_around(self.encoder, self)

    def stream(
        self,
        batch_size: int | None = None,
        *,
        target_return: float | None = None,
        context: str = "carried",
        context_steps: int | None = None,
        engine: str = "auto",
    ) -> "PolicySession":
        """Open a session that acts: push observations and rewards, get actions.

        Args:
            batch_size: How many episodes go side by side; None: one, whose observations lack that axis.
            target_return: What to ask for, in the environment's unit; default: as in training.
            context: "carried" (constant work per step), "reset" or "window": what is seen of the past.
            context_steps: K of window and reset; default: as in training.
            engine: "native" (the C runtime), "torch", or "auto": native where the policy can be lowered.
        """
        from aaren.rl.session import PolicySession

        return PolicySession(
            self.fold(),
            batch_size=batch_size,
            target_return=target_return,
            context=context,
            context_steps=context_steps,
            engine=engine,
        )

    def whole_step(self, session: "PolicySession | None" = None) -> WholeStep:
        """Return the step from an observation, and the reward of the action before it, to the next action.

        Args:
            session: one of a single stream on torch, which says what is asked for and how much of the past
                is seen; default: the model's `target_return`, carried.
        """
        session = self.stream(engine="torch") if session is None else session
        size, kind = (
            self.config.state_size,
            "which of the actions" if self.config.is_discrete else "the action",
        )

        def run(given: list[Tensor], state: "PolicyState") -> tuple[list[Tensor], "PolicyState"]:
            return session.act(given, state)

        return WholeStep(
            inputs={
                "observation": torch.zeros(1, size, dtype=torch.float64),
                "reward": torch.zeros(1, dtype=torch.float64),
            },
            outputs=("action", "scores"),
            run=run,
            state=session.state,
            largest=float(torch.finfo(torch.float64).max),
            fingerprint=self.fingerprint(),
            notes={
                "observation": "as the environment gives it",
                "reward": "for the action before; 0 before the first one",
                "action": f"{kind}, in the environment's bounds",
                "scores": "what it is read from: logits of discrete actions, or the action in [-1, 1]",
            },
        )

    def loss(self, steps: Steps, *, mask: Mask | None = None) -> Tensor:
        """Return the mean over real steps: squared error of actions, or cross-entropy of discrete ones."""
        outputs, _ = self.forward(steps, mask=mask)
        wanted = steps.actions
        if mask is not None:
            outputs, wanted = outputs[mask], wanted[mask]
        if self.config.is_discrete:
            return F.cross_entropy(outputs.reshape(-1, self.config.action_size), wanted.reshape(-1))
        return F.mse_loss(outputs, wanted)

    def _fused_tokens(self, steps: Steps, previous: Steps, was_any: Tensor) -> Activations:
        """Embed every step as one token, (b, k, c)."""
        now = self.timestep_embedding(steps.timesteps.clamp(0, self.config.max_steps - 1))
        token = self.state_embedding(steps.states) + now
        if self.config.sees_actions:
            acted = self.action_embedding(previous.actions)
            token = token + acted * was_any.unsqueeze(-1).to(now.dtype)
        token = token + self.return_embedding(steps.returns_to_go.to(now.dtype).unsqueeze(-1))
        return cast("Activations", self.embedding_norm(token))

    def _tokens(
        self, steps: Steps, previous: Steps, was_any: Tensor, mask: Mask | None
    ) -> tuple[Activations, Tensor | None]:
        """Embed the groups (action before, return, state), (b, k · tokens, c), and say which are real."""
        last = self.config.max_steps - 1
        now = self.timestep_embedding(steps.timesteps.clamp(0, last))
        then = self.timestep_embedding(previous.timesteps.clamp(0, last))
        returns = steps.returns_to_go.to(now.dtype).unsqueeze(-1)
        parts = [
            self.action_embedding(previous.actions) + then,
            self.return_embedding(returns) + now,
            self.state_embedding(steps.states) + now,
        ]
        tokens = self.embedding_norm(torch.stack(parts, dim=2).flatten(1, 2))
        step_mask = torch.ones_like(was_any) if mask is None else mask
        flags = [was_any & step_mask, step_mask, step_mask]
        return tokens, torch.stack(flags, dim=2).flatten(1, 2)

    def _decode(self, at_states: Activations) -> Tensor:
        outputs: Tensor = self.action_head(at_states)
        return outputs if self.config.is_discrete else outputs.tanh()

    def _middle_and_half(self) -> tuple[Tensor, Tensor]:
        return (self.action_high + self.action_low) / 2, (self.action_high - self.action_low) / 2

    def _check(self, steps: Steps, state: DecisionState | None, mask: Mask | None) -> None:
        config = self.config
        shape = tuple(steps.timesteps.shape)
        expected = {
            "returns_to_go": shape,
            "states": (*shape, config.state_size),
            "actions": shape if config.is_discrete else (*shape, config.action_size),
        }
        for name, wanted in expected.items():
            found = tuple(getattr(steps, name).shape)
            if len(shape) != 2 or found != wanted:
                raise ShapeError(f"{name} must be {wanted} beside timesteps (b, k) = {shape}; got {found}.")
        check_mask(mask, shape, "(b, k)")
        if state is not None:
            check_model_state(state, DecisionState, shape[0])


def _previous(steps: Steps, before: DecisionState, mask: Mask | None) -> tuple[Steps, Tensor, Tensor]:
    """Find the step before each step: its action and time; and the last action; and whether there is one."""
    actions = torch.cat([before.action.unsqueeze(1).to(steps.actions.dtype), steps.actions], dim=1)
    times = torch.cat([steps.timesteps[:, :1] - 1, steps.timesteps], dim=1)
    if mask is None:
        was_any = torch.ones_like(steps.timesteps, dtype=torch.bool)
        was_any[:, :1] = before.has_action.unsqueeze(1)
        return steps._replace(actions=actions[:, :-1], timesteps=times[:, :-1]), actions[:, -1], was_any
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    latest = torch.cat([mask.new_zeros(len(mask), 1, dtype=torch.int64), mask * places], 1).cummax(1).values
    found = _pick(actions, latest)
    was_any = (latest[:, :-1] > 0) | before.has_action.unsqueeze(1)
    previous = steps._replace(actions=found[:, :-1], timesteps=times.gather(1, latest[:, :-1]))
    return previous, found[:, -1], was_any


def _pick(values: Tensor, places: Tensor) -> Tensor:
    if values.ndim == 2:
        return values.gather(1, places)
    return values.gather(1, places.unsqueeze(-1).expand(-1, -1, values.shape[-1]))
