"""Packed sequences for mixers that know only batches: spread over a padded batch, mixed, and packed again."""

from aaren.nn.mixer import Mixer, StateT
from aaren.ops.checks import check_bounds
from aaren.ops.packing import pad, pad_index, unpad
from aaren.shapes import Activations, Mask, SequenceBounds


def forward_packed(
    mixer: Mixer[StateT], x: Activations, state: StateT | None, mask: Mask | None, cu_seqlens: SequenceBounds
) -> tuple[Activations, StateT]:
    """Run `mixer.forward` on sequences end to end in one row, (1, t, c), as if they stood in a batch."""
    check_bounds(cu_seqlens, x.shape[1])
    index, is_real = pad_index(cu_seqlens)
    batch_mask = is_real if mask is None else is_real & pad(mask, index)
    outputs, state = mixer.forward(pad(x, index), state, mask=batch_mask)
    return unpad(outputs, is_real), state
