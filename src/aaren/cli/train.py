"""`aaren train`: one run, from a preset or a file, TOML or JSON; the same command resumes it."""

import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aaren.errors import ConfigError

if TYPE_CHECKING:
    from aaren.engine.config import RunConfig

RUNS = Path("runs")
SETTING_HELP = "forecasting, classification, events, rl, a module of yours."
MODEL_HELP = "aaren (the default), transformer ...; an unknown one lists them."
SET_HELP = "Change the config, as a run's folder has it; repeatable."


def train(
    what: Annotated[str, typer.Argument(metavar="SETTING|FILE", help=SETTING_HELP)],
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="See: aaren data list.")] = "",
    model: Annotated[str | None, typer.Option(metavar="NAME", help=MODEL_HELP)] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="smoke: seconds; cpu (default): minutes; paper: as published."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Of weights, dropout and order; 0 by default.")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Run folder; default: runs/SETTING/NAME.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="FILE", help="Your own data, or a Minari id (rl).")
    ] = None,
    json_log: Annotated[
        str | None, typer.Option("--json-log", metavar="FILE", help="Log JSON lines; - for stderr.")
    ] = None,
    stop_early: Annotated[
        bool,
        typer.Option("--stop-early", help="Do not resume: test the best weights so far."),
    ] = False,
) -> None:
    """Train one model; once stopped, the same command resumes it.

    aaren train forecasting ETTh1 --profile cpu --set horizon=192
    """
    from aaren.cli.own_modules import import_environments
    from aaren.engine.loop import PausedError, pausing_on_signals
    from aaren.engine.progress import choose_observer
    from aaren.engine.run import train as train_run

    chosen = list(assignments or ())
    import_environments(chosen)
    config, command = _choose(what, seed, chosen, dataset=dataset, model=model, profile=profile, data=data)
    command += [word for assignment in chosen for word in ("--set", assignment)]
    folder = out or RUNS / config.setting / config.folder_name()
    observer = choose_observer(json_log)
    try:
        with pausing_on_signals() as is_pause_wanted:
            record = train_run(
                config,
                folder,
                command=shlex.join(command),
                observer=observer,
                is_pause_wanted=is_pause_wanted,
                stop_early=stop_early,
            )
    except PausedError as pause:
        observer.say(str(pause))
        raise typer.Exit(130) from pause
    for name in record.reports:
        if not math.isnan(record.metric(name)):  # a metric that does not apply, such as of marks
            print(f"{name} {record.metric(name):.6g}")
    print(f"run {folder}")


def _choose(
    what: str, seed: int | None, chosen: list[str], *, dataset: str, **options: str | None
) -> "tuple[RunConfig, list[str]]":
    """Return the config of a run's file, or of a preset, and the command that makes it."""
    from aaren.cli.own_modules import import_settings
    from aaren.datasets.settings import setting_names
    from aaren.engine.presets import load_run, make_run

    if what.endswith((".toml", ".json")):
        if dataset or any(value is not None for value in options.values()):
            raise ConfigError(
                f"{what} says what to train: a dataset, --data, --model and --profile do not go with it."
            )
        config = load_run(Path(what), [*chosen, *([] if seed is None else [f"seed={seed}"])])
        own = [] if config.setting in setting_names() else ["--import", config.setting]
        return config, ["aaren", *own, "train", what, *([] if seed is None else ["--seed", str(seed)])]
    import_settings([what])
    model, profile, data = options["model"] or "aaren", options["profile"] or "cpu", options["data"]
    data_file = "" if data is None else _named(data, what)
    config = make_run(
        what, dataset, model=model, profile=profile, seed=seed or 0, data_file=data_file, assignments=chosen
    )
    command = ["aaren", "train", what, *([dataset] if dataset else ["--data", str(data)])]
    return config, [*command, "--model", model, "--profile", profile, "--seed", str(seed or 0)]


def _named(data: str, setting: str) -> str:
    """Return the file's full path, or the name as it is where a setting takes other things than files."""
    path = Path(data)
    if data and os.path.exists(path):  # noqa: PTH110  # unlike pathlib, no error for a name that cannot be
        return str(path.resolve())
    from aaren.engine.setting import find_setting

    if not data or not find_setting(setting).data_ids or path.is_absolute() or path.suffix:
        raise ConfigError(f"--data {data or repr(data)}: there is no such file.")
    return data
