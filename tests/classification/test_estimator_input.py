"""Every form that series come in, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.model_selection import KFold, cross_val_score

from aaren.classification.estimator import AarenClassifier
from aaren.errors import DataError, ShapeError
from support.wave_classifier import ragged, small, waves


def test_a_table_is_a_panel_of_one_channel() -> None:
    panel, names = waves(channels=1)
    as_panel, as_table = small().fit(panel, names), small().fit(panel[:, 0], names)
    np.testing.assert_array_equal(as_panel.predict_proba(panel), as_table.predict_proba(panel[:, 0]))
    np.testing.assert_array_equal(as_panel.predict_proba(panel[:, 0]), as_table.predict_proba(panel))
    assert as_table.n_features_in_ == 20
    assert not hasattr(as_panel, "n_features_in_")
    assert not hasattr(as_table.fit(panel, names), "n_features_in_")


def test_lists_of_unequal_series() -> None:
    cases, names = ragged()
    model = small().fit(cases, names)
    others, names = ragged(seed=1)
    assert model.score(others, names) >= 0.9
    assert model.length_ == 20
    holder = np.empty(len(others), dtype=object)
    holder[:] = others
    np.testing.assert_array_equal(model.predict_proba(holder), model.predict_proba(others))
    alone = np.concatenate([model.predict_proba([case]) for case in others])
    np.testing.assert_allclose(alone, model.predict_proba(others), atol=1e-12)
    flat = [case[0] for case in cases]
    assert small().fit(flat, names).predict([row.tolist() for row in flat]).shape == (40,)


def collections_of(series: list[Any]) -> dict[str, Any]:
    """The same series of one channel in every form that is no table."""
    import pandas

    holder = np.empty(len(series), dtype=object)
    holder[:] = series
    return {
        "list": series,
        "tuple": tuple(series),
        "lists": [item.tolist() for item in series],
        "object array": holder,
        "pandas series": pandas.Series(series),
        "nested frame": pandas.DataFrame({"wave": [pandas.Series(item) for item in series]}),
    }


@pytest.mark.parametrize("is_equal", [True, False])
def test_series_of_one_channel_in_every_form(is_equal: bool) -> None:
    pytest.importorskip("pandas")
    panel, names = waves(8, channels=1)
    series = [case[0, : 20 if is_equal else 20 - place] for place, case in enumerate(panel)]
    model = small().fit([item[np.newaxis] for item in series], names)
    expected = model.predict_proba(series)
    for form, given in collections_of(series).items():
        np.testing.assert_array_equal(model.predict_proba(given), expected, err_msg=form)
        fitted = small().fit(given, names)
        np.testing.assert_array_equal(fitted.predict_proba(series), expected, err_msg=form)
        assert hasattr(fitted, "n_features_in_") == (is_equal and form == "lists"), form  # a table


def test_a_nested_frame_of_several_channels() -> None:
    pandas = pytest.importorskip("pandas")
    panel, names = waves(8)
    columns = {f"channel {place}": [pandas.Series(case[place]) for case in panel] for place in range(2)}
    frame = pandas.DataFrame(columns)
    model = small().fit(frame, names)
    np.testing.assert_array_equal(model.predict_proba(frame), model.predict_proba(panel))
    frame.iat[3, 1] = pandas.Series([1.0, 2.0])
    with pytest.raises(DataError, match="case 3: expected numbers of equal length per channel"):
        model.predict(frame)


def test_a_fold_of_equal_series_among_unequal_ones() -> None:
    panel, names = waves(12, channels=1)
    series = [case[0, : 10 if place < 6 else 16] for place, case in enumerate(panel)]
    assert cross_val_score(small(), series, names, cv=KFold(2)).shape == (2,)


def test_series_of_another_length_than_the_fitted_table() -> None:
    panel, names = waves(8, channels=1)
    model = small().fit(panel[:, 0], names)
    longer, _ = waves(8, channels=1, steps=26)
    expected = model.predict(longer)
    assert model.predict(list(longer[:, 0])).tolist() == expected.tolist()
    assert model.predict([longer[0, 0]]).tolist() == expected[:1].tolist()
    with pytest.raises(
        DataError, match=r"X has 26 features, but AarenClassifier is expecting 20.*pass X\[:, np\.newaxis\]"
    ):
        model.predict(longer[:, 0])
    assert model.predict(longer[:, 0][:, np.newaxis]).tolist() == expected.tolist()


def test_aeon_s_loaders() -> None:
    pytest.importorskip("aeon")
    from aeon.datasets import load_japanese_vowels, load_unit_test

    cases, labels = load_japanese_vowels(split="train")
    model = small().fit(cases, labels)
    assert model.score(cases, labels) >= 0.8
    panel, labels = load_unit_test(split="train")
    assert small().fit(panel, labels).predict(panel).shape == labels.shape


@pytest.mark.parametrize("nothing", [[], (), np.zeros((0, 2, 20)), np.empty(0, dtype=object)])
def test_no_case_at_all(nothing: Any, fitted: AarenClassifier) -> None:
    attempts = (lambda: small().fit(nothing, []), lambda: small().fit(nothing, ["a", "b"]))
    for attempt in (*attempts, lambda: fitted.predict(nothing), lambda: fitted.predict_proba(nothing)):
        with pytest.raises(DataError, match="X holds no case at all: expected at least one series"):
            attempt()


def test_series_without_steps_or_with_one(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    with pytest.raises(DataError, match=r"case 0 has 1 time step\(s\); a series has at least 2"):
        small().fit(panel[:, :, :1], names)
    with pytest.raises(DataError, match=r"case 1 has 0 time step\(s\).*Leave it out\.$"):
        fitted.predict([panel[0], panel[1][:, :0]])
    with pytest.raises(DataError, match=r"case 0 has 1 time step.*\(cases, channels, steps\): transpose it"):
        small().fit(panel.transpose(0, 2, 1)[:, :, :1], names)
    with pytest.raises(DataError, match=r"case 0 has 0 time step\(s\).*Leave it out\.$"):
        small().fit(panel[:, :, :0], names)
    with pytest.raises(DataError, match=r"X, case 0: no channel at all"):
        small().fit(panel[:, :0], names)
    with pytest.raises(DataError, match="n_features = 1: each row of a 2-D array is a series of one channel"):
        small().fit(panel[:, 0, :1], names)


def test_missing_values(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    panel[2, 1, 5] = np.nan
    for attempt in (lambda: small().fit(panel, names), lambda: fitted.predict(panel)):
        with pytest.raises(DataError, match=r"case 2 holds nan \(channel 1, step 5\).*Interpolate"):
            attempt()
    with pytest.raises(ValueError, match="Input X contains NaN"):
        small().fit(panel[:, 1], names)
    with pytest.raises(DataError, match="item 0 of this session holds nan"):
        fitted.stream().push([1.0, np.nan])


def test_complex_numbers(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    for given in (panel + 1j, list(panel + 1j)):
        for attempt in (
            lambda given=given: small().fit(given, names),
            lambda given=given: fitted.predict(given),
        ):
            with pytest.raises(DataError, match=r"complex numbers.*real and imaginary parts as two channels"):
                attempt()


def test_other_channels_than_in_fit(fitted: AarenClassifier) -> None:
    panel, names = waves(4, channels=3)
    with pytest.raises(DataError, match=r"case 0: 3 channel\(s\); the estimator was fitted on 2"):
        fitted.predict(panel)
    with pytest.raises(DataError, match=r"case 1: 2 channel\(s\); the first case has 3"):
        small().fit([panel[0], panel[1, :2], *panel[2:]], names)
    with pytest.raises(ShapeError, match=r"a sample of this session is \(2,\).*got \(3,\)"):
        fitted.stream().push([1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"must hold one array \(channels, steps\) per case"):
        fitted.predict([panel[0, :2], panel[0, 0]])


@pytest.mark.parametrize("factor", [1e20, 1e40, 1e300, 3e306])
def test_what_float32_cannot_compute_with_is_refused(factor: float, fitted: AarenClassifier) -> None:
    panel, _ = waves()
    words = r"X, case 0 holds .*channel 0, step 0.* too large to compute with"
    with pytest.raises(DataError, match=words):
        fitted.predict(panel * factor)
    session = fitted.stream()
    session.push(panel[0, :, 0])
    before = session.to_bytes()
    with pytest.raises(DataError, match="item 1 of this session holds"):
        session.push(panel[0, :, 1] * factor)
    assert session.to_bytes() == before
    one = panel.copy()
    one[3, 1, 4] = factor * 10.0
    with pytest.raises(DataError, match=r"X, case 3 holds .*channel 1, step 4"):
        fitted.predict_proba(one)


def test_a_channel_without_a_finite_deviation_is_refused() -> None:
    panel, names = waves()
    for factor in (1e160, 1e300):
        with pytest.raises(DataError, match=r"X, case 0 .* deviation .* too large to compute with"):
            small().fit(panel * factor, names)
    assert np.isfinite(small().fit(panel * 1e30, names).predict_proba(panel * 1e30)).all()


@pytest.mark.parametrize(
    "sample", [["a", "b"], [1.0, None], np.array(["2024-01-01"] * 2, "datetime64[D]"), [1j, 0]]
)
def test_a_sample_is_numbers(sample: Any, fitted: AarenClassifier) -> None:
    with pytest.raises(DataError, match="a sample must be real numbers"):
        fitted.stream().push(sample)
    assert fitted.stream().push(torch.ones(2, requires_grad=True)).shape == (2,)


def test_masked_values_are_refused(fitted: AarenClassifier) -> None:
    panel, names = waves()
    hidden = np.ma.array(panel, mask=np.zeros(panel.shape, dtype=bool))
    assert fitted.predict(hidden).tolist() == fitted.predict(panel).tolist()  # nothing is masked
    hidden[3, 1, 4] = 1e6
    hidden.mask[3, 1, 4] = True
    series = np.empty(len(panel), dtype=object)
    series[:] = list(hidden)
    for masked in (hidden, hidden[:, 1], list(hidden), series):
        for attempt in (
            lambda masked=masked: small().fit(masked, names),
            lambda masked=masked: fitted.predict(masked),
        ):
            with pytest.raises(DataError, match=r"X.*some values are masked\. Leave them out, or fill them"):
                attempt()


@pytest.mark.parametrize("value", [9.969209968386869e36, 1e20, -1e16])
def test_a_fill_value_is_refused(value: float, fitted: AarenClassifier) -> None:
    panel, names = waves()
    panel[3, 1, 4] = value
    for attempt in (lambda: small().fit(panel, names), lambda: fitted.predict(panel)):
        with pytest.raises(DataError, match=r"X, case 3 holds .*channel 1, step 4.*"):
            attempt()
    sparse = np.zeros((40, 1, 20))
    sparse[:, 0, 3] = np.where(names == "fast", 1.0, 5.0)  # pulses are no fill values
    assert small().fit(sparse, names).score(sparse, names) == 1.0


def test_series_of_very_different_sizes_are_no_fill_values() -> None:
    panel, names = waves()
    sizes = np.logspace(-5, 2, 40)[:, np.newaxis, np.newaxis]
    assert small().fit((panel - 50.0) * sizes, names).classes_.tolist() == ["fast", "slow"]
