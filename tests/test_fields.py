from dataclasses import dataclass, field
from typing import Literal

import pytest

from aaren.errors import ConfigError
from aaren.fields import (
    Text,
    WrongValueError,
    build,
    flatten,
    read_text,
    to_mapping,
)


@dataclass(frozen=True, kw_only=True)
class Inner:
    width: int = 8
    rate: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    kind: Literal["a", "b"] = "a"
    limit: float | None = None
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[int, str] = (1, "x")
    is_on: bool = False
    inner: Inner = field(default_factory=Inner)
    spare: Inner | None = None

    def __post_init__(self) -> None:
        if self.inner.width < 1:
            raise ConfigError(f"inner.width must be 1 or more; got {self.inner.width}.")
        if self.limit is not None and self.limit < 0:
            raise ConfigError(f"limit must be 0 or more; got {self.limit}.")


def test_mapping_and_back() -> None:
    outer = Outer(name="n", limit=0.5, sizes=(3,), inner=Inner(width=9), spare=Inner())
    faults: list[str] = []
    assert build(Outer, to_mapping(outer), faults) == outer
    assert faults == []


def test_every_fault_is_found() -> None:
    faults: list[str] = []
    values = {
        "kind": "c",
        "limit": -1,
        "sizes": [1, "two"],
        "pair": [1],
        "is_on": 1,
        "inner": {"widht": 3, "rate": True},
        "spare": 5,
        "nme": "n",
    }
    assert build(Outer, values, faults) is None
    assert faults == [
        "unknown key 'nme'; did you mean 'name'?",
        "name is missing: expected text",
        "kind: expected one of 'a', 'b', got 'c'",
        "sizes: expected an integer, got 'two'",
        "pair: expected 2 values, got 1",
        "is_on: expected true or false, got 1",
        "unknown key 'inner.widht'; did you mean 'inner.width'?",
        "inner.rate: expected a number, got True",
        "spare: expected a table of keys or none, got 5",
    ]


def test_the_own_check_of_a_config_is_a_fault_too() -> None:
    faults: list[str] = []
    assert build(Outer, {"name": "n", "limit": -1.0, "kind": "c"}, faults) is None
    assert faults == ["kind: expected one of 'a', 'b', got 'c'", "limit must be 0 or more; got -1.0."]


def test_a_config_whose_check_looks_into_a_table_at_fault() -> None:
    faults: list[str] = []
    assert build(Outer, {"name": "n", "limit": -1.0, "inner": {"width": Text("abc")}}, faults) is None
    assert faults == [
        "inner.width: expected an integer, got 'abc'",
        "limit must be 0 or more; got -1.0.",
    ]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "10_000", 10_000),
        (float, "1e-4", 1e-4),
        (bool, "False", False),
        (str, "x=y", "x=y"),
        (float | None, "none", None),
        (float | None, "2", 2.0),
        (str | None, "none", None),
        (tuple[int, ...], "[96, 192]", (96, 192)),
        (tuple[int, ...], "", ()),
        (Literal["a", "b"], "b", "b"),
    ],
)
def test_text_is_read_as_the_type_says(kind: object, text: str, value: object) -> None:
    assert read_text(kind, Text(text)) == value


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (int, "1.5", "expected an integer, got '1.5'"),
        (bool, "yes", "expected true or false, got 'yes'"),
        (int | None, "x", "expected an integer or none, got 'x'"),
        (Literal["a"], "b", "expected one of 'a', got 'b'"),
    ],
)
def test_text_that_does_not_fit(kind: object, text: str, words: str) -> None:
    with pytest.raises(WrongValueError) as caught:
        read_text(kind, Text(text))
    assert str(caught.value) == words


def test_flatten() -> None:
    assert flatten(to_mapping(Outer(name="n")))["inner.width"] == 8
