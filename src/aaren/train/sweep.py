"""Score a finished run several times, one key of its config changed; the answers lie beside its record.

Knows no setting: a key is any that `--set` takes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from aaren.errors import ConfigError
from aaren.train.record import now, strict_json, write_text
from aaren.train.run import writing
from aaren.train.use import evaluate_run


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

    def file(self, folder: Path) -> Path:
        """Return where a run's answers lie."""
        return folder / f"sweep-{self.key.replace('/', '_')}.json"


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
) -> Path:
    """Evaluate a run once for every value of a key and write `sweep-KEY.json` into its folder.

    Args:
        folder: Of a finished run.
        sweep: Which key, and its values.
        part: "test" or "validation".
        assignments: What else is changed, every time alike.
        on_row: Told of every answer as it comes.
    """
    rows = []
    for value in sweep.values:
        _record, metrics = evaluate_run(folder, part=part, assignments=[*assignments, f"{sweep.key}={value}"])
        rows.append(SweepRow(value, metrics))
        if on_row is not None:
            on_row(rows[-1])
    target = sweep.file(folder)
    content = {
        "kind": "sweep",
        "key": sweep.key,
        "part": part,
        "changed": list(assignments),
        "date": now(),
        "rows": [{"value": row.value, "metrics": dict(row.metrics)} for row in rows],
    }
    with writing(folder):
        write_text(target, strict_json(content, indent=1) + "\n")
    return target
