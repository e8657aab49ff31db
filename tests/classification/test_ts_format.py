import gzip
from pathlib import Path

import numpy as np
import pytest

from aaren.classification.ts import parse_ts, read_ts
from aaren.datasets.fetch import shipped_file
from aaren.errors import DataError
from aaren.files.archive import plain_name, read_bytes

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
    cases = read_ts(path)
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
        read_ts(path)


def test_a_fault_is_named_with_line_and_channel(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "1,2:3,4:a\n1,2:3,oops:b\n")
    with pytest.raises(DataError, match=r"line 8, channel 1: expected a number"):
        read_ts(path)


def test_channels_of_different_lengths_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "1,2,3:4,5:a\n1,2,3:4,5,6:b\n")
    assert read_ts(path).lengths.tolist() == [[3, 2], [3, 3]]


def with_aeon(path: Path, tmp_path: Path) -> tuple[list[np.ndarray], np.ndarray]:
    datasets = pytest.importorskip("aeon.datasets")
    plain = tmp_path / plain_name(path)
    plain.write_bytes(read_bytes(path).decode("utf-8", errors="replace").encode())
    cases, labels = datasets.load_from_ts_file(str(plain))
    return [np.asarray(case, dtype=np.float64).ravel() for case in cases], labels


def test_our_reader_agrees_with_aeons_on_what_aeon_ships(tmp_path: Path) -> None:
    path = shipped_file("JapaneseVowels_TEST.ts")
    if path is None:
        pytest.skip("aeon is not installed")
    own, (values, labels) = read_ts(path), with_aeon(path, tmp_path)
    assert np.array_equal(own.values, np.concatenate(values))
    assert own.labels.tolist() == [str(label) for label in labels]
    assert len(own) == 370


def test_compressed_and_plain_files_read_the_same(tmp_path: Path) -> None:
    text = HEADER + "1,2,3:4,5,6:a\n7,8,0.5:8,9,1e-3:b\n"
    plain = write(tmp_path, text)
    packed = tmp_path / "Y_TRAIN.ts.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, packed):
        assert np.array_equal(read_ts(path).values, parse_ts(text.encode(), name="text").values)


@pytest.mark.parametrize("name", ["Handwriting_TEST", "SelfRegulationSCP2_TRAIN", "SpokenArabicDigits_TEST"])
def test_our_reader_agrees_with_aeons_on_the_real_files(mirror: Path, tmp_path: Path, name: str) -> None:
    path = mirror / "classification" / f"{name}.ts.gz"
    own, (values, labels) = read_ts(path), with_aeon(path, tmp_path)
    assert np.array_equal(own.values, np.concatenate(values))
    assert own.labels.tolist() == [str(label) for label in labels]


def test_labels_keep_their_case(tmp_path: Path) -> None:
    header = HEADER.replace("true a b", "true m M k")
    assert read_ts(write(tmp_path, header + "1,2:3,4:m\n1,2:3,4:M\n1,2:3,4:k\n")).labels.tolist() == [
        "m",
        "M",
        "k",
    ]
    with pytest.raises(DataError, match=r"line 7: label 'K' is not among those of @classLabel: m, M, k\."):
        read_ts(write(tmp_path, header + "1,2:3,4:K\n"))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1,2:3,4:c", "label 'c' is not among"),
        ("1,2:3,4:", "an empty label is not among"),
        ("1,2:3,4: ", "an empty label is not among"),
        ("1,2:3,4", "label '3,4' is not among"),
        ("1,2", "expected at least one channel and a label"),
        ("1,2::a", "channel 1: expected a number or '\\?'; got ''"),
        ("1,2:3,?x:a", "channel 1: expected a number or '\\?'; got '\\?x'"),
    ],
)
def test_labels_and_values_that_are_none_are_refused(tmp_path: Path, line: str, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        read_ts(write(tmp_path, HEADER + line + "\n"))


@pytest.mark.parametrize("spelling", ["@timeStamps true", "@timestamps TRUE", "@TIMESTAMPS True"])
def test_time_stamps_are_refused_with_a_cure(tmp_path: Path, spelling: str) -> None:
    text = HEADER.replace("@timeStamps false", spelling) + "(0,1),(1,2):(0,3),(1,4):a\n"
    with pytest.raises(
        DataError, match=r"line 3: series with time stamps .* Write the values of each channel"
    ):
        read_ts(write(tmp_path, text))
