"""What a setting is: data, model, loss, metrics, when to stop, which number is reported."""

import importlib
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, cast

from aaren.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from aaren.engine.experiment import Batch, Task


TASKS = {  # a setting's name -> the module whose TASK it is; imported only when asked for
    "forecasting": "aaren.forecasting.experiment",
    "classification": "aaren.classification.experiment",
    "events": "aaren.events.experiment",
    "rl": "aaren.rl.experiment",
}

__all__ = ["TASKS", "find_task", "import_own", "import_task"]


def find_task(name: str) -> "Task[DataclassInstance, Batch]":
    """Return the task of a setting, or of a module of the user's own that is imported and has a TASK.

    Names come from files too, and no file may choose what is imported: that is for `import_task`.
    """
    if name in TASKS:
        module = importlib.import_module(TASKS[name])
    elif name in sys.modules:
        module = sys.modules[name]
    elif "." not in name:
        raise unknown_name("setting", name, TASKS)
    else:
        raise ConfigError(
            f"setting {name!r} is none of {', '.join(TASKS)}, and a file may not choose what is imported. If "
            f"you trust that module, name it yourself: `aaren --import {name} ...`, or import it in Python."
        )
    if not hasattr(module, "TASK"):
        raise ConfigError(
            f"setting {name!r}: the module {module.__name__} has no TASK, an instance of a subclass of Task."
        )
    return cast("Task[DataclassInstance, Batch]", module.TASK)


def import_task(name: str) -> "Task[DataclassInstance, Batch]":
    """Return the task of a setting that the user names; a module of their own is imported."""
    if "." in name and name not in TASKS:
        import_own(name, purpose=f"setting {name!r}")
    return find_task(name)


def import_own(name: str, *, purpose: str) -> ModuleType:
    """Import a module that the user names, or say in a line why it cannot be."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{purpose}: {name!r} is no name of a module, such as package.module. "
            f"Settings: {', '.join(TASKS)}."
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{purpose}: there is no module {error.name!r} to import. Settings: {', '.join(TASKS)}."
            ) from error
        raise ConfigError(f"{purpose}: it needs {error.name!r}, which is not installed.") from error
    except Exception as error:  # code of the user's own: whatever it raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{purpose}: importing {name} failed in {last.filename}, line {last.lineno}: "
            f"{type(error).__name__}: {error}"
        ) from error
