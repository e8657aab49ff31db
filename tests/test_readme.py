"""Figures in the README are those of the committed records."""

from pathlib import Path

from aaren.bench import scan as scan_targets
from aaren.bench import stream_view as stream_targets
from aaren.bench import train as train_view
from aaren.bench.record import read_record

ROOT = Path(__file__).parents[1]
JUDGES = {"scan": scan_targets.targets, "stream": stream_targets.targets, "train": train_view.targets}


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
