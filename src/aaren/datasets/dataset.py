"""One row of the catalogue: what a dataset is called, what is in it, and where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from aaren.errors import ConfigError

Fact: TypeAlias = int | float | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A dataset's name, facts, origin and oddities.

    `facts` are what `aaren data verify` measures again; those also named in `uncertain` come from second-hand
    reports: a difference is a remark, not a failure.
    """

    name: str
    setting: str
    files: tuple[str, ...]  # canonical names, found plain, .gz or .xz
    facts: Mapping[str, Fact]
    licence: str
    source: str  # the official page, for people
    uncertain: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()  # the official files, for `aaren data fetch`
    convert: str = ""  # how the downloads become `files`, see aaren.datasets.fetch; empty: they are the files
    sha256: Mapping[str, str] = field(default_factory=dict)  # of a file's unpacked content
    limit_bytes: int = 500_000_000  # a larger download is refused
    irregular: Mapping[str, int] = field(default_factory=dict)  # known oddities and how many of each
    options: Mapping[str, Fact] = field(default_factory=dict)  # how the setting's reader must read it
    stands_for: str = ""  # extras: the dataset of the paper that it is a part or a stand-in of
    is_generated: bool = False  # made by this library, needs no file
    remark: str = ""

    def __post_init__(self) -> None:
        strangers = [fact for fact in self.uncertain if fact not in self.facts]
        if strangers:
            raise ConfigError(
                f"dataset {self.name!r}: uncertain names {strangers}, which are not among its facts."
            )
