from pathlib import Path

import numpy as np
import pytest

from aaren.data.files import npz
from aaren.errors import DataError


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = npz.save(tmp_path / "new" / "a.npz", {"x": np.arange(3), "word": np.asarray("hours")})
    arrays = npz.load(path, required=("x",))
    assert arrays["x"].tolist() == [0, 1, 2]
    assert arrays["word"].item() == "hours"


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = npz.save(tmp_path / "a.npz", {"x": np.arange(3)})
    with pytest.raises(ValueError, match="pickle"):
        npz.save(path, {"x": np.array([{}], dtype=object)})
    assert npz.load(path)["x"].tolist() == [0, 1, 2]
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    path = npz.save(tmp_path / "a.npz", {"times": np.arange(3)})
    with pytest.raises(DataError, match=r"a\.npz: expected an array 'offsets'; it holds times\."):
        npz.load(path, required=("times", "offsets"))


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz: no such file"):
        npz.load(tmp_path / "none.npz")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = npz.save(tmp_path / "a.npz", {"x": np.arange(1000)})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"not a whole .npz file .* Fetch or write it again"):
        npz.load(path)


def test_flipped_bytes_are_noticed(tmp_path: Path) -> None:
    path = npz.save(tmp_path / "a.npz", {"x": np.random.default_rng(0).normal(size=1000)})
    content = bytearray(path.read_bytes())
    content[500] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"a\.npz"):
        npz.load(path)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "objects.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"Python objects .* can run any code when read"):
        npz.load(path)
