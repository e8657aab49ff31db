"""A dataset in one line: its shape, its origin, whether it is on disk and whether it was checked.

Opens no dataset: sizes come from the disk's directory, the verdict from the last `verify`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aaren.data.dataset import Dataset, Fact
from aaren.data.registry import DATASETS
from aaren.data.source import on_disk
from aaren.data.verify import recall


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One line of `aaren data list`."""

    setting: str
    name: str
    shape: str
    licence: str
    source: str
    is_on_disk: bool
    bytes_on_disk: int
    status: str  # "verified", "differs", "broken", "not verified", "generated" or "missing"
    is_extra: bool  # not among the 38 of the paper
    stands_for: str  # an extra: which of the 38 it is a part or a stand-in of
    remark: str


def describe(dataset: Dataset) -> Entry:
    """Describe a dataset as it is on this machine."""
    paths = on_disk(dataset, or_shipped=True)
    found = recall(dataset) if paths else None
    absent = "generated" if dataset.is_generated else "missing"
    return Entry(
        setting=dataset.setting,
        name=dataset.name,
        shape=shape(dataset, found.measured if found else {}),
        licence=dataset.licence,
        source=dataset.source,
        is_on_disk=bool(paths),
        bytes_on_disk=sum(path.stat().st_size for path in paths),
        status=(found.status if found else "not verified") if paths else absent,
        is_extra=dataset not in DATASETS,
        stands_for=dataset.stands_for,
        remark=dataset.remark,
    )


def shape(dataset: Dataset, measured: Mapping[str, Fact] | None = None) -> str:
    """Write a dataset's main facts in a few words; a question mark follows what is uncertain.

    What the registry does not know is taken from what was measured.

    >>> from aaren.data.registry import lookup
    >>> shape(lookup("ETTh1")), shape(lookup("Handwriting"))
    ('17,420 rows × 7', '150 + 850 cases × 3 × 152, 26 classes')
    """

    def fact(name: str) -> str:
        value: Fact = dataset.facts.get(name, (measured or {}).get(name, "?"))
        text = f"{value:,}" if isinstance(value, int) else str(value)
        return f"{text}?" if name in dataset.uncertain else text

    return _SHAPES[dataset.setting](fact, dataset.facts)


_SHAPES: Mapping[str, Callable[[Callable[[str], str], Mapping[str, Fact]], str]] = {
    "forecasting": lambda fact, _: f"{fact('rows')} rows × {fact('series')}",
    "classification": lambda fact, facts: (
        f"{fact('train')}{' + ' + fact('test') if 'test' in facts else ''} cases × {fact('channels')} × "
        f"{fact('length')}, {fact('classes')} classes"
    ),
    "events": lambda fact, facts: (
        f"{fact('sequences')} sequences, {fact('events')} events, "
        f"{'no marks' if facts.get('marks') == 1 else fact('marks') + ' marks'}"
    ),
    "rl": lambda fact, _: (
        f"{fact('transitions')} steps, {fact('state_size')} state, {fact('action_size')} action"
    ),
}
