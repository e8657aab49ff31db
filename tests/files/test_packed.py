import gzip
import lzma
import pickle
from pathlib import Path

import pytest

from aaren.errors import DataError
from aaren.files.archive import content_sha256, read_bytes


def test_plain_and_compressed_copies_have_the_same_content_and_checksum(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"1,2\n"))
    (tmp_path / "a.csv.xz").write_bytes(lzma.compress(b"1,2\n"))
    paths = list(tmp_path.iterdir())
    assert {read_bytes(path) for path in paths} == {b"1,2\n"}
    assert len({content_sha256(path) for path in paths}) == 1


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_truncated_file_is_named(tmp_path: Path, suffix: str) -> None:
    packed = {".gz": gzip.compress, ".xz": lzma.compress}[suffix](bytes(range(256)) * 50)
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(packed[:-20])
    with pytest.raises(DataError, match=r"a\.csv\.(gz|xz) is truncated or corrupted .* get it again"):
        read_bytes(path)


def test_a_file_that_swells_beyond_its_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"\0" * 5_000_000))
    with pytest.raises(DataError, match="unpacks to more than 3,000,000 bytes: refused as an archive bomb"):
        read_bytes(path, limit_bytes=3_000_000)


@pytest.mark.parametrize("name", ["data.pkl", "data.npz", "data.pickle"])
def test_a_pickle_is_refused_by_name_or_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(DataError, match=r"is a pickle: reading one can run any program, so it is refused"):
        read_bytes(path)
