"""One run from config to record: open, train or resume, test once, leave everything in its folder.

The run is finished when record.json says so; until then the same command resumes it.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from aaren.engine import checkpoint
from aaren.engine.checkpoint import Checkpoints, require_same_config
from aaren.engine.config import RunConfig, read_config, to_json
from aaren.engine.determinism import repeatable
from aaren.engine.experiment import Batch, Experiment, Json
from aaren.engine.loop import FitResult, PausedError, evaluate, evaluating, fit
from aaren.engine.plan import Evaluation, Plan, RunStatus
from aaren.engine.progress import Observer, Observers
from aaren.engine.record import RunRecord, read_record, thin_curve
from aaren.engine.setting import find_setting
from aaren.errors import ConfigError, UnwritableError
from aaren.fields import to_mapping
from aaren.files.atomic import write_text
from aaren.files.checksums import write_files
from aaren.files.lock import locked
from aaren.files.strict_json import strict_json

if TYPE_CHECKING:
    pass


CONFIG, RECORD, CURVE = "run.json", "record.json", "curve.jsonl"
MODEL = "model"  # a folder: the selected weights
PREPROCESSING = "preprocessing.json"  # what was learned from the data outside the model
PREDICTIONS = "predictions.safetensors"  # if asked
CHECKPOINTS = "checkpoints"  # a folder, while the run is not finished


def train(
    config: RunConfig,
    folder: Path,
    *,
    command: str = "",
    observer: Observer | None = None,
    is_pause_wanted: Callable[[], bool] = lambda: False,
    stop_early: bool = False,
) -> RunRecord:
    """Train a run in its folder, or resume it, or return the record if it is finished.

    Args:
        config: The run.
        folder: Its folder; made if need be, locked meanwhile.
        command: What a person would type to repeat it, for the record.
        observer: Is told of the progress.
        is_pause_wanted: See `fit`.
        stop_early: Test the best weights of a stopped run instead of resuming; the record says so.
    """
    _require_protocol(config)
    with locked(folder):
        finished = _claim(config, folder)
        if finished is not None:
            if observer is not None:
                observer.say(f"{folder} is finished already; this is its record.")
            return finished
        curve = _CurveFile(folder / CURVE)
        try:
            experiment = _open(config)
            checkpoints = Checkpoints(
                folder=folder / CHECKPOINTS,
                config={**to_mapping(config), "data": dict(experiment.checksums())},
                every_seconds=config.engine.checkpoint_seconds,
            )
            fitted = fit(
                experiment,
                seed=config.seed,
                engine=config.engine,
                checkpoints=checkpoints,
                observer=Observers(observer or Observer(), curve),
                name=" ".join(map(str, config.cell().values())),
                is_pause_wanted=is_pause_wanted,
                stop_early=stop_early,
            )
            return _finish(config, folder, experiment, fitted, command=command)
        except PausedError:
            raise
        except KeyboardInterrupt as error:
            raise PausedError(
                "stopped at once; the same command resumes from the last checkpoint, if there is one."
            ) from error
        except Exception as error:
            _fail(config, folder, curve.status, error, command=command)
            raise


def _require_protocol(config: RunConfig) -> None:
    if config.protocol != config.todays_protocol():
        raise ConfigError(
            f"the config asks for protocol {config.protocol} of {config.setting}, but this version of aaren "
            f"runs protocol {config.todays_protocol()} at profile {config.profile}: leave the key out, or "
            "run it with the version that wrote it."
        )


def _open(config: RunConfig) -> Experiment[Batch]:
    """Open the experiment of a run, or say at once what it cannot do."""
    experiment = find_setting(config.setting).open(config.task, seed=config.seed)
    if config.engine.predictions and type(experiment).predictions is Experiment.predictions:
        raise ConfigError(
            f"the setting {config.setting!r} keeps no predictions: leave out engine.predictions."
        )
    return experiment


def blank_record(config: RunConfig, *, command: str) -> RunRecord:
    """Return the record of a run that has not started."""
    setting = find_setting(config.setting)
    return RunRecord(
        status="failed",
        setting=config.setting,
        profile=config.profile,
        seed=config.seed,
        protocol=config.protocol,
        cell=dict(config.cell()),
        changed=list(config.changed),
        config=cast("dict[str, Json]", to_mapping(config)),
        command=command,
        reports=list(setting.reports),
        higher_is_better=list(setting.higher_is_better),
    )


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Report in one line a disk that is full or cannot be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise UnwritableError(
            f"cannot write to {folder}: {error}. Free some space or choose another folder (--out); "
            "the same command then resumes from the last checkpoint."
        ) from error


def _claim(config: RunConfig, folder: Path) -> RunRecord | None:
    """Make the folder this run's; return the record if there is nothing left to do."""
    if (folder / CONFIG).exists():
        record = read_record(folder / RECORD) if (folder / RECORD).exists() else None
        if record is None or record.status == "finished" or _has_checkpoint(folder):
            require_same_config(read_config(folder / CONFIG), to_mapping(config), where=str(folder))
        if record is not None and record.status == "finished":
            return record
    with writing(folder):
        write_text(folder / CONFIG, to_json(config))
    return None


def _has_checkpoint(folder: Path) -> bool:
    """Tell whether anything would be lost; a run that failed before may succeed with another config."""
    return any((folder / CHECKPOINTS).glob("update-*"))


def _finish(
    config: RunConfig,
    folder: Path,
    experiment: Experiment[Batch],
    fitted: FitResult,
    *,
    command: str,
) -> RunRecord:
    """Evaluate on the test part, once, and write everything; the record last: it marks the run finished."""
    model, status, plan = fitted.model, fitted.status, experiment.plan
    with repeatable(replace(config.engine, threads=fitted.threads), seed=config.seed):
        test = dict(evaluate(experiment, model, "test", plan.moment(status.update)))
        with torch.no_grad():
            predictions = dict(experiment.predictions(model)) if config.engine.predictions else {}
        with evaluating(model):
            figures = experiment.figures(model)
    record = replace(
        _record(config, status, command=command),
        status="finished",
        metrics={"test": test, **_evaluations(status)},
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        epochs=round(status.update / plan.updates_per_epoch, 3),
        data=dict(experiment.checksums()),
        facts=dict(experiment.facts()),
        figures=dict(figures),
        preprocessing=dict(experiment.preprocessing()),
        threads=fitted.threads,
    )
    with writing(folder):
        if predictions:
            save_file(
                {name: tensor.cpu().contiguous() for name, tensor in predictions.items()},
                folder / PREDICTIONS,
            )
        (folder / MODEL).mkdir(exist_ok=True)
        if hasattr(model, "preprocessing"):
            model.preprocessing = cast("Any", dict(experiment.preprocessing()))
        find_setting(config.setting).save_model(model.to("cpu"), folder / MODEL)
        learned = strict_json(record.preprocessing, indent=1) + "\n"
        saved = [f"{MODEL}/{path.name}" for path in (folder / MODEL).iterdir() if path.is_file()]
        write_files(folder, {PREPROCESSING: learned.encode()}, others=saved)
        write_text(folder / CURVE, _curve_lines(status))
        record.write(folder / RECORD)
    checkpoint.remove(folder / CHECKPOINTS)
    return record


def _fail(config: RunConfig, folder: Path, status: RunStatus, error: Exception, *, command: str) -> None:
    """Leave a record of the failure; if even that fails, the error itself is what matters."""
    record = _record(config, status, command=command)
    text = f"{type(error).__name__}: {error}"
    try:
        replace(record, metrics=_evaluations(status), ended_by="error", error=text).write(folder / RECORD)
    except OSError:
        return


def _record(config: RunConfig, status: RunStatus, *, command: str) -> RunRecord:
    return replace(
        blank_record(config, command=command),
        updates=status.update,
        ended_by=status.ended_by,
        best_update=status.best["update"] if status.best else None,
        resumed=status.resumed,
        seconds={name: round(seconds, 3) for name, seconds in status.seconds.items()},
        curve=thin_curve(status.curve, find_setting(config.setting).reports),
    )


def _evaluations(status: RunStatus) -> dict[str, dict[str, float]]:
    """Return the best and the last evaluation on the validation part."""
    evaluations: Mapping[str, Evaluation | None] = {
        "best": status.best,
        "last": status.curve[-1] if status.curve else None,
    }
    return {
        name: dict(evaluation["validation"])
        for name, evaluation in evaluations.items()
        if evaluation is not None and evaluation["validation"]
    }


def _curve_lines(status: RunStatus) -> str:
    return "".join(strict_json(evaluation) + "\n" for evaluation in status.curve)


class _CurveFile(Observer):
    """Keeps curve.jsonl beside a run, line by line; a run that resumes rewrites it from its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path, self.status = path, RunStatus()

    def begin(self, name: str, plan: Plan, status: RunStatus) -> None:
        del name, plan
        self.status = status
        with writing(self.path.parent):
            write_text(self.path, _curve_lines(status))

    def evaluated(self, status: RunStatus, evaluation: Evaluation) -> None:
        del status
        # A full disk does not end the run: the curve is in every checkpoint and written again at the end.
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(strict_json(evaluation) + "\n")
