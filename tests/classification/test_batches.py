"""Series as tensors: standardised, padded, numbered, held out."""

from pathlib import Path

import numpy as np
import pytest
import torch

from aaren.classification import batches
from aaren.classification.batches import LabelledBatch, hold_out
from aaren.classification.data import (
    Standardise,
    complete,
    find_test_part,
    measure,
    normalise_across_channels,
    parse_ts,
)
from aaren.datasets.catalogue import lookup
from aaren.errors import ConfigError, DataError, ShapeError

HEADER = "@problemName X\n@timeStamps false\n@classLabel true 10 2 1\n@data\n"
TRAIN = HEADER + "1,2,3:0,1,0:10\n5,6:2,2:2\n"
TEST = HEADER + "9,9,9,7:1,2,3,4:1\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def real(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AAREN_DATA", str(mirror))
    return mirror


def prepared(standardise: Standardise) -> batches.ClassificationData:
    parts = [parse_ts(text.encode(), name="text") for text in (TRAIN, TEST)]
    return batches.prepare(parts, name="X", standardise=standardise, allow_irregular=False)


def test_series_are_padded_at_the_end_to_the_longest_of_both_parts() -> None:
    data = prepared("protocol")
    assert data.test is not None
    assert data.train.values.shape == (2, 4, 2)
    assert data.train.mask.tolist() == [[True, True, True, False], [True, True, False, False]]
    assert data.train.values[1, 2:].abs().sum() == 0
    assert data.test.mask.all()


def test_labels_are_numbered_in_sorted_order_of_their_texts() -> None:
    data = prepared("protocol")
    assert data.test is not None
    assert data.classes == ("1", "10", "2")
    assert data.train.labels.tolist() == [1, 2]
    assert data.test.labels.tolist() == [0]


def test_the_protocol_standardises_each_part_with_its_own_sample_statistics() -> None:
    data = prepared("protocol")
    assert data.test is not None
    first = np.array([1, 2, 3, 5, 6.0])
    expected = (first - first.mean()) / first.std(ddof=1)
    got = torch.cat([data.train.values[0, :3, 0], data.train.values[1, :2, 0]])
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float32))
    own = np.array([9, 9, 9, 7.0])
    torch.testing.assert_close(
        data.test.values[0, :, 0], torch.tensor((own - own.mean()) / own.std(ddof=1), dtype=torch.float32)
    )


def test_the_clean_alternative_uses_the_training_statistics_for_both() -> None:
    data = prepared("train")
    assert data.test is not None
    first = np.array([1, 2, 3, 5, 6.0])
    expected = (np.array([9, 9, 9, 7.0]) - first.mean()) / first.std(ddof=1)
    torch.testing.assert_close(data.test.values[0, :, 0], torch.tensor(expected, dtype=torch.float32))
    with pytest.raises(ConfigError, match="standardise must be 'protocol' or 'train'; got 'test'"):
        prepared("test")  # type: ignore[arg-type]


def test_the_odd_axis_of_ethanol_concentration() -> None:
    case = np.array([[1.0, 2.0, 6.0], [3.0, 2.0, 0.0]])
    centred = case - case.mean(axis=0)
    expected = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(normalise_across_channels(case), expected)


def test_only_ethanol_concentration_is_normalised_once_more_and_only_under_the_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path))
    folder = tmp_path / "classification"
    folder.mkdir()
    for name in ("EthanolConcentration", "Handwriting"):
        (folder / f"{name}_TRAIN.ts").write_text(TRAIN)
        (folder / f"{name}_TEST.ts").write_text(TEST)
    plain = batches.load("Handwriting")
    odd = batches.load("EthanolConcentration")
    real_steps = odd.train.values[0, :3]
    torch.testing.assert_close(real_steps.std(1, correction=0), torch.ones(3), atol=1e-2, rtol=0)
    assert not torch.allclose(plain.train.values, odd.train.values)
    assert odd.train.values[1, 2:].abs().sum() == 0
    clean = [batches.load(name, standardise="train") for name in ("EthanolConcentration", "Handwriting")]
    assert torch.equal(clean[0].train.values, clean[1].train.values)


def test_missing_values_are_interpolated_under_the_protocol_and_refused_under_the_strict_option() -> None:
    part = parse_ts((HEADER + "1,?,3,?:?,5,6,7:1\n").encode(), name="text")
    with pytest.raises(
        DataError, match=r"X: 3 missing value\(s\), the first in case 0, channel 0.*--allow-irregular"
    ):
        batches.prepare([part], name="X", standardise="train", allow_irregular=False)
    (case,) = complete(part, name="X", allow_irregular=True)
    assert case[:, 0].tolist() == [1, 2, 3, 3]
    assert case[:, 1].tolist() == [5, 5, 6, 7]


def test_a_channel_without_any_value_is_an_error() -> None:
    part = parse_ts((HEADER + "1,2:?,?:1\n").encode(), name="text")
    with pytest.raises(DataError, match="case 0, channel 1 holds no value at all"):
        batches.prepare([part], name="X", standardise="train", allow_irregular=True)


def test_unequal_channels_are_thinned_and_filled_under_the_protocol_and_refused_under_the_strict_option() -> (
    None
):
    long, short = ",".join(map(str, range(300))), ",".join(map(str, range(100)))
    part = parse_ts((HEADER + f"{long}:{short}:1\n{short}:{short}:2\n").encode(), name="text")
    with pytest.raises(DataError, match="case 0 has channels of different lengths, 100 to 300"):
        complete(part, name="X", allow_irregular=False)
    first, second = complete(part, name="X", allow_irregular=True)
    assert first.shape == (150, 2)
    assert first[:, 0].tolist() == list(range(0, 300, 2))
    assert first[99:, 1].tolist() == [99.0] * 51
    assert second.shape == (100, 2)


def test_parts_with_different_channels_do_not_fit() -> None:
    parts = [parse_ts(text.encode(), name="text") for text in (TRAIN, HEADER + "1,2:1\n")]
    with pytest.raises(DataError, match=r"TRAIN and TEST must have the same channels; got \[1, 2\]"):
        batches.prepare(parts, name="X", standardise="train", allow_irregular=False)


def test_own_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine_TRAIN.ts").write_text(TRAIN)
    data = batches.open_files(tmp_path / "mine_TRAIN.ts")
    assert data.test is None
    assert len(data.train) == 2


def test_the_test_part_beside_a_training_file_may_be_packed_otherwise(tmp_path: Path) -> None:
    train = tmp_path / "mine_TRAIN.ts"
    train.touch()
    assert find_test_part(train) is None
    for name in ("mine_TEST.ts.gz", "mine_TEST.ts"):  # packed like TRAIN is the first choice
        (tmp_path / name).touch()
        assert find_test_part(train) == tmp_path / name
    packed = tmp_path / "mine_TRAIN.ts.xz"
    packed.touch()
    assert find_test_part(packed) == tmp_path / "mine_TEST.ts"
    alone = tmp_path / "mine.ts"
    alone.touch()
    assert find_test_part(alone) is None


def test_a_channel_that_never_moves_in_train_has_no_scale_of_its_own() -> None:
    still = [HEADER + "1,2,3:7,7,7:10\n5,6:7,7:2\n", HEADER + "1,2,3:7.5,7,6.5:1\n"]
    parts = [parse_ts(text.encode(), name="text") for text in still]
    data = batches.prepare(parts, name="X", standardise="train", allow_irregular=False)
    assert data.test is not None
    assert data.deviation.tolist() == [pytest.approx(np.std([1, 2, 3, 5, 6], ddof=1)), 1.0]
    assert data.mean.tolist() == pytest.approx([3.4, 7.0])
    assert data.test.values[0, :, 1].tolist() == [0.5, 0.0, -0.5]
    protocol = batches.prepare(parts, name="X", standardise="protocol", allow_irregular=False)
    assert protocol.deviation[1] == 0.0  # as published: what TRAIN was divided by


def test_batches_cover_every_case_once() -> None:
    part = parse_ts((HEADER + "1,2:3,4:1\n" * 37).encode(), name="text")
    data = batches.prepare([part], name="X", standardise="train", allow_irregular=False).train
    loader = data.loader(batch_size=16, seed=3)
    assert [len(batch) for batch in loader.epoch(0)] == [16, 16, 5]
    assert sorted(loader.order(1).tolist()) == list(range(37))


def test_japanese_vowels_need_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aeon")
    monkeypatch.delenv("AAREN_DATA", raising=False)
    assert measure(lookup("JapaneseVowels")) == dict(lookup("JapaneseVowels").facts)


def test_a_set_that_is_not_there_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AAREN_DATA", raising=False)
    with pytest.raises(DataError, match="Run: aaren data fetch Handwriting"):
        batches.load("Handwriting")


@pytest.mark.parametrize(
    "name",
    [
        "Handwriting",
        "JapaneseVowels",
        "SelfRegulationSCP1",
        "SelfRegulationSCP2",
        "UWaveGestureLibrary",
        "heartbeat-train",
    ],
)
@pytest.mark.usefixtures("real")
def test_the_real_files_hold_what_the_registry_says(name: str) -> None:
    assert measure(lookup(name)) == dict(lookup(name).facts)


@pytest.mark.usefixtures("real")
def test_spoken_arabic_digits() -> None:
    data = batches.load("SpokenArabicDigits")
    assert data.test is not None
    assert data.train.values.shape == (6599, 93, 13)
    assert data.test.values.shape == (2199, 93, 13)
    assert int(data.train.mask.sum()) == 263_224
    assert int(data.test.mask.sum()) == 87_029
    assert torch.bincount(data.train.labels).tolist().count(660) == 9


def test_holding_out_keeps_every_class() -> None:
    labels = torch.tensor([0] * 10 + [1] * 2 + [2])
    kept, held = hold_out(labels, 0.2, seed=5)
    assert torch.bincount(labels[kept]).tolist() == [8, 1, 1]
    assert torch.bincount(labels[held]).tolist() == [2, 1]
    with pytest.raises(DataError, match="none of 2 cases can be held out: every class has a single one"):
        hold_out(torch.tensor([0, 1]), 0.5, seed=0)


def test_a_batch_checks_itself() -> None:
    with pytest.raises(ShapeError, match=r"mask must be \(2, 3\)"):
        LabelledBatch(values=torch.zeros(2, 3, 1), mask=torch.ones(2, 4).bool(), labels=torch.zeros(2))
    with pytest.raises(ShapeError, match="mask must be bool"):
        LabelledBatch(values=torch.zeros(2, 3, 1), mask=torch.ones(2, 3), labels=torch.zeros(2))
