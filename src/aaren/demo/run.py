"""Run the demo's tasks, two at a time, and write one page and one record."""

import io
import json
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from importlib import resources
from multiprocessing import get_context
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from aaren.demo.tasks import ALONE, TASKS, Line, Section
from aaren.engine.progress import duration
from aaren.engine.record import machine, now, versions
from aaren.errors import ConfigError, require_extra
from aaren.files.atomic import write_text
from aaren.files.strict_json import strict_json

PAGE, RECORD, LIVE = "index.html", "demo.json", "live"
COLOURS, GREY = ("#0b72b5", "#d4580a"), "#7a8699"  # readable on light and on dark pages
STYLE = {"svg.hashsalt": "aaren", "svg.fonttype": "none", "text.color": GREY, "axes.labelcolor": GREY}
STYLE |= {"axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY}
NEXT = (  # what to do next, and the command
    ("fit your own series", "aaren train forecasting --data your.csv"),
    ("put a trained stream on a device", "aaren export RUN --to c -o FOLDER"),
    ("keep a million streams", "aaren stream RUN --state states.db < rows.jsonl"),
    ("run the paper's experiments", "aaren reproduce --profile cpu"),
    ("check this machine, or a GPU", "aaren check"),
)


def run(folder: Path, *, console: Console) -> tuple[dict[str, Section], float]:
    """Run everything; return the sections by task, and the seconds. Page and record are in `folder`."""
    if folder.is_file():
        raise ConfigError(f"{folder} is a file: --out needs a folder.")
    for package in ("sklearn", "aeon", "gymnasium", "jinja2", "matplotlib"):
        require_extra(package, extra="demo", purpose="the demo")
    begin = time.perf_counter()
    sections: dict[str, Section] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    groups = [[ALONE[0]], [name for name in TASKS if name not in ALONE], [ALONE[1]]]
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("")
        for names in groups:
            threads = (1 if len(names) > 1 else torch.get_num_threads(),)
            with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, threads) as pool:
                futures = {pool.submit(TASKS[name]): name for name in names}
                progress.update(bar, description=f"{', '.join(names)}: {len(sections)} of {len(TASKS)} done")
                for future in as_completed(futures):
                    sections[futures[future]] = future.result()
                    console.print(f"{futures[future]}: done, {duration(time.perf_counter() - begin)}")
    sections, seconds = {name: sections[name] for name in TASKS}, time.perf_counter() - begin
    record = {"kind": "demo", "when": now(), "seconds": round(seconds, 1), "machine": machine()}
    record |= {"versions": versions(), "sections": {name: asdict(one) for name, one in sections.items()}}
    write_text(folder / RECORD, strict_json(record))
    write_text(folder / PAGE, render(sections, seconds, has_live=copy_live(folder / LIVE)))
    return sections, seconds


def copy_live(target: Path) -> bool:
    """Put the page with exported models, prebuilt, beside ours; False: this installation lacks it."""
    inside = Path(str(resources.files("aaren.demo"))) / LIVE
    source = inside if inside.is_dir() else Path(__file__).parents[3] / "examples" / "browser"
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    return source.is_dir()


def render(sections: dict[str, Section], seconds: float, *, has_live: bool = False) -> str:
    """Return the page: everything inside, nothing asked for from anywhere."""
    jinja2 = require_extra("jinja2", extra="demo", purpose="the demo's page")
    text = (resources.files("aaren.demo") / "templates" / "page.html").read_text(encoding="utf-8")
    about = machine()
    page = (
        jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
        .from_string(text)
        .render(
            sections=sections,
            pictures={name: draw(one.lines, one.axes) for name, one in sections.items() if one.lines},
            seconds=duration(seconds),
            machine=f"{about['cpu']}, {about['cores']} cores, {about['platform']}",
            versions=json.dumps(versions()).strip("{}").replace('"', ""),
            next=NEXT,
            live=f"{LIVE}/{PAGE}" if has_live else "",
        )
    )
    return str(page)


def draw(lines: Sequence[Line], axes: tuple[str, str]) -> str:
    """Return a picture as SVG."""
    figures = require_extra("matplotlib.figure", extra="demo", purpose="the demo's page")
    matplotlib = require_extra("matplotlib", extra="demo", purpose="the demo's page")
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(7.2, 2.9), layout="constrained")
        figure.patch.set_alpha(0.0)
        place = figure.add_subplot(xlabel=axes[0], ylabel=axes[1], facecolor="none")
        place.spines[["top", "right"]].set_visible(False)
        for line, colour in zip(lines, COLOURS, strict=False):
            place.plot(line.x, line.y, color=colour, label=line.name)
            if line.low and line.high:
                place.fill_between(line.x, line.low, line.high, color=colour, alpha=0.2, linewidth=0)
        place.set_ylim(bottom=0)
        place.legend(frameon=False)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()[picture.getvalue().index("<svg") :]
