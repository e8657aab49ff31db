"""Promises about ratios, for the sections of targets that end the resource benchmarks' reports."""

from collections.abc import Sequence

from aaren.bench.scan_targets import Target
from aaren.bench.table import Sheet, format_ratio


def at_least(name: str, ratio: float | None, limit: float) -> Target:
    """Promise a ratio of at least so much; a ratio of None was not measured.

    >>> at_least("Transformer / Aaren", 1.8, 1.7).verdict, at_least("Transformer / Aaren", None, 4).verdict
    ('met', 'not run')
    """
    return Target(
        name=name,
        wanted=f"at least {limit:g}x",
        measured=None if ratio is None else format_ratio(ratio),
        is_met=None if ratio is None else ratio >= limit,
    )


def targets_sheet(targets: Sequence[Target], *, title: str = "Targets (ratios within this run)") -> Sheet:
    """Return the section of targets; those missed are stressed."""
    return Sheet(
        title=title,
        columns=("target", "wanted", "measured", "verdict"),
        rows=[(target.name, target.wanted, target.measured or "", target.verdict) for target in targets],
        bold_rows=frozenset(target.name for target in targets if target.is_met is False),
    )
