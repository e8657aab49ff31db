"""Every reader of files against hundreds of broken ones: what comes out is data or an error of ours.

Small valid files of every format are damaged by a seeded generator: flipped, cut, doubled and foreign bytes,
arrays of other types and shapes, headers that lie, nested things; then names that are folders or no text.
"""

import gzip
import io
import json
import lzma
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from aaren.classification import batches as classification
from aaren.datasets.verify import check_file
from aaren.errors import AarenError
from aaren.events import files as event_files
from aaren.events.data import split
from aaren.forecasting import batches as forecasting
from aaren.rl import data as trajectory_files
from aaren.rl.batches import TrajectoryBatches

CASES = 50  # damaged copies of each kind of file, by one seed
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))]

Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def csv_of_series() -> bytes:
    rows = [f"2020-01-{day:02} 00:00:00,{day * 0.5},{day % 7}" for day in range(1, 31)]
    return "\n".join(["date,load,OT", *rows]).encode() + b"\n"


def ts_of_cases() -> bytes:
    head = "#comment\n@problemName x\n@timeStamps false\n@missing true\n@classLabel true a B\n@data\n"
    return (head + "".join(f"{k},2,?,4:5,{k}.5,7,8:{'aB'[k % 2]}\n" for k in range(6))).encode()


def csv_of_events() -> bytes:
    rows = [f"s{k % 6},{k + 0.5},{k % 3}" for k in range(24)]
    return "\n".join(["sequence,time,mark", *rows]).encode() + b"\n"


def parquet_of_events() -> bytes:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.DataFrame(
        {"sequence": [k % 6 for k in range(24)], "time": [k + 0.5 for k in range(24)], "mark": [0, 1] * 12}
    )
    sink = io.BytesIO()
    table.to_parquet(sink)
    return sink.getvalue()


def records() -> list[dict[str, object]]:
    return [
        {"time_since_start": [0.5, 1.0, 2.5 + k], "type_event": [0, 1, 1], "dim_process": 3} for k in range(6)
    ]


def json_of_events() -> bytes:
    return json.dumps(records()).encode()


def jsonl_of_events() -> bytes:
    return "\n".join(map(json.dumps, records())).encode()


def event_arrays() -> Arrays:
    return {
        "times": np.tile([0.5, 1.0, 2.5, 4.0], 6),
        "offsets": np.arange(0, 25, 4),
        "marks": np.tile([0, 1, 2, 1], 6),
        "num_marks": np.asarray(3),
        "mark_names": np.asarray(["a", "b", "c"]),
        "split": np.asarray([0, 0, 0, 0, 1, 2]),
        "t_max": np.asarray(5.0),
        "unit": np.asarray("hours"),
    }


def trajectory_arrays() -> Arrays:
    return {
        "observations": np.arange(36.0).reshape(12, 3),
        "actions": np.linspace(-1, 1, 12)[:, None].astype(np.float32),
        "rewards": np.ones(12, dtype=np.float32),
        "terminals": np.arange(12) == 5,
        "timeouts": np.arange(12) == 11,
        "record": np.asarray(json.dumps({"name": "made", "settings": {"environment": "Pendulum-v1"}})),
    }


def as_npz(arrays: Arrays) -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)  # type: ignore[arg-type]
    return sink.getvalue()


def as_hdf5(arrays: Arrays) -> bytes:
    h5py = pytest.importorskip("h5py", reason="HDF5 needs the extra aaren[rl]")
    sink = io.BytesIO()
    with h5py.File(sink, "w") as file:
        for name, array in arrays.items():
            if array.dtype.kind != "U":
                file[name] = array
    return sink.getvalue()


def read_series(path: Path) -> None:
    data = forecasting.open_file(path)
    assert bool(data.values.isfinite().all())


def read_cases(path: Path) -> None:
    data = classification.open_files(path, allow_irregular=True)
    assert bool(data.train.values.isfinite().all())


def read_events(path: Path) -> None:
    events = event_files.read(path)
    assert np.isfinite(events.gaps.astype(np.float32)).all()
    split(events)


def read_trajectories(path: Path) -> None:
    found = trajectory_files.read(path)
    batch = next(iter(TrajectoryBatches(found, context_steps=3, batch_size=2)))
    assert bool(batch.observations.isfinite().all())


Reader = Callable[[Path], None]
TEXTS: dict[str, tuple[str, Callable[[], bytes], Reader]] = {
    "series": ("mine.csv", csv_of_series, read_series),
    "cases": ("mine_TRAIN.ts", ts_of_cases, read_cases),
    "events csv": ("mine.csv", csv_of_events, read_events),
    "events parquet": ("mine.parquet", parquet_of_events, read_events),
    "events json": ("mine.json", json_of_events, read_events),
    "events jsonl": ("mine.jsonl", jsonl_of_events, read_events),
    "events npz": ("mine.npz", lambda: as_npz(event_arrays()), read_events),
    "rl npz": ("mine.npz", lambda: as_npz(trajectory_arrays()), read_trajectories),
    "rl hdf5": ("mine.hdf5", lambda: as_hdf5(trajectory_arrays()), read_trajectories),
}
ARRAYS: dict[str, tuple[str, Callable[[], Arrays], Callable[[Arrays], bytes], Reader]] = {
    "events npz": ("mine.npz", event_arrays, as_npz, read_events),
    "rl npz": ("mine.npz", trajectory_arrays, as_npz, read_trajectories),
    "rl hdf5": ("mine.hdf5", trajectory_arrays, as_hdf5, read_trajectories),
}
WORDS = (
    *(
        b",",
        b"\n",
        b"",
        b"nan",
        b"inf",
        b"-1",
        b"1e400",
        b"1" * 400,
        b"[" * 3000,
        b"{",
        b'"',
        b"null",
        b"\x00",
    ),
    *(b"\xff\xfe", b":", b"?", b"@data", b"9999-99-99", b"0001-01-01", b"1.5", b"1e200", b"true", b"\r"),
    b"9" * 19,
)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage bytes in one to three ways."""
    for _ in range(int(rng.integers(1, 4))):
        data = bytearray(content)
        place, other = sorted(int(p) for p in rng.integers(0, len(data) + 1, 2))
        match int(rng.integers(6)):
            case 0:
                for spot in rng.integers(0, len(data), 3) if data else ():
                    data[spot] ^= 1 << int(rng.integers(8))
            case 1:
                del data[place:]
            case 2:
                del data[place : min(other, place + 40)]
            case 3:
                data[place:place] = data[place : place + 60]
            case 4:
                data[place : place + int(rng.integers(0, 6))] = WORDS[int(rng.integers(len(WORDS)))]
            case _:
                parts = content.split(b",")
                parts[int(rng.integers(len(parts)))] = WORDS[int(rng.integers(len(WORDS)))]
                data = bytearray(b",".join(parts))
        content = bytes(data)
    return content


def changed(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    """Give one array another type, shape, size or content, or none."""
    arrays = dict(arrays)
    name = list(arrays)[int(rng.integers(len(arrays)))]
    array = arrays[name]
    types = (
        *(
            "complex128",
            "bool",
            "U3",
            "S2",
            "int8",
            "uint64",
            "float16",
            "longdouble",
            "datetime64[s]",
            ">f8",
        ),
    )
    odd = (np.nan, np.inf, -np.inf, -1, 1e300, 1e39, 2**62, 0.5, 10**12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match int(rng.integers(8)):
            case 0:
                arrays[name] = array.astype(
                    "U20" if array.dtype.kind == "U" else types[int(rng.integers(len(types)))]
                )
            case 1:
                arrays[name] = array.reshape(-1)[: int(rng.integers(0, array.size + 1))]
            case 2:
                arrays[name] = np.stack([array] * int(rng.integers(1, 3)))
            case 3:
                arrays[name] = np.asarray(odd[int(rng.integers(len(odd)))])
            case 4:
                del arrays[name]
            case 5:
                record = np.zeros(3, dtype=[("a", "f8"), ("b", "i4")])
                arrays[name] = (record, np.zeros(0), np.zeros((0, 3)), np.zeros((2, 0)))[int(rng.integers(4))]
            case 6 if array.dtype.kind != "U" and array.size:
                array = array.astype(np.float64)
                array.reshape(-1)[int(rng.integers(array.size))] = odd[int(rng.integers(len(odd)))]
                arrays[name] = array
            case _:
                arrays[name] = np.asarray(
                    ["[" * 5000, "{}", '{"settings": 3}', "[1]", ""][int(rng.integers(5))]
                )
    return arrays


def attempt(read: Reader, path: Path) -> bool:
    """Read a file; anything but data or an error of ours fails the test."""
    try:
        read(path)
    except AarenError:
        return False
    return True


def test_one_row_and_one_step_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(AarenError, match=r"1 row\(s\) are too few to train on"):
        read_series(place(tmp_path, "one.csv", b"date,a\n2020-01-01,1\n"))
    with pytest.raises(AarenError, match="one time step in all cannot be standardised"):
        read_cases(place(tmp_path, "one.ts", b"@classLabel true a\n@data\n1:2:a\n"))


def test_nested_columns_are_told(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    good = {"sequence": [0, 0, 1, 1], "time": [0.0, 1.0, 0.0, 1.0], "mark": [0, 1, 0, 1]}
    odd = ([[1], [2], [3], [4]], [{"a": 1}] * 4, [b"x"] * 4, [True, False] * 2, [None] * 4)
    odd += (pandas.to_timedelta([1, 2, 1, 2], unit="s"), ["1", "x", "", "2"], [10**30, 1.5, 2, 3])
    for name in good:
        for values in odd:
            try:
                pandas.DataFrame(good | {name: values}).to_parquet(tmp_path / "odd.parquet")
            except Exception:  # what the format itself cannot hold
                continue
            attempt(read_events, tmp_path / "odd.parquet")


def place(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", TEXTS)
def test_damaged_bytes_end_in_data_or_in_an_error_of_ours(tmp_path: Path, kind: str, seed: int) -> None:
    name, make, read = TEXTS[kind]
    whole = make()
    assert attempt(read, place(tmp_path, name, whole))
    rng = np.random.default_rng([seed, list(TEXTS).index(kind)])
    packings = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
    for number in range(CASES):
        suffix = list(packings)[number % 7 % len(packings)]
        content = damaged(whole, rng)
        content = packings[suffix](content) if number % 2 else damaged(packings[suffix](whole), rng)
        attempt(read, place(tmp_path, name + suffix, content))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_changed_arrays_end_in_data_or_in_an_error_of_ours(tmp_path: Path, kind: str, seed: int) -> None:
    name, make, pack, read = ARRAYS[kind]
    rng = np.random.default_rng([seed, 100 + list(ARRAYS).index(kind)])
    for _ in range(CASES):
        try:
            content = pack(changed(make(), rng))
        except (TypeError, ValueError):  # what the format itself cannot hold
            continue
        attempt(read, place(tmp_path, name, content))


def lying_archives() -> Iterator[bytes]:
    """Zip files whose members, names and headers are odd."""
    good = io.BytesIO()
    np.save(good, np.arange(3.0))
    names = ("times.npy", "../times.npy", "/times.npy", "times", "times.npy/x.npy", "\u202e.npy")
    for name in names:
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            sink = io.BytesIO()
            with zipfile.ZipFile(sink, "w", method) as archive:
                archive.writestr(name, good.getvalue())
            yield sink.getvalue()
    for text in (
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3.0,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f8', 'fortran_order': 1, 'shape': (3,), }",
        "{'descr': [('a', '<f8', (10000000000,))], 'fortran_order': False, 'shape': (3,), }",
        "{'shape': (3,)}",
        "(" * 9000,
        "__import__('os').abort()",
    ):
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w") as archive:
            head = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
            archive.writestr("times.npy", head + bytes(24))
        yield sink.getvalue()
        yield sink.getvalue().replace(b"NUMPY\x01\x00", b"NUMPY\x03\x00")


@pytest.mark.parametrize("kind", ARRAYS)
def test_archives_that_lie_are_refused(tmp_path: Path, kind: str) -> None:
    for content in lying_archives():
        assert not attempt(ARRAYS[kind][-1], place(tmp_path, "lying.npz", content))


NAMES = ("", "nothing", "x" * 5000, "a\udcffb", "a\nb", "folder", "closed/x", "loop", "\u202e.csv")


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_no_files_are_told(tmp_path: Path, kind: str, name: str) -> None:
    file, _, read = TEXTS[kind]
    (tmp_path / "folder").mkdir()
    for suffix in ("", Path(file).suffix, Path(file).suffix + ".gz"):
        (tmp_path / f"loop{suffix}").symlink_to(f"loop{suffix}")
        (tmp_path / f"folder{suffix}").mkdir(exist_ok=True)
        with pytest.raises(AarenError):
            read(tmp_path / (name + suffix))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("stem", ["a\udcffb", "a b\nc", "\u202etxt"])
def test_names_that_are_no_text_are_read(tmp_path: Path, kind: str, stem: str) -> None:
    name, make, read = TEXTS[kind]
    try:
        path = place(tmp_path, stem + Path(name).suffix, make())
    except (OSError, UnicodeError):
        pytest.skip("this disk does not hold such names")
    assert attempt(read, path)


@pytest.mark.parametrize("setting", ["forecasting", "classification", "events", "rl"])
def test_every_file_is_told_under_every_setting(tmp_path: Path, setting: str) -> None:
    """A file of one setting, looked at as another."""
    for name, make, _ in TEXTS.values():
        path = place(tmp_path, name, make())
        attempt(lambda path: check_file(path, setting=setting) and None, path)
    (tmp_path / "empty").write_bytes(b"")
    attempt(lambda path: check_file(path, setting=setting) and None, tmp_path / "empty")
