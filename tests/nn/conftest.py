"""What all tests of the modules share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded_parameters() -> Iterator[None]:
    """Modules draw their parameters from torch's global generator: the same ones in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        yield
