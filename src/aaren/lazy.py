"""Packages whose public names are imported at first use, so that importing the package costs nothing."""

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(
    package: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__`.

    Args:
        package: Its `__name__`.
        names: The public names that each module has.
    """
    homes = {name: module for module, found in names.items() for name in found}

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted(sys.modules[package].__all__)
