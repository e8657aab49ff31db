"""Replays on Ray, in real workers."""

import json
from pathlib import Path
from typing import Any

import pytest

from aaren.engine.lines import open_rows
from aaren.errors import ConfigError
from aaren.integrations.pure import PureStep
from aaren.integrations.ray import _divide
from aaren.stream.pool import StreamPool


class Table:
    """Stands for a dataset of Ray: its blocks are frames."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def iter_batches(self, batch_format: str) -> list[Any]:
        assert batch_format == "pandas"
        return [self.frame]


def test_rows_keep_their_digits_on_the_way_to_their_shard(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    small, times = 1.234567890123e-7, ["2026-01-31T07:00:00.000001", "2026-01-31T07:00:00.000002"]
    frame = pandas.DataFrame({"id": "a", "ts": pandas.to_datetime(times), "values": [[small, 1.0 / 3.0]] * 2})
    _divide(Table(frame), tmp_path, "id", 1)
    rows = read([tmp_path / "rows-0000.jsonl"])
    assert rows[0]["values"] == pytest.approx([small, 1.0 / 3.0], rel=1e-8, abs=0.0)
    assert rows[0]["ts"] < rows[1]["ts"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_replay_is_that_of_one_pass_and_goes_on_where_it_was_left(run: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="needs aaren[cluster]")
    data = pytest.importorskip("ray.data", reason="needs aaren[cluster]")
    from aaren.integrations.ray import replay

    history = [
        {"id": f"s{place % 7}", "ts": place, "values": [float(place % 5), 0.5 * place]}
        for place in range(200)
    ]
    step, states, expected = PureStep(open_rows(run)), {}, {}  # type: ignore[var-annotated]  # by key
    for row in history:
        states[row["id"]], answer = step(states.get(row["id"], b""), row)
        expected[row["id"], row["ts"]] = answer
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        dataset = data.from_items(history[::-1])  # in any order
        paths = replay(dataset, run, tmp_path / "out", key="id", order="ts", shards=3)
        first = read(paths)
        paths[0].unlink()  # lost with its states: done again
        states_file = paths[0].with_name(paths[0].name.replace("answers", "states").replace("jsonl", "db"))
        states_file.unlink()
        assert read(replay(None, run, tmp_path / "out", key="id", order="ts", shards=3)) == first
        with pytest.raises(ConfigError, match="holds a replay by"):
            replay(dataset, run, tmp_path / "out", key="id", order="ts", shards=4)
    finally:
        ray.shutdown()
    assert len(first) == 200
    by_key: dict[str, list[Any]] = {}
    for answer in first:
        by_key.setdefault(answer["id"], []).append(
            {k: v for k, v in answer.items() if k not in ("id", "offset")}
        )
    for key, answers in by_key.items():
        assert answers == [expected[row["id"], row["ts"]] for row in history if row["id"] == key]
    with StreamPool(open_rows(run).model, states_file) as pool:
        assert 0 < len(pool) < 7


def read(paths: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]
