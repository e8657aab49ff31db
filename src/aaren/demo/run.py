"""Run the demo's tasks, two at a time, with the time that is left; write one page and one record."""

import json
import multiprocessing
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from aaren.demo.figure import draw
from aaren.demo.tasks import TASKS, Line, Section, Task
from aaren.engine.progress import duration
from aaren.engine.record import machine, now, strict_json, versions
from aaren.errors import ConfigError, require_extra
from aaren.files.atomic import write_text
from aaren.table import format_bytes

PAGE, RECORD, LIVE, FINISHED = "index.html", "demo.json", "live", "finished"
LIVE_FILES = ("index.html", "demo.css", "demo.js", "models")  # of the page with exported models
WORKERS = 2
NEXT = (  # what to do next, and the command
    ("fit your own series", "aaren train forecasting --data your.csv"),
    ("put a trained stream on a device", "aaren export RUN --to c -o FOLDER"),
    ("keep a million streams", "aaren stream RUN --state states.db < rows.jsonl"),
    ("run the paper's experiments", "aaren reproduce --profile cpu"),
    ("check this machine, or a GPU", "aaren check"),
)


def run(folder: Path, *, console: Console) -> tuple[dict[str, Section], float]:
    """Run everything; return what was found, by task, and the seconds. Page and record are in `folder`.

    What a run that was stopped had finished there is kept, if it was of the same versions.
    """
    if folder.is_file():
        raise ConfigError(f"{folder} is a file: --out needs a folder.")
    for package, extra in (("sklearn", "demo"), ("aeon", "demo"), ("gymnasium", "demo"), ("jinja2", "demo")):
        require_extra(package, extra=extra, purpose="the demo")
    begin = time.perf_counter()
    finished = _Finished(folder / FINISHED)
    with _Bars(console) as bars:
        for task in finished.tasks:
            bars.finish(task, "done before")
        for task in (task for task in TASKS if task.is_alone and task.name == "operator"):
            _run_some([task], finished, bars, threads=0)
        _run_some([task for task in TASKS if not task.is_alone], finished, bars, threads=1)
        for task in (task for task in TASKS if task.is_alone and task.name != "operator"):
            _run_some([task], finished, bars, threads=0)
    sections = {task.name: finished.sections[task.name] for task in TASKS}
    seconds = finished.earlier_seconds + time.perf_counter() - begin
    record = {
        "kind": "demo",
        "when": now(),
        "seconds": round(seconds, 1),
        "machine": machine(),
        "versions": versions(),
        "sections": {name: asdict(section) for name, section in sections.items()},
    }
    write_text(folder / RECORD, strict_json(record))
    has_live = _copy_live(folder / LIVE)
    write_text(folder / PAGE, render(sections, seconds, has_live=has_live))
    finished.forget()
    return sections, seconds


class _Finished:
    """What tasks found, each in a file until the page is written."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._begin = folder, time.perf_counter()
        self.sections: dict[str, Section] = {}
        self.earlier_seconds = 0.0  # of the run that was stopped
        folder.mkdir(parents=True, exist_ok=True)
        for task in TASKS:
            try:
                found = json.loads((folder / f"{task.name}.json").read_text(encoding="utf-8"))
                if found["versions"] == versions():
                    self.sections[task.name] = _read_section(found["section"])
                    self.earlier_seconds = max(self.earlier_seconds, float(found["seconds"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not there, or not whole: the task runs again

    @property
    def tasks(self) -> list[Task]:
        """Return those that are done."""
        return [task for task in TASKS if task.name in self.sections]

    def keep(self, task: Task, section: Section) -> None:
        """Write down what a task found."""
        self.sections[task.name] = section
        spent = self.earlier_seconds + time.perf_counter() - self._begin
        found = {"versions": versions(), "seconds": spent, "section": asdict(section)}
        write_text(self._folder / f"{task.name}.json", strict_json(found))

    def forget(self) -> None:
        """Remove the files: the next run measures again."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _read_section(found: dict[str, Any]) -> Section:
    """Return a section from its JSON."""
    found["lines"] = tuple(Line(*line) for line in found["lines"])
    found["rows"] = tuple(tuple(row) for row in found["rows"])
    found["columns"], found["axes"] = tuple(found["columns"]), tuple(found["axes"])
    return Section(**found)


def _copy_live(target: Path) -> bool:
    """Put the page with exported models, prebuilt, beside ours; False: this installation lacks it."""
    inside = Path(str(resources.files("aaren.demo"))) / LIVE
    checkout = Path(__file__).parents[3] / "examples" / "browser"
    source = inside if inside.is_dir() else checkout
    if not all((source / name).exists() for name in LIVE_FILES):
        return False
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in LIVE_FILES:
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, target / name)
    return True


def render(sections: dict[str, Section], seconds: float, *, has_live: bool = False) -> str:
    """Return the page: everything inside, nothing asked for from anywhere."""
    jinja2 = require_extra("jinja2", extra="demo", purpose="the demo's page")
    templates = resources.files("aaren.demo") / "templates"
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        (templates / "page.html").read_text(encoding="utf-8")
    )
    pictures = {
        name: draw(section.lines, section.axes) for name, section in sections.items() if section.lines
    }
    return str(
        template.render(
            sections=sections,
            pictures=pictures,
            seconds=duration(seconds),
            machine=_describe(machine()),
            versions=versions(),
            next=NEXT,
            live=f"{LIVE}/{PAGE}" if has_live else "",
        )
    )


def _describe(found: Mapping[str, object]) -> str:
    """Return a machine in words.

    >>> _describe({"cpu": "EPYC", "cores": 2, "memory_bytes": 8_000_000_000, "platform": "Linux x86_64"})
    'EPYC, 2 cores, 8.00 GB, Linux x86_64'
    """
    facts = dict(found)
    facts["cores"] = f"{found['cores']} cores"
    size = found["memory_bytes"]
    facts["memory_bytes"] = format_bytes(size) if isinstance(size, int) else None
    return ", ".join(str(fact) for fact in facts.values() if fact is not None)


def _run_some(tasks: list[Task], finished: _Finished, bars: "_Bars", *, threads: int) -> None:
    """Run tasks in processes of their own; a task that fails ends the demo with its own words."""
    tasks = [task for task in tasks if task.name not in finished.sections]
    if not tasks:
        return
    context = multiprocessing.get_context("spawn")
    waiting = sorted(tasks, key=lambda task: task.seconds)  # the longest is taken first
    with ProcessPoolExecutor(min(WORKERS, len(tasks)), mp_context=context, max_tasks_per_child=1) as pool:
        running: dict[Future[Section], Task] = {}
        while waiting or running:
            while waiting and len(running) < WORKERS:
                task = waiting.pop()
                running[pool.submit(_run_one, task.name, threads)] = task
            done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            bars.tick(list(running.values()))
            for future in done:
                task = running.pop(future)
                finished.keep(task, future.result())
                bars.finish(task)


def _run_one(name: str, threads: int) -> Section:
    if threads:
        torch.set_num_threads(threads)
    (task,) = (task for task in TASKS if task.name == name)
    return task.run()


class _Bars:
    """A bar per task, filled by the clock until its task is done, and one for everything."""

    def __init__(self, console: Console) -> None:
        self._console, self._start = console, time.perf_counter()
        self._began: dict[str, float] = {}
        self._done: set[str] = set()
        self._progress = Progress(
            TextColumn("{task.description:<16}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._rows = {
            task.name: self._progress.add_task(task.name, total=task.seconds, state="waits", start=False)
            for task in TASKS
        }
        self._all = self._progress.add_task("everything", total=1.0, state="")

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tick(self, running: list[Task]) -> None:
        """Let the bars grow."""
        moment = time.perf_counter()
        for task in running:
            began = self._began.setdefault(task.name, moment)
            self._progress.start_task(self._rows[task.name])
            self._grow(self._rows[task.name], moment - began, self._rest(task, moment))
        self._grow(self._all, moment - self._start, self._left(moment))

    def _grow(self, row: TaskID, spent: float, left: float) -> None:
        self._progress.update(row, total=spent + left, completed=spent, state=f"about {duration(left)} left")

    def _rest(self, task: Task, moment: float) -> float:
        return max(task.seconds - (moment - self._began.get(task.name, moment)), 1.0)

    def _left(self, moment: float) -> float:
        """Return how long everything that is not done will take, two tasks at a time where they may."""
        waiting = [task for task in TASKS if task.name not in self._done]
        return sum(self._rest(task, moment) / (1 if task.is_alone else WORKERS) for task in waiting)

    def finish(self, task: Task, state: str = "done") -> None:
        """Fill the bar of a task that is done."""
        self._done.add(task.name)
        self._progress.update(self._rows[task.name], total=1.0, completed=1.0, state=state)
        self._progress.stop_task(self._rows[task.name])
        if not self._console.is_terminal:
            began = self._began.get(task.name)
            took = "" if began is None else f" in {duration(time.perf_counter() - began)}"
            self._console.print(f"{task.name}: {state}{took}", highlight=False)
