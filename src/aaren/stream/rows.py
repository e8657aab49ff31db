"""RowPath: what stands between a raw row, as a line of JSON gives it, and the pool; and back to an answer."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any

from aaren.errors import ConfigError, DataError
from aaren.stream.pool import Streamable


class RowPath(ABC):
    """The way of one setting's rows. Scales, names and units of training are in it, so that rows come raw."""

    time = ""  # the usual name of the field with the time of a row; "": it has none
    names: tuple[str, ...] = ()  # the classes or kinds that answers choose among; none: they choose nothing

    def __init__(self, model: Streamable) -> None:
        self.model = model

    @abstractmethod
    def example(self, time: str) -> dict[str, Any]:
        """Return a row such as `read` takes, without its key: to be shown, and to try the model with."""

    @abstractmethod
    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        """Return a row's item and what else `push` takes; `time` names its field with the time."""

    @abstractmethod
    def answers(
        self, found: Sequence[Any], rows: Sequence[Mapping[str, Any]], time: str
    ) -> list[dict[str, Any]]:
        """Return what the model says after each row, with its names and in its units."""

    def choice(self, answer: Mapping[str, Any]) -> tuple[str, float]:
        """Return which of the names an answer chooses, and how probable it is."""
        del answer
        raise ConfigError("these answers choose nothing, so none is a decision or an alarm: --emit always.")


def field(row: Mapping[str, Any], name: str) -> Any:
    """Return a field of a row, or say which there are."""
    if name not in row:
        raise DataError(f"no field {name!r}; the row has {', '.join(map(short, list(row)[:12])) or 'none'}.")
    return row[name]


def number(row: Mapping[str, Any], name: str) -> float:
    """Return a field that is a number."""
    value = field(row, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"the field {name!r} must be a number; got {short(value)}.")
    try:
        return float(value)
    except OverflowError as error:
        raise DataError(f"the field {name!r} is a number that no model can hold.") from error


def numbers(row: Mapping[str, Any], name: str, count: int) -> list[float]:
    """Return a field that is a list of so many numbers."""
    values = field(row, name)
    if type(values) is list and len(values) == count and all(type(value) is float for value in values):
        return values
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != count:
        raise DataError(f"the field {name!r} must be a list of {count} numbers; got {short(values)}.")
    return [number({name: value}, name) for value in values]
