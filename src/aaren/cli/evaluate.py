"""`aaren evaluate`: score a finished run again."""

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    part: Annotated[str, typer.Option(help="test or validation.")] = "test",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the config; repeatable.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Short for --set episodes=N (rl).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
    figures: Annotated[
        bool,
        typer.Option("--figures", help="Only write figures.json, for the report, into the run's folder."),
    ] = False,
) -> None:
    """Score a trained run on its test part, by default as training did."""
    from aaren.train.use import draw_run, evaluate_run

    if figures:
        print(draw_run(run) or f"{run}: the report draws this run from its record alone.")
        return
    chosen = list(assignments or ()) + ([f"episodes={episodes}"] if episodes is not None else [])
    _record, metrics = evaluate_run(run, part=part, assignments=chosen)
    if as_json:
        print(json.dumps({part: dict(metrics)}, indent=1))
    else:
        for name, value in metrics.items():
            print(f"{part}.{name} {value:.6g}")
