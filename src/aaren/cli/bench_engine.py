"""`aaren bench engine`: what the training engine itself costs."""

from pathlib import Path
from typing import Annotated

import typer


def engine(
    setting: Annotated[str, typer.Argument(help="What to train.")] = "forecasting",
    dataset: Annotated[str, typer.Argument(help="On what; the default is generated.")] = "seasonal",
    profile: Annotated[str, typer.Option(help="smoke, cpu or paper.")] = "cpu",
    seconds: Annotated[float, typer.Option(help="Of each of the two models.")] = 20.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    record: Annotated[Path | None, typer.Option("--record", help="Write the measurements, as JSON.")] = None,
) -> None:
    """Train both models for some seconds: what is spent outside forward, backward and optimiser."""
    import torch
    from rich.console import Console

    from aaren.bench.progress import progress_bar
    from aaren.bench.record import check_writable, describe
    from aaren.bench.train_engine import measure_engine, sheets
    from aaren.presets import make_run

    check_writable({"--record": record})
    torch.set_num_threads(threads)
    chosen = [f"engine.threads={threads}"]
    runs = {
        model: make_run(setting, dataset, model=model, profile=profile, assignments=chosen)
        for model in ("aaren", "transformer")
    }
    options = f"--profile {profile} --threads {threads} --seconds {seconds:g}"
    with progress_bar("bench engine") as on_step:
        result = measure_engine(
            runs,
            seconds=seconds,
            command=f"aaren bench engine {setting} {dataset} {options}",
            on_step=on_step,
        )
    if record is not None:
        result.write(record)
    console = Console(highlight=False)
    for sheet in sheets(result):
        console.print(sheet.to_rich())
    console.print(describe(result), soft_wrap=True)
