"""EventsConfig: which events, which model, how it is trained and evaluated; by default as published."""

from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from aaren.engine.optimiser import OptimiserConfig
from aaren.errors import ConfigError, too_small
from aaren.events.files import Columns, Repairs
from aaren.events.likelihood import Censoring
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.references import DISTRIBUTIONS, EventReference, EventReferenceConfig

ModelName: TypeAlias = Literal["aaren", "transformer", "gru", "aaren-decay", "poisson", "renewal", "markov"]
MIXERS = {"aaren": "aaren", "aaren-decay": "aaren", "transformer": "softmax", "gru": "gru"}


@dataclass(frozen=True, kw_only=True, slots=True)
class EventNetworkConfig:
    """The sizes that all trained models share (see `EventModelConfig`)."""

    width: int = 64
    num_heads: int = 1
    num_layers: int = 2
    ff_width: int = 64
    dropout: float = 0.1
    num_components: int = 8
    encoding: Literal["gaps", "times"] = "gaps"
    spare_heads: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnEventsConfig:
    """How the user's own file is to be read."""

    sequence_column: str = "sequence"
    time_column: str = "time"
    mark_column: str = "mark"  # may be absent from the file
    unit: str = ""  # of the times, for records
    observed_from: float | None = None  # when observation of every sequence began; none: unknown
    observed_until: float | None = None  # when it ended; none: unknown
    sort: bool = False  # put events in the order of time
    drop_duplicates: bool = False  # of events of one sequence at one time, keep the first
    drop_single: bool = False  # leave out sequences of one event

    @property
    def columns(self) -> Columns:
        """Return what the columns are called."""
        return Columns(sequence=self.sequence_column, time=self.time_column, mark=self.mark_column)

    @property
    def repairs(self) -> Repairs:
        """Return what may be repaired."""
        return Repairs(sort=self.sort, drop_duplicates=self.drop_duplicates, drop_single=self.drop_single)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventsConfig:
    """One experiment with event sequences."""

    dataset: str = ""  # a name of the catalogue
    data_file: str = ""  # or the user's own .csv, .parquet, .json (EasyTPP) or .npz
    own: OwnEventsConfig = field(default_factory=OwnEventsConfig)
    split: Literal["auto", "fractions", "source"] = "auto"
    max_sequences: int | None = None  # only the first so many
    model: ModelName = "aaren"
    network: EventNetworkConfig = field(default_factory=EventNetworkConfig)
    time_scale: float | Literal["mean-gap"] = 1.0  # the model's unit of time, in that of the data
    censoring: Censoring = "protocol"  # the last event counts as censored; "none": it has a density
    selection: Literal["rmse", "nll"] = "rmse"  # whose best validation value chooses the weights
    optimiser: OptimiserConfig = field(  # Adam's weight decay is the published penalty, 0.5 · 1e-4 · Σ θ²
        default_factory=lambda: OptimiserConfig(learning_rate=5e-4, eps=1e-5, weight_decay=1e-4)
    )
    batch_size: int = 16
    epochs: int = 6_000  # at most
    patience: int = 500  # epochs without a better validation NLL, whatever chooses the weights

    def __post_init__(self) -> None:
        """Report every fault of these settings together."""
        faults = []
        if bool(self.dataset) == bool(self.data_file):
            faults.append("name either a dataset or a data_file")
        faults += too_small(self, batch_size=1, epochs=1, patience=1)
        if self.max_sequences is not None and self.max_sequences < 5:
            faults.append(f"max_sequences must be at least 5, for three parts; got {self.max_sequences}")
        if self.time_scale != "mean-gap" and not 0.0 < self.time_scale < float("inf"):
            faults.append(f"time_scale must be a positive number or 'mean-gap'; got {self.time_scale}")
        if faults:
            raise ConfigError("; ".join(faults) + ".")
        self.model_config(num_marks=1, time_scale=1.0)  # its own checks

    @property
    def is_reference(self) -> bool:
        """Tell whether there is nothing to train step by step."""
        return self.model in DISTRIBUTIONS

    def model_config(self, *, num_marks: int, time_scale: float) -> EventModelConfig | EventReferenceConfig:
        """Return the config of the model for so many kinds of events."""
        if self.is_reference:
            return EventReferenceConfig(distribution=self.model, num_marks=num_marks)
        return EventModelConfig(
            num_marks=num_marks,
            mixer=MIXERS[self.model],
            time_scale=time_scale,
            time_decay="learned" if self.model == "aaren-decay" else None,
            **asdict(self.network),
        )

    def build_model(self, *, num_marks: int, time_scale: float) -> EventModel | EventReference:
        """Build the untrained model."""
        config = self.model_config(num_marks=num_marks, time_scale=time_scale)
        return EventModel(config) if isinstance(config, EventModelConfig) else EventReference(config)
