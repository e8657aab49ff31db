"""The smallest complete setting: a noisy line with two hidden layers, dropout and an L2 penalty.

An example of what a task must say, and what the engine's own tests train, also as a subprocess (`aaren train
support.toy_task`, with `tests` on the path).
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from aaren.engine.batches import BatchLoader
from aaren.engine.config import EngineConfig
from aaren.engine.experiment import Experiment, Json, Part
from aaren.engine.optimiser import OptimiserConfig
from aaren.engine.plan import Criterion, Moment, Plan, halving
from aaren.engine.setting import Setting
from aaren.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class ToyModelConfig:
    mixer: str = "aaren"
    width: int = 16
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.width < 1 or not 0.0 <= self.dropout < 1.0:
            raise ConfigError(
                f"width must be at least 1 and dropout below 1; got {self.width}, {self.dropout}."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ToyConfig:
    dataset: str = "line"
    data_file: str = ""
    model: ToyModelConfig = field(default_factory=ToyModelConfig)
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(learning_rate=1e-2))
    epochs: int = 3
    batch_size: int = 8
    patience: int | None = None
    clip_norm: float | None = 1.0
    penalty: float = 0.0  # of weights squared; a huge one makes the loss infinite
    build_seconds: float = 0.0  # as of a model that is fitted in closed form
    slow_seconds: float = 0.0  # per batch, so that a test can kill a run in its middle

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ConfigError(f"epochs must be at least 1; got {self.epochs}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToyBatch:
    inputs: Tensor  # (b, 4)
    targets: Tensor  # (b, 1)

    def __len__(self) -> int:
        return len(self.inputs)


class ToyModel(nn.Sequential):
    def __init__(self, config: ToyModelConfig) -> None:
        super().__init__(
            nn.Linear(4, config.width),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.width, config.width),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.width, 1),
        )
        self.config = config


class ToyExperiment(Experiment[ToyBatch]):
    def __init__(self, config: ToyConfig, *, seed: int) -> None:
        self.config = config
        generator = torch.Generator().manual_seed(7)
        inputs = torch.randn(100, 4, generator=generator)
        slopes = torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
        self.inputs, self.targets = inputs, inputs @ slopes + 0.1 * torch.randn(100, 1, generator=generator)
        self.loader = BatchLoader(
            size=60, take=self._take, batch_size=config.batch_size, is_shuffled=True, seed=seed
        )
        self.plan = Plan.in_epochs(
            config.epochs,
            updates_per_epoch=len(self.loader),
            selects=Criterion(metric="mse"),
            patience=config.patience,
            schedule=halving(),
            clip_norm=config.clip_norm,
        )

    def build_model(self) -> nn.Module:
        time.sleep(self.config.build_seconds)
        return ToyModel(self.config.model)

    def build_optimiser(self, model: nn.Module) -> Optimizer:
        return self.config.optimiser.build(model)

    def batches(self, epoch: int) -> Iterator[ToyBatch]:
        for batch in self.loader.epoch(epoch):
            time.sleep(self.config.slow_seconds)
            yield batch

    def loss(self, model: nn.Module, batch: ToyBatch) -> Tensor:
        loss = nn.functional.mse_loss(model(batch.inputs), batch.targets)
        if not self.config.penalty:
            return loss
        return loss + 0.5 * self.config.penalty * sum(p.square().sum() for p in model.parameters())

    def evaluate(self, model: nn.Module, part: Part, moment: Moment) -> Mapping[str, float]:
        del moment
        numbers = torch.arange(60, 80) if part == "validation" else torch.arange(80, 100)
        batch = self._take(numbers)
        found = model(batch.inputs)
        return {
            "mse": float((found.double() - batch.targets.double()).square().mean()),
            "mae": float((found.double() - batch.targets.double()).abs().mean()),
        }

    def predictions(self, model: nn.Module) -> Mapping[str, Tensor]:
        batch = self._take(torch.arange(80, 100))
        return {"forecast": model(batch.inputs), "truth": batch.targets}

    def preprocessing(self) -> Mapping[str, Json]:
        return {"columns": ["a", "b", "c", "d"]}

    def _take(self, numbers: Tensor) -> ToyBatch:
        return ToyBatch(inputs=self.inputs[numbers], targets=self.targets[numbers])


class ToySetting(Setting[ToyConfig, ToyBatch]):
    name = "support.toy_task"
    config_type = ToyConfig
    reports = ("test.mse", "test.mae")

    def make_experiment(self, config: ToyConfig, *, seed: int) -> ToyExperiment:
        return ToyExperiment(config, seed=seed)

    def cell(self, config: ToyConfig) -> Mapping[str, str | int]:
        model = {"softmax": "transformer"}.get(config.model.mixer, config.model.mixer)
        return {"dataset": config.dataset, "model": model}

    def predict(
        self,
        model: nn.Module,
        config: ToyConfig,
        preprocessing: Mapping[str, Json],
        *,
        source: Path,
        target: Path,
    ) -> None:
        del config
        rows = json.loads(source.read_text())
        if any(len(row) != len(preprocessing["columns"]) for row in rows):
            raise DataError(f"{source.name}: every row needs the columns {preprocessing['columns']}.")
        target.write_text(json.dumps(model(torch.tensor(rows, dtype=torch.float32)).flatten().tolist()))

    def save_model(self, model: nn.Module, folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(asdict(model.config)))
        save_file(model.state_dict(), folder / "weights.safetensors")

    def load_model(self, folder: Path) -> nn.Module:
        model = ToyModel(ToyModelConfig(**json.loads((folder / "config.json").read_text())))
        model.load_state_dict(load_file(folder / "weights.safetensors"))
        return model

    @staticmethod
    def preset(dataset: str, *, model: str, profile: str, data_file: str, depth: int = 1) -> ToyConfig:
        del profile
        mixer = {"transformer": "softmax"}.get(model, model)
        return ToyConfig(
            dataset=dataset, data_file=data_file, epochs=2 * depth, model=ToyModelConfig(mixer=mixer)
        )

    def engine(self, profile: str) -> EngineConfig:
        del profile
        return EngineConfig(threads=1)


SETTING = ToySetting()
