"""Replay a history of many streams on a Ray cluster: the states as of its end, and the answer after each row.

Rows are divided into shards by the hash of their key and written in order; then a task per shard takes them
in as `aaren stream` does. Killed at any moment and started again with the same folder, a replay does what is
missing.
"""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aaren.engine.lines import LineOptions, stream_lines
from aaren.engine.record import strict_json
from aaren.errors import ConfigError, DataError, require_extra
from aaren.files.atomic import write_text
from aaren.integrations.pure import open_packed, pack_run

WHOLE = "input.json"  # written when all shards of the input are


def replay(
    dataset: Any,
    run: str | Path,
    out: str | Path,
    *,
    key: str = "id",
    order: str,
    time: str = "",
    shards: int = 8,
) -> list[Path]:
    """Take in the rows of a Ray dataset, by their keys, and return the files of answers.

    Beside `answers-0000.jsonl` lies `states-0000.db`, which a `StreamPool` opens.

    Args:
        dataset: a `ray.data.Dataset` with the key, the fields of the setting as they are, and `order`.
        run: the folder of a finished run.
        out: a folder that all workers see, made if need be.
        key: the column with the name of the stream.
        order: the column by which the rows of a key are put in order.
        time: the field with the time of a row; "": the usual one of the setting.
        shards: how many parts are worked on side by side, at most.
    """
    ray = require_extra("ray", extra="cluster", purpose="a replay on a cluster")
    require_extra("pandas", extra="data", purpose="a replay on a cluster")
    folder = Path(out).resolve()
    about = {"key": key, "order": order, "shards": shards}
    packed = pack_run(run)
    if (folder / WHOLE).exists():
        known = json.loads((folder / WHOLE).read_text(encoding="utf-8"))
        if known != about:
            raise ConfigError(
                f"{folder} holds a replay by {known}; yours is by {about}. Choose another folder."
            )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (key, order):
            if name not in dataset.columns():
                raise DataError(f"no column {name!r}; there are {', '.join(dataset.columns())}.")
        divided = dataset.map_batches(_divider(key, shards), batch_format="pandas")
        divided.groupby("aaren_shard").map_groups(
            _writer(folder, key, order), batch_format="pandas"
        ).materialize()
        write_text(folder / WHOLE, json.dumps(about) + "\n")
    task = ray.remote(_replay_shard)
    held = ray.put(packed)
    paths = sorted(folder.glob("rows-*.jsonl"))
    return [Path(path) for path in ray.get([task.remote(held, str(path), key, time) for path in paths])]


def _divider(key: str, shards: int) -> Callable[[Any], Any]:
    def divide(rows: Any) -> Any:
        return rows.assign(aaren_shard=[zlib.crc32(str(name).encode()) % shards for name in rows[key]])

    return divide


def _writer(folder: Path, key: str, order: str) -> Callable[[Any], Any]:
    def write(rows: Any) -> Any:
        shard = int(rows["aaren_shard"].iloc[0])
        ordered = rows.sort_values([order, key], kind="stable").drop(columns="aaren_shard")
        lines = (
            strict_json(json.loads(line))
            for line in ordered.to_json(orient="records", lines=True).splitlines()
        )
        write_text(folder / f"rows-{shard:04}.jsonl", "".join(f"{line}\n" for line in lines))
        return rows.iloc[:1][["aaren_shard"]]

    return write


def _replay_shard(packed: bytes, path: str, key: str, time: str) -> str:
    """Take in one shard from where it was left, in a worker."""
    source = Path(path)
    number = source.stem.removeprefix("rows-")
    answers = source.with_name(f"answers-{number}.jsonl")
    options = LineOptions(key=key, time=time)
    step = open_packed(packed, time)
    stream_lines(step.rows, source.with_name(f"states-{number}.db"), source, out=answers, options=options)
    return str(answers)
