"""What estimators share: settings by name and their check, seeds, intervals, and how what was saved is read.

`Estimator` is the base of those that do without scikit-learn.
"""

import inspect
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from aaren.errors import AarenError, ConfigError, DataError, unknown_name
from aaren.files.checksums import read_files

DESCRIPTION, STATE = "estimator.json", "state.bin"  # files of a saved estimator, beside its model
RENAMED = {"seed": "random_state"}  # settings that were called otherwise, as in saved estimators
RandomState: TypeAlias = int | np.random.RandomState | None


class Settings:
    """Refuses settings that its constructor does not take, and says which may have been meant."""

    def __new__(cls, *given: object, **settings: object) -> Self:
        """Check the names; the constructor takes the values."""
        del given
        require_known(settings, inspect.signature(cls.__init__).parameters)
        return super().__new__(cls)


class Estimator(Settings):
    """Keeps every argument of its constructor, which also checks them, as an attribute of that name."""

    format_version: ClassVar[int]  # of the description that `save` writes

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, as scikit-learn does."""
        del deep
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **settings: object) -> Self:
        """Change settings by name; they hold from the next fit on."""
        known = self.get_params()
        require_known(settings, known)
        type(self)(**{**known, **settings})  # checks them
        for name, value in settings.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        parameters, values = inspect.signature(type(self)).parameters, self.get_params()
        changed = (f"{name}={value!r}" for name, value in values.items() if value != parameters[name].default)
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote; it resumes where it was."""
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise DataError(f"no saved {cls.__name__} in {folder}: {DESCRIPTION} is missing.")
        with reading(folder, cls.__name__):
            files = read_files(folder, DESCRIPTION)
            described = json.loads(files[DESCRIPTION])
            version = described["format_version"]
            if version != cls.format_version:
                raise DataError(
                    f"{folder}: format version {version}; this aaren reads {cls.format_version}. Upgrade: "
                    f"pip install -U aaren; or fit and save again."
                )
            return cls._from_description(described, folder, files)

    @classmethod
    def _from_description(
        cls, described: Mapping[str, Any], folder: Path, files: Mapping[str, bytes]
    ) -> Self:
        """Make the estimator again from what `save` wrote."""
        raise NotImplementedError

    def _check_random_state(self, faults: list[str]) -> None:
        value = self.get_params()["random_state"]
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not (
            value is None or isinstance(value, np.random.RandomState) or (is_whole and 0 <= value < 2**63)
        ):
            faults.append(
                f"random_state must be a whole number, at least 0, a RandomState of numpy, or None; got "
                f"{value!r}"
            )

    def _numbers(
        self, least: Mapping[str, int], below: Mapping[str, float], faults: list[str]
    ) -> dict[str, Any]:
        """Return the numbers among the settings as plain ones; what cannot be is added to the faults.

        Args:
            least: whole numbers, and how small each may be.
            below: real numbers above 0, and what each must be below.
            faults: where to report.
        """
        found: dict[str, Any] = {}
        for name, smallest in least.items():
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, Integral)
                or not smallest <= int(value) < 2**63
            ):
                faults.append(f"{name} must be a whole number, at least {smallest}; got {value!r}")
            else:
                found[name] = int(value)
        for name, most in below.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < most:
                limits = "positive and finite" if most == math.inf else f"above 0 and below {most:g}"
                faults.append(f"{name} must be a number, {limits}; got {value!r}")
            else:
                found[name] = float(value)
        return found


@contextmanager
def reading(folder: Path, name: str) -> Iterator[None]:
    """Turn whatever damaged files of a saved estimator raise into an error that names the folder."""
    try:
        yield
    except AarenError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise DataError(
            f"{folder}: damaged or incomplete {name} ({type(error).__name__}: {error}). Save it again."
        ) from error


def require_known(settings: Iterable[str], known: Iterable[str]) -> None:
    """Report a setting that there is not; one that was renamed by its new name."""
    names = [name for name in known if name != "self"]
    for name in settings:
        if name not in names:
            if RENAMED.get(name) in names:
                raise ConfigError(f"the setting {name!r} is called {RENAMED[name]!r}: {RENAMED[name]}=...")
            raise unknown_name("setting", name, names)


def draw_seed(random_state: RandomState) -> int:
    """Return the seed of a fit: an int itself, otherwise a number that is drawn.

    >>> draw_seed(7)
    7
    """
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int((random_state or np.random.RandomState()).randint(2**31 - 1))


def saved_random_state(random_state: RandomState) -> int | None:
    """Return what is written of a random state: an int, or None, as a generator has no lasting form."""
    return int(random_state) if isinstance(random_state, int | np.integer) else None


def require_levels(levels: object) -> tuple[float, ...]:
    """Return levels of intervals, in percent, or report what cannot be one.

    >>> require_levels([0.8])
    Traceback (most recent call last):
    aaren.errors.ConfigError: levels are in percent, at least 1 and below 100, as [80, 95]; got 0.8.
    """
    given: list[Any] = list(levels) if isinstance(levels, Iterable) else [(levels,)]
    for level in given:
        if isinstance(level, bool) or not isinstance(level, Real) or not 1 <= float(level) < 100:
            raise ConfigError(
                f"levels are in percent, at least 1 and below 100, as [80, 95]; got "
                f"{levels if isinstance(level, tuple) else level!r}."
            )
    return tuple(given)


def require_whole(name: str, value: object) -> int:
    """Return a number of things, or report what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ConfigError(f"{name} must be a whole number, at least 1; got {value!r}.")
    return int(value)
