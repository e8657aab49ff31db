"""Errors that a user can cause.

Every message gives what was expected, what came, and what to do. The command line prints it as one line and
exits 2.
"""

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType


class AarenError(Exception):
    """The base class of every error that a user can cause and fix."""

    item: int | None = None  # which of several that came together it is about; None: not of one


class ShapeError(AarenError, ValueError):
    """Tensors whose shapes, types or devices do not fit together."""


class StateError(AarenError, ValueError):
    """A state that belongs to another model, batch, dtype or format version."""


class UnwritableError(StateError):
    """A folder that cannot be written to: the disk is full or read-only, or permission is missing."""


class ConfigError(AarenError, ValueError):
    """A setting that is unknown or that contradicts another one."""


class DataError(AarenError, ValueError):
    """A file or array that does not hold what its format promises."""


class MissingDependencyError(AarenError, ImportError):
    """An optional library that is not installed; the message says how to install it."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Build the error for a name that is not among the known ones, with the nearest of them.

    >>> print(unknown_name("backend", "fussed", ["fused", "naive"]))
    unknown backend 'fussed'; did you mean 'fused'? Known: fused, naive.
    """
    options = sorted(known)
    close = get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ConfigError(f"unknown {kind} {name!r}; {hint}Known: {', '.join(options)}.")


def require_at_least(config: object, **least: int) -> None:
    """Report every field of a config that is smaller than it may be.

    >>> require_at_least(range(0, 3), stop=1, start=1)
    Traceback (most recent call last):
    aaren.errors.ConfigError: start must be at least 1; got 0.
    """
    faults = too_small(config, **least)
    if faults:
        raise ConfigError("; ".join(faults) + ".")


def too_small(config: object, **least: int) -> list[str]:
    """Name every field that is smaller than it may be; one that is None is not.

    >>> too_small(range(0, 3), start=1, step=1)
    ['start must be at least 1; got 0']
    """
    values = {name: getattr(config, name) for name in least}
    return [
        f"{name} must be at least {least[name]}; got {value}"
        for name, value in values.items()
        if value is not None and value < least[name]
    ]


def require_extra(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional module, or fail with the line that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"{purpose} needs {module!r}: pip install 'aaren[{extra}]'") from error
