"""The paper's Figure 5, drawn again from this library's benchmarks, and the same for training."""

from aaren.bench.record import BenchRecord, Row, describe, number
from aaren.bench.stream import longest
from aaren.bench.stream_contenders import AAREN as AAREN_NAME
from aaren.bench.stream_contenders import FOLDED, GRU, LSTM, PAPER
from aaren.bench.stream_contenders import TRANSFORMER as TRANSFORMER_NAME
from aaren.report.figure import AAREN, FOURTH, THIRD, TRANSFORMER, Figure, View, axis, line
from aaren.report.gathered import Gathered

_LOOKS = {
    FOLDED: ("Aaren", AAREN, "solid"),
    AAREN_NAME: ("Aaren, not folded", AAREN, "dot"),
    TRANSFORMER_NAME: ("Transformer, KV cache", TRANSFORMER, "solid"),
    GRU: ("GRU", THIRD, "dash"),
    LSTM: ("LSTM", FOURTH, "dash"),
}
_TRAIN_LOOKS = {
    AAREN_NAME: ("Aaren", AAREN, "solid"),
    TRANSFORMER_NAME: ("Transformer", TRANSFORMER, "solid"),
    GRU: ("GRU", THIRD, "dash"),
    LSTM: ("LSTM", FOURTH, "dash"),
}


def resource_figures(gathered: Gathered) -> list[Figure]:
    """Draw what was measured."""
    figures = []
    stream, train = gathered.benches.get("stream"), gathered.benches.get("train")
    if stream is not None:
        figures += [
            _stream(stream, "process_bytes", 1e6, "Memory of a stream", "megabytes above the weights"),
            _stream(stream, "cumulative_seconds", 1.0, "Time of a stream", "seconds for all tokens so far"),
        ]
    if train is not None:
        figures += [
            _train(train, "peak_extra_bytes", 1e6, "Memory of a training step", "megabytes at the peak"),
            _train(train, "median_seconds", 1.0, "Time of a training step", "seconds"),
        ]
    return figures


def _stream(record: BenchRecord, field: str, unit: float, title: str, y_title: str) -> Figure:
    furthest = longest(record, PAPER)
    rows: dict[str, list[Row]] = {name: [] for name in _LOOKS}
    for row in record.measurements:
        is_wanted = row["what"] == "stream" and row["size"] == PAPER and row["contender"] in rows
        if is_wanted and row[field] is not None and number(row, "tokens") <= furthest:
            rows[str(row["contender"])].append(row)
    data = [
        line(
            label,
            [0.0, *(number(row, "tokens") for row in rows[name])],
            [0.0, *(number(row, field) / unit for row in rows[name])],
            colour=colour,
            dash=dash,
        )
        for name, (label, colour, dash) in _LOOKS.items()
        if rows[name]
    ]
    layout = {"xaxis": axis("tokens"), "yaxis": axis(y_title, rangemode="tozero")}
    return Figure(
        name=f"stream-{field.replace('_', '-')}",
        title=title,
        caption=f"One block of the paper's size, one stream, token by token. {describe(record)}",
        views=[View(label="", data=data, layout=layout)],
    )


def _train(record: BenchRecord, field: str, unit: float, title: str, y_title: str) -> Figure:
    data = []
    for name, (label, colour, dash) in _TRAIN_LOOKS.items():
        rows = [row for row in record.measurements if row["contender"] == name and row[field] is not None]
        if rows:
            data.append(
                line(
                    label,
                    [number(row, "length") for row in rows],
                    [number(row, field) / unit for row in rows],
                    colour=colour,
                    dash=dash,
                    mode="lines+markers",
                )
            )
    layout = {"xaxis": axis("items in each sequence"), "yaxis": axis(y_title, rangemode="tozero")}
    return Figure(
        name=f"train-{field.replace('_', '-')}",
        title=title,
        caption=f"{record.settings['tokens_per_step']:,} tokens in each step. {describe(record)}",
        views=[View(label="", data=data, layout=layout)],
    )
