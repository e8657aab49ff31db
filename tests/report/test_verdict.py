"""The verdict is computed: from comparisons that decide something, and from benchmarks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aaren.lab.measurements import BenchRecord
from aaren.report.rows import read_results
from aaren.report.verdict import (
    first_comparisons,
    judge_cheaper,
    judge_comparable,
    pool_settings,
    show_margins,
)

WriteRun = Callable[..., Path]


def pairs(root: Path, write_run: WriteRun, *differences: float, dataset: str = "Handwriting") -> None:
    for seed, difference in enumerate(differences):
        write_run(root, "classification", dataset, "aaren", 0.5 + difference, seed=seed)
        write_run(root, "classification", dataset, "transformer", 0.5, seed=seed)


def test_nothing_is_decided_by_one_seed(tmp_path: Path, write_run: WriteRun) -> None:
    pairs(tmp_path, write_run, 0.01)
    verdict = judge_comparable(read_results(tmp_path))
    assert (verdict.word, verdict.kind) == ("not decided yet: 0 of 1 comparisons are", "open")
    assert verdict.sentences == [
        "Classification, accuracy, %: one dataset, nothing to pool.",
        "1 comparison with one seed or without a margin cannot be tested: Aaren's mean is ahead in 1.",
        "Both models were trained on 1 of the paper's 38 datasets (profile cpu).",
    ]


@pytest.mark.parametrize(
    ("differences", "word", "kind"),
    [
        ((0.001, 0.002, 0.0), "yes, in the one decided comparison", "good"),
        ((-0.2, -0.21, -0.19), "no: in 0 of 1 decided comparisons only", "bad"),
        ((-0.2, 0.2, 0.0), "not decided yet: 0 of 1 comparisons are", "open"),
    ],
)
def test_words(
    tmp_path: Path, write_run: WriteRun, differences: tuple[float, ...], word: str, kind: str
) -> None:
    pairs(tmp_path, write_run, *differences)
    verdict = judge_comparable(read_results(tmp_path))
    assert (verdict.word, verdict.kind) == (word, kind)


def test_losses_are_counted_beside_wins(tmp_path: Path, write_run: WriteRun) -> None:
    pairs(tmp_path, write_run, 0.001, 0.002, 0.0)
    pairs(tmp_path, write_run, -0.2, -0.21, -0.19, dataset="JapaneseVowels")
    verdict = judge_comparable(read_results(tmp_path))
    assert verdict.kind == "mixed"
    assert verdict.word == (
        "pooled over datasets open in Classification (only more datasets would decide it); row by row in "
        "part: in 1 of 2 decided comparisons"
    )
    assert verdict.sentences[1] == (
        "Of 2 comparisons with an interval, Aaren is within the margin in 1 (of them better in 0, worse in "
        "0), better by more in 0, worse in 1; 0 open."
    )


def test_stand_ins_are_counted_apart(full_results: Path) -> None:
    first = judge_comparable(read_results(full_results)).sentences[-1]
    assert first == (
        "Both models were trained on 8 of the paper's 38 datasets, and on partial or regenerated stand-ins "
        "for 3 more (profiles cpu and paper)."
    )


def test_smoke_runs_decide_nothing_beside_serious_ones(tmp_path: Path, write_run: WriteRun) -> None:
    pairs(tmp_path, write_run, 0.001, 0.002, 0.0)
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "events", "sin", model, 1.0, profile="smoke")
    assert judge_comparable(read_results(tmp_path)).sentences[-1].endswith("(profile cpu).")


def bench(root: Path, kind: str, rows: list[dict[str, float | str]]) -> None:
    record = BenchRecord(kind=kind, command=f"python benchmarks/{kind}.py", settings={}, measurements=rows)
    record.write(root / "bench" / f"{kind}.json")


def test_cheaper_is_judged_from_the_benchmarks(tmp_path: Path, write_run: WriteRun) -> None:
    pairs(tmp_path, write_run, 0.0)
    assert judge_cheaper(read_results(tmp_path)).word == "not measured"
    stream = {"what": "stream", "size": "paper", "tokens": 1000}
    fast = {**stream, "contender": "aaren_folded", "cumulative_seconds": 1.0, "state_bytes": 4000}
    slow = {**stream, "contender": "transformer", "cumulative_seconds": 3.0, "state_bytes": 4_000_000}
    bench(tmp_path, "stream", [fast, slow])
    verdict = judge_cheaper(read_results(tmp_path))
    assert (verdict.word, verdict.kind) == ("yes, at these sizes", "good")
    assert "4.00 kB" in verdict.sentences[0]
    assert "3.00x the time" in verdict.sentences[0]
    steps = [
        {"contender": "aaren", "length": 96, "median_seconds": 2.0},
        {"contender": "transformer", "length": 96, "median_seconds": 1.0},
    ]
    bench(tmp_path, "train", steps)
    verdict = judge_cheaper(read_results(tmp_path))
    assert verdict.kind == "mixed"
    assert "At 96 items Aaren is the slower one." in verdict.sentences[1]


def test_a_row_at_two_profiles_counts_once_where_it_has_most_seeds(
    tmp_path: Path, write_run: WriteRun
) -> None:
    pairs(tmp_path, write_run, 0.001, 0.002, 0.0)
    for model in ("aaren", "transformer"):
        write_run(tmp_path, "classification", "Handwriting", model, 0.5, profile="paper")
    (one,) = first_comparisons(read_results(tmp_path))
    assert (one.key.profile, len(one.differences)) == ("cpu", 3)


def test_a_setting_is_pooled_over_its_datasets(tmp_path: Path, write_run: WriteRun) -> None:
    pairs(tmp_path, write_run, 0.001, 0.002, 0.0)
    pairs(tmp_path, write_run, 0.002, 0.003, 0.001, dataset="JapaneseVowels")
    pairs(tmp_path, write_run, 0.001, 0.001, 0.002, dataset="Heartbeat")
    found = judge_comparable(read_results(tmp_path))
    assert found.word == (
        "pooled over datasets better, within the margin in Classification; row by row yes, in all 3 decided "
        "comparisons"
    )
    (one,) = pool_settings(first_comparisons(read_results(tmp_path)))
    assert one.pooled is not None
    assert one.pooled.interval.mean == pytest.approx(0.144, abs=0.01)  # margins of one point
    assert found.sentences[0] == (
        f"Classification, accuracy, %: {show_margins(one.pooled.interval)} margins over 3 datasets and 9 "
        "pairs of runs; better, within the margin."
    )
    assert one.outcome == "better_within"


def test_few_decided_rows_are_no_yes(tmp_path: Path, write_run: WriteRun) -> None:
    pairs(tmp_path, write_run, 0.001, 0.002, 0.0)
    for dataset in ("JapaneseVowels", "Heartbeat"):
        pairs(tmp_path, write_run, 0.01, dataset=dataset)
    verdict = judge_comparable(read_results(tmp_path))
    assert verdict.word.startswith("pooled over datasets open in Classification (")
    assert verdict.word.endswith("; row by row not decided yet: 1 of 3 comparisons are")
    assert verdict.kind == "open"


def test_an_earlier_protocol_is_counted_apart_and_judges_nothing(tmp_path: Path, write_run: WriteRun) -> None:
    for dataset, protocol in (("sin", None), ("mimic", None), ("uber-sample", 1)):
        for model in ("aaren", "transformer"):
            write_run(tmp_path, "events", dataset, model, 0.9, protocol=protocol)
    results = read_results(tmp_path)
    assert {one.key.dataset for one in first_comparisons(results)} == {"sin", "mimic"}
    sentences = judge_comparable(results).sentences
    assert "Rows of an earlier protocol that count for nothing here: Events 1." in sentences
