"""Every refusal of `aaren.files`, and its words."""

import gzip
import lzma
import os
import pickle
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from aaren.files import folders, npz
from aaren.files.archive import extract, read_bytes, record_checksums
from aaren.files.checksums import read_files, write_files
from aaren.files.lock import locked, locked_file
from aaren.files.marked import write_marked
from support.messages import check_messages


def pack(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def array(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin1") + bytes(64)


def hold_twice(path: Path) -> None:
    with locked_file(path), locked_file(path, wait_seconds=0.0):
        pass


def test_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("AAREN_DATA", raising=False)
    t, many = tmp_path, b"".join(b"%d," % number for number in range(9000))
    zipped = pack(t / "a.zip", {"other.ts": many})
    changed = put(t / "changed.csv", b"1")
    record_checksums(changed, {"changed.csv": "0" * 64})
    np.savez(t / "objects.npz", x=np.array([{"a": 1}], dtype=object))
    np.savez(t / "x.npz", x=np.arange(3))
    write_files(t / "model", {"a.json": b"[1]"})
    put(t / "model" / "a.json", b"[2]")
    write_files(t / "half", {"a.json": b"[1]"})
    mark = partial(write_marked, begin="<begin>", end="<end>", body="new", option="--page")
    cases = {
        "a member that is not there": lambda: extract(zipped, ["X.ts"], t / "out"),
        "a zip beyond its limit": lambda: extract(zipped, ["other.ts"], t / "out", limit_bytes=5_000),
        "half a zip": lambda: extract(put(t / "b.zip", zipped.read_bytes()[:-30]), ["other.ts"], t / "out"),
        "half a .gz": lambda: read_bytes(put(t / "a.csv.gz", gzip.compress(many)[:-20])),
        "half an .xz": lambda: read_bytes(put(t / "a.csv.xz", lzma.compress(many)[:-20])),
        "a .gz beyond its limit": lambda: read_bytes(put(t / "b.csv.gz", gzip.compress(many)), limit_bytes=9),
        "a pickle by name": lambda: read_bytes(put(t / "a.pkl.gz", b"1")),
        "a pickle by content": lambda: read_bytes(put(t / "a.npz", pickle.dumps([1, 2]))),
        "a file that is not there": lambda: read_bytes(t / "none.csv"),
        "a folder": lambda: read_bytes(t),
        "a file that has changed": lambda: read_bytes(changed),
        "an array that is not there": lambda: npz.load(t / "x.npz", required=("x", "offsets")),
        "half an .npz": lambda: npz.load(put(t / "half.npz", (t / "x.npz").read_bytes()[:-50])),
        "objects": lambda: npz.load(t / "objects.npz"),
        "an array beyond memory": lambda: npz.load(pack(t / "c.npz", {"x.npy": array("(10000000000000,)")})),
        "an array of negative length": lambda: npz.load(pack(t / "d.npz", {"x.npy": array("(-1,)")})),
        "less than declared": lambda: npz.load(pack(t / "e.npz", {"x.npy": array("(9,)")})),
        "more than declared": lambda: npz.load(pack(t / "f.npz", {"x.npy": array("(7,)")})),
        "no array": lambda: npz.load(pack(t / "g.npz", {"x.txt": b"text"})),
        "a page that is not there": lambda: mark(t / "none.md"),
        "a page that is no text": lambda: mark(put(t / "a.md", b"\xff\xfe")),
        "a page without marks": lambda: mark(put(t / "b.md", b"text")),
        "marks in another order": lambda: mark(put(t / "c.md", b"<end><begin>")),
        "a mark twice": lambda: mark(put(t / "d.md", b"<begin><begin><end>")),
        "a data file that is nowhere": lambda: folders.require("events", "sin.npz"),
        "with its cure": lambda: folders.require("events", "sin.npz", cure="Run aaren data fetch sin."),
        "a saved file that was edited": lambda: read_files(t / "model"),
        "a saved file that is missing": lambda: read_files(t / "half", "b.json"),
        "nothing saved": lambda: read_files(t),
        "a folder that cannot be": lambda: locked(changed / "below").__enter__(),
        "a file that is held": lambda: hold_twice(t / "held"),
    }
    check_messages(
        Path(__file__).with_name("messages.txt"), cases, hidden={str(t): "TMP", str(os.getpid()): "PID"}
    )
