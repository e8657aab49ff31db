"""Files that anybody could have written: a report leaves out what it cannot use, and names it."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aaren.report.markdown import render_markdown, render_section
from aaren.report.page import render_page, write_report
from aaren.report.rows import read_results

WriteRun = Callable[..., Path]
DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "9" * 5_000


def sound(root: Path, write_run: WriteRun) -> None:
    for model in ("aaren", "transformer"):
        for seed in range(2):
            write_run(root, "events", "sin", model, 0.7 + 0.1 * seed, seed=seed, curve=[0.9, 0.8])


@pytest.mark.parametrize("text", [DEEP, HUGE, '{"a": ' * 100_000, "1e999", "NaN", "\ud800", "\0", '"', "{}"])
@pytest.mark.parametrize("name", ["record.json", "runs.jsonl"])
def test_one_hostile_file_stops_nothing(name: str, text: str, tmp_path: Path, write_run: WriteRun) -> None:
    sound(tmp_path, write_run)
    bad = write_run(tmp_path, "rl", "hopper-medium", "aaren", 50.0, curve=[1.0, 2.0])
    (bad / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    results = read_results(tmp_path)
    render_section(results)
    assert "sin" in render_markdown(results)
    assert all(problem.path == bad / name for problem in results.problems)
    assert len(results.problems) == (name == "record.json")  # a line without its end is none yet


def test_a_hostile_benchmark_stops_nothing(tmp_path: Path, write_run: WriteRun) -> None:
    sound(tmp_path, write_run)
    (tmp_path / "bench").mkdir()
    for text in (DEEP, HUGE, "[]", "{}"):
        (tmp_path / "bench" / "stream.json").write_text(text)
        (problem,) = read_results(tmp_path).problems
        assert problem.path.name == "stream.json"


def test_half_a_character_is_written_out(tmp_path: Path, write_run: WriteRun) -> None:
    sound(tmp_path, write_run)
    write_run(tmp_path, "events", "x", "aaren", 0.7)
    path = tmp_path / "events" / "x-aaren-cpu-seed0" / "record.json"
    path.write_text(path.read_text().replace('"dataset": "x"', '"dataset": "x\\ud800"'))
    _, (_, tables, _) = write_report([tmp_path], tmp_path / "report")
    assert "x\\ud800" in tables.read_text()


VALUES = [
    None,
    True,
    -1,
    0,
    2**62,
    1e308,
    -1e308,
    5e-324,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    {"a": [None]},
    "1e999",
]


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    yield path
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(item, (*path, key))


def changed(content: object, rng: random.Random) -> object:
    """Replace one value, wherever it is, by one that does not belong there."""
    (*inside, last), place = rng.choice([path for path in places(content) if path]), content
    for key in inside:
        place = place[key]
    place[last] = rng.choice(VALUES)
    return content


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_changed_values_stop_nothing(seed: int, full_results: Path, tmp_path: Path) -> None:
    rng = random.Random(seed)
    records = [path for path in sorted(full_results.rglob("record.json")) if "cut" not in str(path)]
    faults = []
    for number in range(40):
        root = tmp_path / str(number)
        for path in rng.sample(records, 6):
            folder = root / path.parent.relative_to(full_results)
            folder.mkdir(parents=True)
            for file in path.parent.iterdir():
                text = file.read_text()
                for _ in range(3):
                    text = json.dumps(changed(json.loads(text), rng))
                (folder / file.name).write_text(text)
        try:
            results = read_results(root)
            render_markdown(results)
            render_section(results)
            render_page(results)
        except Exception as error:
            trace = error.__traceback__
            while trace.tb_next is not None:
                trace = trace.tb_next
            code = trace.tb_frame.f_code
            faults.append(f"{type(error).__name__}: {error} in {code.co_filename}:{trace.tb_lineno}")
    assert not faults, "\n".join(sorted(set(faults)))
