"""The name of a registered dataset, for the presets of every setting."""

from aaren.data.registry import lookup
from aaren.errors import ConfigError


def dataset_name(dataset: str, setting: str) -> str:
    """Return a dataset's name as the registry spells it; empty stays empty, for runs on a user's own file."""
    if not dataset:
        return ""
    found = lookup(dataset)
    if found.setting != setting:
        raise ConfigError(
            f"{found.name} is a dataset of {found.setting}; for {setting}: aaren data list {setting}."
        )
    return found.name
