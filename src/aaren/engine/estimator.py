"""The settings of an estimator, by name, as scikit-learn has them; for estimators that do without it."""

import inspect
from typing import Any, Self

from aaren.errors import unknown_name


class Estimator:
    """Keeps every argument of its constructor, which also checks them, as an attribute of that name."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, as scikit-learn does."""
        del deep
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **settings: object) -> Self:
        """Change settings by name; they hold from the next fit on."""
        known = self.get_params()
        for name in settings:
            if name not in known:
                raise unknown_name("setting", name, known)
        type(self)(**{**known, **settings})  # checks them
        for name, value in settings.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        parameters, values = inspect.signature(type(self)).parameters, self.get_params()
        changed = (f"{name}={value!r}" for name, value in values.items() if value != parameters[name].default)
        return f"{type(self).__name__}({', '.join(changed)})"
