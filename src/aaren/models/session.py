"""Session: a model and the state of its streams, held together for people. Push an item, get an output.

The one place that holds a state in an object; everything beneath passes it as a value. Works for every model
that can be stepped.
"""

import math
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aaren.errors import DataError, ShapeError, StateError
from aaren.models.inputs import count_streams
from aaren.nn.state_bytes import state_from_bytes, state_to_bytes

StateT = TypeVar("StateT", bound=tuple[object, ...])
StateT_co = TypeVar("StateT_co", bound=tuple[object, ...], covariant=True)
Item: TypeAlias = Tensor | NDArray[np.generic] | list[float] | list[list[float]] | tuple[float, ...] | float


class Steppable(Protocol[StateT_co]):
    """A model that goes along a stream item by item."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Give the weights; the first one's dtype and device are those that items are converted to."""

    def init_state(self, batch_size: int) -> StateT_co:
        """Return the state before the first item."""

    @property
    def step(self) -> Callable[..., tuple[Tensor, StateT_co]]:
        """Take in one item per stream: `step(item, state, **extras) -> (output, state)`."""

    def fingerprint(self) -> str:
        """Return a short name of the weights."""


class Session(Generic[StateT]):
    """One or more streams under way; made by `model.stream()`.

    `state` may be read, kept and set: setting it takes the session back, or on from where another ended.

    Args:
        model: a model for inference, usually folded.
        batch_size: how many streams go side by side; None: one, whose items and outputs have no axis for it.
    """

    state: StateT

    def __init__(self, model: Steppable[StateT], *, batch_size: int | None = None) -> None:
        self.model = model
        self.batch_size = batch_size
        self._weight = next(iter(model.parameters()))
        self.count = 0  # pushes so far
        self.reset()

    def push(self, item: Item, **extras: Item) -> Tensor:
        """Take in one item of every stream and return the model's output after it.

        Args:
            item: (b, ...), or without b in a session of one stream. Lists, arrays and tensors will do.
            **extras: what else the model's `step` takes, alike: `mask`, `marks`.
        """
        given = self._tensor(item)
        others = {
            name: self._mask(value) if name == "mask" else self._tensor(value)
            for name, value in extras.items()
        }
        mask = others.get("mask")
        self._require_finite(given, mask)
        for name, other in others.items():
            self._require_finite(other, mask, where=f" of its {name}")
        with torch.no_grad():
            output, self.state = self.model.step(given, self.state, **others)
        self.count += 1
        return output.squeeze(0) if self.batch_size is None else output

    def reset(self) -> None:
        """Forget all items."""
        with torch.no_grad():
            self.state = self._empty()
        self.count = 0

    def to_bytes(self) -> bytes:
        """Return the state as bytes that name the weights they belong to."""
        return state_to_bytes(self.state, fingerprint=self.model.fingerprint())

    def restore(self, blob: bytes) -> None:
        """Go on from what `to_bytes` returned; refuses a state of other weights or more or fewer streams."""
        like = self._empty()
        state = state_from_bytes(blob, like=like, fingerprint=self.model.fingerprint())
        held = count_streams(state)
        if held != count_streams(like):
            raise StateError(
                f"the saved state holds {held} streams; this session has {self._num_streams}. Open one with "
                f"stream(batch_size={held}), restore it there, and pick streams with its state.select."
            )
        self.state = state

    @property
    def _num_streams(self) -> int:
        return 1 if self.batch_size is None else self.batch_size

    def _empty(self) -> StateT:
        """Return the state before the first item."""
        return self.model.init_state(self._num_streams)

    def _mask(self, mask: Item | list[bool]) -> Tensor:
        """Return which streams take part, (b,) bool; in a session of one stream one truth will do."""
        real = torch.as_tensor(mask, dtype=torch.bool, device=self._weight.device)
        if self.batch_size is None and real.ndim == 0:
            real = real.unsqueeze(0)
        if real.shape != (self._num_streams,):
            raise ShapeError(f"mask must be ({self._num_streams},), one per stream; got {tuple(real.shape)}.")
        return real

    def _tensor(self, value: Item) -> Tensor:
        # Through numpy, which keeps all digits of a list of floats; torch would round them to float32.
        tensor = value if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))
        tensor = tensor.to(self._weight.device)
        if tensor.is_floating_point():
            tensor = tensor.to(self._weight.dtype)
        return tensor.unsqueeze(0) if self.batch_size is None else tensor

    def _require_finite(self, item: Tensor, mask: Tensor | None, *, where: str = "") -> None:
        # Three times as fast as isfinite; where finite numbers overflow, the next lines look closely.
        if math.isfinite(item.sum().item()):
            return
        wrong = ~item.isfinite()
        if mask is not None:
            wrong = wrong & mask.view(-1, *[1] * (item.ndim - 1))
        if bool(wrong.any()):
            place = tuple(wrong.nonzero()[0].tolist())[1 if self.batch_size is None else 0 :]
            raise DataError(
                f"item {self.count} of this session holds {item[wrong][0].item()} at {place}{where}; one "
                f"such value would stay in the state for ever. Leave the item out, or give mask=False for "
                f"its stream."
            )
