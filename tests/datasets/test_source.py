"""Downloads from a real server on loopback that breaks off, hides sizes and changes its files."""

import contextlib
import gc
import hashlib
import io
import multiprocessing
import threading
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from aaren.datasets import fetch as fetching
from aaren.datasets.catalogue import lookup
from aaren.datasets.dataset import Dataset
from aaren.datasets.fetch import fetch
from aaren.datasets.verify import verify
from aaren.errors import AarenError, DataError
from aaren.files.archive import read_bytes

CONTENT = bytes(range(256)) * 4000  # about a megabyte
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What is served, and how badly."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)  # bytes to send before breaking off, one per request
    hides_length: bool = False
    redirects: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path)
            if self.path in state.redirects:
                self.send_response(302)
                self.send_header("Location", state.redirects[self.path])
                self.end_headers()
                return
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            # before the first header: once it is out, the test may already be preparing its next request
            limit = state.break_after.pop(0) if state.break_after else len(content)
            self.send_response(200)
            if not state.hides_length:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(OSError):  # whoever asked has gone
                self.wfile.write(content[:limit])
                self.wfile.flush()
            self.close_connection = True

        def log_message(self, *_args: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    state.address = f"http://127.0.0.1:{httpd.server_address[1]}"
    yield state
    httpd.shutdown()
    httpd.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "RETRIES", 1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("AAREN_DATA", raising=False)
    return tmp_path / "cache" / "aaren" / "data"


def made_up(server: Server, **more: object) -> Dataset:
    server.files["/numbers.csv"] = CONTENT
    row = Dataset(
        name="numbers",
        setting="forecasting",
        files=("numbers.csv",),
        facts={},
        licence="-",
        source="-",
        urls=(f"{server.address}/numbers.csv",),
        sha256={"numbers.csv": DIGEST},
    )
    return replace(row, **more)  # type: ignore[arg-type]


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def test_a_download_arrives_whole_under_its_canonical_name(server: Server, home: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    (path,) = fetch(made_up(server), progress=lambda *step: seen.append(step))
    assert path == home / "forecasting" / "numbers.csv"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == ("numbers.csv", len(CONTENT), len(CONTENT))
    assert visible(home) == ["numbers.csv"]
    fetch(made_up(server))
    assert len(server.requests) == 1


def test_a_broken_connection_is_tried_again(server: Server, home: Path) -> None:
    server.break_after = [100_000]
    fetch(made_up(server))
    assert (home / "forecasting" / "numbers.csv").read_bytes() == CONTENT
    assert len(server.requests) == 2


@pytest.mark.parametrize("digest", [{}, {"numbers.csv": DIGEST}])
def test_half_a_file_is_not_kept(server: Server, home: Path, digest: dict[str, str]) -> None:
    server.break_after = [1000] * 2
    with pytest.raises(DataError, match=r"cannot get numbers: .*Without a network: run"):
        fetch(made_up(server, sha256=digest))
    assert visible(home) == []
    assert not list((home / "forecasting" / ".downloads").iterdir())


def test_a_wrong_checksum_is_refused_and_leaves_nothing(server: Server, home: Path) -> None:
    row = made_up(server)
    server.files["/numbers.csv"] = CONTENT[:-1] + b"?"
    with pytest.raises(DataError, match=f"expected {DIGEST}.*--any-checksum"):
        fetch(row)
    assert visible(home) == []
    fetch(row, any_checksum=True)
    assert visible(home) == ["numbers.csv"]


@pytest.mark.parametrize("hides_length", [False, True])
def test_a_download_above_its_limit_is_refused(server: Server, home: Path, hides_length: bool) -> None:
    server.hides_length = hides_length
    with pytest.raises(AarenError, match="has more than the 500,000 bytes expected: refused"):
        fetch(made_up(server, limit_bytes=500_000))
    assert visible(home) == []
    assert len(server.requests) == 1


def test_a_dead_link_and_a_machine_without_a_network_say_which_file_to_put_where(
    home: Path, server: Server
) -> None:
    row = made_up(server, urls=(f"{server.address}/gone.csv",))
    with pytest.raises(DataError) as caught:
        fetch(row)
    assert "\n" not in str(caught.value)
    assert "Not Found for url" in str(caught.value)
    assert f"copy numbers.csv into {home / 'forecasting'}, then run: aaren data verify numbers" in str(
        caught.value
    )
    offline = replace(lookup("Handwriting"), urls=("http://127.0.0.1:9/Handwriting.zip",))
    with pytest.raises(DataError, match=r"copy Handwriting_TRAIN\.ts and Handwriting_TEST\.ts into"):
        fetch(offline)


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1/a", "file:///etc/passwd", "data:text/plain,x", "gopher://x/", "http://[x/"]
)
@pytest.mark.usefixtures("home")
def test_redirects_lead_to_http_only(server: Server, target: str) -> None:
    row = made_up(server, sha256={})
    server.redirects["/numbers.csv"] = target
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # requests leaves the first answer to the collector
        with pytest.raises(DataError):
            fetch(row)
        gc.collect()
    server.redirects["/numbers.csv"] = "/b"
    server.files["/b"] = b"b"
    assert fetch(row)[0].read_bytes() == b"b"


def test_without_length_and_checksum_a_truncated_answer_does_not_pass(server: Server, home: Path) -> None:
    row = made_up(server, sha256={})
    server.hides_length = True
    with pytest.raises(AarenError, match="does not say how long the file is, and no checksum is known"):
        fetch(row)
    assert visible(home) == []
    server.break_after = [1000] * 2
    with pytest.raises(DataError, match="does not match the known hash"):
        fetch(made_up(server))
    fetch(made_up(server))
    assert (home / "forecasting" / "numbers.csv").read_bytes() == CONTENT


def test_the_first_checksum_is_trusted_and_compared_afterwards(server: Server, home: Path) -> None:
    row = made_up(server, sha256={})
    (path,) = fetch(row)
    assert path.is_relative_to(home)
    record = path.with_name("numbers.csv.sha256")
    assert record.read_text() == f"{DIGEST}  numbers.csv\n"
    assert read_bytes(path) == CONTENT
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(DataError, match=r"numbers\.csv has changed: .* numbers\.csv\.sha256 beside it says"):
        read_bytes(path)
    path.unlink()
    server.files["/numbers.csv"] = CONTENT[:-1] + b"?"
    with pytest.raises(DataError, match=f"expected {DIGEST}"):
        fetch(row)
    (path,) = fetch(row, any_checksum=True)
    assert read_bytes(path) == CONTENT[:-1] + b"?"


def test_the_checksum_of_an_archive_is_trusted_too(server: Server, home: Path) -> None:
    def pack(text: str) -> bytes:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("Heartbeat_TRAIN.ts", text)
            archive.writestr("Heartbeat_TEST.ts", "test")
        return packed.getvalue()

    train = server.files["/Heartbeat.zip"] = pack("train")
    row = replace(lookup("Heartbeat"), urls=(f"{server.address}/Heartbeat.zip",))
    for path in fetch(row):
        path.unlink()
    assert visible(home) == ["Heartbeat_TEST.ts.sha256", "Heartbeat_TRAIN.ts.sha256"]
    server.files["/Heartbeat.zip"] = pack("other")
    with pytest.raises(DataError, match=r"Heartbeat\.zip.* does not match the known hash"):
        fetch(row)
    server.files["/Heartbeat.zip"] = train
    assert len(fetch(row)) == 2


def test_verifying_trusts_a_file_that_was_put_there_by_hand(home: Path) -> None:
    (home / "events").mkdir(parents=True)
    path = home / "events" / "mooc.npz"
    times = np.tile(np.arange(5.0), 10)
    np.savez(path, times=times, offsets=np.arange(0, 51, 5), marks=np.arange(50) % 97)
    row = replace(lookup("mooc"), facts={}, uncertain=())
    assert verify(row).status == "verified"
    assert path.with_name("mooc.npz.sha256").exists()
    np.savez(path, times=times + 1, offsets=np.arange(0, 51, 5), marks=np.arange(50) % 97)
    finding = verify(row)
    assert finding.status == "broken"
    assert "mooc.npz has changed" in finding.differences[0]


def test_a_zip_is_unpacked_into_its_files(server: Server, home: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("Handwriting/Handwriting_TRAIN.ts", "train")
        archive.writestr("Handwriting/Handwriting_TEST.ts", "test")
    server.files["/Handwriting.zip"] = packed.getvalue()
    row = replace(lookup("Handwriting"), urls=(f"{server.address}/Handwriting.zip",))
    assert [path.read_text() for path in fetch(row)] == ["train", "test"]
    assert visible(home) == ["Handwriting_TEST.ts", "Handwriting_TRAIN.ts", "Handwriting_TRAIN.ts.sha256"]


def test_a_truncated_zip_leaves_the_folder_as_it_was(server: Server, home: Path) -> None:
    server.files["/Handwriting.zip"] = b"PK\x03\x04 and no more"
    row = replace(lookup("Handwriting"), urls=(f"{server.address}/Handwriting.zip",))
    with pytest.raises(DataError, match="truncated or corrupted"):
        fetch(row)
    assert visible(home) == []


def fetch_in_child(row: Dataset) -> None:
    fetch(row)


def test_two_processes_fetching_at_once_do_not_damage_it(server: Server, home: Path) -> None:
    row = made_up(server)
    server.break_after = [200_000]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=fetch_in_child, args=(row,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert (home / "forecasting" / "numbers.csv").read_bytes() == CONTENT
    assert len(server.requests) == 2  # one broken, one whole; the second process fetched nothing
