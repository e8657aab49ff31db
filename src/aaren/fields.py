"""Plain mappings into dataclasses and back, with every fault named by its key.

Values come from TOML or JSON, already typed, or from a command line, as `Text` that is read as the field's
type says.
"""

import contextlib
import dataclasses
import numbers
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from aaren.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


C = TypeVar("C", bound="DataclassInstance")
NONE = "none"  # how TOML and the command line spell None
_LARGEST = sys.float_info.max
_LARGEST_INTEGER = 2**63 - 1
_WORDS: dict[object, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): NONE,
}


_PARSERS: dict[object, Callable[[str], object]] = {
    bool: lambda text: {"true": True, "false": False}[text.lower()],
    int: int,
    float: float,
    type(None): lambda text: {NONE: None}[text.lower()],
}


class Text(str):
    """A value as it was typed on a command line: its type is the field's."""


class WrongValueError(ValueError):
    """A value that does not fit its field; the message says what would."""


def build(
    kind: type[C],
    values: Mapping[str, object],
    faults: list[str],
    *,
    path: str = "",
    given: Mapping[str, object] | None = None,
) -> C | None:
    """Make a dataclass from a mapping; faults are added to the list, and with any there is no result.

    Args:
        kind: The dataclass.
        values: Plain values, or `Text`, by field name.
        faults: Where to report.
        path: What to put before the names of fields in a report.
        given: Fields that are ready and need no reading.
    """
    before = len(faults)
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    faults.extend(
        unknown_key(path + key, [path + name for name in names]) for key in values if key not in names
    )
    arguments: dict[str, object] = dict(given or {})
    for field in dataclasses.fields(kind):
        if field.name in arguments:
            continue
        if field.name in values:
            known = len(faults)
            try:
                value = _read(hints[field.name], values[field.name], faults, path + field.name)
            except WrongValueError as error:
                faults.append(f"{path}{field.name}: {error}")
            else:
                if len(faults) == known:  # a table at fault is none: its default stands in for it
                    arguments[field.name] = value
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            faults.append(f"{path}{field.name} is missing: expected {describe(hints[field.name])}")
    try:
        built = kind(**arguments)  # also with some fields at fault: its own check may find more
    except ConfigError as error:
        faults.append(f"{path.rstrip('.')}: {error}" if path else str(error))
    except TypeError:  # a required field is missing, which has been said
        if len(faults) == before:
            raise
    return built if len(faults) == before else None


def require_types(config: "DataclassInstance") -> None:
    """Report every field of a config whose value is not of its type.

    >>> @dataclasses.dataclass
    ... class Sizes:
    ...     width: int
    >>> require_types(Sizes("32"))
    Traceback (most recent call last):
    aaren.errors.ConfigError: width: expected an integer, got '32'.
    """
    faults = []
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        is_integral = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        try:
            _check(hints[field.name], int(value) if is_integral else value)
        except WrongValueError as error:
            faults.append(f"{field.name}: {error}")
    if faults:
        raise ConfigError("; ".join(faults) + ".")


def faults_error(faults: Sequence[str], source: str) -> ConfigError:
    """Put all faults into one error."""
    if len(faults) == 1:
        return ConfigError(f"{source}: {faults[0]}" + ("" if faults[0][-1] in ".?" else "."))
    return ConfigError(f"{source}: {len(faults)} faults\n" + "\n".join(f"  - {fault}" for fault in faults))


def unknown_key(key: str, known: list[str]) -> str:
    """Say that a key does not exist, with the nearest that does.

    >>> unknown_key("horizn", ["horizon", "seed"])
    "unknown key 'horizn'; did you mean 'horizon'?"
    """
    close = get_close_matches(key, known, n=1, cutoff=0.5)
    return f"unknown key {key!r}; " + (
        f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    )


def to_mapping(config: "DataclassInstance") -> dict[str, object]:
    """Turn a dataclass into nested mappings of plain values, the inverse of `build`."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def flatten(mapping: Mapping[str, object], path: str = "") -> dict[str, object]:
    """Give every value of nested mappings its dotted key.

    >>> flatten({"seed": 0, "model": {"width": 8}})
    {'seed': 0, 'model.width': 8}
    """
    return dict(_leaves(mapping, path))


def read_text(kind: object, text: str) -> object:
    """Read typed text as a value of the given type.

    >>> read_text(int | None, "none"), read_text(tuple[int, ...], "96,192"), read_text(bool, "true")
    (None, (96, 192), True)
    """
    if get_origin(kind) in (Union, types.UnionType):
        # None first: the text "none" is None also where any other text is allowed.
        for part in sorted(get_args(kind), key=lambda part: part is not type(None)):
            with contextlib.suppress(WrongValueError):
                return read_text(part, text)
    elif get_origin(kind) is tuple:
        parts = [part.strip() for part in text.strip("[]() ").split(",") if part.strip()]
        return tuple(map(read_text, _kinds(kind, len(parts)), parts))
    else:
        try:
            value = _PARSERS.get(kind, str)(text)
        except (KeyError, ValueError):
            pass
        else:
            return _check(kind, value)
    raise WrongValueError(f"expected {describe(kind)}, got {_shown(text)}")


def describe(kind: object) -> str:
    """Name a type in words.

    >>> describe(float | None), describe(tuple[int, ...])
    ('a number or none', 'a list of values, each an integer')
    """
    if kind in _WORDS:
        return _WORDS[kind]
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(describe(part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list of values, each {describe(get_args(kind)[0])}"
    return "a table of keys" if dataclasses.is_dataclass(kind) else str(kind)


def _read(kind: object, value: object, faults: list[str], path: str) -> object:
    if isinstance(value, Text) and not dataclasses.is_dataclass(kind):
        return read_text(kind, value)
    if get_origin(kind) in (Union, types.UnionType):
        if value is None or value == NONE:
            return _check(kind, None)
        tables = [part for part in get_args(kind) if dataclasses.is_dataclass(part)]
        if tables and isinstance(value, Mapping):
            return _read(tables[0], value, faults, path)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise WrongValueError(f"expected {describe(kind)}, got {_shown(value)}")
        return build(kind, value, faults, path=path + ".")
    return _check(kind, value)


def _check(kind: object, value: object) -> object:
    """Accept a typed value as it is, or nearly: an integer is a number, a list is a tuple."""
    if get_origin(kind) in (Union, types.UnionType):
        for part in get_args(kind):
            with contextlib.suppress(WrongValueError):
                return _check(part, value)
    elif get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
    elif get_origin(kind) is tuple:
        if isinstance(value, list | tuple):
            return tuple(map(_check, _kinds(kind, len(value)), value))
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= _LARGEST:  # False for NaN
            return float(value)
        raise WrongValueError(f"expected a finite number, got {_shown(value)}")
    elif isinstance(kind, type) and type(value) is kind:
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise WrongValueError(f"expected an integer of at most 64 bits, got {_shown(value)}")
        if isinstance(value, str) and not is_writable(value):
            raise WrongValueError(f"expected text that can be written in UTF-8, got {_shown(value)}")
        return value
    raise WrongValueError(f"expected {describe(kind)}, got {_shown(value)}")


def is_writable(text: str) -> bool:
    """Tell whether files and file names can hold a text: no zero byte, no half of a character."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _shown(value: object) -> str:
    """Write a value for an error, shortly; Python itself refuses to write integers of thousands of digits."""
    if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        return f"one of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _kinds(kind: object, count: int) -> tuple[object, ...]:
    """Return the type of every item of a tuple type with so many items."""
    kinds: tuple[object, ...] = get_args(kind)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return (kinds[0],) * count
    if len(kinds) != count:
        raise WrongValueError(f"expected {len(kinds)} values, got {count}")
    return kinds


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_mapping(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _leaves(mapping: Mapping[str, object], path: str) -> Iterator[tuple[str, object]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield path + key, value
