"""What a running stream tells its operator: numbers in Prometheus' text format, on the loopback."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aaren.errors import ConfigError

RECENT = 1024  # batches that quantiles and rates are of
QUANTILES = (0.5, 0.9, 0.99)


class StreamMetrics:
    """Counts of a run; written by one thread, read by any."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._recent: deque[tuple[float, int, float]] = deque(maxlen=RECENT)  # when, items, seconds
        self._totals = {"items": 0, "outputs": 0, "batches": 0, "seconds": 0.0}
        self.streams = 0
        self.lag_bytes: int | None = None  # of the input, not yet taken in; None: unknown

    def count(self, *, items: int, outputs: int, seconds: float) -> None:
        """Note a batch that was committed, so many seconds after it had been read."""
        with self._guard:
            self._recent.append((time.monotonic(), items, seconds))
            for name, amount in (
                ("items", items),
                ("outputs", outputs),
                ("batches", 1),
                ("seconds", seconds),
            ):
                self._totals[name] += amount

    def text(self) -> str:
        """Return all numbers as Prometheus reads them."""
        with self._guard:
            recent, totals = list(self._recent), dict(self._totals)
        lines = []

        def add(name: str, kind: str, meaning: str, *values: tuple[str, float]) -> None:
            lines.append(f"# HELP aaren_stream_{name} {meaning}\n# TYPE aaren_stream_{name} {kind}")
            lines.extend(f"aaren_stream_{name}{suffix} {value:.9g}" for suffix, value in values)

        add("items_total", "counter", "Items taken in and committed.", ("", totals["items"]))
        add("outputs_total", "counter", "Answers written.", ("", totals["outputs"]))
        span = time.monotonic() - recent[0][0] + recent[0][2] if recent else 0.0
        rate = sum(items for _, items, _ in recent) / span if span > 0.0 else 0.0
        add("items_per_second", "gauge", f"Of the last {RECENT} batches.", ("", rate))
        ordered = sorted(seconds for _, _, seconds in recent) or [0.0]
        add(
            "latency_seconds",
            "summary",
            "From reading a batch to its commit.",
            *((f'{{quantile="{level}"}}', ordered[int(level * (len(ordered) - 1))]) for level in QUANTILES),
            ("_sum", totals["seconds"]),
            ("_count", totals["batches"]),
        )
        add("streams", "gauge", "Streams that have a state.", ("", self.streams))
        if self.lag_bytes is not None:
            add("lag_bytes", "gauge", "Bytes of the input that wait.", ("", self.lag_bytes))
        return "\n".join(lines) + "\n"


@contextmanager
def serving(text: Callable[[], str], port: int) -> Iterator[int]:
    """Answer GET /metrics on 127.0.0.1 with a text; yields the port, a free one if 0 was asked for."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path.partition("?")[0] == "/metrics"
            content = text().encode() if is_known else b"only /metrics is here\n"
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            """Say nothing: answers go to stdout and errors to stderr."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Answer)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"metrics on port {port}: {error}. Choose another, or 0 for a free one.") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
