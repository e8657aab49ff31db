"""`aaren serve`: a real server in its own process, on loopback; every item exactly once, also when killed."""

import asyncio
import base64
import http.client
import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi", reason="needs aaren[serve]")
pytest.importorskip("uvicorn", reason="needs aaren[serve]")
pytest.importorskip("prometheus_client", reason="needs aaren[serve]")

from aaren.classification.model import Classifier, ClassifierConfig
from aaren.classification.predict import SampleRows
from aaren.errors import ConfigError, DataError, UnwritableError
from aaren.nn.blocks import state_to_bytes
from aaren.serve.access import PromptProtocol
from aaren.serve.batcher import Batcher, Item, Limits
from aaren.serve.metrics import StreamMetrics
from aaren.serve.run import _listen, serve
from aaren.stream.pool import StreamPool

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
TOKEN = "a secret of enough characters"


def make_rows(head: str = "pooled") -> SampleRows:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Classifier(
            ClassifierConfig(
                num_channels=2,
                num_classes=2,
                length=9,
                width=8,
                num_heads=2,
                embedding="causal",
                head=head,
            )
        )
    learned: Any = {
        "classes": ["calm", "storm"],
        "mean": [10.0, 0.0],
        "deviation": [2.0, 1.0],
        "is_normalised_across_channels": False,
    }
    return SampleRows(model.eval(), learned)


ROWS = make_rows()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(state: Path, port: int, **options: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            with state.with_suffix(".log").open("w") as log:
                os.dup2(log.fileno(), 2)
            serve(options.pop("rows", ROWS), state, port=port, **options)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return child
        time.sleep(0.02)
    raise AssertionError(state.with_suffix(".log").read_text())


def stop(child: int, number: int = signal.SIGTERM) -> int:
    os.kill(child, number)
    return os.waitpid(child, 0)[1]


@contextmanager
def running(state: Path, **options: Any) -> Iterator[int]:
    port = free_port()
    child = start(state, port, **options)
    try:
        yield port
    finally:
        stop(child)


def ask(port: int, path: str, content: object = None, method: str = "", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    given = {
        "Content-Type": "application/json",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    body = content if isinstance(content, bytes) else None if content is None else json.dumps(content)
    try:
        connection.request(method or ("GET" if content is None else "POST"), path, body, given)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    assert answer.getheader("Access-Control-Allow-Origin") is None
    assert answer.getheader("Retry-After") == ("1" if answer.status == 503 else None)
    return answer.status, json.loads(text) if answer.getheader("Content-Type") == "application/json" else text


def test_rows_are_answered_once_and_kept(tmp_path: Path) -> None:
    state = tmp_path / "states.db"
    session = ROWS.model.stream()
    expected = [session.push(sample).tolist() for sample in ([9.0, 0.5], [11.0, 1.0], [10.0, 2.0])]
    with running(state) as port:
        one = {"id": "s1", "values": [9.0, 0.5], "seq": 0}
        status, found = ask(port, "/push", one)
        assert (status, found["delivery"]) == (200, "exactly-once")
        assert list(found["answers"][0]["probabilities"].values()) == pytest.approx(expected[0])
        many = [{"id": "s1", "values": [11.0, 1.0], "seq": 1}, {"id": "s1", "values": [10.0, 2.0], "seq": 2}]
        assert ask(port, "/push", many)[0] == 200
        status, again = ask(port, "/push", many)  # the client did not hear the answer
        assert [answer["repeated"] for answer in again["answers"]] == [True, True]
        assert list(again["answers"][1]["probabilities"].values()) == pytest.approx(expected[2])
        assert ask(port, "/push", one)[1]["answers"] == [{"id": "s1", "seq": 0, "repeated": True}]  # too old
        status, found = ask(port, "/push", {"id": "s2", "values": [1, 2]})
        assert found["delivery"].startswith("at-least-once")
        status, held = ask(port, "/state/s1")
        assert (status, held["seq"]) == (200, 2)
        other = ROWS.model.stream()
        other.batch_size = 1
        other.restore(base64.b64decode(held["state"]))
        assert other.to_bytes() == base64.b64decode(held["state"])
        assert ask(port, "/state/nobody")[0] == 404
        assert ask(port, "/healthz")[1] == {"status": "ok", "streams": 2}
        assert b"\naaren_stream_items_total 7.0\n" in ask(port, "/metrics")[1]
        described = ask(port, "/openapi.json")[1]
        assert set(described["paths"]) == {
            "/push", "/state/{key}", "/healthz", "/metrics"
        }  # fmt: skip
    with StreamPool(ROWS.model, state) as pool:
        assert len(pool) == 2


def test_a_kernel_that_cannot_run_is_found_before_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(_: str) -> None:
        raise ConfigError("the compiled library is older than its source. Build it again: ...")

    monkeypatch.setattr("aaren.export.compile.library.runtime_function", stale)
    with pytest.raises(ConfigError, match="Build it again"):
        serve(ROWS, tmp_path / "states.db", port=0)
    monkeypatch.undo()
    with StreamPool(ROWS.model, tmp_path / "states.db") as pool:  # given back, and empty
        assert len(pool) == 0


@pytest.mark.parametrize("key", ["seq", "repeated", "class"])
def test_a_key_must_not_have_the_name_of_a_part_of_answers(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"--key {key}: .* of this name. Rename the key"):
        serve(ROWS, tmp_path / "states.db", port=0, key=key)


GOOD = {"id": "a", "values": [1, 2]}


def test_what_cannot_be_used_is_said_and_changes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cases: list[tuple[Any, int, str]] = [
        (b"not json", 422, "JSON decode error"),
        (b"[" * 100_000, 400, "parsing the body"),
        ([], 422, "at least 1 item"),
        ([GOOD] * 5000, 422, "at most 4096 items"),
        (b"7", 422, "dictionary"),
        ([GOOD, {"id": "a"}], 422, "row 1: no field 'values'"),
        ({"id": "x" * 300, "values": [1, 2]}, 422, "at most 256 bytes"),
        ({"id": "a", "values": [1, 2], "seq": -1}, 422, "seq: Input should be greater than or equal to 0"),
        ([GOOD, {**GOOD, "seq": True}], 422, "row 1: seq: Input should be a valid integer"),
        ({"id": 1.5, "values": [1, 2]}, 422, "id: Input should be"),
        ({"values": [1, 2]}, 422, "id: Field required"),
        ({"id": "\ud800", "values": [1, 2]}, 422, "cannot be stored"),
        ({"id": "a", "values": "x" * 900_000}, 422, "must be a list"),
        (b'{"id": "a", "values": [1, NaN]}', 422, "nan"),
        (b" " * 2_000_000, 413, "at most 1048576 bytes"),
    ]
    options: dict[str, Any] = {"max_streams": 3, "host_names": ("sensors.EXAMPLE",)}
    with running(tmp_path / "states.db", **options) as port:
        for content, status, words in cases:
            found, answer = ask(port, "/push", content)
            assert (found, words in answer["error"]) == (status, True), (content, answer)
            assert "Traceback" not in answer["error"]
            assert len(answer["error"]) < 1000
        assert ask(port, "/healthz")[1]["streams"] == 0
        assert ask(port, "/push", [{**GOOD, "id": name} for name in "abc"])[0] == 200
        status, answer = ask(port, "/push", {**GOOD, "id": "d"})
        assert (status, "room for 3" in answer["error"], "DELETE /state/KEY" in answer["error"]) == (
            409,
            True,
            True,
        )
        assert ask(port, "/push", GOOD, Content_Type="text/plain")[0] == 415
        assert ask(port, "/push", GOOD, Origin="http://evil.example")[0] == 403
        assert ask(port, "/push", GOOD, Origin=f"http://127.0.0.1:{port}")[0] == 200
        assert ask(port, "/healthz", Host="evil.example")[0] == 421
        assert ask(port, "/nowhere")[0] == 404
        assert ask(port, "/state/%00")[0] == 404
        assert ask(port, "/push", method="GET")[0] == 405
        assert ask(port, "/healthz", Host=f"Sensors.Example:{port}")[0] == 200
        with socket.create_connection(("127.0.0.1", port)) as gone:  # in the middle of its rows
            head = f"POST /push HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            gone.sendall(f"{head}Content-Length: 100\r\n\r\n[".encode())
        assert ask(port, "/healthz")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_beyond_the_loopback_a_token_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--host 0\.0\.0\.0 is open to other machines: set AAREN_TOKEN"):
        serve(ROWS, tmp_path / "states.db", host="0.0.0.0", port=0)
    monkeypatch.setenv("AAREN_TOKEN", "short")
    with pytest.raises(ConfigError, match="at least 16"):
        serve(ROWS, tmp_path / "states.db", port=0)
    monkeypatch.setenv("AAREN_TOKEN", TOKEN)
    with running(tmp_path / "states.db", host="0.0.0.0") as port:
        assert ask(port, "/healthz")[0] == 401
        assert ask(port, "/healthz", Authorization="Bearer wrong")[0] == 401
        assert ask(port, "/push", GOOD, Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_refusal_for_ever_is_no_503_and_a_stream_can_be_reset(tmp_path: Path) -> None:
    with running(tmp_path / "states.db", rows=make_rows(head="flattened")) as port:
        assert ask(port, "/push", [{**GOOD, "seq": seq} for seq in range(9)])[0] == 200
        status, answer = ask(port, "/push", {**GOOD, "seq": 9})  # the model was made for 9 items
        assert status == 409, answer
        assert "DELETE /state/KEY" in answer["error"]
        assert ask(port, "/state/a", method="DELETE") == (200, {"id": "a", "reset": True})
        assert ask(port, "/state/a", method="DELETE")[0] == 404
        assert ask(port, "/state/a")[0] == 404
        assert ask(port, "/push", {**GOOD, "seq": 0})[0] == 200


def test_a_header_that_came_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAREN_TOKEN", TOKEN)
    with running(tmp_path / "states.db") as port, socket.create_connection(("127.0.0.1", port)) as client:
        lines = [f"Host: 127.0.0.1:{port}", "Authorization: Bearer wrong", f"Authorization: Bearer {TOKEN}"]
        client.sendall("\r\n".join(["GET /healthz HTTP/1.1", *lines, "", ""]).encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 400")


def test_silent_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PromptProtocol, "head_seconds", 0.3)
    with running(tmp_path / "states.db") as port:
        silent = socket.create_connection(("127.0.0.1", port))
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        for client in (silent, slow):
            client.settimeout(30)
            assert client.recv(1) == b""
            client.close()
        assert ask(port, "/healthz")[0] == 200


def test_a_silent_websocket_is_closed_and_a_slow_body_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("websockets.sync.client")
    monkeypatch.setattr("aaren.serve.run.Limits", lambda: Limits(idle_seconds=0.3, seconds=1.0))
    with running(tmp_path / "states.db") as port:
        with (
            client.connect(f"ws://127.0.0.1:{port}/stream") as opened,
            pytest.raises(Exception, match=r"close|received"),
        ):
            opened.recv(timeout=30)
        with socket.create_connection(("127.0.0.1", port)) as slow:
            head = f"POST /push HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            slow.sendall(f"{head}Content-Length: 100\r\n\r\n[".encode())
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def test_long_answers_leave_fewer_rows_to_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aaren.serve.run.Limits", lambda: Limits(answer_bytes=1000))
    with running(tmp_path / "states.db") as port:
        most = ask(port, "/openapi.json")[1]["paths"]["/push"]["post"]["requestBody"]["content"]
        most = next(
            one["maxItems"] for one in most["application/json"]["schema"]["oneOf"] if "maxItems" in one
        )
        assert 1 < most < 100
        assert ask(port, "/push", [{**GOOD, "seq": seq} for seq in range(most)])[0] == 200
        assert ask(port, "/push", [{**GOOD, "seq": seq} for seq in range(most + 1)])[0] == 422


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
def test_a_port_that_cannot_be_is_refused(tmp_path: Path, port: int) -> None:
    with pytest.raises(ConfigError, match=f"--port {port}: a port is a number from 0 to 65535"):
        serve(ROWS, tmp_path / "states.db", port=port)


def test_a_websocket_answers_as_push_does(tmp_path: Path) -> None:
    client = pytest.importorskip("websockets.sync.client")
    with running(tmp_path / "states.db") as port:
        with client.connect(f"ws://127.0.0.1:{port}/stream") as opened:
            for seq in range(3):
                opened.send(json.dumps({**GOOD, "seq": seq}))
                assert json.loads(opened.recv())["answers"][0]["seq"] == seq
            opened.send("not json")
            assert "error" in json.loads(opened.recv())
            opened.send(json.dumps({**GOOD, "seq": 3}).encode())
            assert json.loads(opened.recv())["answers"][0]["seq"] == 3
        with pytest.raises(Exception, match=r"403|rejected"):
            client.connect(f"ws://127.0.0.1:{port}/stream", origin="http://evil.example")


def test_concurrent_requests_of_many_clients_are_kept_apart(tmp_path: Path) -> None:
    with running(tmp_path / "states.db") as port:
        wrong: list[object] = []

        def work(name: str) -> None:
            for seq in range(10):
                bad = seq == 5 and name == "c0"
                values: list[Any] = [1e30, 2] if bad else [seq, 2]
                status, answer = ask(port, "/push", {"id": name, "values": values, "seq": seq})
                if status != (422 if bad else 200):
                    wrong.append(answer)

        threads = [threading.Thread(target=work, args=(f"c{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        states = [ask(port, f"/state/c{number}")[1]["state"] for number in range(1, 8)]
        assert len(set(states)) == 1


def batched(
    path: Path,
    work: Callable[[Batcher], Coroutine[Any, Any, None]],
    *,
    limits: Limits | None = None,
    **options: Any,
) -> None:
    """Run something with the server's batcher, without the server."""

    async def run() -> None:
        pool = StreamPool(ROWS.model, path, **options)
        metrics = StreamMetrics()
        batcher = Batcher(ROWS, pool, key="id", time="", limits=limits or Limits(), metrics=metrics)
        try:
            await work(batcher)
        finally:
            await batcher.close()

    asyncio.run(run())


def row(key: str, seq: int, value: float = 9.0) -> dict[str, Any]:
    return {"id": key, "values": [value, 0.5], "seq": seq}


def read(batcher: Batcher, request: Any) -> list[Item]:
    rows = request if isinstance(request, list) else [request]
    return batcher.read(rows, [one["seq"] for one in rows])


async def send(batcher: Batcher, *requests: Any) -> list[Any]:
    """Send requests at once: they are taken in together."""
    sent = [batcher.push(read(batcher, request)) for request in requests]
    return list(await asyncio.gather(*sent, return_exceptions=True))


def test_a_refused_request_does_not_divide_the_commit_of_the_others(tmp_path: Path) -> None:
    async def work(batcher: Batcher) -> None:
        commits, commit = [], batcher.pool.commit

        def counted() -> None:
            commits.append(1)
            commit()

        batcher.pool.commit = counted  # type: ignore[method-assign, assignment]
        found = await send(
            batcher, *(row(f"c{number}", 0, 1e30 if number == 3 else 9.0) for number in range(8))
        )
        assert [isinstance(answer, DataError) for answer in found] == [number == 3 for number in range(8)]
        assert "'c3'" in str(found[3])
        assert len(commits) == 1
        assert (batcher.pool.committed, len(batcher.pool)) == (7, 7)

    batched(tmp_path / "states.db", work)


def test_an_error_that_nobody_foresaw_is_that_of_its_request(tmp_path: Path) -> None:
    async def work(batcher: Batcher) -> None:
        push = batcher.pool.push

        def fail(keys: Any, items: Any, **extras: Any) -> list[Any]:
            if "bad" in keys:
                raise RuntimeError("out of luck")
            return push(keys, items, **extras)

        batcher.pool.push = fail  # type: ignore[method-assign]
        found = await send(batcher, row("good", 0), row("bad", 0), row("well", 0))
        assert [type(answer) for answer in found] == [list, RuntimeError, list]

    batched(tmp_path / "states.db", work, limits=Limits(seconds=5.0))


def test_a_full_disk_fails_all_that_is_not_committed(tmp_path: Path) -> None:
    """Streams that left memory are undone together with those that a request before had changed."""

    async def work(batcher: Batcher) -> None:
        pool = batcher.pool
        await send(batcher, row("a", 0), row("b", 0))
        write, fails = pool._store.write, list[int]()

        def full(rows: Any = (), **named: Any) -> None:
            rows = list(rows)
            if any(one.key == "c" for one in rows) and not fails:
                fails.append(1)
                raise UnwritableError("the disk is full")
            write(rows, **named)

        pool._store.write = full  # type: ignore[method-assign]
        # One is refused, so each goes by itself: "a" and "b" leave memory, then "c" cannot.
        good = [("a", 1), ("b", 1), ("c", 0), ("d", 0), ("e", 0)]
        found = await send(batcher, row("b", 2, 1e30), *(row(*one) for one in good))
        assert [type(answer) for answer in found] == [DataError, *[UnwritableError] * 5]
        assert pool.committed == 2
        again = await send(batcher, *(row(*one) for one in good))
        assert all(type(answer) is list for answer in again)
        session = ROWS.model.stream(1)
        session.push([[9.0, 0.5]])
        expected = [state_to_bytes(session.state)]
        session.push([[9.0, 0.5]])
        expected.append(state_to_bytes(session.state))
        found = [state_to_bytes(pool.get(key)) for key in "abcde"]
        assert found == [expected[1]] * 2 + [expected[0]] * 3

    batched(tmp_path / "states.db", work, capacity=2)


def test_a_retry_that_brings_more_may_itself_be_retried(tmp_path: Path) -> None:
    async def work(batcher: Batcher) -> None:
        ((first,),) = await send(batcher, row("a", 5))
        both = [row("a", 5), row("a", 6)]
        ((again, second),) = await send(batcher, both)  # the first answer was not heard
        assert again == {**first, "repeated": True}
        ((third, fourth),) = await send(batcher, both)  # nor this one
        assert (third, fourth) == (again, {**second, "repeated": True})
        ((one, two),) = await send(batcher, [row("a", 7), row("a", 7)])  # twice in one request
        assert two == {**one, "repeated": True}

    batched(tmp_path / "states.db", work)


def test_the_answers_of_a_stream_are_read_once_for_a_request(tmp_path: Path) -> None:
    async def work(batcher: Batcher) -> None:
        many = [row("a", seq) for seq in range(50)]
        (answers,) = await send(batcher, many)
        looked, note = [], batcher.pool.note
        batcher.pool.note = lambda key: (looked.append(key), note(key))[1]  # type: ignore[method-assign, func-returns-value]
        (again,) = await send(batcher, many)
        assert again == [{**answer, "repeated": True} for answer in answers]
        assert looked == ["a"]

    batched(tmp_path / "states.db", work)


def requests_of(count: int, seed: int) -> list[list[dict[str, Any]]]:
    """Requests of 1 to 4 rows, over a few keys, each key's rows numbered."""
    chance, next_seq = random.Random(seed), dict.fromkeys("abcdefgh", 0)
    made = []
    for _ in range(count):
        rows = []
        for _ in range(chance.randint(1, 4)):
            key = chance.choice("abcdefgh")
            rows.append(
                {"id": key, "values": [chance.gauss(10, 2), chance.gauss(0, 1)], "seq": next_seq[key]}
            )
            next_seq[key] += 1
        made.append(rows)
    return made


def deliver(
    requests: list[list[dict[str, Any]]], port: int, answers: list[Any], is_over: threading.Event
) -> None:
    """Send each request until it is answered."""
    for rows in requests:
        while True:
            try:
                status, found = ask(port, "/push", rows)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.005)
                continue
            assert status == 200, found
            for answer in found["answers"]:
                answer.pop("repeated", None)
            answers.append(found["answers"])
            break
    is_over.set()


def contents(path: Path) -> list[Any]:
    import sqlite3

    db = sqlite3.connect(path)
    found = db.execute("select key, seq, note, content from state order by key").fetchall()
    db.close()
    return found


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.long)])
def test_killed_at_random_moments_every_row_is_taken_in_once(tmp_path: Path, kills: int) -> None:
    requests = requests_of(60 * kills, seed=kills)
    expected: list[Any] = []
    with running(tmp_path / "whole.db") as port:
        deliver(requests, port, expected, threading.Event())
    port, is_over, found = free_port(), threading.Event(), []  # type: ignore[var-annotated]  # answers
    child = start(tmp_path / "killed.db", port)
    client = threading.Thread(target=deliver, args=(requests, port, found, is_over))
    client.start()
    moments = random.Random(kills)
    done = 0
    for number in range(kills):
        wanted = (number + 1) * len(requests) // (kills + 1)
        while len(found) < wanted and not is_over.is_set():
            time.sleep(0.001)
        time.sleep(moments.random() * 0.01)
        stop(child, signal.SIGKILL)
        done += not is_over.is_set()
        child = start(tmp_path / "killed.db", port)
    client.join(120)
    stop(child)
    assert done >= kills - 1
    assert found == expected
    assert contents(tmp_path / "killed.db") == contents(tmp_path / "whole.db")


def test_small_answers_are_sent_at_once() -> None:
    # asyncio sets TCP_NODELAY for sockets that name their protocol; without it an answer waits up to 40 ms.
    with _listen("127.0.0.1", 0) as opened:
        assert opened.proto == socket.IPPROTO_TCP
