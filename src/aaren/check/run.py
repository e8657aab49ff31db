"""Run the checks of a device, show them as they come, and sum them up: a table and one JSON file."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

from aaren.check.backends import check_backends, check_mixers, reason_to_skip
from aaren.check.models import check_models
from aaren.check.outcome import (
    LAYER_LIMITS,
    SCAN_LIMITS,
    TRAINING_LIMIT,
    Errors,
    Outcome,
    SkippedError,
    attempt,
    difference,
    dtype_name,
)
from aaren.engine.record import machine, now, strict_json, versions
from aaren.errors import ConfigError, unknown_name
from aaren.files.atomic import write_text
from aaren.ops import scan_attention
from aaren.ops.dispatch import VARIABLE, choose_backend

PARTS = ("backends", "mixers", "models", "compile", "timings")
TIMED = ("fused", "chunked", "triton")
REPEATS = 5
_WIDTH = 80


def run(device: str, *, parts: Sequence[str] = (), json_file: Path | None = None) -> bool:
    """Check a device and print what was found; tell whether nothing is wrong.

    Args:
        device: cpu, cuda or mps.
        parts: Of PARTS; default: all.
        json_file: Where to write it as well.
    """
    place = _find_device(device)
    for part in parts:
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
    wanted = parts or PARTS
    checks: list[Callable[[], Outcome]] = []
    for part, find in (
        ("backends", check_backends),
        ("mixers", check_mixers),
        ("models", check_models),
        ("compile", _check_compile),
    ):
        if part in wanted:
            checks += find(place)
    outcomes, seconds = _run_all(checks)
    timings = time_backends(place) if "timings" in wanted else {}
    console = Console(width=_WIDTH, highlight=False)
    console.print(_table(outcomes, place))
    if timings:
        console.print()
        console.print(_timings_table(timings))
        console.print()
    failed = [outcome for outcome in outcomes if outcome.faults]
    for outcome in failed:
        about = f"{outcome.group} {outcome.name} ({outcome.dtype})"
        console.print(f"[bold red]wrong:[/] {escape(about)}: {escape('; '.join(outcome.faults))}")
    advice = _advice(outcomes, timings)
    if advice:
        console.print(advice)
    counts = {
        verdict: sum(o.verdict == verdict for o in outcomes) for verdict in ("right", "FAILED", "skipped")
    }
    console.print(
        f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())} in {seconds:.0f} s"
    )
    if json_file is not None:
        content = {
            "format": 1,
            "kind": "check",
            "date": now(),
            "device": str(place),
            "auto": choose_backend(place.type),
            "versions": versions(),
            "machine": machine(),
            "is_right": not failed,
            "limits": {
                "scans": {dtype_name(dtype): limit for dtype, limit in SCAN_LIMITS.items()},
                "layers": {dtype_name(dtype): limit for dtype, limit in LAYER_LIMITS.items()},
                "training": TRAINING_LIMIT,
            },
            "outcomes": [{**asdict(outcome), "verdict": outcome.verdict} for outcome in outcomes],
            "seconds_forward_backward": timings,
        }
        write_text(json_file, strict_json(content, indent=1) + "\n")
    return not failed


def _find_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"there is no device {name!r} here ({reason}). Use cpu, cuda or mps.") from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device must be cpu, cuda or mps; got {name!r}.")
    return device


def _run_all(checks: Sequence[Callable[[], Outcome]]) -> tuple[list[Outcome], float]:
    columns = (TextColumn("aaren check"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[what]}"))
    outcomes: list[Outcome] = []
    begin, threads = time.perf_counter(), torch.get_num_threads()
    torch.set_num_threads(1)  # models this small only lose by more, minutes on a busy machine
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=len(checks), what="")
            for check in checks:
                outcomes.append(check())
                bar.update(task, advance=1, what=f"{outcomes[-1].group} {outcomes[-1].name}")
    finally:
        torch.set_num_threads(threads)
    return outcomes, time.perf_counter() - begin


def _check_compile(device: torch.device) -> Iterator[Callable[[], Outcome]]:
    """Yield the check of `torch.compile`: a scan with its gradients, without a break in its graph."""
    yield partial(attempt, "compile", "torch.compile", torch.float32, partial(_compile, device))


def _compile(device: torch.device) -> Errors:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, 70, 2, generator=generator)
    values = torch.randn(1, 70, 2, 4, generator=generator)

    def observe(scan: Callable[[Tensor, Tensor], Tensor], *inputs: Tensor) -> list[Tensor]:
        leaves = [leaf.requires_grad_() for leaf in inputs]
        outputs = scan(*leaves)
        return [outputs, *torch.autograd.grad(outputs.square().sum(), leaves)]

    def scan(scores: Tensor, values: Tensor) -> Tensor:
        return scan_attention(scores, values)[0]

    wanted = observe(lambda s, v: scan_attention(s, v, backend="naive")[0], scores.double(), values.double())
    try:
        found = observe(torch.compile(scan, fullgraph=True), scores.to(device), values.to(device))
    except Exception as error:  # whatever stands between torch and a compiler
        words = f"{type(error).__name__}: {error}"
        if not any(
            name in words for name in ("InvalidCxxCompiler", "TritonMissing", "No working C++ compiler")
        ):
            raise
        raise SkippedError(f"no compiler: {words.splitlines()[0]}") from error
    errors = {"forward": difference(found[:1], wanted[:1]), "backward": difference(found[1:], wanted[1:])}
    return errors, dict.fromkeys(errors, LAYER_LIMITS[torch.float32])  # a compiler takes sums in any order


def time_backends(device: torch.device) -> dict[str, float]:
    """Return the median seconds of a forward and backward pass, turn by turn, of what can run here."""
    batch, length, heads, width = (8, 4096, 8, 64) if device.type == "cuda" else (2, 1024, 4, 32)
    values = torch.randn(batch, length, heads, width, device=device, requires_grad=True)
    scores = torch.randn(batch, length, heads, device=device, requires_grad=True)
    gradient = torch.randn_like(values)

    def scan(backend: str) -> None:
        outputs, _ = scan_attention(scores, values, backend=backend)
        torch.autograd.grad(outputs, (scores, values), gradient)

    def attention() -> None:
        query = values.transpose(1, 2)
        outputs = F.scaled_dot_product_attention(query, query, query, is_causal=True)
        torch.autograd.grad(outputs, values, gradient.transpose(1, 2))

    calls: dict[str, Callable[[], None]] = {
        name: partial(scan, name) for name in TIMED if not reason_to_skip(name, device)
    }
    calls["causal SDPA"] = attention
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(1 + REPEATS):  # the first is a warm-up
        for name, call in calls.items():
            begin = time.perf_counter()
            with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
                call()
                _wait_for(device)
            if turn:
                samples[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in samples.items()}


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _advice(outcomes: Sequence[Outcome], timings: dict[str, float]) -> str:
    """Return the line to set where Triton is right and faster than what `auto` is; "" elsewhere."""
    found = [o.verdict for o in outcomes if o.group == "backend" and o.name == "triton"]
    if not found or set(found) != {"right"} or "triton" not in timings:
        return ""
    gain = timings["chunked"] / timings["triton"]
    if gain <= 1.0:
        return ""
    return (
        f"Triton is right here, {gain:.1f} times as fast as chunked. To use it:\n  export {VARIABLE}=triton"
    )


def _table(outcomes: Sequence[Outcome], device: torch.device) -> Table:
    title = f"Largest error on {device}, against the definition in float64"
    reasons = dict.fromkeys(f"{o.name}: {o.skipped}" for o in outcomes if o.skipped)
    caption = "\n".join(f"skipped {escape(reason)}" for reason in reasons)
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left", box=None, pad_edge=False
    )
    verbs = {"forward": "forward", "backward": "backward", "step": "step", "20 updates": "updates"}
    table.add_column("", overflow="fold")
    table.add_column("dtype")
    for heading in verbs.values():
        table.add_column(heading, justify="right")
    table.add_column("")
    group = ""
    for outcome in outcomes:
        if outcome.group != group:
            group = outcome.group
            table.add_row(f"[bold]{group}[/]")
        style = "bold red" if outcome.faults else "dim" if outcome.skipped else ""
        cells = [f"{outcome.errors[verb]:.0e}" if verb in outcome.errors else "" for verb in verbs]
        table.add_row(escape(outcome.name), outcome.dtype, *cells, outcome.verdict, style=style)
    return table


def _timings_table(timings: dict[str, float]) -> Table:
    title = "Forward and backward pass of a scan, float32"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("", "milliseconds", "/ chunked"):
        table.add_column(column, justify="left" if not column else "right")
    for name, seconds in timings.items():
        table.add_row(name, f"{seconds * 1e3:.2f}", f"{seconds / timings['chunked']:.2f}x")
    return table
