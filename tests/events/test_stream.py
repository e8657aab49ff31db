"""Sessions of events: times in, distributions out, and every wrong time refused."""

import datetime
from typing import Any

import numpy as np
import pytest
import torch

from aaren.errors import DataError, ShapeError, StateError
from aaren.events.distribution import Events
from aaren.events.forecaster import EventStream
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.references import EventReference, EventReferenceConfig
from aaren.stream.session import Session

TIMES = [10.5, 11.0, 14.0, 14.25]
MARKS = [0, 2, 1, 2]


@pytest.fixture
def model() -> EventModel:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return (
            EventModel(EventModelConfig(num_marks=3, width=16, ff_width=16, encoding="times")).double().eval()
        )


def push_all(stream: EventStream) -> torch.Tensor:
    return torch.stack([stream.push(time, mark).median() for time, mark in zip(TIMES, MARKS, strict=True)])


@pytest.mark.parametrize(("start", "first_gap"), [(None, 0.0), (10.0, 0.5)])
def test_pushing_times_equals_forward_over_gaps(
    model: EventModel, start: float | None, first_gap: float
) -> None:
    stream = model.stream(start=start)
    assert isinstance(stream, Session)
    found = push_all(stream)
    gaps = torch.tensor([[first_gap, 0.5, 3.0, 0.25]], dtype=torch.float64)
    whole, _ = model(Events(gaps, torch.tensor([MARKS])))
    torch.testing.assert_close(found, whole.median()[0].detach(), rtol=0, atol=1e-9)
    torch.testing.assert_close(stream.next_event.median(), found[-1])
    assert stream.count == 4


def test_a_session_can_be_put_away_taken_up_and_taken_back(model: EventModel) -> None:
    stream = model.stream()
    push_all(stream)
    kept, before = stream.to_bytes(), stream.state
    later = stream.push(20.0, 1).mean()
    stream.state = before
    torch.testing.assert_close(stream.push(20.0, 1).mean(), later, rtol=0, atol=0)
    other = model.stream()
    other.restore(kept)
    torch.testing.assert_close(other.push(20.0, 1).mean(), later, rtol=0, atol=0)
    with pytest.raises(StateError, match="fingerprint"):
        EventModel(EventModelConfig(num_marks=3, width=16, ff_width=16)).stream().restore(kept)
    stream.reset()
    torch.testing.assert_close(push_all(stream), push_all(model.stream()), rtol=0, atol=0)


def test_streams_side_by_side_have_events_when_they_have_them(model: EventModel) -> None:
    stream = model.stream(batch_size=2)
    first = stream.push([1.0, 5.0], [0, 1])
    second = stream.push([2.0, float("nan")], [1, 0], mask=[True, False])
    torch.testing.assert_close(second.median()[1], first.median()[1], rtol=0, atol=0)
    third = stream.push([2.5, 6.0], [1, 2])
    alone = model.stream()
    alone.push(5.0, 1)
    torch.testing.assert_close(third.median()[1], alone.push(6.0, 2).median())
    assert stream.state.time.tolist() == [2.5, 6.0]


def test_a_stream_may_begin_later_than_others(model: EventModel) -> None:
    stream = model.stream(batch_size=2)
    stream.push([1.0, float("nan")], [0, 0], mask=[True, False])
    law = stream.push([2.0, 7.0], [0, 1])
    torch.testing.assert_close(law.median()[1], model.stream().push(7.0, 1).median())


def test_an_event_at_the_very_start_is_fine(model: EventModel) -> None:
    assert model.stream(start=3.0).push(3.0, 1).median() > 0


@pytest.mark.parametrize("time", [14.0, 13.0, float("nan"), float("inf")])
def test_times_must_increase(model: EventModel, time: float) -> None:
    stream = model.stream()
    stream.push(10.0, 0)
    stream.push(14.0, 0)
    with pytest.raises(
        DataError, match=r"event 2 of stream 0 has the time .*, the one before 14.0.*increase"
    ):
        stream.push(time, 0)
    assert stream.push(15.0, 0).median() > 0  # the refused event left no trace


def test_a_wrong_number_of_events_is_refused(model: EventModel) -> None:
    for stream, time, mark, words in (
        (model.stream(3), [1.0, 2.0], 0, r"time must be one number or \(3,\), one per stream; got \(2,\)"),
        (model.stream(3), 1.0, [0, 1], r"mark must be one number or \(3,\), one per stream; got \(2,\)"),
        (model.stream(), [1.0, 2.0], 0, r"time must be one number or \(1,\), one per stream; got \(2,\)"),
    ):
        with pytest.raises(ShapeError, match=words):
            stream.push(time, mark)
    with pytest.raises(ShapeError, match=r"mask must be \(2,\), one per stream; got \(3,\)"):
        model.stream(2).push([1.0, 2.0], 0, mask=[True, False, True])


def test_one_number_is_for_all_streams(model: EventModel) -> None:
    stream = model.stream(3)
    stream.push(1.0, 2)
    assert stream.state.time.tolist() == [1.0, 1.0, 1.0]


def test_a_mark_between_two_kinds_is_refused(model: EventModel) -> None:
    with pytest.raises(DataError, match=r"mark of stream 1 is 1\.7.*whole numbers"):
        model.stream(2).push([1.0, 2.0], [1, 1.7])
    stream = model.stream(2)
    whole = stream.push([1.0, 2.0], [1.0, float("nan")], mask=[1, 0])
    torch.testing.assert_close(whole.median()[0], model.stream().push(1.0, 1).median(), rtol=0, atol=1e-12)


def test_a_state_of_another_number_of_streams_is_refused(model: EventModel) -> None:
    stream = model.stream()
    with pytest.raises(StateError, match="holds 2 streams; this session has 1"):
        stream.restore(model.stream(2).to_bytes())
    stream.state = model.stream(2).state
    with pytest.raises(StateError, match="state is of 2 streams; items for 1 came"):
        stream.push(1.0, 0)


def test_a_session_may_have_no_stream(model: EventModel) -> None:
    stream = model.stream(0, start=1.0)
    assert stream.push([], []).median().shape == (0,)
    assert stream.next_event.shape == (0,)


def test_what_is_pushed_goes_to_the_model(model: EventModel, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = EventStream(model.to("meta"), batch_size=2)
    seen = []

    def step(event: Events, state: object, *, mask: torch.Tensor) -> tuple[None, object]:
        seen.extend([*event, mask])
        return None, state

    # No number can be asked for on the meta device, so what looks at numbers is left out.
    for looking in ("_require_later", "_require_whole", "_require_finite_answer"):
        monkeypatch.setattr(stream, looking, lambda *_: None)
    monkeypatch.setattr(stream.forecaster, "step", step)
    stream.push([1.0, 2.0], [0, 1], mask=[True, False])
    assert [part.device.type for part in seen] == ["meta"] * 3
    assert stream.state.time.device.type == "meta"


def test_unknown_marks_and_early_times_are_refused(model: EventModel) -> None:
    with pytest.raises(DataError, match=r"mark at \(0,\) is 3, outside 0..2"):
        model.stream().push(1.0, 3)
    with pytest.raises(DataError, match=r"has the time 1\.0, the one before 3\.0"):
        model.stream(start=3.0).push(1.0, 0)
    with pytest.raises(DataError, match="has the time nan"):
        model.stream().push(float("nan"), 0)


@pytest.mark.parametrize("kind", ["model", "reference"])
def test_only_the_first_event_may_come_at_the_start(model: EventModel, kind: str) -> None:
    forecaster = model if kind == "model" else EventReference(EventReferenceConfig(num_marks=3))
    stream = forecaster.stream(2, start=0.0)
    stream.push([0.0, 1.0], [0, 0], mask=[True, False])
    with pytest.raises(DataError, match=r"event 1 of stream 0 has the time 0\.0, the one before 0\.0"):
        stream.push([0.0, 0.0], [0, 0])
    moved = forecaster.stream(2, start=0.0)
    moved.restore(stream.to_bytes())
    with pytest.raises(DataError, match="of stream 0 has the time 0"):
        moved.push([0.0, 0.0], [0, 0])
    moved.push([0.5, 0.0], [0, 0])  # the other stream's first
    assert moved.state.num_events.tolist() == [2, 1]
    later = forecaster.stream()
    later.push(5.0, 1)
    with pytest.raises(DataError, match="the one before 5"):
        later.push(5.0, 1)


def test_where_there_are_several_kinds_an_event_has_one(model: EventModel) -> None:
    stream = model.stream()
    before = stream.to_bytes()
    with pytest.raises(DataError, match=r"knows 3 kinds of events.*push\(time, mark\)"):
        stream.push(1.0)
    assert stream.to_bytes() == before
    assert EventModel(EventModelConfig(width=16, ff_width=16)).stream().push(1.0).median() > 0


@pytest.mark.parametrize(
    "time",
    [np.datetime64("2024-01-01"), datetime.datetime(2024, 1, 1), "2024-01-01", None, 1j, [[1.0], [2.0, 3.0]]],
)
def test_a_time_is_a_number(model: EventModel, time: Any) -> None:
    stream = model.stream()
    with pytest.raises(DataError, match="time must be real numbers"):
        stream.push(time, 0)
    assert stream.count == 0
    assert stream.push(np.float32(2.0), np.int32(1)).median() > 0
    assert stream.push(np.arange(3, 5, dtype=">i4")[::-1][:1], torch.tensor(2)).median() > 0


@pytest.mark.parametrize("start", [float("nan"), float("inf"), np.datetime64("2024-01-01")])
def test_observation_begins_at_a_finite_time(model: EventModel, start: Any) -> None:
    with pytest.raises(DataError, match="start must be"):
        model.stream(start=start)


@pytest.mark.parametrize("time", [1e39, 1e200, 1.7e308])
@pytest.mark.parametrize("encoding", ["gaps", "times"])
@pytest.mark.parametrize("time_decay", [None, "learned"])
def test_a_long_wait_leaves_no_nan(time: float, encoding: str, time_decay: str | None) -> None:
    config = EventModelConfig(width=16, ff_width=16, encoding=encoding, time_decay=time_decay)
    stream = EventModel(config).stream()
    stream.push(-time)
    before = stream.to_bytes()
    try:
        assert stream.push(time).median().isfinite()
    except DataError:
        assert stream.to_bytes() == before
        stream.push(1.0)
    assert stream.state.output.isfinite().all()
