"""Metrics written out by hand: both likelihoods, both errors, accuracy, calibration."""

import math

import numpy as np
import pytest
import torch

from aaren.events.batches import EventBatches
from aaren.events.experiment import EventScores, calibration
from aaren.events.references import EventReference, EventReferenceConfig
from aaren.events.sequences import EventSequences

TIMES = [[1.0, 1.5, 3.0], [0.5, 4.5], [2.0, 2.25, 2.5, 5.0]]
MARKS = [[0, 1, 1], [1, 0], [1, 1, 1, 0]]
RATE, LIKELY = 0.8, 2 / 3  # of the model below; mark 1 has probability 2/3


@pytest.fixture
def model() -> EventReference:
    model = EventReference(EventReferenceConfig(distribution="poisson", num_marks=2))
    model.fit(torch.tensor([1.25, 1.25]), torch.tensor([1, 1]))
    model.mark_logits.copy_(torch.tensor([1 / 3, 2 / 3]).log())
    return model


def scores_of(model: EventReference, events: EventSequences, **options: object) -> EventScores:
    scores = EventScores(**options)
    for batch in EventBatches(events, batch_size=2, shuffle=False):
        scores.add(model, batch)
    return scores


def test_all_numbers_by_hand(model: EventReference) -> None:
    events = EventSequences.from_lists(TIMES, MARKS, observed_until=6.0)
    gaps = [np.diff(times) for times in TIMES]
    time = sum(math.log(RATE) - RATE * gap for row in gaps for gap in row)
    quiet = sum(-RATE * (6.0 - times[-1]) for times in TIMES)
    censored = time - len(TIMES) * math.log(RATE)  # the last events without their rates
    mark = sum(math.log(LIKELY if kind else 1 - LIKELY) for row in MARKS for kind in row[1:])
    found = scores_of(model, events, mean_gap=1.4)
    protocol, clean = found.metrics("protocol"), found.metrics("none")
    assert protocol["nll"] == pytest.approx(-(censored + mark) / 9)
    assert protocol["nll_without_first"] == pytest.approx(-(censored + mark) / 6)
    assert protocol["nll_time"] == pytest.approx(-censored / 9)
    assert protocol["nll_mark"] == pytest.approx(-mark / 9)
    assert protocol["nll_time"] + protocol["nll_mark"] == pytest.approx(protocol["nll"])
    assert clean["nll"] == pytest.approx(-(time + quiet + mark) / 9)
    assert (clean["nll_protocol"], clean["nll_clean"]) == (protocol["nll"], clean["nll"])
    assert clean["nll_density"] == pytest.approx(-time / 6)
    errors = [1 / RATE - row for row in gaps]
    assert clean["rmse"] == pytest.approx(math.sqrt(sum(row.sum() ** 2 for row in errors) / 6))
    assert clean["rmse_usual"] == pytest.approx(math.sqrt(sum((row**2).sum() for row in errors) / 6))
    assert clean["accuracy"] == pytest.approx(4 / 6)


@pytest.mark.parametrize("censoring", ["protocol", "none"])
def test_the_likelihood_at_unit_mean_gap_does_not_depend_on_the_unit(
    model: EventReference, censoring: str
) -> None:
    events = EventSequences.from_lists(TIMES, MARKS, observed_until=6.0)
    later = [[3600.0 * time for time in times] for times in TIMES]
    seconds = EventSequences.from_lists(later, MARKS, observed_until=6.0 * 3600.0)
    slow = EventReference(EventReferenceConfig(distribution="poisson", num_marks=2))
    slow.load_state_dict(model.state_dict())
    slow.numbers[0] *= 3600.0
    in_hours = scores_of(model, events, mean_gap=events.mean_gap).metrics(censoring)
    in_seconds = scores_of(slow, seconds, mean_gap=seconds.mean_gap).metrics(censoring)
    assert in_seconds["nll"] > in_hours["nll"] + 2.0
    assert in_seconds["nll_unit_gap"] == pytest.approx(in_hours["nll_unit_gap"])


def test_unmarked_sets_have_no_accuracy() -> None:
    model = EventReference(EventReferenceConfig())
    found = scores_of(model, EventSequences.from_lists(TIMES)).metrics("none")
    assert math.isnan(found["accuracy"])
    assert found["nll_mark"] == 0.0


def test_a_true_model_is_calibrated_and_a_false_one_is_not(rng: torch.Generator) -> None:
    true = calibration(torch.rand(10_000, generator=rng))
    false = calibration(torch.rand(10_000, generator=rng) ** 2)
    assert true["pit_distance"] < 0.02
    assert false["pit_distance"] == pytest.approx(0.25, abs=0.02)
    assert false["pit_0"] == pytest.approx(math.sqrt(0.1), abs=0.02)
    assert sum(false[f"pit_{i}"] for i in range(10)) == pytest.approx(1.0)
