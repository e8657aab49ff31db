"""Which dataset of the paper one of ours is, or stands for."""

from aaren.data.registry import DATASETS, EXTRAS

_STAND_INS = {row.name: row.stands_for for row in EXTRAS if row.stands_for}
_PAPERS = frozenset(row.name for row in DATASETS)
_KNOWN = _PAPERS | {row.name for row in EXTRAS}


def papers_name(dataset: str) -> str:
    """Return the dataset of the paper that ours is, or stands for; empty for what the paper does not have.

    >>> papers_name("ETTh1"), papers_name("mooc-partial"), papers_name("hawkes")
    ('ETTh1', 'mooc', '')
    """
    return dataset if dataset in _PAPERS else _STAND_INS.get(dataset, "")


def is_known(dataset: str) -> bool:
    """Tell whether a dataset is in the registry; a user's own file is not."""
    return dataset in _KNOWN


def is_stand_in(dataset: str) -> bool:
    """Tell whether a dataset is a part, a sample or a remake of one of the paper's."""
    return dataset in _STAND_INS
