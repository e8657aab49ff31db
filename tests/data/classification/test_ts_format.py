import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from aaren.data.classification import ts_format
from aaren.data.classification.ts_format import parse_ts, read_ts
from aaren.data.files.shipped import shipped_file
from aaren.errors import ConfigError, DataError

HEADER = "#a comment\n@problemName X\n@timeStamps false\n@univariate false\n@classLabel true a b\n@data\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder: Path, text: str, name: str = "X_TRAIN.ts") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_cases_channels_and_labels(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "1,2,3:4,5,6:a\n7,?:8,9:b\n")
    cases = read_ts(path, reader="own")
    assert cases.labels.tolist() == ["a", "b"]
    assert cases.lengths.tolist() == [[3, 3], [2, 2]]
    first, second = list(cases)
    assert [channel.tolist() for channel in first] == [[1, 2, 3], [4, 5, 6]]
    assert np.isnan(second[0][1])
    assert second[1].tolist() == [8, 9]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            HEADER + "1,2:3,4:a\n1,2:a\n",
            r"X_TRAIN\.ts, line 8: expected 2 channels and a label; got 1 channels",
        ),
        (HEADER + "1,2:3,4:a\n1,2:3,oops:b\n", r"line 8, channel 1: expected a number or '\?'; got 'oops'"),
        (HEADER + "1,2:3,4:c\n", r"line 7: label 'c' is not among those of @classLabel: a, b"),
        (HEADER, r"no case follows @data"),
        (HEADER.replace("@data\n", "") + "1,2:a\n", r"not a \.ts file, it has no @data line"),
        (HEADER.replace("true a b", "false") + "1,2:a\n", r"expected a line '@classLabel true \.\.\.'"),
        (HEADER.replace("timeStamps false", "timeStamps true") + "1:a\n", r"line 3: series with time stamps"),
        ("date,a\n2020,1\n", r"not a \.ts file"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=words):
        read_ts(path, reader="own")


def test_where_aeon_stumbles_the_fault_is_still_named(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "1,2:3,4:a\n1,2:3,oops:b\n")
    with pytest.raises(DataError, match=r"line 8, channel 1: expected a number"):
        read_ts(path)


def test_channels_of_different_lengths_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "1,2,3:4,5:a\n1,2,3:4,5,6:b\n")
    assert read_ts(path).lengths.tolist() == [[3, 2], [3, 3]]


def test_an_unknown_reader_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reader must be 'auto', 'aeon' or 'own'"):
        read_ts(tmp_path, reader="sktime")  # type: ignore[arg-type]


def test_both_readers_agree_on_what_aeon_ships() -> None:
    pytest.importorskip("aeon")
    path = shipped_file("JapaneseVowels_TEST.ts")
    assert path is not None
    own, other = read_ts(path, reader="own"), read_ts(path, reader="aeon")
    assert np.array_equal(own.values, other.values)
    assert np.array_equal(own.lengths, other.lengths)
    assert np.array_equal(own.labels, other.labels)
    assert len(own) == 370


def test_compressed_and_plain_files_read_the_same_with_and_without_aeon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HEADER + "1,2,3:4,5,6:a\n7,8,0.5:8,9,1e-3:b\n"
    plain = write(tmp_path, text)
    packed = tmp_path / "Y_TRAIN.ts.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    with_aeon = [read_ts(path) for path in (plain, packed)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(ts_format, "_READER", "another version")
    without = [read_ts(path) for path in (plain, packed)]
    for cases in (*with_aeon, *without):
        assert np.array_equal(cases.values, parse_ts(text.encode(), name="text").values)


@pytest.mark.parametrize("name", ["Handwriting_TEST", "SelfRegulationSCP2_TRAIN", "SpokenArabicDigits_TEST"])
def test_both_readers_agree_on_the_real_files(mirror: Path, name: str) -> None:
    pytest.importorskip("aeon")
    path = mirror / "classification" / f"{name}.ts.gz"
    own, other = read_ts(path, reader="own"), read_ts(path, reader="aeon")
    assert np.array_equal(own.values, other.values)
    assert np.array_equal(own.labels, other.labels)
