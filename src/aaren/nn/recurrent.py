"""GRU and LSTM with the Mixer's methods: the classical baselines.

PyTorch's own kernels do the work, over the whole sequence or one item. Under a mask the real items of each
stream are moved to the front and packed, so that padding, wherever it stands, is never read. Under
autocast they run in half precision where the processor has kernels for it, else as if there were no autocast.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from aaren.nn.checks import check_tensor_state
from aaren.nn.dropout import drop
from aaren.nn.mixer import PlainMixer, StateT
from aaren.ops.checks import full_precision
from aaren.ops.tracing import is_traced
from aaren.shapes import Activations, Mask, Token, TokenMask

# Dtypes that the recurrent kernels of this CPU lack. Asked once: a processor does not change, and
# torch.compile cannot trace the question. Without oneDNN, torch's own kernels take every dtype. Of float16
# torch's answer is no use: some processors that support it have no kernel to train an LSTM.
UNSUPPORTED = (
    {torch.float16} | (set() if torch.ops.mkldnn._is_mkldnn_bf16_supported() else {torch.bfloat16})
    if torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    else set()
)


class GRUState(NamedTuple):
    """What a GRU remembers: its last output."""

    hidden: Tensor  # (b, c)


class LSTMState(NamedTuple):
    """What an LSTM remembers: its last output and its cell."""

    hidden: Tensor  # (b, c)
    cell: Tensor  # (b, c)


class RecurrentMixer(PlainMixer[StateT]):
    """What GRU and LSTM share: parameters, masks, packing; they differ in gates and state.

    Args:
        width: c, of input, output and memory.
        dropout: on the outputs, while training.
        device: where the parameters are made.
        dtype: what they are made of.
    """

    num_gates: int
    num_parts: int  # tensors in the state
    state_type: type[StateT]

    def __init__(
        self,
        width: int,
        *,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(width, dropout)
        rows = self.num_gates * width
        self.weight_input = nn.Parameter(torch.empty(rows, width, device=device, dtype=dtype))
        self.weight_hidden = nn.Parameter(torch.empty(rows, width, device=device, dtype=dtype))
        self.bias_input = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        self.bias_hidden = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters from U(-1/sqrt(c), 1/sqrt(c)), as PyTorch's own recurrent modules do."""
        bound = 1.0 / math.sqrt(self.width)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def init_state(
        self, batch_size: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> StateT:
        """Return zeros, in the weights' dtype unless asked otherwise."""
        weight = self.weight_hidden
        shape, dtype, device = (batch_size, self.width), dtype or weight.dtype, device or weight.device
        parts = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(self.num_parts)]
        return self._state(parts)

    def _run_sequence(self, x: Activations, state: StateT, mask: Mask | None) -> tuple[Activations, StateT]:
        parts = self._parts(state)
        if 0 in x.shape[:2]:  # which packing refuses
            return x, state
        inputs = x.to(self.weight_input.dtype)
        carried = [part.to(inputs.dtype) for part in parts]
        with _supported_precision(x.device.type):
            if is_traced() and (mask is not None or _is_compiled()):
                outputs, *final = self._run_cells(inputs, mask, carried)
            elif mask is None:
                outputs, *final = self._run(inputs, None, carried)
            else:
                outputs, *final = self._run_masked(inputs, mask, carried)
        if self.training:
            outputs = drop(outputs, self.dropout)
        return outputs.to(x.dtype), self._state([a.to(b.dtype) for a, b in zip(final, parts, strict=True)])

    def _run_item(self, x: Token, state: StateT, mask: TokenMask | None) -> tuple[Token, StateT]:
        parts = self._parts(state)
        inputs = x.to(self.weight_input.dtype)
        with _supported_precision(x.device.type):
            new = self._cell([inputs, *(part.to(inputs.dtype) for part in parts)])
        new = [a.to(b.dtype) for a, b in zip(new, parts, strict=True)]
        if mask is not None:
            new = [torch.where(mask.unsqueeze(-1), a, b) for a, b in zip(new, parts, strict=True)]
        output = new[0].to(x.dtype)
        if self.training:
            output = drop(output, self.dropout)
        return output, self._state(new)

    def _run(self, inputs: Tensor, batch_sizes: Tensor | None, carried: list[Tensor]) -> list[Tensor]:
        """Return outputs and final parts; packed if `batch_sizes` tells how many streams reach a position."""
        raise NotImplementedError

    def _cell(self, inputs: list[Tensor]) -> list[Tensor]:
        """Return the new parts of the state from one item and the old parts."""
        raise NotImplementedError

    def _run_cells(self, inputs: Tensor, mask: Mask | None, carried: list[Tensor]) -> list[Tensor]:
        """Step through time: traces cannot follow packing, nor torch.compile the LSTM's backward pass."""
        outputs = []
        for k in range(inputs.shape[1]):
            new = self._cell([inputs[:, k], *carried])
            if mask is not None:
                is_real = mask[:, k].unsqueeze(-1)
                new = [torch.where(is_real, a, b) for a, b in zip(new, carried, strict=True)]
            carried = new
            outputs.append(carried[0])
        return [torch.stack(outputs, dim=1), *carried]

    def _run_masked(self, inputs: Tensor, mask: Mask, carried: list[Tensor]) -> list[Tensor]:
        counts = mask.cumsum(1)  # how many real items each prefix has
        lengths = counts[:, -1]
        order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)
        front = inputs.gather(1, order.unsqueeze(-1).expand_as(inputs))
        # A packed sequence has at least one item: a stream without any runs over padding and is then
        # restored.
        packed = pack_padded_sequence(
            front, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        assert packed.sorted_indices is not None
        assert packed.unsorted_indices is not None
        outputs, *final = self._run(
            packed.data, packed.batch_sizes, [c[packed.sorted_indices] for c in carried]
        )
        unpacked, _ = pad_packed_sequence(
            PackedSequence(outputs, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices),
            batch_first=True,
            total_length=mask.shape[1],
        )
        # Before the first real item of this piece, the output is the one carried in.
        by_count = torch.cat([carried[0].unsqueeze(1), unpacked], dim=1)
        outputs = by_count.gather(1, counts.unsqueeze(-1).expand_as(inputs))
        is_moved = (lengths > 0).unsqueeze(-1)
        final = [part[packed.unsorted_indices] for part in final]
        return [outputs, *(torch.where(is_moved, new, old) for new, old in zip(final, carried, strict=True))]

    def _weights(self) -> list[Tensor]:
        return [self.weight_input, self.weight_hidden, self.bias_input, self.bias_hidden]

    def _check_state(self, state: StateT, batch_size: int) -> None:
        check_tensor_state(cast("tuple[Tensor, ...]", state), self.state_type, (batch_size, self.width))

    def _parts(self, state: StateT) -> list[Tensor]:
        return list(cast("tuple[Tensor, ...]", state))

    def _state(self, parts: list[Tensor]) -> StateT:
        return self.state_type(*parts)


class GRU(RecurrentMixer[GRUState]):
    """A gated recurrent unit (PyTorch's form of it) with the Mixer's methods."""

    name = "gru"
    num_gates = 3
    num_parts = 1
    state_type = GRUState

    def _run(self, inputs: Tensor, batch_sizes: Tensor | None, carried: list[Tensor]) -> list[Tensor]:
        hidden = carried[0].unsqueeze(0)
        if batch_sizes is None:
            outputs, final = torch.gru(
                inputs, hidden, self._weights(), True, 1, 0.0, self.training, False, True
            )
        else:
            outputs, final = torch.gru(
                inputs, batch_sizes, hidden, self._weights(), True, 1, 0.0, self.training, False
            )
        return [outputs, final.squeeze(0)]

    def _cell(self, inputs: list[Tensor]) -> list[Tensor]:
        item, hidden = inputs
        return [torch.gru_cell(item, hidden, *self._weights())]


class LSTM(RecurrentMixer[LSTMState]):
    """A long short-term memory (PyTorch's form of it) with the Mixer's methods."""

    name = "lstm"
    num_gates = 4
    num_parts = 2
    state_type = LSTMState

    def _run(self, inputs: Tensor, batch_sizes: Tensor | None, carried: list[Tensor]) -> list[Tensor]:
        carried = [part.unsqueeze(0) for part in carried]
        if batch_sizes is None:
            found = torch.lstm(inputs, carried, self._weights(), True, 1, 0.0, self.training, False, True)
        else:
            found = torch.lstm(
                inputs, batch_sizes, carried, self._weights(), True, 1, 0.0, self.training, False
            )
        outputs, hidden, cell = found
        return [outputs, hidden.squeeze(0), cell.squeeze(0)]

    def _cell(self, inputs: list[Tensor]) -> list[Tensor]:
        item, hidden, cell = inputs
        return list(torch.lstm_cell(item, [hidden, cell], *self._weights()))


def _is_compiled() -> bool:
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting()


def _supported_precision(device_type: str) -> AbstractContextManager[object]:
    """Suspend autocast on a CPU that has no recurrent kernels of its dtype."""
    is_missing = device_type == "cpu" and torch.get_autocast_dtype("cpu") in UNSUPPORTED
    return full_precision(device_type) if is_missing else nullcontext()
