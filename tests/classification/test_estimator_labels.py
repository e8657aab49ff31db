"""Labels that no class can be told from."""

import numpy as np
import pytest

pytest.importorskip("sklearn")


from aaren.classification.estimator import AarenClassifier
from aaren.errors import DataError
from support.wave_classifier import small, waves


def test_labels_unseen_in_training(fitted: AarenClassifier) -> None:
    panel, names = waves(4)
    with pytest.raises(
        DataError, match=r"labels unseen in fit: 'odd'; fit saw 'fast', 'slow'.*Leave these cases out"
    ):
        fitted.score(panel, np.where(names == "slow", "odd", names))


def test_labels_of_another_type() -> None:
    panel, _ = waves(4)
    numbers = np.array([1, 2, 1, 2])
    with pytest.raises(
        DataError,
        match=r"unseen in fit: 1, 2; fit saw '1', '2'\. The same text, another type: y\.astype\(str\)",
    ):
        small().fit(panel, numbers.astype(str)).score(panel, numbers)
    model = small().fit(panel, numbers)
    with pytest.raises(DataError, match=r"unseen in fit: '1', '2'; fit saw 1, 2\. .* y\.astype\(int\)"):
        model.score(panel, numbers.astype(str))
    with pytest.raises(DataError, match=r"unseen in fit: '1', 'x'; fit saw 1, 2\. Leave these cases out"):
        model.score(panel, ["1", "x", "1", "x"])
    words = r"y holds labels of several types: int, str, such as 1 and 'a'\..* y\.astype\(str\)"
    for attempt in (small().fit, model.score):
        with pytest.raises(DataError, match=words):
            attempt(panel, np.array([1, "a", 1, "a"], dtype=object))
        with pytest.raises(DataError, match=r"case 1 has no label \(None\)\. Leave it out"):
            attempt(panel, np.array(["a", None, "a", "b"], dtype=object))


def test_one_class_only() -> None:
    panel, _ = waves(4)
    with pytest.raises(DataError, match=r"y: 4 case\(s\) of one class only"):
        small().fit(panel, ["a"] * 4)


def test_no_more_cases_than_classes() -> None:
    panel, _ = waves(4)
    with pytest.raises(DataError, match="4 cases for 4 classes: every case has a label of its own"):
        small().fit(panel, ["a", "b", "c", "d"])
