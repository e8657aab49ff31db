"""The refusals of `aaren.datasets`, of rows and files of a user's own, and their words."""

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aaren.datasets.catalogue import lookup
from aaren.datasets.convert import CONVERTERS
from aaren.datasets.dataset import Dataset
from aaren.datasets.dates import as_iso, read_date, refuse_unordered
from aaren.datasets.fetch import fetch
from aaren.datasets.numbers import flags, narrow, reals, wholes
from aaren.datasets.verify import check_file
from support.messages import check_messages

HEADER = "@problemName X\n@timeStamps false\n@classLabel true a b c\n@data\n"


def dates(*texts: str) -> Callable[[], object]:
    return lambda: as_iso(pd.Series(list(texts), dtype=object), where="ds", cure="Say which.")


def test_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "data"))

    def file(name: str, content: str | bytes, **options: object) -> object:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return check_file(path, **options)  # type: ignore[arg-type]  # by name

    def series(train: str, test: str = "") -> object:
        packed = tmp_path / "mine_TEST.ts.gz"
        packed.unlink(missing_ok=True)
        if test:
            packed.write_bytes(gzip.compress((HEADER + test).encode()))
        return file("mine_TRAIN.ts", HEADER + train)

    def folds(*texts: str) -> None:
        sources = tuple(tmp_path / f"{number}.txt" for number in range(4))
        for source, text in zip(sources, texts, strict=True):
            source.write_text(text)
        CONVERTERS["folds"](sources, (tmp_path / "out.npz",), {})

    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "events.npz", times=np.array([0.0, 1.0]), offsets=np.array([0, 2]))
    log = "user,when,action\na,1.0,x\na,2.0,y\n"
    row = {"name": "x", "setting": "rl", "files": ("x",), "facts": {}, "licence": "-", "source": "-"}
    cases: dict[str, Callable[[], object]] = {
        "a slip in a name": lambda: lookup("wether"),
        "a path for a name": lambda: lookup("data/mine"),
        "an uncertain fact that there is not": lambda: Dataset(**row, uncertain=("y",)),  # type: ignore[arg-type]  # by name
        "made in memory": lambda: fetch(lookup("pendulum")),
        "rolled out": lambda: fetch(lookup("hopper-medium-regen")),
        "not public": lambda: fetch(lookup("taxi")),
        "a slip in a setting": lambda: file("a.csv", "x", setting="event"),
        "no setting": lambda: check_file(tmp_path / "events.npz"),
        "a pickle": lambda: file("b.csv", pickle.dumps({"a": 1})),
        "a sentinel": lambda: file("c.csv", "date,a\n2020-01-01,1\n2020-01-02,2\n2020-01-03,-9999\n"),
        "a gap": lambda: file("d.csv", "date,a\n2020-01-01,1\n2020-01-02,2\n2020-01-04,9\n2020-01-05,9\n"),
        "no series": lambda: file("e.csv", "user,hour\na,1.5\na,2.5\n"),
        "no events": lambda: file("e.csv", "user,hour\na,1.5\na,2.5\n", setting="events"),
        "a slip in a role": lambda: file("f.csv", log, setting="events", columns={"tme": "when"}),
        "a setting without roles": lambda: file(
            "f.csv", log, setting="forecasting", columns={"time": "when"}
        ),
        "an empty folder": lambda: check_file(tmp_path / "empty"),
        "a label of the test part alone": lambda: series("1,2:a\n3,4:a\n5,6:b\n", "1,2:c\n"),
        "one class": lambda: series("1,2:a\n3,4:a\n"),
        "a class per case": lambda: series("1,2:a\n3,4:b\n"),
        "one time step": lambda: series("1,2:a\n3,4:a\n1:b\n", "1,2:a\n"),
        "not finite": lambda: series("1,2:a\n3,4:a\n1,inf:b\n", "1,2:a\n"),
        "too few cases": lambda: series("1,2:a\n3,4:a\n5,6:b\n7,8:b\n"),
        "missing values": lambda: series("1,2:a\n3,?:a\n1,7:b\n", "1,2:a\n"),
        "day or month first": dates("01.02.2026", "12.02.2026"),
        "day and month first": dates("13.02.2026", "02.13.2026"),
        "a year of two digits": dates("13/2/26"),
        "no year": dates("24.12"),
        "no date": dates("9:30", "10:00"),
        "now": dates("now"),
        "one date, unordered": lambda: refuse_unordered("13.02.2026", name="when"),
        "a date of a row": lambda: read_date("9" * 300, name="date"),
        "complex numbers": lambda: reals([1j], name="x"),
        "masked": lambda: reals(np.ma.masked_equal([1, 2], 2), name="x"),
        "not whole": lambda: wholes([0, 1.7], name="x"),
        "too large a whole number": lambda: wholes([0, 3], name="x", most=2),
        "no flags": lambda: flags([0, 2], name="x"),
        "beyond float32": lambda: narrow(np.array([1.0, 1e39]), name="x", cure="Scale it."),
        "times without marks": lambda: folds("0 1 2\n", "3 1\n", "0\n", "1\n"),
        "times that are no numbers": lambda: folds("0 1 x\n", "3 1 1\n", "0\n", "1\n"),
    }
    check_messages(Path(__file__).with_name("messages.txt"), cases, hidden={str(tmp_path): "TMP"})
