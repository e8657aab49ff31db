"""What a check found: the errors of one subject beside the limits that they are held to.

Errors are the largest difference from the definition in float64, relative to the largest number of its kind.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor

from aaren.errors import AarenError, MissingDependencyError
from aaren.ops.dispatch import VARIABLE

Errors: TypeAlias = tuple[dict[str, float], dict[str, float]]  # by verb, and their limits

# A scan, by the dtype of its inputs. float64: hundreds of additions, each rounded to 1e-16. float32: sums
# are float64, but within a block 64 products are rounded to 6e-8 each. bfloat16: the results themselves
# are rounded, to 4e-3.
SCAN_LIMITS = {torch.float64: 1e-9, torch.float32: 4e-6, torch.bfloat16: 1e-2}
# A stack of layers: every projection and norm rounds too, and gradients pass through all of them twice.
LAYER_LIMITS = {torch.float64: 1e-9, torch.float32: 5e-5}
# Losses of 20 updates in float32: Adam divides gradients by their size, so that rounding errors of those near
# 0 are as large as any, and every update builds on the one before.
TRAINING_LIMIT = 1e-2


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result for one subject."""

    group: str  # backend, mixer, model, compile
    name: str
    dtype: str
    errors: Mapping[str, float] = field(default_factory=dict)  # by verb: forward, backward, step, 20 updates
    limits: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""  # why nothing was checked
    failure: str = ""  # what was raised

    @property
    def faults(self) -> list[str]:
        """Return what is wrong, in words; a NaN is beyond every limit."""
        wrong = [
            f"{verb} is off by {error:.1e}, more than {self.limits[verb]:.0e}"
            for verb, error in self.errors.items()
            if not error <= self.limits[verb]
        ]
        return [self.failure, *wrong] if self.failure else wrong

    @property
    def verdict(self) -> str:
        """Return the word for the table."""
        return "FAILED" if self.faults else "skipped" if self.skipped else "right"


def difference(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Return the largest difference, relative to the largest wanted number of all (or to 1e-6, if less).

    >>> difference([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0])])
    0.25
    """
    assert len(found) == len(wanted)
    pairs = [
        (a.detach().cpu().double(), b.detach().cpu().double()) for a, b in zip(found, wanted, strict=True)
    ]
    scale = max([1e-6, *(b.abs().max().item() for _, b in pairs if b.numel())])
    gaps = [torch.nan_to_num((a - b).abs(), nan=torch.inf).max().item() for a, b in pairs if b.numel()]
    return max(gaps, default=0.0) / scale


class SkippedError(AarenError):
    """What cannot be checked here, and why."""


def attempt(group: str, name: str, dtype: torch.dtype, check: Callable[[], Errors]) -> Outcome:
    """Run a check; one that raises has failed, and the others still run."""
    about = Outcome(group=group, name=name, dtype=dtype_name(dtype))
    try:
        errors, limits = check()
    except (SkippedError, MissingDependencyError) as reason:
        return replace(about, skipped=str(reason))
    except AarenError as error:
        return replace(about, failure=str(error))
    except Exception as error:  # whatever a device, a driver or a compiler may raise
        return replace(about, failure=f"{type(error).__name__}: {error}".splitlines()[0])
    return replace(about, errors=errors, limits=limits)


def dtype_name(dtype: torch.dtype) -> str:
    """Return float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


@contextmanager
def auto_is(backend: str | None) -> Iterator[None]:
    """Let `auto` be this backend for the time of a block, as the user's environment would; None: as it is."""
    before = os.environ.get(VARIABLE)
    if backend is not None:
        os.environ[VARIABLE] = backend
    try:
        yield
    finally:
        if backend is not None:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
