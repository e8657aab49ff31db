"""A flipped byte anywhere in the pool's file is refused, or changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.stream.test_pool import MODEL, rows

from aaren.errors import AarenError, StateError
from aaren.nn.blocks import state_to_bytes
from aaren.stream.pool import StreamPool
from aaren.stream.session import Session

KEYS = [f"k{number}" for number in range(300)]


class Once:
    """A model whose programs are made once: every trial opens pools."""

    def __init__(self) -> None:
        self.session = MODEL.stream(1)

    def stream(self, batch_size: int | None) -> Session[Any]:
        self.session.batch_size = batch_size
        self.session.reset()
        return self.session


def make(path: Path, model: Any) -> None:
    """Write a file with streams that have notes and numbers, and pages that were given back."""
    with StreamPool(model, path) as pool:
        pool.push([*KEYS, "gone"], rows(301), seq=[7] * 301, at=1.0)
        pool.keep_notes({key: f"note of {key}".encode() for key in KEYS})
        pool.commit()
        pool.push([f"old {number}" for number in range(100)], rows(100), at=2.0)
        pool.commit()
        pool.drop(["gone", *(f"old {number}" for number in range(100))])


def use(path: Path, model: Any) -> list[Any]:
    """Do with a file what a pool can do; return all that is seen of it."""
    seen: list[Any] = []
    for number in range(2):
        with StreamPool(model, path, capacity=100) as pool:
            seen += [len(pool), pool.offset, pool.committed]
            for first in range(0, len(KEYS), 64):
                part = KEYS[first : first + 64]
                items = rows(len(part), seed=first + number)
                seen += [pool.push(part, items, seq=[8 + number] * len(part), at=10.0)]
                seen += [pool.push(part, items, seq=[8] * len(part), at=10.0)]
            seen += [pool.note(key) for key in KEYS[::7]]
            seen += [state_to_bytes(pool.get(key)) for key in KEYS[::7]]
            seen += ["nobody" in pool, KEYS[3] in pool, pool.expire(5.0, now=14.0), len(pool)]
    return seen


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_a_flipped_byte_is_refused_or_harmless(tmp_path: Path, count: int) -> None:
    model, draw = Once(), np.random.default_rng(7)
    make(tmp_path / "whole.db", model)
    content = (tmp_path / "whole.db").read_bytes()
    expected = use(tmp_path / "whole.db", model)
    path, num_refused = tmp_path / "flipped.db", 0
    for number in range(count):
        # Half of the trials anywhere, half where no state lies: the head, the tables' roots, the keys.
        place = int(draw.integers(len(content))) if number % 2 else _place_of_a_key(content, draw)
        flipped = bytearray(content)
        flipped[place] ^= int(draw.integers(1, 256))
        path.write_bytes(flipped)
        try:
            seen = use(path, model)
        except AarenError:
            num_refused += 1
        else:
            assert is_equal(seen, expected), f"trial {number}: byte {place} changed what the pool says"
        for name in ("-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
    assert num_refused > count // 4


def _place_of_a_key(content: bytes, draw: np.random.Generator) -> int:
    """Return a place in a page that begins like an index's or an inner one's, or in the head of the file."""
    pages = [0, *(page for page in range(0, len(content), 4096) if content[page] in (2, 5, 10))]
    return int(draw.choice(pages) + draw.integers(4096))


def test_a_key_lost_from_an_index_is_no_new_stream(tmp_path: Path) -> None:
    model, path = Once(), tmp_path / "flipped.db"
    make(tmp_path / "whole.db", model)
    content = (tmp_path / "whole.db").read_bytes()
    expected = use(tmp_path / "whole.db", model)
    num_refused, place = 0, content.find(b"k137")
    while place >= 0:  # in the table and its note, in both indexes
        path.write_bytes(content[: place + 1] + b"x" + content[place + 2 :])
        try:
            assert is_equal(use(path, model), expected)
        except StateError:
            num_refused += 1
        place = content.find(b"k137", place + 1)
    assert num_refused >= 2  # the note and the index that is read; the rest changes nothing
