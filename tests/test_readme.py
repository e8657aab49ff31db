"""Figures in the README are those of the committed records."""

from pathlib import Path

import precision
from aaren.bench import scan, stream_view, train
from aaren.bench.record import read_record

ROOT = Path(__file__).parents[1]
JUDGES = {
    "scan": scan.targets,
    "stream": stream_view.targets,
    "precision": precision.targets,
    "train": train.targets,
}


def measured_table() -> str:
    """Return the README's table: every target of every record, wanted and measured."""
    lines = ["| | wanted | measured | |", "| --- | --- | --- | --- |"]
    for kind, judge in JUDGES.items():
        record = read_record(ROOT / "results" / "bench" / f"{kind}.json", kind=kind)
        for target in judge(record):
            if target.measured is not None:
                lines.append(f"| {target.name} | {target.wanted} | {target.measured} | {target.verdict} |")
    return "\n".join(lines) + "\n"


def test_measured_figures_come_from_the_records():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    begin, end = "<!-- begin: measured -->\n", "<!-- end: measured -->"
    shown = text[text.index(begin) + len(begin) : text.index(end)]
    assert shown.strip() == measured_table().strip(), f"put this into README.md:\n{measured_table()}"
