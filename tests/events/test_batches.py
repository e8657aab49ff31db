import numpy as np
import pytest
import torch

from aaren.errors import ConfigError, ShapeError
from aaren.events import data as event_sets
from aaren.events.batches import EventBatch, EventBatches
from aaren.events.sequences import EventSequences


@pytest.fixture(scope="module")
def hawkes() -> EventSequences:
    return event_sets.generate("hawkes", count=100)


@pytest.fixture
def batch() -> EventBatch:
    events = EventSequences.from_lists(
        [[1.0, 2.0, 4.0], [3.0, 5.0]], [[0, 1, 1], [1, 0]], observed_from=0.0, observed_until=6.0
    )
    return next(iter(EventBatches(events, batch_size=2, shuffle=False)))


def test_a_batch_is_in_the_convention_of_the_encoder(batch: EventBatch) -> None:
    assert batch.sequences.tolist() == [1, 0]
    assert batch.times.tolist() == [[3.0, 5.0, 0.0], [1.0, 2.0, 4.0]]
    assert batch.gaps.tolist() == [[3.0, 2.0, 0.0], [1.0, 1.0, 2.0]]
    assert batch.marks.tolist() == [[2, 1, 0], [1, 2, 2]]
    assert batch.mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.final_gaps is not None
    assert batch.final_gaps.tolist() == [1.0, 2.0]
    assert (batch.times.dtype, batch.marks.dtype, len(batch)) == (torch.float64, torch.int64, 2)
    assert batch.to("cpu").marks.tolist() == batch.marks.tolist()


def test_unmarked_sets_have_mark_1_everywhere(hawkes: EventSequences) -> None:
    batch = next(EventBatches(hawkes).epoch(0))
    assert torch.equal(batch.marks, batch.mask.long())


def test_an_epoch_holds_every_sequence_once(hawkes: EventSequences) -> None:
    batches = EventBatches(hawkes, batch_size=16, seed=3)
    seen = torch.cat([batch.sequences for batch in batches.epoch(2)])
    assert sorted(seen.tolist()) == list(range(100))
    assert len(batches) == 7 == len(batches.plan(2))


def test_an_epoch_depends_on_seed_and_number_alone(hawkes: EventSequences) -> None:
    def order(seed: int, number: int) -> list[list[int]]:
        return [chosen.tolist() for chosen in EventBatches(hawkes, seed=seed).plan(number)]

    assert order(0, 5) == order(0, 5)
    assert order(0, 5) != order(0, 6)
    assert order(0, 5) != order(1, 5)


def test_small_sets_get_fresh_batches_too() -> None:
    batches = EventBatches(event_sets.generate("sin", count=600))
    first, second = ({frozenset(chosen.tolist()) for chosen in batches.plan(number)} for number in (0, 1))
    assert len(first & second) < 0.1 * len(first)


def test_padding_costs_less_than_a_fifth(hawkes: EventSequences) -> None:
    lengths = np.random.default_rng(0).lognormal(4.0, 0.7, size=2_000).astype(int) + 2
    spread = EventSequences.from_lists([np.arange(length, dtype=float) for length in lengths])
    assert EventBatches(spread).padding_share(0) < 0.2
    assert EventBatches(hawkes).padding_share(1) < 0.2
    tokens = sum(batch.mask.numel() for batch in EventBatches(hawkes).epoch(1))
    assert EventBatches(hawkes).padding_share(1) == pytest.approx(1 - hawkes.num_events / tokens)


@pytest.mark.parametrize("name", ["mimic", "wiki", "stackoverflow-partial", "mooc-partial", "uber-sample"])
def test_padding_of_real_sets_costs_less_than_a_fifth(
    name: str, mirror: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    parts = event_sets.split(event_sets.load(name))
    assert max(EventBatches(parts.train, batch_size=16).padding_share(number) for number in range(3)) < 0.2
    assert EventBatches(parts.test, batch_size=4, shuffle=False).padding_share() < 0.2


def test_gathered_values_are_those_of_the_set(hawkes: EventSequences) -> None:
    for batch in EventBatches(hawkes, shuffle=False):
        for row, sequence in enumerate(batch.sequences.tolist()):
            begin, end = hawkes.offsets[sequence : sequence + 2]
            assert batch.gaps[row, batch.mask[row]].tolist() == hawkes.gaps[begin:end].tolist()
            assert batch.times[row, batch.mask[row]].tolist() == hawkes.times[begin:end].tolist()
            assert not batch.gaps[row, ~batch.mask[row]].any()


def test_a_batch_checks_itself(batch: EventBatch) -> None:
    parts = {name: getattr(batch, name) for name in ("times", "gaps", "marks", "mask", "sequences")}
    cases = [
        ({"gaps": batch.gaps.float()}, r"gaps must be \(b, t\) torch.float64 like the mask \(2, 3\)"),
        ({"times": batch.times[:, :2]}, r"times must be .* got \(2, 2\)"),
        ({"mask": batch.mask.long()}, r"mask must be \(b, t\) bool"),
        ({"mask": batch.mask.flip(1), "marks": batch.marks.flip(1)}, "right padding"),
        ({"marks": batch.marks * 0}, r"marks must be 1\.\.num_marks where mask is True and 0 at padding"),
        ({"sequences": batch.sequences[:1]}, r"sequences must be \(b,\) = \(2,\)"),
    ]
    for change, words in cases:
        with pytest.raises(ShapeError, match=words):
            EventBatch(**{**parts, **change})


def test_a_batch_size_of_0_is_refused(hawkes: EventSequences) -> None:
    with pytest.raises(ConfigError, match="batch_size must be at least 1; got 0"):
        EventBatches(hawkes, batch_size=0)
