"""Downloads against a real server on loopback that breaks off, hides sizes and changes its files."""

import hashlib
import io
import multiprocessing
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from aaren.datasets.catalogue import lookup
from aaren.datasets.dataset import Dataset
from aaren.datasets.fetch import fetch
from aaren.datasets.verify import verify
from aaren.errors import DataError
from aaren.files import download as downloading
from aaren.files import folders
from aaren.files.archive import read_bytes
from aaren.files.download import UnreachableError, download

CONTENT = bytes(range(256)) * 4000  # about a megabyte
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What is served, and how badly."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)  # bytes to send before breaking off, one per request
    hides_length: bool = False
    headers: dict[str, str] = field(default_factory=dict)  # instead of the true ones
    redirects: dict[str, str] = field(default_factory=dict)
    seconds_per_byte: float = 0.0
    requests: list[tuple[str, str]] = field(default_factory=list)  # path, Range header


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append((self.path, self.headers.get("Range", "")))
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
            start = 0
            etag = state.etags.get(self.path, '"one"')
            if self.headers.get("Range") and self.headers.get("If-Range") == etag:
                start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            headers = {} if state.hides_length else {"Content-Length": str(len(content) - start)}
            for name, value in {**headers, **state.headers}.items():
                self.send_header(name, value)
            self.send_header("ETag", etag)
            self.end_headers()
            for byte in content[start : start + limit] if state.seconds_per_byte else b"":
                time.sleep(state.seconds_per_byte)
                try:
                    self.wfile.write(bytes([byte]))
                except OSError:
                    return
            self.wfile.write(content[start : start + limit])
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


def test_a_broken_connection_is_resumed_where_it_broke(server: Server, home: Path) -> None:
    server.break_after = [100_000, 300_000]
    fetch(made_up(server), pause_seconds=0)
    assert (home / "forecasting" / "numbers.csv").read_bytes() == CONTENT
    assert [header for _, header in server.requests] == ["", "bytes=100000-", "bytes=400000-"]


def test_the_next_run_goes_on_where_the_last_one_gave_up(server: Server, home: Path) -> None:
    server.break_after = [1000] * 5
    with pytest.raises(UnreachableError, match=r"broke off after 5,000 of 1,024,000 bytes"):
        fetch(made_up(server), pause_seconds=0)
    assert folders.find("forecasting", "numbers.csv") is None
    fetch(made_up(server), pause_seconds=0)
    assert server.requests[-1][1] == "bytes=5000-"
    assert (home / "forecasting" / "numbers.csv").read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_is_begun_again(server: Server, tmp_path: Path) -> None:
    server.files["/a"] = b"old" * 1000
    server.break_after = [10] * 5
    with pytest.raises(UnreachableError):
        download(f"{server.address}/a", tmp_path / "a", limit_bytes=10_000, pause_seconds=0)
    server.files["/a"] = b"new!" * 1000
    server.etags["/a"] = '"two"'
    download(f"{server.address}/a", tmp_path / "a", limit_bytes=10_000, pause_seconds=0)
    assert (tmp_path / "a").read_bytes() == b"new!" * 1000


def test_a_wrong_checksum_is_refused_and_leaves_nothing(server: Server, home: Path) -> None:
    row = made_up(server)
    server.files["/numbers.csv"] = CONTENT[:-1] + b"?"
    with pytest.raises(DataError, match=f"wrong checksum: .* should have sha256 {DIGEST}.*--any-checksum"):
        fetch(row, pause_seconds=0)
    assert visible(home) == []
    fetch(row, any_checksum=True)
    assert visible(home) == ["numbers.csv"]


@pytest.mark.parametrize("hides_length", [False, True])
def test_a_download_above_its_limit_is_refused(server: Server, home: Path, hides_length: bool) -> None:
    server.hides_length = hides_length
    with pytest.raises(DataError, match=r"500,000 (bytes )?expected at most: refused"):
        fetch(made_up(server, limit_bytes=500_000))
    assert visible(home) == []


def test_a_dead_link_and_a_machine_without_a_network_say_which_file_to_put_where(
    home: Path, server: Server
) -> None:
    row = made_up(server, urls=(f"{server.address}/gone.csv",))
    with pytest.raises(UnreachableError) as caught:
        fetch(row, pause_seconds=0)
    assert "\n" not in str(caught.value)
    assert "/gone.csv: Not Found." in str(caught.value)
    assert f"put it into {home / 'forecasting'}, then run: aaren data verify numbers" in str(caught.value)
    offline = replace(lookup("Handwriting"), urls=("http://127.0.0.1:9/Handwriting.zip",))
    with pytest.raises(
        UnreachableError, match=r"get Handwriting_TRAIN\.ts and Handwriting_TEST\.ts from http"
    ):
        fetch(offline)


def test_only_http_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="only http and https are downloaded"):
        download("file:///etc/passwd", tmp_path / "a", limit_bytes=10)


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1/a", "file:///etc/passwd", "data:text/plain,x", "gopher://x/", "http://[x/"]
)
def test_redirects_lead_to_http_only(server: Server, tmp_path: Path, target: str) -> None:
    server.redirects["/a"] = target
    with pytest.raises((DataError, UnreachableError)):
        download(f"{server.address}/a", tmp_path / "a", limit_bytes=10_000, pause_seconds=0)
    assert not (tmp_path / "a").exists()


def test_redirects_are_followed_but_not_from_https_to_http(server: Server, tmp_path: Path) -> None:
    server.files["/b"] = b"b"
    server.redirects["/a"] = "/b"
    assert download(f"{server.address}/a", tmp_path / "a", limit_bytes=10).read_bytes() == b"b"
    asked = urllib.request.Request("https://example.org/a")
    with pytest.raises(
        DataError, match=r"leads from https to http://example.org/b, which anyone could change"
    ):
        downloading._Redirects().redirect_request(
            asked, io.BytesIO(), 302, "", Message(), "http://example.org/b"
        )


@pytest.mark.parametrize("length", ["abc", "-5", "1e3", "", "\u00b2"])
def test_a_length_that_is_no_number_is_told(server: Server, tmp_path: Path, length: str) -> None:
    server.files["/a"] = b"content"
    server.headers["Content-Length"] = length
    with pytest.raises(DataError, match=r"Content-Length is no number|does not say how long"):
        download(f"{server.address}/a", tmp_path / "a", limit_bytes=10_000, pause_seconds=0)
    assert not (tmp_path / "a").exists()


def test_without_length_and_checksum_a_truncated_answer_does_not_pass(server: Server, home: Path) -> None:
    row = made_up(server, sha256={})
    server.hides_length = True
    with pytest.raises(DataError, match="does not say how long the file is, and no checksum is known"):
        fetch(row, pause_seconds=0)
    assert visible(home) == []
    server.break_after = [1000]
    with pytest.raises(DataError, match="wrong checksum"):
        fetch(made_up(server), pause_seconds=0)
    fetch(made_up(server), pause_seconds=0)
    assert (home / "forecasting" / "numbers.csv").read_bytes() == CONTENT


def test_a_server_that_drips_is_given_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(downloading, "ATTEMPTS", 1)
    server.files["/a"] = CONTENT
    server.seconds_per_byte = 0.02
    with pytest.raises(UnreachableError, match=r"bytes per second, less than 1,000: given up after"):
        download(f"{server.address}/a", tmp_path / "a", limit_bytes=10_000_000, pause_seconds=0)


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
    with pytest.raises(DataError, match=f"wrong checksum: .* should have sha256 {DIGEST}"):
        fetch(row, pause_seconds=0)
    (path,) = fetch(row, any_checksum=True)
    assert read_bytes(path) == CONTENT[:-1] + b"?"


def test_the_checksum_of_an_archive_is_trusted_too(server: Server, home: Path) -> None:
    def pack(text: str) -> bytes:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("Heartbeat_TRAIN.ts", text)
            archive.writestr("Heartbeat_TEST.ts", "test")
        return packed.getvalue()

    server.files["/Heartbeat.zip"] = pack("train")
    row = replace(lookup("Heartbeat"), urls=(f"{server.address}/Heartbeat.zip",))
    for path in fetch(row):
        path.unlink()
    assert visible(home) == ["Heartbeat_TEST.ts.sha256", "Heartbeat_TRAIN.ts.sha256"]
    server.files["/Heartbeat.zip"] = pack("other")
    with pytest.raises(DataError, match=r"wrong checksum: .*Heartbeat\.zip"):
        fetch(row, pause_seconds=0)
    server.files["/Heartbeat.zip"] = pack("train")
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


def test_what_has_no_download_says_what_to_do(home: Path) -> None:
    with pytest.raises(
        DataError, match="sin cannot be downloaded: it is generated here; run: aaren data make sin"
    ):
        fetch(lookup("sin"))
    with pytest.raises(DataError, match="python benchmarks/rl_data hopper-medium"):
        fetch(lookup("hopper-medium-regen"))
    with pytest.raises(
        DataError, match=rf"taxi cannot be downloaded: .* Its place is {home}/events/taxi.npz"
    ):
        fetch(lookup("taxi"))


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
    fetch(row, pause_seconds=0)


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
    assert len(server.requests) == 2  # one broken, one resumed; the second process fetched nothing
