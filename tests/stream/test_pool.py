"""Many keyed streams: the laws of a pool, and what happens to its file."""

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from aaren.classification.model import Classifier, ClassifierConfig
from aaren.errors import ConfigError, DataError, ShapeError, StateError, UnwritableError
from aaren.events.distribution import NextEvent
from aaren.events.model import EventModel, EventModelConfig
from aaren.files.lock import InUseError
from aaren.forecasting.streaming import ForecastSession, StreamingForecaster, StreamingForecasterConfig
from aaren.nn.blocks import state_to_bytes
from aaren.rl.model import DecisionModel, DecisionModelConfig
from aaren.stream.pool import StreamPool


def forecaster(seed: int = 0, **changes: Any) -> StreamingForecaster:
    sizes = {"num_series": 2, "num_marks": 0, "horizon_steps": 2, "width": 8, "num_heads": 2, "num_layers": 1}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return StreamingForecaster(StreamingForecasterConfig(**{**sizes, **changes})).eval()


MODEL = forecaster()
PATTERN = "abacabdabacabae"  # keys of the items below, some often, some once


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))


def saved(pool: StreamPool, keys: str = "abcde") -> list[bytes]:
    return [state_to_bytes(pool.get(key)) for key in keys]


def push_each(pool: StreamPool, keys: str, items: Tensor, *, commit_every: int = 0) -> list[Tensor]:
    """Push items one by one, so that the arithmetic of a step never depends on the batch."""
    answers = []
    for index, key in enumerate(keys):
        answers += pool.push([key], items[index : index + 1], offset=index)
        if commit_every and (index + 1) % commit_every == 0:
            pool.commit()
    return answers


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[StreamPool]:
    with StreamPool(MODEL, tmp_path / "states.db") as opened:
        yield opened


class Case(NamedTuple):
    """A model, and items that its streams take: of place `i` in the input, after those before."""

    model: Any
    items: Callable[[int], list[Any]]
    extras: Callable[[int], dict[str, list[Any]]]


def causal_classifier() -> Classifier:
    sizes = {"num_channels": 2, "num_classes": 3, "length": 5, "width": 8, "num_heads": 2, "num_layers": 1}
    return Classifier(ClassifierConfig(**sizes, embedding="causal", head="pooled")).eval()


def random_rows(count: int) -> list[Any]:
    return rows(count).tolist()


def no_extras(count: int) -> dict[str, list[Any]]:
    del count
    return {}


CASES = {
    "forecaster": Case(MODEL, random_rows, no_extras),
    "classifier": Case(causal_classifier(), random_rows, no_extras),
    "events": Case(
        EventModel(EventModelConfig(num_marks=3, width=8, num_heads=2, num_layers=1)).eval(),
        lambda count: [1.0 + 0.5 * place for place in range(count)],
        lambda count: {"mark": [place % 3 for place in range(count)]},
    ),
    "policy": Case(
        DecisionModel(
            DecisionModelConfig(state_size=2, action_size=1, width=8, num_heads=2, num_layers=1)
        ).eval(),
        random_rows,
        lambda count: {"reward": [0.5 * place for place in range(count)]},
    ),
    "discrete policy": Case(
        DecisionModel(
            DecisionModelConfig(
                state_size=2, action_size=3, width=8, num_heads=2, num_layers=1, actions="discrete"
            )
        ).eval(),
        random_rows,
        lambda count: {"reward": [0.5 * place for place in range(count)]},
    ),
}


def flat(answer: Any) -> list[float]:
    """Return all numbers of an answer: of a tensor, an array, or a distribution of events."""
    if isinstance(answer, NextEvent):
        parts = [answer.gap.log_weights, answer.gap.locations, answer.gap.scales, answer.mark_logits]  # type: ignore[attr-defined]  # a mixture
        return [number for part in parts for number in part.tolist()]
    return np.asarray(answer).reshape(-1).tolist()  # type: ignore[no-any-return]  # of numbers


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * ("policy" in name)) for name in CASES]
)
@given(
    keys=st.lists(st.sampled_from("abcdef"), max_size=16),
    cuts=st.sets(st.integers(0, 16), max_size=4),
    capacity=st.integers(1, 7),
    place=st.permutations("abcdef"),
    commits=st.sets(st.integers(0, 4)),
)
@settings(max_examples=25, deadline=None)
def test_order_cuts_eviction_and_repeats_change_no_bit(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    keys: list[str],
    cuts: set[int],
    capacity: int,
    place: list[str],
    commits: set[int],
) -> None:
    """The laws of a pool on the native engine, against one session for each stream."""
    model, items, extras = CASES[name].model, CASES[name].items(16), CASES[name].extras(16)
    sessions: dict[str, Any] = {}
    expected = [
        flat(
            sessions.setdefault(key, model.stream()).push(
                items[index], **{name: some[index] for name, some in extras.items()}
            )
        )
        for index, key in enumerate(keys)
    ]
    assert all(session.engine == "native" for session in sessions.values())
    edges = sorted({0, len(keys), *(cut for cut in cuts if cut < len(keys))})
    with StreamPool(model, tmp_path_factory.mktemp("pool") / "states.db", capacity=capacity) as pool:
        for number, (begin, end) in enumerate(pairwise(edges)):
            order = sorted(
                range(begin, end), key=lambda index: place.index(keys[index])
            )  # another of the keys
            batch = [keys[index] for index in order]
            given: dict[str, Any] = {name: [some[index] for index in order] for name, some in extras.items()}
            found = pool.push(batch, [items[index] for index in order], seq=order, **given)
            assert [flat(one) for one in found] == [expected[index] for index in order]
            before = [state_to_bytes(pool.get(key)) for key in sessions if key in pool]
            others = items[: len(batch)]
            assert pool.push(batch, others, seq=order, **given) == [None] * len(batch)
            assert [state_to_bytes(pool.get(key)) for key in sessions if key in pool] == before
            if number in commits:
                pool.commit()
        assert len(pool) == len(sessions)
        for key, session in sessions.items():
            assert state_to_bytes(pool.get(key)) == state_to_bytes(session.state)


@pytest.mark.parametrize("name", CASES)
def test_a_model_with_a_program_steps_streams_where_they_lie(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first push, which shows what items look like, `push` of the session is not asked again."""
    model, items, extras = CASES[name]
    with StreamPool(model, tmp_path / "states.db") as pool:
        past = {name: some[:4] for name, some in extras(12).items()}
        pool.push(list("abab"), items(12)[:4], **past)
        monkeypatch.setattr(pool._session, "push", None)
        new = {name: some[4:] for name, some in extras(12).items()}
        answers = pool.push(list("abcabaab"), items(12)[4:], **new)
        assert all(answer is not None for answer in answers)


def part(case: Case, begin: int, end: int) -> dict[str, Any]:
    """Return items from a place of the input to another, as `push` takes them."""
    extras = {name: some[begin:end] for name, some in case.extras(end).items()}
    return {"items": case.items(end)[begin:end], **extras}


def alone(case: Case, keys: str) -> dict[str, bytes]:
    """Return the state of each stream as of a session of its own."""
    sessions: dict[str, Any] = {}
    for index, key in enumerate(keys):
        given = {name: some[0] for name, some in part(case, index, index + 1).items()}
        sessions.setdefault(key, case.model.stream()).push(given.pop("items"), **given)
    return {key: state_to_bytes(session.state) for key, session in sessions.items()}


@pytest.mark.parametrize("name", CASES)
def test_states_of_every_model_are_guarded_and_upgraded(tmp_path: Path, name: str) -> None:
    case, path = CASES[name], tmp_path / "states.db"
    other = case._replace(model=deepcopy(case.model))
    with torch.no_grad():
        for weight in other.model.parameters():
            weight.mul_(1.5)
    with StreamPool(case.model, path) as pool:
        pool.push(list("aba"), offset=0, **part(case, 0, 3))
        assert pool.push(list("ba"), offset=1, **part(case, 1, 3)) == [None, None]
        assert {key: state_to_bytes(pool.get(key)) for key in "ab"} == alone(case, "aba")
    with pytest.raises(StateError, match="belong to the model with fingerprint"):
        StreamPool(other.model, path)
    given = part(other, 0, 3)
    replay: list[Any] = [(list("aba"), given.pop("items"), given)]
    with StreamPool.upgrade(other.model, path, replay=replay) as pool:
        assert {key: state_to_bytes(pool.get(key)) for key in "ab"} == alone(other, "aba")
        assert pool.offset == 3
    with StreamPool.upgrade(case.model, path) as pool:
        assert (len(pool), pool.offset) == (0, 3)


@pytest.mark.parametrize("name", CASES)
def test_threads_share_a_pool_of_any_model(tmp_path: Path, name: str) -> None:
    case, wrong = CASES[name], []  # type: ignore[var-annotated]  # errors
    with StreamPool(case.model, tmp_path / "states.db", capacity=2) as pool:

        def work(key: str) -> None:
            try:
                for place in range(12):
                    pool.push([key], **part(case, place, place + 1))
                    pool.commit()
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(key,)) for key in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        expected = alone(case, "a" * 12)["a"]
        assert [state_to_bytes(pool.get(key)) for key in "abcd"] == [expected] * 4


def test_a_session_with_a_push_of_its_own_is_asked_item_by_item(tmp_path: Path) -> None:
    class Doubled(ForecastSession):
        def push(self, item: Any, **extras: Any) -> Tensor:  # type: ignore[override]  # without a date
            return 2.0 * super().push(item, **extras)

    class Model:
        def stream(self, batch_size: int) -> Doubled:
            return Doubled(MODEL.fold(), batch_size=batch_size, engine="native")

    with StreamPool(Model(), tmp_path / "a.db") as pool, StreamPool(MODEL, tmp_path / "b.db") as plain:
        for seed in range(3):
            found, expected = pool.push(list("ab"), rows(2, seed)), plain.push(list("ab"), rows(2, seed))
            assert all(torch.equal(one, 2.0 * two) for one, two in zip(found, expected, strict=True))


def test_items_of_several_kinds_take_their_own_programs(pool: StreamPool) -> None:
    session = MODEL.stream(2)
    for seed in range(4):
        masked: dict[str, Any] = {"mask": [True, seed % 2 == 0]} if seed else {}
        expected = session.push(rows(2, seed), **masked)
        found = pool.push(list("ab"), rows(2, seed), **masked)
        assert torch.equal(torch.stack(found), expected)
        expected = session.push(rows(2, seed + 9))
        assert torch.equal(torch.stack(pool.push(list("ab"), rows(2, seed + 9))), expected)


def test_what_is_kept_with_a_stream_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "states.db"
    with StreamPool(MODEL, path, capacity=1) as pool:
        pool.push(["a"], rows(1), seq=[5])
        pool.keep_notes({"a": b"five", "nobody": b"?"})
        pool.push(["b"], rows(1))  # a goes to the file
        pool.keep_notes({"a": b"V"})
        assert [pool.note(key) for key in ("a", "b", "nobody")] == [(5, b"V"), (-1, None), (-1, None)]
        assert pool.push(["a", "a", "b"], rows(3), seq=[4, 5, -1])[:2] == [None, None]
        with pytest.raises(DataError, match=r"seq must be a whole number .* got 1\.5 of stream 'a'"):
            pool.push(["a"], rows(1), seq=[1.5])  # type: ignore[list-item]  # what is refused
    with StreamPool(MODEL, path) as pool:
        assert pool.note("a") == (5, b"V")
        assert pool.push(["a"], rows(1), seq=[6]) != [None]
        assert pool.note("a") == (6, b"V")


@pytest.mark.parametrize("capacity", [1, 2, 4])
def test_eviction_and_return_change_no_bit(tmp_path: Path, capacity: int) -> None:
    items = rows(len(PATTERN))
    with (
        StreamPool(MODEL, tmp_path / "all.db") as whole,
        StreamPool(MODEL, tmp_path / "few.db", capacity=capacity) as few,
    ):
        expected = push_each(whole, PATTERN, items)
        found = push_each(few, PATTERN, items, commit_every=4)
        assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
        assert saved(few) == saved(whole)
        assert len(few) == len(whole) == 5


def test_more_keys_in_one_push_than_memory_holds(tmp_path: Path) -> None:
    items = rows(5)
    with (
        StreamPool(MODEL, tmp_path / "a.db", capacity=2) as few,
        StreamPool(MODEL, tmp_path / "b.db") as whole,
    ):
        for _ in range(3):
            expected = whole.push(list("abcde"), items)
            found = few.push(list("abcde"), items)
            assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
        few.commit()
        assert saved(few) == saved(whole)


def test_what_was_taken_in_before_changes_nothing(pool: StreamPool) -> None:
    items = rows(6)
    pool.push(list("abca"), items[:4], offset=0)
    before = saved(pool, "abc")
    assert pool.push(list("bca"), items[1:4], offset=1) == [None, None, None]
    assert saved(pool, "abc") == before
    answers = pool.push(list("caab"), items[2:], offset=2)
    assert answers[:2] == [None, None]
    assert answers[2] is not None
    assert answers[3] is not None
    assert pool.offset == 6


def test_what_is_not_committed_is_forgotten_with_the_offset(tmp_path: Path) -> None:
    path, items = tmp_path / "states.db", rows(len(PATTERN))
    with StreamPool(MODEL, tmp_path / "whole.db") as whole:
        expected = push_each(whole, PATTERN, items)
        states = saved(whole)
    found: dict[int, Tensor] = {}
    for stop in (
        4,
        9,
        13,
        len(PATTERN),
    ):  # closed without a commit of the last items; states move to the file
        pool = StreamPool(MODEL, path, capacity=2)
        for index in range(pool.committed, stop):
            (found[index],) = pool.push([PATTERN[index]], items[index : index + 1], offset=index)
            if index % 3 == 2:
                pool.commit()
        pool.close()
    with StreamPool(MODEL, path) as pool:
        for index in range(pool.committed, len(PATTERN)):
            (found[index],) = pool.push([PATTERN[index]], items[index : index + 1], offset=index)
        assert saved(pool) == states
    assert all(torch.equal(found[index], answer) for index, answer in enumerate(expected))


def test_one_bad_item_refuses_the_whole_push(pool: StreamPool) -> None:
    pool.push(list("ab"), rows(2))
    before = saved(pool, "ab")
    items = rows(4)
    items[3, 1] = torch.nan
    with pytest.raises(DataError, match=r"item 3 of this push, of stream 'b': .*nan.*Nothing of the push"):
        pool.push(list("abab"), items)
    with pytest.raises(ShapeError, match="columns that this model was built for"):
        pool.push(list("ab"), torch.zeros(2, 3))
    assert saved(pool, "ab") == before
    assert (pool.offset, len(pool)) == (2, 2)


@pytest.mark.parametrize(
    ("keys", "items", "options", "words"),
    [
        ("ab", [[0.0, 0.0]] * 2, {}, "keys are several"),
        ([1], [[0.0, 0.0]], {}, "a key is text; got 1"),
        (["\ud800"], [[0.0, 0.0]], {}, "cannot be stored"),
        (["a"], [[0.0, 0.0]] * 2, {}, "items must be 1, one per key; got 2"),
        (["a"], 7.0, {}, "items must be 1, one per key, in a list"),
        (["a"], None, {}, "items must be 1, one per key"),
        (["a"], "x", {}, "items must be 1, one per key"),
        (["a"], {0: 1.0}, {}, "items must be 1, one per key"),
        (["a"], ["x"], {}, "must be real numbers"),
        (["a"], torch.zeros(1, 2, device="meta"), {}, "must be real numbers"),
        (["a"], torch.zeros(1, 2).to_sparse(), {}, "must be real numbers"),
        (None, [[0.0, 0.0]], {}, "keys are several"),
        (3.0, [[0.0, 0.0]], {}, "keys are several"),
        (b"a", [[0.0, 0.0]], {}, "keys are several"),
        (["a"], [[0.0, 0.0]], {"offset": -1}, "offset must be"),
        (["a"], [[0.0, 0.0]], {"offset": 100}, r"pool\.commit\(100\)"),
        (["a"], [[0.0, 0.0]], {"seq": 3}, "seq must be 1, one per key"),
        (["a"], [[0.0, 0.0]], {"offset": 2**63}, "offset must be"),
        (["a"], [[0.0, 0.0]], {"seq": [2**63]}, "seq must be"),
        (["a"], [[0.0, 0.0]], {"seq": [0.5]}, "seq must be"),
        (["a"], [[0.0, 0.0]], {"at": float("nan")}, "at must be a time"),
        (["a"], [[0.0, 0.0]], {"at": "now"}, "at must be a time"),
        (["a"], [[0.0, 0.0]], {"mask": [True, False]}, "mask must be 1, one per key"),
    ],
)
def test_what_cannot_be_pushed_is_refused(
    pool: StreamPool, keys: Any, items: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        pool.push(keys, items, **options)
    assert len(pool) == 0


def test_a_gap_in_the_input_is_refused_unless_it_is_committed(pool: StreamPool) -> None:
    pool.push(["a"], rows(1), offset=0)
    with pytest.raises(DataError, match="number 1; this push begins with 100, and the 99 items before it"):
        pool.push(["a"], rows(1), offset=100)
    assert pool.offset == 1
    pool.commit(100)
    assert pool.push(["a"], rows(1), offset=100)[0] is not None
    assert pool.offset == 101


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda pool: pool.expire(-1), "would drop every stream"),
        (lambda pool: pool.expire(float("nan")), "older_than must be"),
        (lambda pool: pool.expire(None), "older_than must be"),
        (lambda pool: pool.expire("1 h"), "older_than must be"),
        (lambda pool: pool.expire(1, now="now"), "now must be"),
        (lambda pool: pool.drop(None), "keys are several"),
        (lambda pool: pool.drop([3]), "a key is text"),
        (lambda pool: pool.get(3), "a key is text"),
        (lambda pool: pool.keep_notes(None), "notes are bytes"),
        (lambda pool: pool.keep_notes({"a": "text"}), "notes are bytes"),
        (lambda pool: pool.commit("x"), "offset must be"),
    ],
)
def test_what_a_pool_cannot_do_is_refused(
    pool: StreamPool, call: Callable[[StreamPool], object], words: str
) -> None:
    pool.push(["a"], rows(1))
    with pytest.raises(DataError, match=words) as refused:
        call(pool)
    assert len(str(refused.value)) < 300
    assert len(pool) == 1


def test_numbers_of_numpy_count_as_those_of_python(pool: StreamPool) -> None:
    pool.push(["a", "b"], rows(2), offset=np.int64(0), seq=np.array([4, 7]))  # type: ignore[arg-type]  # whatever the types say
    assert pool.push(["a", "b"], rows(2), seq=np.array([4, 6])) == [None, None]  # type: ignore[arg-type]
    assert pool.note("b") == (7, None)


def test_one_bad_item_among_many_is_found_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, items = [f"key {number}" for number in range(64)], rows(64)
    items[[41, 50]] = torch.nan
    with StreamPool(MODEL, tmp_path / "states.db") as pool:
        pool.push(["before"], rows(1))
        calls, push = [], pool._session.push

        def counted(item: Any, **extras: Any) -> Tensor:
            calls.append(len(item))
            return push(item, **extras)

        monkeypatch.setattr(pool._session, "push", counted)
        with pytest.raises(DataError, match=r"item 41 of this push, of stream 'key 41'"):
            pool.push(keys, items)
        assert len(calls) < 20


def test_a_key_that_cannot_be_stored_is_no_key_of_the_pool(pool: StreamPool) -> None:
    assert "\ud800" not in pool
    with pytest.raises(DataError, match="cannot be stored"):
        pool.note("\ud800")


def test_streams_are_dropped_and_expire(tmp_path: Path) -> None:
    path = tmp_path / "states.db"
    with StreamPool(MODEL, path, capacity=2) as pool:
        for place, key in enumerate("abcd"):
            pool.push([key], rows(1), at=float(place))
        assert pool.drop(["a", "c", "nobody", "a"]) == 2
        assert "a" not in pool
        assert pool.get("a") is None
        assert len(pool) == 2
        pool.push(["a"], rows(1), at=9.0)  # begins anew, and leaves memory again
        pool.push(list("xy"), rows(2), at=9.0)
        anew = state_to_bytes(pool.get("a"))
        session = MODEL.stream()
        session.push(rows(1)[0])
        assert anew == state_to_bytes(session.state)
        assert pool.expire(5.0, now=9.0) == 2  # b in the file, d
        assert pool.expire(5.0, now=9.0) == 0
    with StreamPool(MODEL, path) as pool:
        assert len(pool) == 3
        assert [key in pool for key in "abcdxy"] == [True, False, False, False, True, True]
        assert state_to_bytes(pool.get("a")) == anew
        with pytest.raises(DataError, match="keys are several"):
            pool.drop("abc")


def test_every_model_with_a_stream_has_a_pool(tmp_path: Path) -> None:
    classifier = Classifier(
        ClassifierConfig(
            num_channels=2, num_classes=3, length=5, width=8, num_heads=2, num_layers=1, embedding="causal"
        )
    ).eval()
    with StreamPool(classifier, tmp_path / "classes.db") as pool:
        answers = pool.push(list("aba"), rows(3))
        assert torch.stack(answers).sum(-1).allclose(torch.ones(3))
    events = EventModel(EventModelConfig(num_marks=3, width=8, num_heads=2, num_layers=1)).eval()
    with StreamPool(events, tmp_path / "events.db") as pool:
        answers = pool.push(list("aba"), [1.0, 1.5, 2.0], mark=[0, 2, 1])
        assert answers[2].mark_probabilities.shape == (3,)
        with pytest.raises(
            DataError, match=r"item 1 of this push, of stream 'a'.*must be finite and increase"
        ):
            pool.push(list("ba"), [3.0, 1.0], mark=[0, 0])
    policy = DecisionModel(
        DecisionModelConfig(state_size=2, action_size=1, width=8, num_heads=2, num_layers=1)
    )
    with StreamPool(policy.eval(), tmp_path / "episodes.db") as pool:
        answers = pool.push(list("aba"), rows(3), reward=[0.0, 0.0, 1.0])
        assert answers[2].shape == (1,)


def test_a_state_that_grows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"constant size.*this model's has a KVCache"):
        StreamPool(forecaster(mixer="softmax"), tmp_path / "states.db")
    with pytest.raises(ConfigError, match="capacity must be"):
        StreamPool(MODEL, tmp_path / "states.db", capacity=0)


def test_states_of_other_weights_are_refused_until_upgraded(tmp_path: Path) -> None:
    path, other = tmp_path / "states.db", forecaster(seed=1, num_layers=2)
    with StreamPool(MODEL, path) as pool:
        pool.push(list("ab"), rows(2))
        old = saved(pool, "ab")
    with pytest.raises(StateError, match=r"belong to the model with fingerprint .*StreamPool\.upgrade"):
        StreamPool(other, path)
    bad = [(["a"], rows(1), {}), (["b"], torch.full((1, 2), torch.nan), {})]
    with pytest.raises(DataError, match="of stream 'b'"):
        StreamPool.upgrade(other, path, capacity=1, replay=bad)
    with StreamPool(MODEL, path) as pool:  # as it was
        assert saved(pool, "ab") == old
    past: list[Any] = [(list("ab"), rows(2), {}), (["b"], rows(1), {})]
    with StreamPool.upgrade(other, path, capacity=1, replay=past) as pool:
        assert (len(pool), pool.offset) == (2, 2)
        session = other.stream()
        session.push(rows(2)[0])
        torch.testing.assert_close(pool.get("a").tail, session.state.tail)
    with StreamPool.upgrade(MODEL, path) as pool:
        assert (len(pool), pool.offset, "a" in pool) == (0, 2, False)


def test_a_replay_may_be_numbered_as_it_was_pushed(tmp_path: Path) -> None:
    path, better, items = tmp_path / "states.db", forecaster(seed=1), rows(4).tolist()
    with StreamPool(MODEL, path) as pool:
        pool.push(list("abab"), items)
    past = [(list("ab"), items[:2], {"offset": 0}), (list("ab"), items[2:], {"offset": 2})]
    with StreamPool.upgrade(better, path, replay=past) as pool, StreamPool(better, tmp_path / "b.db") as anew:
        anew.push(list("abab"), items)
        assert (pool.offset, saved(pool, "ab")) == (4, saved(anew, "ab"))


def test_a_file_that_cannot_be_opened_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> int:
        raise StateError("damaged")

    monkeypatch.setattr("aaren.stream.store.StateStore._read_facts", fail)
    for begin in (StreamPool, StreamPool.upgrade):
        with pytest.raises(StateError, match="damaged") as kept:
            begin(MODEL, tmp_path / "states.db")
    monkeypatch.undo()
    StreamPool(MODEL, tmp_path / "states.db").close()
    del kept  # which held all that there was


def test_two_names_of_a_file_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "states.db")
    with StreamPool(MODEL, tmp_path / "states.db"), pytest.raises(InUseError):
        StreamPool(MODEL, tmp_path / "link.db")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "states.db"
    with StreamPool(MODEL, path), pytest.raises(InUseError, match=f"in use by process {os.getpid()}"):
        StreamPool(MODEL, path)
    StreamPool(MODEL, path).close()
    with StreamPool(MODEL, path):
        child = os.fork()
        if child == 0:
            try:
                StreamPool(MODEL, path)
            except InUseError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_hard_link_does_not_evade_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "states.db"
    StreamPool(MODEL, path).close()
    (tmp_path / "link.db").hardlink_to(path)
    for name in ("states.db", "link.db"):
        with pytest.raises(StateError, match="second name"):
            StreamPool(MODEL, tmp_path / name)
    (tmp_path / "link.db").unlink()
    StreamPool(MODEL, path).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_cannot_write_and_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "states.db"
    with StreamPool(MODEL, path) as pool:
        pool.push(["a"], rows(1))
        pool.commit()
        child = os.fork()
        if child == 0:
            refused = 0
            calls: list[Callable[[], object]] = [
                lambda: pool.push(["b"], rows(1)), pool.commit, lambda: pool.get("a")
            ]  # fmt: skip
            for call in calls:
                try:
                    call()
                except StateError as error:
                    refused += "fork" in str(error)
            pool.close()
            del pool
            os._exit(10 + refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 13
        with pytest.raises(InUseError):
            StreamPool(MODEL, path)
        pool.push(["b"], rows(1))
    with StreamPool(MODEL, path) as pool:
        assert (len(pool), pool.offset) == (2, 2)


def test_a_closed_pool_says_so(tmp_path: Path) -> None:
    pool = StreamPool(MODEL, tmp_path / "states.db")
    pool.close()
    pool.close()
    with pytest.raises(StateError, match="is closed: open it again"):
        pool.push(["a"], rows(1))


def test_threads_share_a_pool(pool: StreamPool) -> None:
    items = rows(20)

    def work(key: str) -> None:
        for item in items:
            pool.push([key], item[None])

    threads = [threading.Thread(target=work, args=(key,)) for key in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.offset == 80
    assert len(set(saved(pool, "abcd"))) == 1


def test_files_that_are_no_store_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, foreign = tmp_path / "notes.txt", tmp_path / "foreign.db"
    text.write_bytes(b"dear diary\n" * 1000)
    with pytest.raises(StateError, match="damaged, or no file of states"):
        StreamPool(MODEL, text)
    assert text.read_bytes() == b"dear diary\n" * 1000
    with sqlite3.connect(foreign) as db:
        db.execute("create table other(x)")
    db.close()
    before = foreign.read_bytes()
    with pytest.raises(StateError, match="a database of another program"):
        StreamPool(MODEL, foreign)
    assert foreign.read_bytes() == before
    with pytest.raises(UnwritableError, match="cannot"):
        StreamPool(MODEL, tmp_path)


def test_a_damaged_state_is_named_and_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "states.db"
    with StreamPool(MODEL, path) as pool:
        pool.push(list("ab"), rows(2))
    content = path.read_bytes()
    with sqlite3.connect(path) as db:
        (blob,) = db.execute("select content from state where key='a'").fetchone()
    db.close()
    place = content.index(blob[-64:])
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with StreamPool(MODEL, path) as pool:
        with pytest.raises(StateError, match=r"state of stream 'a' is damaged.*pool\.drop\(\['a'\]\)"):
            pool.push(list("ab"), rows(2))
        pool.drop(["a"])
        pool.push(list("ab"), rows(2))


def test_a_store_that_was_cut_says_so(tmp_path: Path) -> None:
    path = tmp_path / "states.db"
    with StreamPool(MODEL, path) as pool:
        pool.push([f"key {number}" for number in range(100)], rows(100))
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(StateError, match="damaged, or no file of states"):  # noqa: SIM117
        with StreamPool(MODEL, path) as pool:
            pool.push([f"key {number}" for number in range(100)], rows(100))


def killed_with_log(path: Path, commits: int) -> None:
    """Leave a store whose write-ahead log was not folded in, by a process that is killed."""
    child = os.fork()
    if child == 0:
        pool = StreamPool(MODEL, path)
        for index in range(commits):
            pool.push(list("ab"), rows(2, seed=index))
            pool.commit()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_truncated_log_leads_back_to_a_whole_commit(tmp_path: Path) -> None:
    with StreamPool(MODEL, tmp_path / "whole.db") as whole:
        for index in range(6):
            whole.push(list("ab"), rows(2, seed=index))
        expected = saved(whole, "ab")
    found = set()
    for share in (1.0, 0.8, 0.5, 0.3):
        path = tmp_path / f"{share}.db"
        killed_with_log(path, 6)
        log = path.with_name(f"{path.name}-wal")
        content = log.read_bytes()
        log.write_bytes(content[: int(share * len(content))])
        with StreamPool(MODEL, path) as pool:
            found.add(pool.offset)
            for index in range(pool.offset // 2, 6):
                pool.push(list("ab"), rows(2, seed=index), offset=2 * index)
            assert saved(pool, "ab") == expected
    assert max(found) == 12
    assert min(found) < 12


def test_a_state_newer_than_the_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "states.db"
    with StreamPool(MODEL, path) as pool:
        pool.push(["a"], rows(1))
    with sqlite3.connect(path) as db:
        db.execute("update state set saved = saved + 1")
    db.close()
    with StreamPool(MODEL, path) as pool, pytest.raises(StateError, match=r"write-ahead log .* was removed"):
        pool.push(["a"], rows(1))


@pytest.mark.parametrize("capacity", [2, 4000])
def test_a_full_disk_loses_nothing(tmp_path: Path, capacity: int) -> None:
    """The system's limit on the size of files stands for the disk."""
    resource = pytest.importorskip("resource")  # not on Windows
    path, limits = tmp_path / "states.db", resource.getrlimit(resource.RLIMIT_FSIZE)
    keys, items = [f"key {number}" for number in range(2000)], rows(2000)
    pool = StreamPool(MODEL, path, capacity=capacity)
    pool.push(keys[:3], items[:3])
    pool.commit()
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(UnwritableError, match="Free space"):  # noqa: PT012
            for begin in range(3, 2000, 500):
                pool.push(keys[begin : begin + 500], items[begin : begin + 500])
            pool.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert pool.committed == 3
    assert pool.offset == (2000 if capacity == 4000 else 3)  # all in memory, or back at the commit
    pool.push(keys[3:], items[3:], offset=3)
    pool.commit()
    assert (len(pool), pool.committed) == (2000, 2000)
    pool.close()
