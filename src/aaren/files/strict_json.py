"""JSON that every reader accepts: a number that is not finite is null, an integer has at most 64 bits."""

import json
import math
from collections.abc import Mapping
from typing import Any

_DIGITS = 20  # of an integer of 64 bits, and its sign


def parse_json(text: str) -> Any:
    """Read JSON, what is not finite as null; a ValueError also for what is nested too deeply or too large.

    >>> parse_json('{"mse": 0.5}'), parse_json("[1, null]")
    ({'mse': 0.5}, [1, None])
    """
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(text: str) -> int:
    if len(text) > _DIGITS or abs(int(text)) >= 2**63:
        raise ValueError("it holds an integer of more than 64 bits")
    return int(text)


def _number(text: str) -> float | None:
    found = float(text)
    return found if math.isfinite(found) else None


_ENCODER = json.JSONEncoder(allow_nan=False)  # made once: that takes as long as to write a short line


def strict_json(value: object, *, indent: int | None = None) -> str:
    """Write JSON that every reader accepts: what is not finite is null.

    >>> strict_json({"mse": float("nan")})
    '{"mse": null}'
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False) if indent else _ENCODER.encode(value)
    except (TypeError, ValueError):  # a mapping that is no dict, or a number that is not finite
        return json.dumps(_strict(value), indent=indent, allow_nan=False)


def _strict(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
