import numpy as np
import pytest

from aaren.errors import DataError
from aaren.events.files import LooseEvents, Repairs, group
from aaren.events.sequences import EventSequences


def read(loose: LooseEvents, **repairs: bool) -> EventSequences:
    return group(loose, Repairs(**repairs), path="file", where=lambda event: f"file, event {event}")


@pytest.fixture
def mixed() -> LooseEvents:
    return LooseEvents(
        sequence=np.array([0, 1, 0, 1, 0, 2]),
        times=np.array([1.0, 5.0, 3.0, 4.0, 3.0, 9.0]),
        marks=np.array([0, 1, 2, 3, 4, 5]),
        names=["a", "b", "c"],
    )


def test_everything_wrong_can_be_mended_by_name(mixed: LooseEvents) -> None:
    events = read(mixed, sort=True, drop_duplicates=True, drop_single=True)
    assert events.times.tolist() == [1.0, 3.0, 4.0, 5.0]
    assert events.offsets.tolist() == [0, 2, 4]
    assert events.marks is not None
    assert events.marks.tolist() == [0, 2, 3, 1]


def test_nothing_is_mended_unasked(mixed: LooseEvents) -> None:
    with pytest.raises(DataError, match="file, event 4: time 3 occurs twice"):
        read(mixed)
    with pytest.raises(DataError, match="file, event 3: time 4 follows 5: a negative gap"):
        read(mixed, drop_duplicates=True)
    with pytest.raises(DataError, match=r"file, event 5: sequence 'c' has one event.*drop_single=True"):
        read(mixed, drop_duplicates=True, sort=True)


def test_single_events_only_leave_nothing() -> None:
    loose = LooseEvents(np.array([0, 1]), np.array([1.0, 2.0]), None, ["a", "b"])
    with pytest.raises(DataError, match="file: every sequence has one event only"):
        read(loose, drop_single=True)
