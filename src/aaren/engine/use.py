"""Use a finished run: evaluate it again, also for several values of a key, or predict from new data."""

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from aaren.engine.config import RunConfig, from_mapping, override, read_config
from aaren.engine.determinism import repeatable
from aaren.engine.experiment import PARTS, Batch, Experiment, Json
from aaren.engine.loop import evaluate
from aaren.engine.record import RunRecord, now, read_record
from aaren.engine.run import CONFIG, MODEL, PREPROCESSING, RECORD, writing
from aaren.engine.setting import find_setting
from aaren.errors import ConfigError, DataError, unknown_name
from aaren.fields import flatten, to_mapping
from aaren.files.atomic import replacing
from aaren.files.checksums import read_files
from aaren.stream.rows import RowPath

_OF_TRAINING = ("task.network.", "task.model.", "task.optimiser.")  # tables, as settings call them


def evaluate_run(
    folder: Path, *, part: str = "test", assignments: Sequence[str] = ()
) -> tuple[RunRecord, Mapping[str, float]]:
    """Evaluate the selected weights of a run on a part of its data, optionally with changes to its config."""
    chosen = next((name for name in PARTS if name == part), None)
    if chosen is None:
        raise unknown_name("part", part, PARTS)
    config, record = open_run(folder)
    if assignments:
        config = _overridden(config, assignments)
    setting = find_setting(config.setting)
    with repeatable(config.engine, seed=config.seed):
        experiment = setting.open(config.task, seed=config.seed)
        _warn_of_other_meaning(folder, config, record, experiment)
        model, _preprocessing = read_model(folder)
        return record, evaluate(experiment, model, chosen, experiment.plan.moment(record.updates))


def predict_run(folder: Path, *, source: Path, target: Path) -> None:
    """Read new data and write the predictions of the run's model, whole or not at all.

    Args:
        folder: Of a finished run.
        source: The new data, which is only read: a target that is the same file is refused.
        target: A new file, or one that may be replaced; a symbolic link stands for what it points to.
    """
    if not os.path.isfile(source):  # noqa: PTH113  # of names that no disk can hold, pathlib raises
        raise DataError(f"no file {source}: --data needs the new data to predict from.")
    _require_writable(folder, source, target)
    config, _record = open_run(folder)
    setting = find_setting(config.setting)
    with repeatable(config.engine, seed=config.seed), torch.no_grad():
        model, preprocessing = read_model(folder)
        with replacing(target) as temporary:
            setting.predict(model, config.task, preprocessing, source=source, target=temporary)


def open_run(folder: Path) -> tuple[RunConfig, RunRecord]:
    """Read a finished run's config and record, or say what is missing."""
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder} is no run folder: it has no {CONFIG}. Runs are made by `aaren train`.")
    config = from_mapping(read_config(folder / CONFIG), source=str(folder / CONFIG))
    record = read_record(folder / RECORD)
    if record.status != "finished":
        raise DataError(f"the run in {folder} failed ({record.error}): there is no model to use.")
    return config, record


def read_model(folder: Path) -> tuple[nn.Module, dict[str, Json]]:
    """Return the model of a finished run, for evaluation, and what it learned from its data."""
    setting = find_setting(open_run(folder)[0].setting)
    preprocessing = json.loads(read_files(folder, PREPROCESSING)[PREPROCESSING])
    return setting.load_model(folder / MODEL).eval(), preprocessing


def open_rows(folder: Path) -> RowPath:
    """Return the way from raw rows to answers of a finished run."""
    config, _record = open_run(folder)
    return find_setting(config.setting).stream_rows(*read_model(folder))


class Sweep(NamedTuple):
    """A key, as after `--set`, and what it is set to, one value after the other."""

    key: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Sweep":
        """Read `KEY=A,B,C`.

        >>> Sweep.parse("context=window, carried")
        Sweep(key='context', values=('window', 'carried'))
        """
        key, _, rest = text.partition("=")
        values = tuple(value.strip() for value in rest.split(",") if value.strip())
        if not key.strip() or not values:
            raise ConfigError(
                f"a sweep needs a key and values, such as context=window,carried; got {text!r}."
            )
        return cls(key.strip(), values)


class SweepRow(NamedTuple):
    """One value of the key, and what came out."""

    value: str
    metrics: Mapping[str, float]


def sweep_run(
    folder: Path,
    sweep: Sweep,
    *,
    part: str = "test",
    assignments: Sequence[str] = (),
    on_row: Callable[[SweepRow], None] | None = None,
) -> None:
    """Evaluate a run once for every value of a key and keep the results in its record, under `sweeps`.

    Args:
        folder: Of a finished run.
        sweep: Which key, and its values.
        part: "test" or "validation".
        assignments: What else is changed, every time alike.
        on_row: Called with every result as it comes.
    """
    rows = []
    for value in sweep.values:
        _record, metrics = evaluate_run(folder, part=part, assignments=[*assignments, f"{sweep.key}={value}"])
        rows.append(SweepRow(value, metrics))
        if on_row is not None:
            on_row(rows[-1])
    record = read_record(folder / RECORD)
    results: dict[str, Json] = {
        "part": part,
        "changed": list(assignments),
        "date": now(),
        "rows": [{"value": row.value, "metrics": dict(row.metrics)} for row in rows],
    }
    with writing(folder):
        replace(record, sweeps={**record.sweeps, sweep.key: results}).write(folder / RECORD)


def _require_writable(folder: Path, source: Path, target: Path) -> None:
    """Raise for a target that is no file name, or whose file is needed: the data, or a part of the run."""
    place = Path(os.path.realpath(target))
    try:
        is_there = place.exists()
        is_writable = place.is_file() if is_there else place.parent.is_dir() and not place.is_symlink()
    except OSError:  # a name that no disk can hold; above: links in a circle
        is_there = is_writable = False
    if not is_writable:
        raise ConfigError(f"{target} cannot be written: -o needs a file name in a folder that exists.")
    if is_there and place.samefile(source):
        raise ConfigError(
            f"-o {target} is the file of --data, {source}: it would be lost. Name another file."
        )
    if is_there and any(path.is_file() and place.samefile(path) for path in folder.rglob("*")):
        raise ConfigError(
            f"-o {target} is a file of the run in {folder}: it would be lost. Name another file."
        )


def _warn_of_other_meaning(
    folder: Path, config: RunConfig, record: RunRecord, experiment: Experiment[Batch]
) -> None:
    """Warn if the data is not what the run was trained on, or the protocol has changed since."""
    if config.protocol != config.todays_protocol():
        warnings.warn(
            f"{folder} is of protocol {config.protocol}, this version of aaren evaluates by protocol "
            f"{config.todays_protocol()}. These numbers are not comparable with its record.",
            stacklevel=3,
        )
    for name, checksum in experiment.checksums().items():
        trained = record.data.get(name)
        if record.data and checksum != trained:
            what = f"it had {trained[:12]}... then" if trained else f"that was {', '.join(record.data)}"
            warnings.warn(
                f"{folder} was trained on other data: {name} has sha256 {checksum[:12]}..., {what}. These "
                "numbers are not comparable with its record.",
                stacklevel=3,
            )


def _overridden(config: RunConfig, assignments: Sequence[str]) -> RunConfig:
    """Change what evaluating depends on; a key of the training would change nothing, and is refused."""
    new = override(config, assignments)
    before, after = flatten(to_mapping(config)), flatten(to_mapping(new))
    for key in after:
        if after[key] != before.get(key) and key.startswith(_OF_TRAINING):
            raise ConfigError(
                f"{key.removeprefix('task.')} is part of what was trained: evaluating with another value "
                "would change nothing. Train a run with it."
            )
    return new
