"""`aaren export`: write a trained stream as C, WebAssembly or ONNX."""

from pathlib import Path
from typing import Annotated, Any

import typer


def export(
    source: Annotated[
        Path, typer.Argument(metavar="RUN", help="A finished run, a saved model or estimator.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="The folder to write into.")
    ],
    to: Annotated[str, typer.Option(metavar="KIND", help="c, wasm or onnx.")] = "c",
    weights: Annotated[
        str, typer.Option(metavar="TYPE", help="float32, or int8: a quarter of the size.")
    ] = "float32",
    state: Annotated[
        str, typer.Option(metavar="TYPE", help="f64, or f32: half of it, for short streams.")
    ] = "f64",
    weights_file: Annotated[
        bool, typer.Option("--weights-file", help="C: weights in weights.bin, which the caller loads.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A .npy or .csv file of rows, all inputs end to end, to compare with torch."
        ),
    ] = None,
) -> None:
    """Write a trained stream as C, WebAssembly or ONNX.

    aaren export runs/forecasting/... --to c -o sensor --check rows.npy
    """
    from aaren.export import export_stream
    from aaren.export.artifact import read_rows

    rows = None if check is None else read_rows(check)
    written = export_stream(
        _load(source), output, to=to, weights=weights, state=state, weights_file=weights_file, check=rows
    )
    print(f"{written.folder}: {', '.join(written.files)}")
    print(
        f"weights {written.manifest['weight_bytes']:,} bytes, state {written.manifest['state_bytes']:,} bytes"
    )
    if written.largest_difference is not None:
        print(
            f"difference from torch, of the largest answer: at most {written.largest_difference:.1e}, "
            f"{written.loss:.1e} on the mean"
        )


def _load(source: Path) -> Any:  # Any: a model or an estimator that knows its raw rows
    """Return what is to be exported: an estimator knows more than its model."""
    from aaren.events import AarenEventForecaster, EventModel
    from aaren.forecasting import AarenForecaster
    from aaren.forecasting.lagged import LagForecaster
    from aaren.rl import AarenPolicy, DecisionModel
    from aaren.stream.saved import load_model

    model = load_model(source / "model" if (source / "model").is_dir() else source)
    if (source / "estimator.json").is_file():
        for kind, estimator in (
            (LagForecaster, AarenForecaster),
            (EventModel, AarenEventForecaster),
            (DecisionModel, AarenPolicy),
        ):
            if isinstance(model, kind):
                return estimator.load(source)
    return model
