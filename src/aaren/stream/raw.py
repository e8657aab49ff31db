"""From a raw row to an answer: `Scaled`, a model that takes raw numbers, and `WholeStep`, what is exported.

What a run learned outside its model (scales, names, classes) is the model's `preprocessing`; `load_model`
puts it there, and both the model's `stream()` and its `whole_step()` apply it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor, nn

from aaren.errors import ConfigError, DataError
from aaren.nn.checks import largest
from aaren.nn.state import fingerprint_of
from aaren.ops.tracing import is_traced, require
from aaren.stream.session import StateT, Steppable


class Scaled(Generic[StateT]):
    """A model of scaled numbers that is given raw ones: `(raw - mean) / deviation`, in float64.

    Args:
        model: for inference.
        mean: (numbers of an item,), of training.
        deviation: alike.
        restores: whether answers, whose last axis is the same, are brought back to raw units.
    """

    item_dtype = torch.float64

    def __init__(
        self, model: Steppable[StateT], *, mean: Tensor, deviation: Tensor, restores: bool = False
    ) -> None:
        self.model, self.restores = model, restores
        self._weight = next(iter(model.parameters()))
        self.mean, self.deviation = (part.double().to(self._weight.device) for part in (mean, deviation))
        self._largest = largest(self._weight.dtype)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Give the weights."""
        return self.model.parameters()

    def buffers(self) -> Iterator[Tensor]:
        """Give what else the weights' name depends on."""
        return self.model.buffers() if isinstance(self.model, nn.Module) else iter(())

    def init_state(self, batch_size: int) -> StateT:
        """Return the state before the first item."""
        return self.model.init_state(batch_size)

    def fingerprint(self) -> str:
        """Return the name of the weights and scales."""
        scales = torch.stack([self.mean, self.deviation]).cpu().numpy().tobytes()
        return hashlib.sha256(fingerprint_of(self.model).encode() + scales).hexdigest()[:16]

    def step(
        self, item: Tensor, state: StateT, *, mask: Tensor | None = None, **extras: Tensor
    ) -> tuple[Tensor, StateT]:
        """Take in one raw item per stream; one that, scaled, is beyond what the model can hold is refused."""
        if item.shape[-1:] != self.mean.shape:  # the model says which shape it wants
            return self.model.step(item, state, mask=mask, **extras)
        scaled = (item - self.mean) / self.deviation
        fine = (scaled.abs() <= self._largest).all(-1)
        if mask is not None:
            fine = fine | ~mask
        if is_traced():
            require(fine)
        elif not bool(fine.all()):
            stream = int((~fine).nonzero()[0])
            raise DataError(
                f"the item of stream {stream}, {item[stream].tolist()}, is too far from the training data "
                f"for the model to hold: means {self.mean.tolist()}, standard deviations "
                f"{self.deviation.tolist()}. Leave it out, or give mask=False for its stream."
            )
        answer, state = self.model.step(scaled.to(self._weight.dtype), state, mask=mask, **extras)
        return (answer.double() * self.deviation + self.mean if self.restores else answer), state


def scaled_by(
    model: Steppable[StateT], preprocessing: Mapping[str, Any] | None, size: int, *, restores: bool = False
) -> Steppable[StateT]:
    """Return a model of raw numbers, scaled as in the run that it comes from; of no run: the model itself."""
    if preprocessing is None or "mean" not in preprocessing:
        return model
    if preprocessing.get("is_normalised_across_channels"):
        raise ConfigError(
            "the run scaled each series by itself, which needs all of it: raw samples cannot be streamed. "
            "Train --model aaren-causal, or scale them yourself: model.preprocessing = None before stream()."
        )
    mean, deviation = (
        torch.tensor(preprocessing[name], dtype=torch.float64) for name in ("mean", "deviation")
    )
    if mean.shape != (size,) or deviation.shape != (size,):
        raise ConfigError(
            f"the scales of the run are for {tuple(mean.shape)} numbers; the model takes {size}: they do not "
            f"belong together."
        )
    tiny = torch.finfo(torch.float64).eps  # of a channel that never changes; as `aaren predict`
    deviation = torch.where(deviation == 0.0, tiny, deviation)
    return Scaled(model, mean=mean, deviation=deviation, restores=restores)


def names_in(preprocessing: Mapping[str, Any] | None, name: str) -> list[str]:
    """Return names that a run knows: columns, classes, kinds of events."""
    return [str(text) for text in (preprocessing or {}).get(name, [])]


class CivilDate(NamedTuple):
    """Parts of dates, each (b,) float64."""

    days: Tensor  # since 1970-01-01
    second: Tensor  # of the day
    weekday: Tensor  # from 0, Monday
    month: Tensor  # from 0, January
    of_month: Tensor  # from 0
    of_year: Tensor  # from 0


def civil_date(seconds: Tensor) -> CivilDate:
    """Return the date of times (b,), in operations on tensors only, so that it can be recorded.

    Args:
        seconds: since 1970-01-01, in the time zone of the data.
    """
    days = (seconds / 86400.0).floor()
    shifted = days + 3.0
    # The civil calendar, in years that begin in March.
    since = days + 719468.0
    era = (since / 146097.0).floor()
    day = since - era * 146097.0
    leaps = (day / 1460.0).floor() - (day / 36524.0).floor() + (day / 146096.0).floor()
    year = ((day - leaps) / 365.0).floor()
    of_year = day - (365.0 * year + (year / 4.0).floor() - (year / 100.0).floor())
    month = ((5.0 * of_year + 2.0) / 153.0).floor()
    before = year + era * 400.0 + (month >= 10.0).double() - 1.0  # the last year that is over
    ages = (before / 400.0).floor()
    rest = before - ages * 400.0
    first = ages * 146097.0 + rest * 365.0 + (rest / 4.0).floor() - (rest / 100.0).floor() + 306.0 - 719468.0
    return CivilDate(
        days=days,
        second=seconds - days * 86400.0,
        weekday=shifted - (shifted / 7.0).floor() * 7.0,
        month=month + 2.0 - 12.0 * (month >= 10.0).double(),
        of_month=of_year - ((153.0 * month + 2.0) / 5.0).floor(),
        of_year=days - first,
    )


def calendar_marks(seconds: Tensor) -> Tensor:
    """Return hour, weekday, day of month and day of year of times (b,), each from -0.5 to 0.5: (b, 4).

    As `aaren.forecasting.data.time_marks`.

    >>> calendar_marks(torch.tensor([1514764800.0], dtype=torch.float64)).tolist()  # 2018-01-01, a Monday
    [[-0.5, -0.5, -0.5, -0.5]]
    """
    date = civil_date(seconds)
    hour = (date.second / 3600.0).floor()
    parts = [hour / 23.0, date.weekday / 6.0, date.of_month / 30.0, date.of_year / 365.0]
    return torch.stack(parts, dim=-1) - 0.5
