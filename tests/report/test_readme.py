"""The results section of the README: that of the committed records, and what it says of references."""

from collections.abc import Callable
from pathlib import Path

from aaren.report.gathered import gather
from aaren.report.readme import BEGIN, END, render_section

ROOT = Path(__file__).parents[2]


def test_the_results_section_is_not_stale() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()
    wanted = render_section(gather(ROOT / "results")).strip()
    assert shown == wanted, "README.md is stale: run `aaren report results --readme README.md`"


def test_who_loses_to_something_simple_is_seen_to_lose(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    for horizon, linear in ((96, 0.4), (192, 0.6), (336, 0.3)):
        for model, mse in (("aaren", 0.5), ("transformer", 0.55), ("linear", linear), ("streaming", 0.35)):
            write_run(tmp_path, "forecasting", "ETTh1", model, mse, mse, horizon=horizon)
    write_run(tmp_path, "forecasting", "ETTh2", "aaren", 0.5, 0.5, horizon=96)
    words = "Simple references, run in 3 rows, are ahead of both models in 2: linear (2)."
    assert words in render_section(gather(tmp_path))


def test_a_reference_that_loses_is_said_to_lose(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    for model, accuracy in (("aaren", 0.9), ("transformer", 0.8), ("majority", 0.2)):
        write_run(tmp_path, "classification", "JapaneseVowels", model, accuracy, profile="paper")
    words = "Simple references, run in 1 row, are ahead of both models in none."
    assert words in render_section(gather(tmp_path))
