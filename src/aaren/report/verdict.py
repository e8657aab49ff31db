"""The claim, and what our runs say to it, in sentences that are computed from records and benchmarks."""

from dataclasses import dataclass

from aaren.bench.record import BenchRecord, number
from aaren.bench.stream_contenders import AAREN, FOLDED, PAPER, TRANSFORMER
from aaren.bench.table import format_bytes, format_ratio
from aaren.datasets.catalogue import DATASETS
from aaren.report.comparison import OUTCOMES, Comparison, compare_rows
from aaren.report.names import is_stand_in, papers_name
from aaren.report.rows import Results, RowKey
from aaren.report.statistics import Outcome

MOSTLY = 0.9  # share of decided comparisons from which a claim is called mostly supported
NUM_DATASETS = len(DATASETS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One half of the claim: a word, and the sentences behind it."""

    claim: str
    word: str
    kind: str  # good, mixed, bad, open: how it is coloured
    sentences: list[str]


def verdicts(results: Results) -> list[Verdict]:
    """Judge both halves of the claim."""
    return [judge_comparable(results), judge_cheaper(results)]


def judge_comparable(results: Results) -> Verdict:
    """Count in how many rows Aaren is equivalent to the Transformer, better, worse, or nothing is decided."""
    found = first_comparisons(results)
    word, kind = _word(found)
    return Verdict(
        claim="As good as Transformers?",
        word=word,
        kind=kind,
        sentences=[_coverage(found), *_counts(found)] if found else ["No row has both models yet."],
    )


def first_comparisons(results: Results) -> list[Comparison]:
    """Return every row with both models by its setting's first number, at the published variant.

    A row that was run at several profiles counts once, where it has the most seeds. Smoke runs are left out
    unless there is nothing else.
    """
    found: list[Comparison] = []
    for setting in results.settings():
        for profile in results.profiles(setting):
            by_key: dict[RowKey, Comparison] = {}
            for number_of in results.metrics(setting):
                for one in compare_rows(results, setting, profile, "", number_of):
                    if one.difference is not None:
                        by_key.setdefault(one.key, one)
            found += by_key.values()
    serious = [one for one in found if one.key.profile != "smoke"] or found
    best: dict[tuple[str, str, int | None], Comparison] = {}
    for one in serious:
        row = (one.key.setting, one.key.dataset, one.key.horizon)
        if row not in best or len(one.differences) > len(best[row].differences):
            best[row] = one
    return list(best.values())


def judge_cheaper(results: Results) -> Verdict:
    """Compare state, time of a stream and time of a training step, from the benchmarks."""
    sentences = []
    ratios: list[float] = []
    stream, train = results.benches.get("stream"), results.benches.get("train")
    if stream is not None:
        sentences += _stream_sentences(stream, ratios)
    if train is not None:
        sentences += _train_sentences(train, ratios)
    if not ratios:
        return Verdict(
            claim="Cheaper?",
            word="not measured",
            kind="open",
            sentences=["Measure: aaren bench stream --record bench/stream.json, aaren bench train likewise."],
        )
    is_cheaper = min(ratios) > 1.0
    return Verdict(
        claim="Cheaper?",
        word="yes, at these sizes" if is_cheaper else "in part",
        kind="good" if is_cheaper else "mixed",
        sentences=sentences,
    )


def _word(found: list[Comparison]) -> tuple[str, str]:
    counts = count_outcomes(found)
    good, bad = counts["equivalent"] + counts["better"], counts["worse"]
    decided = good + bad
    if not decided:
        return "not decided", "open"
    open_rows = len(found) - decided
    rest = f" ({open_rows} of {len(found)} not decided or not tested)" if open_rows else ""
    good_kind = "good" if decided > open_rows else "mixed"
    if bad == 0:
        all_decided = "the one decided comparison" if decided == 1 else f"all {decided} decided comparisons"
        return f"yes, in {all_decided}{rest}", good_kind
    if good / decided >= MOSTLY:
        return f"mostly: in {good} of {decided} decided comparisons{rest}", good_kind
    if good >= bad:
        return f"in part: in {good} of {decided} decided comparisons{rest}", "mixed"
    return f"no: in {good} of {decided} decided comparisons only{rest}", "bad"


def count_outcomes(found: list[Comparison]) -> dict[Outcome, int]:
    """Count the judgements."""
    return {outcome: sum(one.outcome == outcome for one in found) for outcome in OUTCOMES}


def _coverage(found: list[Comparison]) -> str:
    whole = {papers_name(one.key.dataset) for one in found if not is_stand_in(one.key.dataset)} - {""}
    parts = {papers_name(one.key.dataset) for one in found if is_stand_in(one.key.dataset)} - whole
    text = f"Both models were trained on {len(whole)} of the paper's {NUM_DATASETS} datasets"
    if parts:
        text += f", and on partial or regenerated stand-ins for {len(parts)} more"
    profiles = sorted({one.key.profile for one in found})
    return f"{text} (profile{'s' if len(profiles) > 1 else ''} {' and '.join(profiles)})."


def _counts(found: list[Comparison]) -> list[str]:
    counts = count_outcomes(found)
    tested = len(found) - counts["untested"]
    sentences = []
    if tested:
        sentences.append(
            f"Of {tested} comparisons with an interval, Aaren is within the paper's margin in "
            f"{counts['equivalent']}, better in {counts['better']}, worse in {counts['worse']}; "
            f"{counts['undecided']} undecided."
        )
    single = [one for one in found if one.outcome == "untested"]
    if single:
        ahead = sum((one.advantage.mean if one.advantage else 0.0) > 0.0 for one in single)
        thing = "comparison" if len(single) == 1 else "comparisons"
        sentences.append(
            f"{len(single)} {'more ' if tested else ''}{thing} with one seed or without a margin cannot be "
            f"tested: Aaren's mean is ahead in {ahead}."
        )
    return sentences


def _stream_sentences(record: BenchRecord, ratios: list[float]) -> list[str]:
    def rows(contender: str) -> dict[int, float]:
        return {
            int(number(row, "tokens")): number(row, "cumulative_seconds")
            for row in record.measurements
            if row["what"] == "stream" and row["size"] == PAPER and row["contender"] == contender
        }

    aaren, transformer = rows(FOLDED), rows(TRANSFORMER)
    common = sorted(aaren.keys() & transformer.keys())
    if not common:
        return []
    tokens = common[-1]
    states = [
        number(row, "state_bytes")
        for name in (FOLDED, TRANSFORMER)
        if (row := record.find(what="stream", size=PAPER, contender=name, tokens=tokens)) is not None
    ]
    ratio = transformer[tokens] / aaren[tokens]
    ratios += [ratio, states[1] / states[0]]
    return [
        f"After {tokens:,} tokens Aaren's state is {format_bytes(states[0])}, the Transformer's cache "
        f"{format_bytes(states[1])} ({format_ratio(states[1] / states[0])}); the tokens took the Transformer "
        f"{format_ratio(ratio)} the time."
    ]


def _train_sentences(record: BenchRecord, ratios: list[float]) -> list[str]:
    found = []
    for length in sorted({int(number(row, "length")) for row in record.measurements}):
        slow, fast = (record.find(contender=name, length=length) for name in (TRANSFORMER, AAREN))
        if slow is not None and fast is not None:
            found.append((length, number(slow, "median_seconds") / number(fast, "median_seconds")))
    if not found:
        return []
    ratios.append(found[-1][1])
    slower = [f"{length:,}" for length, ratio in found if ratio < 1.0]
    text = " and ".join(
        f"{format_ratio(ratio)} at {length:,} items" for length, ratio in (found[0], found[-1])
    )
    sentence = f"A training step takes the Transformer longer: {text} in a sequence."
    if slower:
        sentence += f" At {', '.join(slower)} items Aaren is the slower one."
    return [sentence]
