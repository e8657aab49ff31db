"""One fitted classifier for all tests that only ask it."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from aaren.classification.estimator import AarenClassifier


@pytest.fixture(scope="session")
def fitted() -> "AarenClassifier":
    """Fitted on 40 waves of two channels and 20 steps."""
    from support.wave_classifier import small, waves

    return small().fit(*waves())
