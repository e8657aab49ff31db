"""What a perfect model would reach, by both rules, over the terms that models are judged by."""

import numpy as np
import pytest

from aaren.errors import DataError
from aaren.events.data import PROCESSES, generate
from aaren.events.experiment import has_truth, true_log_density, true_log_likelihood
from aaren.events.sequences import EventSequences


def test_a_poisson_process_by_hand() -> None:
    events = generate("poisson", count=20)  # rate 1
    quiet = float(events.final_gaps.sum())
    later = events.gaps[~events.is_first]
    assert true_log_likelihood("poisson", events, "none") == pytest.approx(-later.sum() - quiet)
    # Densities and survivals of rate 1 are the same number.
    assert true_log_likelihood("poisson", events, "protocol") == pytest.approx(-later.sum())


def test_the_sine_has_the_known_likelihoods() -> None:
    events = generate("sin")
    clean = -true_log_likelihood("sin", events, "none") / events.num_events
    protocol = -true_log_likelihood("sin", events, "protocol") / events.num_events
    density = -true_log_density("sin", events) / (events.num_events - len(events))
    assert density == pytest.approx(0.683, abs=0.005)
    assert clean == pytest.approx(0.69, abs=0.01)  # the quiet time at the end counts
    assert protocol == pytest.approx(0.672, abs=0.01)


@pytest.mark.parametrize("name", PROCESSES)
def test_every_generated_set_has_a_finite_truth(name: str) -> None:
    events = generate(name, count=10)
    assert has_truth(name)
    assert all(np.isfinite(true_log_likelihood(name, events, rule)) for rule in ("none", "protocol"))


def test_what_cannot_be_known_is_said() -> None:
    assert not has_truth("wiki")
    unknown = EventSequences.from_lists([[1.0, 2.0]])
    with pytest.raises(DataError, match="needs the start of observation"):
        true_log_likelihood("poisson", unknown, "none")
    single = EventSequences.from_lists([[1.0]], observed_from=0.0, observed_until=3.0)
    with pytest.raises(DataError, match="nothing but a first event"):
        true_log_likelihood("poisson", single, "protocol")
