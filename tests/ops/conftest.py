"""What all tests of the operator share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def unwritten_memory_is_nan() -> Iterator[None]:
    """Fill torch.empty with NaN, so that a kernel that forgets to write is caught."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
