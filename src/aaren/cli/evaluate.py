"""`aaren evaluate`: score a finished run again.

`aaren predict`: predict new data with a finished run.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aaren.cli.options import AsJson, Run
from aaren.cli.own_modules import import_environments

if TYPE_CHECKING:
    from aaren.engine.use import SweepRow


def evaluate(
    run: Run,
    part: Annotated[str, typer.Option(metavar="NAME", help="test or validation.")] = "test",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the config; repeatable.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="KEY=A,B,C", help="Once for every value; kept in the run's record."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a trained run again: other data, settings or values.

    aaren evaluate runs/rl/... --set episodes=20 --sweep target_scale=0.5,1,2
    """
    chosen = list(assignments or ())
    import_environments(chosen)
    if sweep is not None:
        _sweep(run, sweep, part, chosen, as_json)
        return
    from aaren.engine.use import evaluate_run
    from aaren.files.strict_json import strict_json

    _record, metrics = evaluate_run(run, part=part, assignments=chosen)
    if as_json:
        print(strict_json({part: metrics}, indent=1))
    else:
        for name, value in metrics.items():
            if not math.isnan(value):  # a metric that does not apply, such as of marks
                print(f"{part}.{name} {value:.6g}")


def _sweep(run: Path, sweep: str, part: str, chosen: list[str], as_json: bool) -> None:
    from aaren.engine.use import Sweep, sweep_run
    from aaren.files.strict_json import strict_json

    wanted = Sweep.parse(sweep)

    def tell(row: "SweepRow") -> None:
        if as_json:
            print(strict_json({wanted.key: row.value, part: row.metrics}))
        else:
            print(
                f"{wanted.key}={row.value}  "
                + "  ".join(f"{name} {row.metrics[name]:.6g}" for name in row.metrics)
            )

    sweep_run(run, wanted, part=part, assignments=chosen, on_row=tell)


def predict(
    run: Run,
    data: Annotated[
        Path, typer.Option("--data", metavar="FILE", help="New data, as the run was trained on.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the predictions go.")],
) -> None:
    """Forecast, classify or score new data, into a file.

    aaren predict RUN --data new.csv -o answers.csv
    """
    from aaren.engine.use import predict_run

    predict_run(run, source=data, target=out)
    print(out)
