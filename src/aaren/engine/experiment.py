"""An experiment: a setting with its config and data, as the training loop uses it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeAlias, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.engine.plan import Moment, Plan
from aaren.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Part: TypeAlias = Literal["validation", "test"]
PARTS: tuple[Part, ...] = ("validation", "test")


class Batch(Protocol):
    """A frozen dataclass of tensors (or None) whose first axis is the case; `len` counts the cases."""

    def __len__(self) -> int:
        """Return the number of cases."""


BatchT = TypeVar("BatchT", bound=Batch)
ConfigT = TypeVar("ConfigT", bound="DataclassInstance")


class Experiment(ABC, Generic[BatchT]):
    """A setting with its config and its data: everything that the training loop asks for.

    Randomness: the order of batches is a function of seed and epoch, so that a stopped run resumes in the
    middle of an epoch. Dropout and initial weights draw from torch's global generator, whose state is in
    every checkpoint. Whatever else is random gets its own generator, seeded by the seed and the moment.
    """

    plan: Plan
    data_checksums: Mapping[str, str] = MappingProxyType({})  # of the files read; `Setting.open` sets it

    @abstractmethod
    def build_model(self) -> nn.Module:
        """Build the untrained model; torch's global generator has been seeded."""

    @abstractmethod
    def build_optimiser(self, model: nn.Module) -> Optimizer:
        """Build the optimiser with the highest learning rate; the plan's schedule scales it."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[BatchT]:
        """Walk through one epoch; the same number gives the same batches.

        The first `plan.updates_per_epoch` batches are used; there must be as many.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: BatchT) -> Tensor:
        """Return the loss of a batch, a scalar."""

    @abstractmethod
    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        """Score the model, which is in evaluation mode and without gradients, on one part.

        `validation` is asked for again and again and drives selection and stopping; `test` once, at the end,
        with the selected weights.
        """

    def predictions(self, model: nn.Module) -> Mapping[str, Tensor]:
        """Return the model's predictions on the test part, and the targets, for figures."""
        del model
        raise ConfigError("this setting keeps no predictions: leave out engine.predictions.")

    def figures(self, model: nn.Module) -> Mapping[str, Json]:
        """Return what figures of this run are drawn from, about the test part: few and rounded numbers.

        The model is in evaluation mode and without gradients. Seconds and tens of kilobytes at most; default:
        nothing, because what is in the record's metrics needs no second place.
        """
        del model
        return {}

    def preprocessing(self) -> Mapping[str, Json]:
        """Return what was learned from the data outside the model (scales, names), for `Setting.predict`."""
        return {}

    def checksums(self) -> Mapping[str, str]:
        """Return the sha256 of every data file by its name, of the bytes read; empty for generated data."""
        return self.data_checksums

    def facts(self) -> Mapping[str, Json]:
        """Return what a reader of the record should know of the data: sizes, units, what is partial."""
        return {}
