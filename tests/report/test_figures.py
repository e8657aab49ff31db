"""Figures: what is drawn from records and from what lies beside them."""

from collections.abc import Callable
from pathlib import Path

from aaren.report.figures import setting_figures
from aaren.report.rows import read_results


def test_every_variant_of_a_model_has_its_own_dashes(tmp_path: Path, write_run: Callable) -> None:
    early = {f"accuracy_at_{n / 20:.2f}": 0.04 * n for n in range(1, 21)}
    recipes = [{"recipe": name} for name in ("adam-halving", "radam-constant")]
    for model in ("aaren", "transformer"):
        for more in ({}, {"rule": "clean"}, *recipes):
            write_run(tmp_path, "classification", "JapaneseVowels", model, 0.8, cell=more, test=early)
        write_run(tmp_path, "classification", "JapaneseVowels", f"{model}-causal", 0.8, test=early)
    (figure,) = setting_figures(read_results(tmp_path), "classification")
    (view,) = figure.views
    looks = [(line["line"]["color"], line["line"]["dash"]) for line in view.data]
    assert len(looks) == len(set(looks)) == 10
