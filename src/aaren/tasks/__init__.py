"""What a setting is: data, model, loss, metrics, when to stop, which number is reported."""

import importlib
from typing import TYPE_CHECKING, cast

from aaren.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from aaren.tasks.base import Batch, Task

TASKS = {  # a setting's name -> the module whose TASK it is; imported only when asked for
    "forecasting": "aaren.tasks.forecasting",
    "classification": "aaren.tasks.classification",
    "events": "aaren.tasks.events",
    "rl": "aaren.tasks.rl",
}

__all__ = ["TASKS", "find_task"]


def find_task(name: str) -> "Task[DataclassInstance, Batch]":
    """Import the task of a setting, or of a module of the user's own (`package.module`) that has a TASK."""
    if name not in TASKS and "." not in name:
        raise unknown_name("setting", name, TASKS)
    path = TASKS.get(name, name)
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"setting {name!r}: there is no module {error.name!r} to import. Known: {', '.join(TASKS)}."
        ) from error
    if not hasattr(module, "TASK"):
        raise ConfigError(
            f"setting {name!r}: the module {path} has no TASK, an instance of a subclass of Task."
        )
    return cast("Task[DataclassInstance, Batch]", module.TASK)
