from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aaren.errors import ConfigError, DataError, ShapeError, StateError
from aaren.events.model import EventModel, EventModelConfig
from aaren.forecasting.streaming import StreamingForecaster, StreamingForecasterConfig
from aaren.nn import Encoder, EncoderConfig, EncoderState
from aaren.nn.blocks import state_to_bytes
from aaren.nn.checks import check_model_state
from aaren.ops import ScanState
from aaren.rl.model import DecisionModel, DecisionModelConfig
from aaren.stream.session import Session, count_streams

ROW, MARKS = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(4)


@pytest.fixture
def model() -> StreamingForecaster:
    config = StreamingForecasterConfig(num_series=3, horizon_steps=4, width=16, num_heads=4)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return StreamingForecaster(config).eval()


def rows(count: int) -> dict[str, Tensor]:
    return {"item": ROW.expand(count, -1), "marks": MARKS.expand(count, -1)}


def test_an_extra_that_is_not_finite_leaves_no_trace(model: StreamingForecaster) -> None:
    session = model.stream(2)
    marks = torch.zeros(2, 4)
    marks[1, 3] = torch.nan
    with pytest.raises(DataError, match=r"item 0 of this session holds nan at \(1, 3\) of its marks.*mask="):
        session.push(ROW.expand(2, -1), marks=marks)
    held_back = session.push(ROW.expand(2, -1), marks=marks, mask=[True, False])
    assert held_back.isfinite().all()
    assert session.push(**rows(2)).isfinite().all()
    with pytest.raises(DataError, match=r"item 0 of this session holds inf at \(0,\) of its marks"):
        model.stream().push(ROW, marks=[float("inf"), 0.0, 0.0, 0.0])


@pytest.mark.parametrize("value", [1e12, -1e17])
def test_large_numbers_are_computed_with(model: StreamingForecaster, value: float) -> None:
    session = model.stream()
    assert session.push(ROW, marks=[value, value, 0.0, 0.0]).isfinite().all()
    assert session.push([value] * 3, marks=MARKS).isfinite().all()
    assert session.push([-value] * 3, marks=MARKS).isfinite().all()


@pytest.mark.parametrize("value", [1e20, 3.4e38, 1e39, -1e300, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["item", "marks"])
def test_what_float32_cannot_compute_with_leaves_no_trace(
    model: StreamingForecaster, value: float, name: str
) -> None:
    session = model.stream(2)
    session.push(**rows(2))
    before = session.to_bytes()
    spoilt: dict[str, Any] = {key: tensor.double().clone() for key, tensor in rows(2).items()}
    spoilt[name][1, 2] = value
    with pytest.raises(DataError, match=r"item 1 of this session holds .* at \(1, 2\)"):
        session.push(**spoilt)
    assert session.to_bytes() == before
    assert session.count == 1
    assert session.push(**spoilt, mask=[True, False]).isfinite().all()


def test_an_answer_that_is_not_finite_is_no_answer(model: StreamingForecaster) -> None:
    with torch.no_grad():
        model.head.weight[:, 0] = 1e37
    session = model.stream()
    session.push(ROW, marks=MARKS)  # the deviation of one row is almost 0
    before = session.to_bytes()
    with pytest.raises(
        DataError, match=r"after item 1 .*stream 0 would not be finite.*state stays as it was"
    ):
        session.push(ROW * 1e10, marks=MARKS)
    assert session.to_bytes() == before
    assert session.count == 1


@pytest.mark.parametrize(
    "item",
    [
        None,
        object(),
        {"a": 1},
        b"x",
        ROW.to_sparse(),
        ROW.to("meta"),
        ["a", "b", "c"],
        [1.0, None, 2.0],
        [1.0, [2.0], 3.0],
        [1j, 0, 0],
        ["2024-01-01"] * 3,
        "abc",
    ],
)
def test_items_are_real_numbers(model: StreamingForecaster, item: Any) -> None:
    session = model.stream()
    with pytest.raises(DataError, match="an item must be real numbers"):
        session.push(item, marks=MARKS)
    assert session.count == 0


def test_numbers_come_in_many_forms(model: StreamingForecaster) -> None:
    forms: list[Any] = [
        [1, 2, 3],
        np.array([1, 2, 3], dtype=np.uint16),
        np.array([3.0, 2.0, 1.0])[::-1],
        np.array([1.0, 2.0, 3.0], dtype=">f8"),
        np.array([1.0, 2.0, 3.0], dtype=np.longdouble),
        ROW.clone().requires_grad_(),
        ROW.to(torch.bfloat16),
        [torch.tensor(1.0), np.float32(2.0), 3],
    ]
    answers = [model.stream().push(form, marks=MARKS) for form in forms]
    for answer in answers:
        torch.testing.assert_close(answer, answers[0], rtol=0, atol=0)


@pytest.mark.parametrize("batch_size", [-1, 1.5, True, "2", [2]])
def test_an_impossible_number_of_streams_is_refused(model: StreamingForecaster, batch_size: Any) -> None:
    decision = DecisionModel(DecisionModelConfig(state_size=3, action_size=2, width=16, num_layers=1))
    events = EventModel(EventModelConfig(width=16, ff_width=16))
    for opened in (model, decision, events):
        with pytest.raises(ConfigError, match=r"batch_size must be None.*or a whole number of streams; got"):
            opened.stream(batch_size)
    assert model.stream(np.int64(2)).push(**rows(2)).shape == (2, 4, 3)


@pytest.mark.parametrize("mask", [[0.5, 1.0], [float("nan"), 1.0], [2, 1], ["a", "b"], [None, True]])
def test_a_mask_is_true_or_false(model: StreamingForecaster, mask: Any) -> None:
    with pytest.raises(DataError, match="mask must"):
        model.stream(2).push(**rows(2), mask=mask)


@pytest.mark.parametrize("mask", [[0, 1], [0.0, 1.0], torch.tensor([0, 1]), torch.tensor([False, True])])
def test_a_mask_of_noughts_and_ones_will_do(model: StreamingForecaster, mask: Any) -> None:
    session = model.stream(2)
    before = session.state
    session.push(**rows(2), mask=mask)
    assert state_to_bytes(session.state.select([0])) == state_to_bytes(before.select([0]))
    assert state_to_bytes(session.state.select([1])) != state_to_bytes(before.select([1]))


def test_one_stream_can_be_held_back(model: StreamingForecaster) -> None:
    session = model.stream()
    before = state_to_bytes(session.state)
    session.push(ROW * torch.nan, marks=MARKS, mask=False)
    session.push(ROW, marks=MARKS, mask=[False])
    assert state_to_bytes(session.state) == before


def test_a_mask_of_another_size_is_refused(model: StreamingForecaster) -> None:
    with pytest.raises(ShapeError, match=r"mask must be \(2,\), one per stream; got \(3,\)"):
        model.stream(2).push(**rows(2), mask=[True, False, True])
    with pytest.raises(ShapeError, match=r"mask must be \(2,\), one per stream; got \(2, 1\)"):
        model.stream(2).push(**rows(2), mask=torch.ones(2, 1))


@pytest.mark.parametrize(("saved", "opened"), [(2, None), (3, 2), (1, 0)])
def test_a_state_of_another_number_of_streams_is_refused(
    model: StreamingForecaster, saved: int, opened: int | None
) -> None:
    blob = model.stream(saved).to_bytes()
    session = model.stream(opened)
    before = session.state
    size = 1 if opened is None else opened
    words = rf"holds {saved} streams; this session has {size}.*stream\(batch_size={saved}\).*select"
    with pytest.raises(StateError, match=words):
        session.restore(blob)
    assert session.state is before


def test_one_stream_is_one_stream_with_and_without_its_axis(model: StreamingForecaster) -> None:
    session = model.stream()
    session.restore(model.stream(1).to_bytes())
    assert session.push(ROW, marks=MARKS).shape == (4, 3)


def test_a_session_may_have_no_stream(model: StreamingForecaster) -> None:
    session = model.stream(0)
    assert session.push(**rows(0)).shape == (0, 4, 3)
    assert session.push(**rows(0), mask=[]).shape == (0, 4, 3)
    session.restore(session.to_bytes())
    session.reset()
    assert session.push(**rows(0)).shape == (0, 4, 3)
    with pytest.raises(StateError, match="0 streams; items for 1 came"):
        session.push(**rows(1))


def test_a_state_of_other_weights_is_refused(model: StreamingForecaster) -> None:
    session = model.stream()
    session.push(ROW, marks=MARKS)
    model.stream().restore(session.to_bytes())
    with torch.no_grad():
        model.value.weight.mul_(2.0)  # outside of the encoder
    with pytest.raises(StateError, match="Load the weights that made it"):
        model.stream().restore(session.to_bytes())


@pytest.mark.parametrize("mixer", ["aaren", "softmax", "gru", "lstm", "wkv"])
def test_streams_are_counted_in_every_kind_of_state(mixer: str) -> None:
    encoder = Encoder(EncoderConfig(width=8, num_heads=2, num_layers=1, mixer=mixer))
    for streams in (0, 3):
        assert count_streams(encoder.init_state(streams)) == streams
    assert count_streams(EncoderState(())) is None
    assert count_streams((EncoderState(()), torch.zeros(4, 2))) == 4


def test_the_numbers_and_the_cure_are_said() -> None:
    state = ScanState.empty((3, 1), 1)
    check_model_state(state, ScanState, 3)
    with pytest.raises(StateError, match=r"of 3 streams; items for 1 came.*mask=False.*init_state\(1\)"):
        check_model_state(state, ScanState, 1)


@pytest.mark.parametrize("blob", [None, 3, "text", [1], b"", b"AARN", object()])
@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_what_is_no_saved_state_is_refused(model: StreamingForecaster, engine: str, blob: Any) -> None:
    session = model.stream(engine=engine)
    session.push(ROW, marks=MARKS)
    before = session.to_bytes()
    with pytest.raises(StateError, match=r"a saved state is bytes|not a saved state|holds 0 streams"):
        session.restore(blob)
    session.restore(memoryview(before))
    session.restore(bytearray(before))
    assert session.to_bytes() == before


def test_a_change_of_the_weights_in_place_changes_their_name(model: StreamingForecaster) -> None:
    session = Session(model)
    before = session.to_bytes()
    for parameter in model.parameters():
        parameter.data.mul_(2.0)  # which torch does not count
    assert session.to_bytes() != before
    with pytest.raises(StateError, match="Load the weights that made it"):
        session.restore(before)
    opened = model.stream()  # holds a copy of the weights as they are
    opened.push(ROW, marks=MARKS)
    held = opened.to_bytes()
    for parameter in model.parameters():
        parameter.data.mul_(2.0)
    opened.restore(held)
    with pytest.raises(StateError, match="Load the weights that made it"):
        model.stream().restore(held)


def test_native_sessions_name_the_weights_of_their_programs() -> None:
    encoder = Encoder(EncoderConfig(width=8, num_heads=2, num_layers=1)).eval()
    session = Session(encoder, engine="native")
    item = torch.randn(8, generator=torch.Generator().manual_seed(0))
    session.to_bytes()
    for parameter in encoder.parameters():
        parameter.data.mul_(2.0)
    session.push(item)
    name = encoder.fingerprint()
    for parameter in encoder.parameters():
        parameter.data.mul_(0.5)
    answer = session.push(item)  # by the program, whose weights stay as they were
    assert session.fingerprint == name
    anew = Session(encoder.fold(), engine="native")
    anew.push(item)
    assert not torch.equal(anew.push(item), answer)
