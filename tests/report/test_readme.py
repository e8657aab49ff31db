"""The results section of the README is that of the committed records."""

from pathlib import Path

from aaren.report.gathered import gather
from aaren.report.readme import BEGIN, END, render_section

ROOT = Path(__file__).parents[2]


def test_the_results_section_is_not_stale() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()
    wanted = render_section(gather(ROOT / "results")).strip()
    assert shown == wanted, "README.md is stale: run `aaren report results --readme README.md`"
