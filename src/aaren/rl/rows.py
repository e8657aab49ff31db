"""Rows of `aaren stream` for policies: an observation and the last reward in, an action out."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from aaren.errors import ConfigError
from aaren.rl.model import DecisionModel
from aaren.stream.rows import RowPath, number, numbers


class ObservationRows(RowPath):
    """`{"observation": [0.1, 0.2], "reward": 1.0}` in; `{"action": [...]}` out. A key is an episode."""

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, DecisionModel):
            raise ConfigError(f"a {type(model).__name__} has no stream: train --model aaren.")
        super().__init__(model)
        self.state_size = model.config.state_size

    def read(self, row: Mapping[str, Any], time: str) -> tuple[Any, dict[str, Any]]:
        del time
        reward = number(row, "reward") if "reward" in row else 0.0  # before the first action there is none
        return numbers(row, "observation", self.state_size), {"reward": reward}

    def answers(
        self, found: Sequence[Any], rows: Sequence[Mapping[str, Any]], time: str
    ) -> list[dict[str, Any]]:
        del rows, time
        return [{"action": action.tolist()} for action in found]
