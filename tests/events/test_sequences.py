import numpy as np
import pytest

from aaren.datasets.numbers import offsets_from_lengths
from aaren.errors import DataError
from aaren.events.sequences import EventSequences


@pytest.fixture
def marked() -> EventSequences:
    return EventSequences.from_lists(
        [[1.0, 2.0, 4.0], [0.5, 3.0]], [[0, 2, 1], [1, 1]], num_marks=4, observed_from=0.5, observed_until=5.0
    )


def test_gaps_count_from_the_start_where_it_is_known(marked: EventSequences) -> None:
    assert marked.gaps.tolist() == [0.5, 1.0, 2.0, 0.0, 2.5]
    assert marked.final_gaps is not None
    assert marked.final_gaps.tolist() == [1.0, 2.0]
    assert marked.mean_gap == pytest.approx(6.0 / 5)


def test_the_first_gap_is_0_where_the_start_is_unknown() -> None:
    events = EventSequences.from_lists([[7.0, 9.0], [3.0, 4.0, 8.0]])
    assert events.gaps.tolist() == [0.0, 2.0, 0.0, 1.0, 4.0]
    assert events.final_gaps is None
    assert events.mean_gap == pytest.approx(7.0 / 3)


def test_select_keeps_everything_of_the_chosen(marked: EventSequences) -> None:
    chosen = marked.with_split(np.array([0, 2])).select([1, 0])
    assert chosen.times.tolist() == [0.5, 3.0, 1.0, 2.0, 4.0]
    assert chosen.marks is not None
    assert chosen.marks.tolist() == [1, 1, 0, 2, 1]
    assert chosen.offsets.tolist() == [0, 2, 5]
    assert chosen.split is not None
    assert chosen.split.tolist() == [2, 0]
    assert chosen.num_marks == 4
    assert marked.select(np.array([False, True])).times.tolist() == [0.5, 3.0]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([[1.0, 3.0, 2.0]], "sequence 0, event 2: time 2 follows 3: a negative gap"),
        ([[0.0, 1.0], [4.0, 4.0]], "sequence 1, event 1: time 4 occurs twice, and a gap of 0 has no density"),
        ([[0.0, float("nan")]], "sequence 0, event 1: the time is nan; give every event a finite time"),
        ([[0.0, 1.0], [0.0, float("inf")]], "sequence 1, event 1: the time is inf"),
        ([[0.0, 1.0], []], "sequence 1 has no events. Leave empty sequences out"),
        ([], "at least one"),
    ],
)
def test_bad_times_are_told_with_their_place(times: list[list[float]], words: str) -> None:
    with pytest.raises(DataError, match=words):
        EventSequences.from_lists(times)


@pytest.mark.parametrize("mark", [-1, 3])
def test_marks_outside_their_range_are_told(mark: int) -> None:
    with pytest.raises(
        DataError, match=rf"sequence 0, event 1: mark {mark} is outside 0\.\.2 \(num_marks=3\)"
    ):
        EventSequences.from_lists([[0.0, 1.0]], [[0, mark]], num_marks=3)


def test_the_first_of_two_faults_is_told() -> None:
    with pytest.raises(DataError, match="event 1: mark 9"):
        EventSequences.from_lists([[0.0, 1.0, 0.5]], [[0, 9, 0]], num_marks=3)


def test_events_outside_the_observation_are_told() -> None:
    with pytest.raises(DataError, match="sequence 0 has an event at 1, outside its observed_from = 2"):
        EventSequences.from_lists([[1.0, 3.0]], observed_from=2.0)
    with pytest.raises(DataError, match=r"sequence 0 has an event at 3, outside its observed_until = 2\.5"):
        EventSequences.from_lists([[1.0, 3.0]], observed_until=2.5)


def test_arrays_that_do_not_fit_are_told() -> None:
    with pytest.raises(DataError, match="2 times but 1 marks"):
        EventSequences(times=np.array([0.0, 1.0]), offsets=np.array([0, 2]), marks=np.array([0]))
    with pytest.raises(DataError, match="offsets must run from 0 to the 2 events"):
        EventSequences(times=np.array([0.0, 1.0]), offsets=np.array([0, 3]))
    with pytest.raises(DataError, match="times must be flat float64; got float32"):
        EventSequences(times=np.zeros(2, dtype=np.float32), offsets=np.array([0, 2]))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(DataError, match="split needs one entry per sequence, 1"):
        EventSequences.from_lists([[0.0, 1.0]]).with_split(np.zeros(2, dtype=np.int64))


def test_sequences_of_one_event_have_no_mean_gap() -> None:
    with pytest.raises(DataError, match="no gap is known"):
        _ = EventSequences.from_lists([[1.0], [2.0]]).mean_gap


def test_offsets_from_lengths() -> None:
    assert offsets_from_lengths([2, 3]).tolist() == [0, 2, 5]
