import gzip
import lzma
import zipfile
from pathlib import Path

import pytest

from aaren.errors import DataError
from aaren.files.archive import content_sha256, extract, read_bytes


def pack(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_named_members_are_found_in_any_folder_of_the_archive(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.zip", {"deep/X_TRAIN.ts": b"1", "X_TEST.ts": b"2", "notes.txt": b"3"})
    out = tmp_path / "out"
    paths = extract(archive, ["X_TRAIN.ts", "X_TEST.ts"], out)
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    assert listing(out) == ["X_TEST.ts", "X_TRAIN.ts"]


@pytest.mark.parametrize("name", ["../good.ts", "/etc/good.ts", "a/../../good.ts"])
def test_members_are_written_into_the_folder_only(tmp_path: Path, name: str) -> None:
    archive = pack(tmp_path / "a.zip", {name: b"2"})
    assert extract(archive, ["good.ts"], tmp_path / "out")[0].read_bytes() == b"2"
    assert listing(tmp_path) == ["a.zip", "out"]
    assert listing(tmp_path / "out") == ["good.ts"]


def test_an_archive_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.zip", {"good.ts": b"\0" * 70_000_000})
    with pytest.raises(DataError):
        extract(archive, ["good.ts"], tmp_path / "out")
    small = pack(tmp_path / "b.zip", {"good.ts": bytes(range(256)) * 40})
    with pytest.raises(DataError):
        extract(small, ["good.ts"], tmp_path / "out", limit_bytes=5_000)
    assert listing(tmp_path / "out") == []


@pytest.mark.parametrize("cut", [10, -30])
def test_a_truncated_archive_is_refused_and_leaves_the_folder_as_it_was(tmp_path: Path, cut: int) -> None:
    archive = pack(tmp_path / "a.zip", {"good.ts": b"numbers" * 1000})
    archive.write_bytes(archive.read_bytes()[:cut])
    out = tmp_path / "out"
    out.mkdir()
    (out / "good.ts").write_text("old")
    with pytest.raises(DataError):
        extract(archive, ["good.ts"], out)
    assert (out / "good.ts").read_text() == "old"
    assert listing(out) == ["good.ts"]


def test_a_flipped_byte_is_found_by_the_checksum(tmp_path: Path) -> None:
    content = b"".join(b"%d," % (i * 7919 % 1000) for i in range(3000))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("good.ts", content)
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    raw[500] ^= 1
    (tmp_path / "a.zip").write_bytes(raw)
    with pytest.raises(DataError):
        extract(tmp_path / "a.zip", ["good.ts"], tmp_path / "out")
    assert listing(tmp_path / "out") == []


def test_plain_and_compressed_copies_have_the_same_content_and_checksum(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"1,2\n"))
    (tmp_path / "a.csv.xz").write_bytes(lzma.compress(b"1,2\n"))
    paths = list(tmp_path.iterdir())
    assert {read_bytes(path) for path in paths} == {b"1,2\n"}
    assert len({content_sha256(path) for path in paths}) == 1
