"""The `.ts` format, cases that are irregular, and what nothing can be learned from."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from aaren.classification.data import (
    Cases,
    complete,
    parse_ts,
    read_ts,
    require_learnable,
    require_steps,
    require_trainable,
)
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


PLAIN = "@problemName X\n@timeStamps false\n@classLabel true a b\n@data\n"


@pytest.mark.parametrize("allow_irregular", [True, False])
@pytest.mark.parametrize("text", ["inf", "-inf", "1e999"])
def test_infinity_is_refused_under_either_rule(allow_irregular: bool, text: str) -> None:
    cases = parse_ts(f"{PLAIN}1,2:3,4:a\n5,6,7:8,9,{text}:b\n".encode(), name="text")
    with pytest.raises(DataError, match=r"X: case 1, channel 1 holds -?inf \(1 such value\(s\)\).*as '\?'"):
        complete(cases, name="X", allow_irregular=allow_irregular)


def test_the_cure_of_an_irregular_file_is_named_for_every_way_in() -> None:
    cases = parse_ts(f"{PLAIN}1,?:3,4:a\n".encode(), name="text")
    with pytest.raises(DataError) as caught:
        complete(cases, name="X", allow_irregular=False)
    for way in (
        "`aaren train` with --set allow_irregular=true, also for `aaren predict`",
        "`aaren data verify --allow-irregular`",
        "allow_irregular=True",
    ):
        assert way in str(caught.value)


THREE_CLASSES = "@problemName X\n@timeStamps false\n@classLabel true a b c\n@data\n"
GOOD = "1,2:a\n3,4:a\n5,6:a\n1,3:b\n"


def cases(lines: str) -> Cases:
    return parse_ts((THREE_CLASSES + lines).encode(), name="text")


def check(*parts: str, held_out: float = 0.2) -> None:
    named = {f"X_{part}.ts": cases(lines) for part, lines in zip(("TRAIN", "TEST"), parts, strict=False)}
    require_trainable(named, allow_irregular=False, held_out=held_out)


def test_parts_that_can_be_learned_from() -> None:
    check(GOOD)
    check("1,2:a\n3,4:a\n1,3:b\n", "1,2:a\n")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((GOOD, "1,2:c\n"), r"X_TEST\.ts: 1 case\(s\) have labels unseen in TRAIN: c; TRAIN has a, b"),
        ((GOOD, "1,2:a\n1:b\n"), r"X_TEST\.ts: case 1 has 1 time step\(s\); a series has at least 2"),
        ((GOOD, "1,inf:a\n"), r"X_TEST\.ts: case 0, channel 0 holds inf"),
        ((GOOD + "1,?:b\n",), r"X_TRAIN\.ts: 1 missing value\(s\), the first in case 4"),
        (("1,2:a\n3,4:a\n",), r"X_TRAIN\.ts: 2 case\(s\) of one class only"),
        (("1,2:a\n3,4:b\n", "1,2:a\n"), r"X_TRAIN\.ts: 2 cases for 2 classes: every case has a label of"),
    ],
)
def test_what_training_would_refuse(parts: tuple[str, ...], words: str) -> None:
    with pytest.raises(DataError, match=words):
        check(*parts)


def test_too_few_cases_to_hold_some_out() -> None:
    words = r"2 of 4 cases are held out, .* no class keeps two\. Bring more cases or a TEST part"
    with pytest.raises(DataError, match=words):
        check("1,2:a\n3,4:a\n1,3:b\n5,6:b\n")
    check("1,2:a\n3,4:a\n1,3:b\n5,6:b\n", "1,2:a\n")
    with pytest.raises(DataError, match="2 of 4 cases are held out"):
        check(GOOD, held_out=0.9)


def test_labels_as_numbers() -> None:
    require_learnable(np.array([0, 0, 1]), where="y")
    with pytest.raises(DataError, match=r"y: 2 case\(s\) of one class only"):
        require_learnable(np.array([1, 1]), where="y")


def test_steps() -> None:
    require_steps([2, 3], where="X")
    with pytest.raises(DataError, match=r"X: case 1 has 0 time step\(s\).*\(2 such case\(s\)\)"):
        require_steps([2, 0, 1], where="X")
