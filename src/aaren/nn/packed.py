"""Packed sequences for mixers that know only batches: spread over a padded batch, mixed, and packed again."""

from aaren.errors import ShapeError
from aaren.nn.mixer import Mixer, StateT
from aaren.ops.packing import pad, pad_index, unpad
from aaren.shapes import Activations, Mask, SequenceBounds


def forward_packed(
    mixer: Mixer[StateT], x: Activations, state: StateT | None, mask: Mask | None, cu_seqlens: SequenceBounds
) -> tuple[Activations, StateT]:
    """Run `mixer.forward` on sequences end to end in one row, (1, t, c), as if they stood in a batch."""
    if cu_seqlens.ndim != 1 or int(cu_seqlens[0]) != 0 or int(cu_seqlens[-1]) != x.shape[1]:
        raise ShapeError(
            f"cu_seqlens must be (n + 1,) int, start at 0 and end at t = {x.shape[1]}; got "
            f"{cu_seqlens.tolist()[:8]}. Build it as cat([0, lengths.cumsum(0)])."
        )
    index, is_real = pad_index(cu_seqlens)
    batch_mask = is_real if mask is None else is_real & pad(mask, index)
    outputs, state = mixer.forward(pad(x, index), state, mask=batch_mask)
    return unpad(outputs, is_real), state
