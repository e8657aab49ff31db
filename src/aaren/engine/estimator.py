"""The base of the four estimators: settings, seed, saving; and the checks that they share.

An estimator subclasses `Estimator` and has

* a constructor that stores every argument under its own name, then calls `_check_settings()`,
* `fit(data)`, which sets `model_` and what else it learns under names that end in `_`, draws its seed with
  `draw_seed(self.random_state)`, trains with `aaren.engine.loop.fit` and shows progress on `_observer()`,
* `predict`, `stream`, `score`, `table` and, where there is something to see, `plot`, each of which begins
  with `_require_fitted()`,
* `_state_dict()` and `_restore(learned)`: what it has learned as `Learned`, and back.

The base saves and loads it: `estimator.json` (class, format, settings, facts), `arrays.safetensors`, the
model as `save_model` writes it, other models in folders of their names, and the checksums of all of them.
On a full disk nothing changes. One that scikit-learn shall take is `class A(Estimator, ClassifierMixin,
BaseEstimator)`. `tests/engine/test_estimator.py` has the smallest one.
"""

import inspect
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import nn

from aaren.engine.experiment import Json
from aaren.engine.progress import Observer, choose_observer
from aaren.errors import AarenError, ConfigError, DataError, unknown_name
from aaren.files.checksums import CHECKSUMS_FILE, checksums_file, read_files, write_files
from aaren.stream.saved import load_model, model_files
from aaren.version import __version__

DESCRIPTION, ARRAYS = "estimator.json", "arrays.safetensors"  # of a saved estimator, beside its model
RandomState: TypeAlias = int | np.random.RandomState | None


class Settings:
    """Refuses settings that its constructor does not take, and says which may have been meant."""

    def __new__(cls, *arguments: object, **settings: object) -> Self:
        """Check the names; the constructor takes the values."""
        del arguments
        require_known(settings, inspect.signature(cls.__init__).parameters)
        return super().__new__(cls)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Learned:
    """What a fitted estimator has learned, as it is saved.

    Bytes are arrays of uint8: `np.frombuffer(state_to_bytes(...), np.uint8)`, and `.tobytes()` back. Dates
    are arrays of int64, with their dtype among the facts.
    """

    model: nn.Module
    facts: Mapping[str, Json] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    others: Mapping[str, nn.Module] = field(default_factory=dict)  # further models by name


class Estimator(Settings):
    """Keeps every argument of its constructor as an attribute; saves and loads what it has learned."""

    format_version: ClassVar[int] = 1  # raised when facts, arrays or settings get another meaning

    def _state_dict(self) -> Learned:
        """Return what was learned; an error for what cannot be saved, such as ids that are no text."""
        raise NotImplementedError

    def _restore(self, learned: Learned) -> None:
        """Take over what `_state_dict` returned; the settings are set already."""
        raise NotImplementedError

    def _check_settings(self) -> None:
        """Report all settings that cannot be, in one ConfigError."""

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

    def save(self, folder: str | Path) -> Path:
        """Write settings and what was learned into a folder, made if need be; nothing is pickled.

        Everything is written beside what is there and then replaces it: on a full disk nothing changes.
        """
        self._require_fitted()
        learned = self._state_dict()
        described = {
            "class": type(self).__name__,
            "format_version": self.format_version,
            "aaren_version": __version__,
            "settings": {name: _plain(value) for name, value in self.get_params().items()},
            "others": sorted(learned.others),
            "facts": learned.facts,
        }
        files = {
            **model_files(learned.model),
            DESCRIPTION: (json.dumps(described, indent=1) + "\n").encode(),
        }
        if learned.arrays:
            arrays = {name: np.ascontiguousarray(array) for name, array in learned.arrays.items()}
            files[ARRAYS] = safetensors.numpy.save(arrays)
        for name, model in learned.others.items():
            parts = model_files(model)
            parts[CHECKSUMS_FILE] = checksums_file(parts)
            files |= {f"{name}/{part}": content for part, content in parts.items()}
        write_files(Path(folder), files)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote; it resumes where it was."""
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise DataError(
                f"no saved {cls.__name__} in {folder}: {DESCRIPTION} is missing. Give the folder that "
                f"{cls.__name__}.save wrote."
            )
        with reading(folder, cls.__name__):
            files = read_files(folder, DESCRIPTION)
            described = json.loads(files[DESCRIPTION])
            if described["class"] != cls.__name__:
                raise DataError(
                    f"{folder} holds a {described['class']}: read it with {described['class']}.load."
                )
            version = described["format_version"]
            if version != cls.format_version:
                raise DataError(
                    f"{folder}: format version {version}; this aaren reads {cls.format_version}. Upgrade: "
                    f"pip install -U aaren; or fit and save again."
                )
            estimator = cls(**{name: _frozen(value) for name, value in described["settings"].items()})
            arrays = safetensors.numpy.load(files[ARRAYS]) if ARRAYS in files else {}
            learned = Learned(
                model=load_model(folder),
                facts=described["facts"],
                arrays={name: array.copy() for name, array in arrays.items()},
                others={name: load_model(folder / name) for name in described["others"]},
            )
            try:
                estimator._restore(learned)
            except DataError as error:
                raise DataError(f"{folder}: {error}") from error
            return estimator

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise ConfigError(f"this {type(self).__name__} is not fitted yet: call fit first.")

    def _observer(self) -> Observer:
        """Return what shows the progress of a fit: nothing, unless `verbose` is set."""
        return choose_observer(None) if self.get_params().get("verbose") else Observer()

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
        numbers: dict[str, Any] = {}
        for name, smallest in least.items():
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, Integral)
                or not smallest <= int(value) < 2**63
            ):
                faults.append(f"{name} must be a whole number, at least {smallest}; got {value!r}")
            else:
                numbers[name] = int(value)
        for name, most in below.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < most:
                limits = "positive and finite" if most == math.inf else f"above 0 and below {most:g}"
                faults.append(f"{name} must be a number, {limits}; got {value!r}")
            else:
                numbers[name] = float(value)
        return numbers


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
        SafetensorError,
        TypeError,
        ValueError,
    ) as error:
        raise DataError(
            f"{folder}: damaged or incomplete {name} ({type(error).__name__}: {error}). Save it again."
        ) from error


def require_known(settings: Iterable[str], known: Iterable[str]) -> None:
    """Report a setting that there is not, with the one that may have been meant."""
    names = [name for name in known if name != "self"]
    for name in settings:
        if name not in names:
            raise unknown_name("setting", name, names)


def draw_seed(random_state: RandomState) -> int:
    """Return the seed of a fit: an int itself, otherwise a number that is drawn.

    >>> draw_seed(7)
    7
    """
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int((random_state or np.random.RandomState()).randint(2**31 - 1))


def _plain(value: object) -> object:
    """Return a setting as JSON takes it, an object such as a Timedelta as text; a generator becomes None."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _frozen(value: object) -> object:
    """Return a setting as it was before `_plain`: lists were tuples."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def require_levels(levels: object) -> tuple[float, ...]:
    """Return levels of intervals, in percent, or report what cannot be one.

    >>> require_levels([0.8])
    Traceback (most recent call last):
    aaren.errors.ConfigError: levels are in percent, at least 1 and below 100, as [80, 95]; got 0.8.
    """
    asked: list[Any] = list(levels) if isinstance(levels, Iterable) else [(levels,)]
    for level in asked:
        if isinstance(level, bool) or not isinstance(level, Real) or not 1 <= float(level) < 100:
            raise ConfigError(
                f"levels are in percent, at least 1 and below 100, as [80, 95]; got "
                f"{levels if isinstance(level, tuple) else level!r}."
            )
    return tuple(asked)


def require_whole(name: str, value: object) -> int:
    """Return a number of things, or report what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ConfigError(f"{name} must be a whole number, at least 1; got {value!r}.")
    return int(value)
