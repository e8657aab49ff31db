"""What the batches of all settings check."""

from torch import Tensor

from aaren.errors import ShapeError


def require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a tensor that does not fit the rest of its batch."""
    if tensor.shape != shape:
        raise ShapeError(f"{name} must be {shape} to fit the rest of the batch; got {tuple(tensor.shape)}.")
