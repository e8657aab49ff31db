import gzip
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError
from aaren.files import npz
from aaren.files.archive import read_bytes


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
    with pytest.raises(DataError, match="Object arrays cannot be loaded"):
        npz.load(path)


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin1")


@pytest.mark.parametrize("shape", ["(10000000000000,)", "(2, 10000000000000)", "(-1,)", "(9,)", "(7,)"])
def test_a_header_that_declares_other_bytes_than_follow_is_refused(tmp_path: Path, shape: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header(shape) + bytes(64))
    with pytest.raises(DataError, match=r"a\.npz: (not a whole .npz file|x.npy has more bytes)"):
        npz.load(tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_an_archive_that_swells_is_refused_before_it_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(header("(12500000,)"))
        for _ in range(100):
            member.write(bytes(1_000_000))
    if suffix:
        packing = {".gz": gzip.compress, ".xz": lzma.compress}[suffix]
        path = path.with_name("bomb.npz" + suffix)
        path.write_bytes(packing((tmp_path / "bomb.npz").read_bytes()))
    with pytest.raises(DataError, match=r"unpacks to 100,000,\d+ bytes or more, .* archive bomb"):
        npz.load(path)


def test_a_text_that_swells_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(100):
            file.write(bytes(1_000_000))
    with pytest.raises(DataError, match="beyond 64,000,000: refused as an archive bomb"):
        read_bytes(path)


def test_constant_arrays_may_shrink_a_lot(tmp_path: Path) -> None:
    npz.save(tmp_path / "flags.npz", {"x": np.zeros(5_000_000, dtype=bool)})
    assert (tmp_path / "flags.npz").stat().st_size < 10_000
    assert not npz.load(tmp_path / "flags.npz")["x"].any()


def test_arrays_keep_shape_order_and_type(tmp_path: Path) -> None:
    arrays = {
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "scalar": np.asarray(3),
        "text": np.asarray(["a", "bc"]),
        "empty": np.zeros((0, 4)),
        "big": np.arange(3, dtype=">i4"),
    }
    found = npz.load(npz.save(tmp_path / "a.npz", arrays))
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("name", ["x.txt", "x", "../x"])
def test_what_is_no_array_is_told(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr(name, "text")
    with pytest.raises(DataError, match=r"not a whole \.npz file"):
        npz.load(tmp_path / "a.npz")
