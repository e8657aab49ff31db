"""Streams of raw samples from a fitted classifier."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")


from aaren.classification.estimator import AarenClassifier
from aaren.errors import ConfigError
from support.wave_classifier import small, waves


@pytest.mark.parametrize("head", ["flattened", "pooled"])
def test_a_stream_of_raw_samples_ends_in_the_batch_answer(head: str) -> None:
    model = small(head=head).fit(*waves())
    panel, _ = waves(3, seed=5)
    expected = model.predict_proba(panel)
    session = model.stream()
    for sample in panel[0].T:
        probabilities = session.push(sample)
    np.testing.assert_allclose(probabilities.numpy(), expected[0], rtol=1e-4, atol=1e-5)
    assert session.label == model.predict(panel)[0]
    together = model.stream(batch_size=3)
    for samples in np.moveaxis(panel, 2, 0):
        together.push(samples)
    assert together.label.tolist() == model.predict(panel).tolist()  # type: ignore[attr-defined]


def test_streams_of_one_channel_take_numbers() -> None:
    panel, names = waves(channels=1)
    model = small(epochs=1).fit(panel[:, 0], names)
    one, two = model.stream(), model.stream(batch_size=2)
    assert one.push(50.0).shape == (2,)
    assert one.push([50.0]).shape == (2,)
    assert two.push([50.0, 51.0], mask=[True, False]).shape == (2, 2)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True, "2"])
def test_streams_of_an_impossible_number(batch_size: Any, fitted: AarenClassifier) -> None:
    with pytest.raises(ConfigError, match=f"batch_size must be None, or an integer.*got {batch_size!r}"):
        fitted.stream(batch_size=batch_size)


def test_the_published_embedding_cannot_be_streamed() -> None:
    model = small(embedding="circular", epochs=1).fit(*waves(4))
    with pytest.raises(ConfigError, match="cannot be streamed"):
        model.stream()
