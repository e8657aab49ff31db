"""Where autocast must not reach: exponents, and what a processor cannot compute in half precision."""

from contextlib import AbstractContextManager, nullcontext

import torch


def full_precision(device_type: str) -> AbstractContextManager[object]:
    """Suspend autocast, if it is on: bfloat16 has too few digits for an exponent."""
    if device_type != "meta" and torch.is_autocast_enabled(device_type):  # which refuses to be asked of meta
        return torch.autocast(device_type, enabled=False)
    return nullcontext()
