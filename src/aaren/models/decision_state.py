"""What a policy remembers: the model's own DecisionState, a window of steps, a running episode's counts.

All are values: trees of tensors whose first axis is the stream.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from aaren.nn import EncoderState, state_tree


class Steps(NamedTuple):
    """Steps of episodes as the model reads them: scaled returns, normalised states, unit actions."""

    returns_to_go: Tensor  # (b, k)
    states: Tensor  # (b, k, state size)
    actions: Tensor  # (b, k, action size) in [-1, 1], or (b, k) int64
    timesteps: Tensor  # (b, k) int64, counted from the start of the episode


class DecisionState(NamedTuple):
    """After some steps: the encoder's state, and the last action, which is fed with the next step."""

    encoder: EncoderState
    action: Tensor  # (b, action size) or (b,) int64
    has_action: Tensor  # (b,) bool; False before the first step

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return state_tree.count_bytes(self)

    def with_action(self, action: Tensor) -> "DecisionState":
        """Return the state with the last step's action replaced by the one that was carried out."""
        return self._replace(action=action.to(self.action.dtype))

    def select(self, streams: Sequence[int] | Tensor) -> "DecisionState":
        """Return the states of some streams, in the order given; an index may come twice, as a branch."""
        return state_tree.select(self, streams)

    def detach(self) -> "DecisionState":
        """Return the state cut off from the graph that made it."""
        return state_tree.detach(self)


class StepWindow(NamedTuple):
    """The latest steps of every stream, the newest in the last slot; some may be empty."""

    steps: Steps  # k = the window's length
    filled: Tensor  # (b,) int64, how many slots hold a step

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return state_tree.count_bytes(self)


class PolicyState(NamedTuple):
    """A running episode: what the model remembers of it, and its counts."""

    memory: DecisionState | StepWindow
    return_to_go: Tensor  # (b,) float64, still to be collected, in the environment's unit
    timestep: Tensor  # (b,) int64, of the next observation

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return state_tree.count_bytes(self)

    def select(self, streams: Sequence[int] | Tensor) -> "PolicyState":
        """Return the states of some episodes, in the order given; an index may come twice, as a branch."""
        return state_tree.select(self, streams)

    def clone(self) -> "PolicyState":
        """Return a copy in its own memory."""
        return state_tree.clone(self)
