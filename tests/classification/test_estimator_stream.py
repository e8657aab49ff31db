"""Streams of raw samples from a fitted classifier."""

from typing import Any

import pytest

pytest.importorskip("sklearn")


from aaren.classification.estimator import AarenClassifier
from aaren.errors import ConfigError
from support.wave_classifier import small, waves


def test_streams_of_one_channel_take_numbers() -> None:
    panel, names = waves(channels=1)
    model = small().fit(panel[:, 0], names)
    one, two = model.stream(), model.stream(batch_size=2)
    assert one.push(50.0).shape == (2,)
    assert one.push([50.0]).shape == (2,)
    assert two.push([50.0, 51.0], mask=[True, False]).shape == (2, 2)


@pytest.mark.parametrize("batch_size", [-1, 2.5, True, "2"])
def test_streams_of_an_impossible_number(batch_size: Any, fitted: AarenClassifier) -> None:
    with pytest.raises(ConfigError, match=f"batch_size must be None.*got {batch_size!r}"):
        fitted.stream(batch_size=batch_size)
