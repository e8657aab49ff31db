"""The contract with other engines: bytes and a row in, bytes and an answer out."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aaren.engine.use import open_rows
from aaren.errors import ConfigError, DataError, StateError
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.predict import EventRows
from aaren.integrations.pure import PureStep, open_packed, pack_run


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": "s", "values": [float(place % 3), 1.0 + place]} for place in range(count)]


def test_a_step_is_pure_and_rows_may_come_together(run: Path) -> None:
    step = PureStep(open_rows(run))
    state, answers = b"", []
    for row in rows(5):
        before = bytes(state)
        state, answer = step(state, row)
        assert step(before, row) == (state, answer)  # the same again
        answers.append(answer)
    assert step.many(b"", rows(5)) == (state, answers)
    elsewhere = open_packed(pickle.loads(pickle.dumps(pack_run(run))))
    assert elsewhere.many(b"", rows(5)) == (state, answers)
    assert step.many(state, []) == (state, [])


def test_threads_may_call_a_step_together(run: Path) -> None:
    step = PureStep(open_rows(run))
    step(b"", rows(1)[0])
    histories = [rows(40)[place:] for place in range(8)]
    expected = [step.many(b"", history) for history in histories]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(3):
            assert list(threads.map(lambda history: step.many(b"", history), histories)) == expected


def test_a_row_that_cannot_be_used_changes_nothing(run: Path) -> None:
    step = PureStep(open_rows(run))
    state, _ = step(b"", rows(1)[0])
    with pytest.raises(DataError, match="nan"):
        step.many(state, [rows(1)[0], {"values": [float("nan"), 1.0]}])
    assert step.many(state, rows(2)) == step.many(bytes(state), rows(2))
    with pytest.raises(StateError, match=r"not a saved state|other weights"):
        step(b"x" + state[1:], rows(1)[0])
    with pytest.raises(ConfigError, match="no folder of a finished run"):
        pack_run(run / "nowhere")


def test_models_whose_sessions_look_at_their_state(tmp_path: Path) -> None:
    del tmp_path
    model = EventModel(EventModelConfig(num_marks=2, width=8, num_heads=2, num_layers=1)).eval()
    named: Any = {"mark_names": ["buy", "sell"]}
    step = PureStep(EventRows(model, named))
    state, answers = step.many(b"", [{"time": 1.0, "mark": "buy"}, {"time": 2.0, "mark": "sell"}])
    first, one = step(b"", {"time": 1.0, "mark": "buy"})
    assert one == answers[0]
    assert step(first, {"time": 2.0, "mark": "sell"}) == (state, answers[1])
    with pytest.raises(DataError, match="must be finite and increase"):
        step(state, {"time": 1.0, "mark": "sell"})
