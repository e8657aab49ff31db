"""What a running stream tells its operator, by prometheus_client."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

from aaren.errors import ConfigError

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class StreamMetrics:
    """Counts of a run."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        to: dict[str, Any] = {"namespace": "aaren", "subsystem": "stream", "registry": self.registry}
        self._items = Counter("items", "Items taken in and committed.", **to)
        self._outputs = Counter("outputs", "Answers written.", **to)
        self._latency = Histogram(
            "latency_seconds", "From reading a batch to its commit.", **to, buckets=BUCKETS
        )
        self._streams = Gauge("streams", "Streams that have a state.", **to)
        self._lag = Gauge("lag_bytes", "Bytes of the input that wait; -1: unknown.", **to)
        self._lag.set(-1)

    def count(
        self, *, items: int, outputs: int, seconds: float, streams: int, lag_bytes: int | None = None
    ) -> None:
        """Note a batch that was committed, so many seconds after it had been read."""
        self._items.inc(items)
        self._outputs.inc(outputs)
        self._latency.observe(seconds)
        self._streams.set(streams)
        self._lag.set(-1 if lag_bytes is None else lag_bytes)

    def text(self) -> bytes:
        """Return all numbers as Prometheus reads them."""
        return generate_latest(self.registry)

    @contextmanager
    def serving(self, port: int) -> Iterator[int]:
        """Answer GET /metrics on 127.0.0.1; yields the port, a free one if 0 was asked for."""
        try:
            server, thread = start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"metrics on port {port}: {error}. Choose another, or 0 for a free one."
            ) from error
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
