"""Replay a history of many streams on a Ray cluster: the states as of its end, and the answer after each row.

Rows are divided into shards by the hash of their key, on the driver; then a task per shard puts them in
order and takes them in as `aaren stream` does. Killed at any moment and started again with the same folder, a
replay does what is missing.
"""

import json
import zlib
from contextlib import ExitStack
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
    about = {"key": key, "order": order, "time": time, "shards": shards}
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
        _divide(dataset, folder, key, shards)
        write_text(folder / WHOLE, json.dumps(about) + "\n")
    task = ray.remote(_replay_shard)
    held = ray.put(packed)
    paths = sorted(folder.glob("rows-*.jsonl"))
    return [
        Path(path) for path in ray.get([task.remote(held, str(path), key, order, time) for path in paths])
    ]


def _divide(dataset: Any, folder: Path, key: str, shards: int) -> None:
    """Write the rows of each shard, block by block, as they come."""
    with ExitStack() as opened:
        names = [folder / f"rows-{shard:04}.jsonl" for shard in range(shards)]
        files = [opened.enter_context(name.open("w", encoding="utf-8")) for name in names]
        for block in dataset.iter_batches(batch_format="pandas"):
            # All digits: pandas' own choice is 10 of numbers, and milliseconds of times.
            text = block.to_json(
                orient="records", lines=True, date_format="iso", date_unit="ns", double_precision=15
            )
            for line in text.splitlines():
                row = json.loads(line)
                files[zlib.crc32(str(row[key]).encode()) % shards].write(strict_json(row) + "\n")


def _replay_shard(packed: bytes, path: str, key: str, order: str, time: str) -> str:
    """Put one shard in order, and take it in from where it was left, in a worker."""
    source = Path(path).with_suffix(".ordered")
    if not source.exists():
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        rows.sort(key=lambda row: (row[order], str(row[key])))
        write_text(source, "".join(f"{strict_json(row)}\n" for row in rows))
    number = source.stem.removeprefix("rows-")
    answers = source.with_name(f"answers-{number}.jsonl")
    options = LineOptions(key=key, time=time)
    step = open_packed(packed, time)
    stream_lines(step.rows, source.with_name(f"states-{number}.db"), source, out=answers, options=options)
    return str(answers)
