import gzip
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aaren.errors import DataError
from aaren.files import npz


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


def test_flipped_bytes_are_noticed(tmp_path: Path) -> None:
    path = npz.save(tmp_path / "a.npz", {"x": np.random.default_rng(0).normal(size=1000)})
    content = bytearray(path.read_bytes())
    content[500] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(DataError):
        npz.load(path)


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin1")


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
    with pytest.raises(DataError):
        npz.load(path)


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
