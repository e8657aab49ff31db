"""Score a finished run several times, one key of its config changed; the answers lie beside its record.

Knows no setting: a key is any that `--set` takes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from aaren.errors import ConfigError
from aaren.train.record import now, strict_json, write_text
from aaren.train.use import evaluate_run


class SweepRow(NamedTuple):
    """One value of the key, and what came out."""

    value: str
    metrics: Mapping[str, float]


def sweep_run(
    folder: Path,
    key: str,
    values: Sequence[str],
    *,
    part: str = "test",
    assignments: Sequence[str] = (),
    on_row: Callable[[SweepRow], None] | None = None,
) -> Path:
    """Evaluate a run once for every value of a key and write `sweep-KEY.json` into its folder.

    Args:
        folder: Of a finished run.
        key: As after `--set`, such as "context".
        values: What the key is set to, one after the other.
        part: "test" or "validation".
        assignments: What else is changed, every time alike.
        on_row: Told of every answer as it comes.
    """
    if not key or not values:
        raise ConfigError(f"a sweep needs a key and values, such as context=window,carried; got {key!r}.")
    rows = []
    for value in values:
        _record, metrics = evaluate_run(folder, part=part, assignments=[*assignments, f"{key}={value}"])
        rows.append(SweepRow(value, metrics))
        if on_row is not None:
            on_row(rows[-1])
    target = folder / f"sweep-{key.replace('/', '_')}.json"
    content = {
        "kind": "sweep",
        "key": key,
        "part": part,
        "changed": list(assignments),
        "date": now(),
        "rows": [{"value": row.value, "metrics": dict(row.metrics)} for row in rows],
    }
    write_text(target, strict_json(content, indent=1) + "\n")
    return target
