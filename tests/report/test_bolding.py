"""The rule of bold type, on pairs and on the published tables."""

from pathlib import Path

from aaren.report.comparison import PRINTED_ONE_SIDED, bold, check_published
from aaren.report.statistics import Summary


def test_touching_intervals_are_both_bold_and_others_one_sided() -> None:
    low, high = Summary(mean=0.48, deviation=0.02, count=5), Summary(mean=0.44, deviation=0.02, count=5)
    assert bold(low, high, is_lower_better=True) == (True, True)  # they touch at 0.46, in decimals
    high = Summary(mean=0.44, deviation=0.01, count=5)
    assert bold(low, high, is_lower_better=True) == (False, True)
    assert bold(low, high, is_lower_better=False) == (True, False)
    assert bold(Summary(mean=1.0, deviation=None, count=1), high, is_lower_better=True) == (False, False)


def test_the_published_tables_follow_it_but_once() -> None:
    found = check_published()
    assert (found.pairs, found.both, found.transformer, found.aaren) == (107, 97, 7, 3)
    assert found.exceptions == ["ETTm1, 720, mae: 0.52 ± 0.01 and 0.56 ± 0.02"]
    assert len(PRINTED_ONE_SIDED) == 9
    assert found.both + found.transformer + found.aaren == found.pairs
    assert found.equivalent == 55


def test_the_documentation_has_the_same_numbers() -> None:
    found = check_published()
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    text = " ".join(text.split())
    assert f"the rule gives {found.both} equals, {found.transformer} wins of the Transformer" in text
    assert f"and {found.aaren} of Aaren" in text
    assert f"passes for {found.equivalent} of the {found.pairs} pairs" in text
