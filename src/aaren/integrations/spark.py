"""Streams on Spark Structured Streaming: one state of bytes per key, in Spark's own fault-tolerant store.

    answers = stream(rows, "run", key="id", order="ts")
    answers.writeStream.format("parquet").option("checkpointLocation", "checkpoint").start("answers")

The run is sent to the executors inside the query. A micro-batch gives each key its rows at once: they are put
in order and stepped in one call. After a failure Spark repeats a batch from the states before it: nothing is
taken in twice. Needs pip install 'aaren[spark]', Java 17, and the RocksDB state store (`configure`).
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aaren.errors import ConfigError, DataError, MissingDependencyError
from aaren.files.strict_json import strict_json
from aaren.integrations.pure import PureStep, open_packed, pack_run

try:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql import functions as columns
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType
except ImportError as missing:
    raise MissingDependencyError("aaren.integrations.spark needs: pip install 'aaren[spark]'") from missing

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONTENT = "aaren_row"  # the raw row as JSON, on its way to the executors


def configure(session: SparkSession) -> None:
    """Choose the state store that `transformWithState` needs."""
    session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)


def stream(
    rows: DataFrame,
    run: str | Path,
    *,
    key: str = "id",
    order: str,
    time: str = "",
    expire_after_seconds: float | None = None,
) -> DataFrame:
    """Answer the rows of a streaming table, by their keys.

    Args:
        rows: with the key, the fields of the setting as they are, and `order`.
        run: the folder of a finished run.
        key: the column with the name of the stream, text.
        order: the column by which the rows of a key are put in order: a time or a number.
        time: the field with the time of a row; "": the usual one of the setting.
        expire_after_seconds: forget a stream so long after its last row, in event time: `order` must then be
            a timestamp with a watermark. None: never.

    Returns:
        A table with `key`, `order` (as text) and `answer` (JSON).
    """
    for name in (key, order):
        if name not in rows.columns:
            raise ConfigError(f"no column {name!r}; there are {', '.join(rows.columns)}.")
    expires = expire_after_seconds is not None
    packed = columns.to_json(columns.struct(*(name for name in rows.columns)))
    kept = [
        columns.col(key).cast("string").alias(key),
        columns.col(order).alias("aaren_order"),
        packed.alias(CONTENT),
    ]
    answered = StructType(
        [
            StructField(key, StringType()),
            StructField(order, StringType()),
            StructField("answer", StringType()),
        ]
    )
    processor = _Streams(pack_run(run), key, order, time, expire_after_seconds)
    return (
        rows.select(*kept)
        .groupBy(key)
        .transformWithState(processor, answered, "Append", "EventTime" if expires else "None")
    )


class _Streams(StatefulProcessor):  # type: ignore[misc, unused-ignore]  # Any where pyspark is not installed
    """What an executor does with the rows of a key."""

    def __init__(
        self, packed: bytes, key: str, order: str, time: str, expire_after_seconds: float | None
    ) -> None:
        self._packed, self._key, self._order, self._time = packed, key, order, time
        self._expire_after = expire_after_seconds

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._state = handle.getValueState("state", StructType([StructField("content", BinaryType())]))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002  # Spark's names
        step: PureStep = open_packed(self._packed, self._time)
        came = [(row["aaren_order"], row[CONTENT]) for row in rows]
        if any(when is None for when, _ in came):
            raise DataError(f"a row of stream {key[0]!r} has no {self._order!r}: leave such rows out.")
        came.sort(key=lambda one: one[0])
        held = self._state.get()
        state, answers = step.many(
            bytes(held[0]) if held is not None else b"", [json.loads(content) for _, content in came]
        )
        self._state.update((state,))
        if self._expire_after is not None:
            self._set_timer(came[-1][0])
        for (when, _), answer in zip(came, answers, strict=True):
            yield Row(**{self._key: key[0], self._order: str(when), "answer": strict_json(answer)})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002  # Spark's names
        """Forget a stream that had no row for long."""
        self._state.clear()
        return iter(())

    def _set_timer(self, last: datetime) -> None:
        """Have one timer: that of the last row, which a row that came late does not put back."""
        assert self._expire_after is not None
        seconds = last.replace(tzinfo=UTC).timestamp() if last.tzinfo is None else last.timestamp()
        known = list(self._handle.listTimers())
        latest = max([round(1000 * (seconds + self._expire_after)), *known])
        for timer in known:
            if timer != latest:
                self._handle.deleteTimer(timer)
        if latest not in known:
            self._handle.registerTimer(latest)

    def close(self) -> None:
        """Leave the model in the process, for the next batch."""
