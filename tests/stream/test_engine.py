"""Sessions and pools over any module that can be stepped, and the one verb of engines."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aaren import StreamPool
from aaren.errors import ConfigError, DataError, StateError
from aaren.nn import Encoder, EncoderConfig
from aaren.nn.blocks import Layout
from aaren.nn.state import fingerprint_of
from aaren.stream.engine import NativeEngine, Request
from aaren.stream.session import Session


class Counter(nn.Module):
    """A user's module: the mean of the items so far through a layer, and no fingerprint."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def init_state(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Return sums and counts of nothing."""
        return torch.zeros(batch_size, 3, dtype=torch.float64), torch.zeros(batch_size, dtype=torch.int64)

    def step(self, item: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Take in (b, 3)."""
        total, count = state[0] + item.double(), state[1] + 1
        return self.layer((total / count.unsqueeze(1)).to(item.dtype)), (total, count)


def rows(count: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def encoder() -> Encoder:
    torch.manual_seed(3)
    return Encoder(EncoderConfig(width=8, num_heads=2, num_layers=2)).eval()


@pytest.mark.parametrize(("module", "width"), [(Counter(), 3), (encoder(), 8)], ids=["own", "encoder"])
def test_any_module_that_can_be_stepped_has_sessions_and_pools(
    module: nn.Module, width: int, tmp_path: Path
) -> None:
    keys, items = "abacab", rows(6, width)
    sessions = {key: Session(module, engine="auto") for key in "abc"}
    expected = [sessions[key].push(item) for key, item in zip(keys, items, strict=True)]
    assert {session.engine for session in sessions.values()} == {"native"}
    with StreamPool(module, tmp_path / "states.db", capacity=2) as pool:
        found = pool.push(list(keys[:4]), items[:4]) + pool.push(list(keys[4:]), items[4:])
        for have, want in zip(found, expected, strict=True):
            torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-6)  # an encoder is folded for a pool
        assert pool.fingerprint == fingerprint_of(module)
    with StreamPool(module, tmp_path / "states.db") as pool:
        torch.testing.assert_close(pool.push(["b"], items[:1])[0], sessions["b"].push(items[0]))


def test_what_cannot_be_stepped_is_refused(tmp_path: Path) -> None:
    for wrong in (None, 3, nn.Linear(2, 2)):
        with pytest.raises(ConfigError, match="a session needs a model with"):
            StreamPool(wrong, tmp_path / "states.db")  # type: ignore[arg-type]  # on purpose


def test_a_name_of_ones_own_follows_the_weights() -> None:
    module = Counter()
    before = fingerprint_of(module)
    module.layer.weight.data.mul_(2.0)
    assert fingerprint_of(module) != before


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_run_names_the_item_that_it_refuses(engine: str) -> None:
    module = encoder()
    session = Session(module.fold(), batch_size=1, engine=engine)
    layout = Layout(session.state)
    for _ in range(2):  # without a program, and with one
        words, items = layout.pack(session.model.init_state(3)), rows(6, 8)
        items[4, 2] = torch.nan
        with pytest.raises(DataError, match="nan") as refused:
            session.run(words, [3, 2, 1], items)
        assert refused.value.item == 4
    words = layout.pack(session.model.init_state(3))
    answers = session.run(words, [3, 2, 1], rows(6, 8))
    alone = Session(module.fold(), engine=engine)
    for place in (0, 3, 5):
        torch.testing.assert_close(alone.push(rows(6, 8)[place]), answers[place], rtol=1e-5, atol=1e-6)


def test_a_refused_item_leaves_its_state_and_the_others_of_its_turn_are_taken_in() -> None:
    module = encoder().fold()
    engine = NativeEngine(module, fingerprint=module.fingerprint, largest=1e17, is_required=True)
    state, items = module.init_state(3), rows(5, 8)
    assert engine.offer(module.step, items[:3], {}, state)
    assert engine.layout is not None
    words = engine.pack(state)
    items[1, 0] = torch.inf
    before = words.copy()
    taken = engine.run(words, Request((), [items]), [3, 2])
    assert taken is not None
    assert (taken.refused, taken.num_turns) == ([1], 1)
    np.testing.assert_array_equal(words[1], before[1])
    assert not np.array_equal(words[0], before[0])
    assert not np.array_equal(words[2], before[2])
    assert engine.run(words, Request(("mask",), [items]), [3]) is None
    assert engine.run(words, Request((), ["abc"]), [3]) is None


@pytest.mark.parametrize("count", [None, 4])
def test_a_session_of_many_keeps_all_states_if_one_item_is_bad(count: int | None) -> None:
    session = Session(encoder().fold(), batch_size=count, engine="native")
    shape = (8,) if count is None else (count, 8)
    session.push(torch.ones(shape))
    before, bad = session.to_bytes(), torch.ones(shape)
    bad.view(-1)[-1] = 1e18
    with pytest.raises(DataError):
        session.push(bad)
    assert session.to_bytes() == before
    assert session.count == 1


def test_a_restored_state_counts_on() -> None:
    one, other = (Session(encoder().fold(), engine=engine) for engine in ("native", "torch"))
    for item in rows(3, 8):
        one.push(item)
    other.restore(one.to_bytes())
    assert other.count == 3
    assert other.to_bytes() == one.to_bytes()
    with pytest.raises(StateError, match="holds 2 streams"):
        other.restore(one.to_bytes() * 2)
