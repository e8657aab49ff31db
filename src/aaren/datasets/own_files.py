"""Check a user's own file the way training would, before training does; write generated datasets as files."""

from collections.abc import Mapping
from pathlib import Path

from aaren.datasets.catalogue import EXTRAS, lookup
from aaren.datasets.settings import find_setting, setting_names
from aaren.datasets.verify import Finding
from aaren.errors import ConfigError, DataError, unknown_name
from aaren.files.archive import plain_name, refuse_pickle


def check_file(
    path: Path,
    *,
    setting: str = "",
    allow_irregular: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Finding:
    """Read a file (or a folder of `.ts` files) strictly and report what is in it; a fault raises."""
    is_guessed, setting = not setting, setting or guess_setting(path)
    if setting not in setting_names():
        raise unknown_name("setting", setting, setting_names())
    if path.is_file():
        refuse_pickle(path)
    try:
        found = find_setting(setting)
        if columns:
            measured = found.check_table(path, columns)
        else:
            measured = found.check_file(path, allow_irregular=allow_irregular)
    except DataError as error:
        if is_guessed and setting == "forecasting":  # a CSV may be either
            raise DataError(f"{error} If it is a table of events, add --as events.") from error
        raise
    return Finding(name=str(path), status="verified", measured=measured)


def guess_setting(path: Path) -> str:
    """Tell a file's setting from its name.

    >>> guess_setting(Path("load.csv.gz")), guess_setting(Path("gestures_TRAIN.ts"))
    ('forecasting', 'classification')
    """
    if path.is_dir():
        return "classification"
    suffix = Path(plain_name(path)).suffix
    for name in setting_names():
        if suffix in find_setting(name).suffixes:
            return name
    raise ConfigError(f"cannot tell what {path.name} is: add --as {', '.join(setting_names())}.")


def make_generated(name: str, *, seed: int = 0) -> Path:
    """Write a generated set into the data folder and return its file; training needs no file."""
    # The classic-control sets are rolled out in memory only.
    known = [row.name for row in (lookup("sin"), *EXTRAS) if row.is_generated and row.setting != "rl"]
    if name not in known:
        raise unknown_name("generated set", name, ["rl", *known])
    dataset = lookup(name)
    return find_setting(dataset.setting).make(dataset, seed=seed)
