"""Frames of pandas: one series per row, an index of series and time, lists of frames; and what is refused."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")

from aaren.classification.estimator import AarenClassifier
from aaren.errors import DataError
from support.wave_classifier import waves

PANEL, NAMES = waves(channels=2)
CASES, _, STEPS = PANEL.shape
LONG = pd.DataFrame(
    {
        "id": np.repeat(np.arange(CASES), STEPS),
        "time": np.tile(np.arange(STEPS), CASES),
        "acc": PANEL[:, 0].ravel(),
        "gyro": PANEL[:, 1].ravel(),
    }
)
WIDE = pd.DataFrame(PANEL[:, 0], columns=[f"t{step}" for step in range(STEPS)])


def fit(series: object, names: object) -> AarenClassifier:
    return AarenClassifier(size="small", random_state=0).fit(series, names)


@pytest.fixture(scope="module")
def fitted() -> AarenClassifier:
    return fit(PANEL, NAMES)


def test_an_index_of_series_and_time(fitted: AarenClassifier) -> None:
    frame = LONG.set_index(["id", "time"])
    np.testing.assert_array_equal(fit(frame, NAMES).predict_proba(frame), fitted.predict_proba(PANEL))
    some = frame.loc[3:5]
    np.testing.assert_array_equal(fitted.predict_proba(some), fitted.predict_proba(PANEL[3:6]))
    shorter = frame.drop(index=(0, STEPS - 1))  # series of several lengths
    alone = fitted.predict_proba([PANEL[0, :, : STEPS - 1]])
    np.testing.assert_allclose(
        fitted.predict_proba(shorter)[:1], alone, rtol=1e-12
    )  # products of other sizes


def test_labels_are_matched_by_the_names_of_series(fitted: AarenClassifier) -> None:
    frame, labels = LONG.set_index(["id", "time"]), pd.Series(NAMES)[::-1]
    assert fit(frame, labels).score(frame, labels) == fitted.score(PANEL, NAMES) == 1.0
    with pytest.raises(
        DataError, match=rf"y has a label for each of the {CASES * STEPS} rows of X; give one"
    ):
        fit(frame, np.repeat(NAMES, STEPS))


@pytest.mark.parametrize("is_wide", [True, False])
def test_frames_in_a_list(is_wide: bool, fitted: AarenClassifier) -> None:
    frames = [rows[["acc", "gyro"]] for _, rows in LONG.groupby("id")]
    frames = [frame.T for frame in frames] if is_wide else frames
    np.testing.assert_array_equal(fitted.predict_proba(frames), fitted.predict_proba(PANEL))


def test_frames_in_a_list_have_the_same_channels(fitted: AarenClassifier) -> None:
    one, other, *_ = (rows[["acc", "gyro"]] for _, rows in LONG.groupby("id"))
    with pytest.raises(DataError, match="case 1: channels 'gyro', 'acc'; the first case has 'acc', 'gyro'"):
        fitted.predict([one, other[["gyro", "acc"]]])


def test_one_series_per_row() -> None:
    model = fit(WIDE, NAMES)
    np.testing.assert_array_equal(
        model.predict_proba(WIDE), fit(WIDE.to_numpy(), NAMES).predict_proba(WIDE.to_numpy())
    )
    nullable = WIDE.astype("Float64")
    np.testing.assert_array_equal(fit(nullable, NAMES).predict(nullable), model.predict(WIDE))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (LONG, r"If its rows are samples, .* X.set_index\(\['id', 'time'\]\).sort_index\(\)"),
        (LONG.drop(columns="time"), r"X.set_index\(\['id', ...\]\)"),
        (LONG.drop(columns="id"), r"X.set_index\(\[..., 'time'\]\)"),
        (LONG.set_index(["id", "time"])[::-1], r"not sorted. Sort it: X.sort_index\(\)"),
        (pd.concat([LONG.iloc[:1], LONG]).set_index(["id", "time"]), "series 0: the time 0 comes twice"),
        (LONG.assign(kind="walk").set_index(["id", "time"]), "column 'kind': expected numbers; got 'walk'"),
        (WIDE.assign(id=range(CASES)), "a column 'id', which would be read as a time step"),
        (WIDE.assign(Label=NAMES), "a column 'Label', .* labels go into y"),
        (WIDE.assign(place="north"), "column 'place': expected numbers; got 'north'"),
        (WIDE.drop(index=3).reindex(WIDE.index), r"row 3, column 't0' holds nan; NaN .* X.interpolate"),
        (WIDE.iloc[0], "Reshape your data: X holds several series, one per row"),
    ],
)
def test_frames_that_would_be_misread(frame: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit(frame, NAMES)


def test_exchanged_axes_are_suspected() -> None:
    with pytest.warns(UserWarning, match="20 channels of up to 2 time steps.*must be transposed"):
        fit(PANEL.transpose(0, 2, 1), NAMES)
    unequal = [case[:, : STEPS - place % 3].T for place, case in enumerate(PANEL)]
    with pytest.raises(DataError, match=r"If it has 2 channels, transpose: \[x.T for x in X\]"):
        fit(unequal, NAMES)
