"""The toy task as a setting with a grid, for `aaren reproduce support.toy_grid` with `tests` on the path."""

from aaren.engine.config import EngineConfig
from aaren.engine.setting import CellGroup
from aaren.errors import ConfigError
from support.toy_task import ToyConfig, ToyModelConfig, ToySetting


class ToyGridSetting(ToySetting):
    @staticmethod
    def preset(dataset: str, *, model: str, profile: str, data_file: str, slow: float = 0.0) -> ToyConfig:
        del profile
        if dataset == "impossible":
            raise ConfigError("there is no such line.")
        return ToyConfig(
            dataset=dataset,
            data_file=data_file,
            model=ToyModelConfig(mixer={"transformer": "softmax"}.get(model, model)),
            slow_seconds=slow,
            penalty=1e38 if model == "diverging" else 0.0,  # the loss is not finite after a few updates
        )

    def engine(self, profile: str) -> EngineConfig:
        del profile
        return EngineConfig(threads=1, checkpoint_seconds=0.3)

    def grid(self, profile: str) -> tuple[CellGroup, ...]:
        if profile == "paper":  # slow enough to be killed in the middle
            return (CellGroup(datasets=("line",), models=("aaren", "transformer"), choices=(("slow=0.1",),)),)
        return (
            CellGroup(datasets=("line", "curve"), models=("aaren", "mean"), seedless=("mean",)),
            CellGroup(datasets=("line",), models=("diverging",)),
        )


SETTING = ToyGridSetting()
