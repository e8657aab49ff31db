"""The paper's claim and what our runs show, in sentences computed from records and benchmarks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aaren.datasets.catalogue import DATASETS
from aaren.lab.measurements import BenchRecord, number
from aaren.lab.statistics import Interval, Outcome, Pooled, judge, pool, seeds_to_decide_pooled
from aaren.report.comparison import OUTCOMES, Comparison, compare_rows
from aaren.report.names import PAIR, is_stand_in, papers_name, short_title_of
from aaren.report.rows import Results, RowKey
from aaren.table import format_bytes, format_ratio

AAREN, FOLDED, TRANSFORMER, PAPER = "aaren", "aaren_folded", "transformer", "paper"  # of benchmarks
MOSTLY = 0.9  # share of decided comparisons from which a claim is called mostly supported
NUM_DATASETS = len(DATASETS)
WITHIN: tuple[Outcome, ...] = ("equivalent", "better_within", "worse_within")


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
    """Pool every setting, and count in how many rows Aaren is equivalent, better, worse, or all is open."""
    found = first_comparisons(results)
    pools = pool_settings(found)
    rows, kind = _word(found, pools)
    pooled = _pooled_in_words(pools)
    return Verdict(
        claim="As good as Transformers?",
        word=f"{pooled}; row by row {rows}" if pooled else rows,
        kind=kind,
        sentences=[*(one.sentence for one in pools), *_counts(found), *_waiting(results), _coverage(found)]
        if found
        else ["No row has both models yet."],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingPool:
    """All rows of a setting by its first number, and the estimate over its datasets, in margins."""

    setting: str
    comparisons: list[Comparison]
    pooled: Pooled | None  # of fewer than two datasets there is none

    @property
    def outcome(self) -> Outcome:
        """Judge the pooled estimate; it is in margins, so its margin is 1."""
        return "untested" if self.pooled is None else judge(self.pooled.interval, 1.0)

    @property
    def label(self) -> str:
        """Name the number that it is about."""
        return self.comparisons[0].metric.label

    @property
    def by_dataset(self) -> dict[str, list[Comparison]]:
        """Return the rows of each dataset: its horizons."""
        found: dict[str, list[Comparison]] = {}
        for one in self.comparisons:
            found.setdefault(one.key.dataset, []).append(one)
        return found

    @property
    def sentence(self) -> str:
        """Say what is known of the setting as a whole."""
        name = f"{short_title_of(self.setting)}, {self.label}"
        if self.pooled is None:
            return f"{name}: one dataset, nothing to pool."
        over = f"over {self.pooled.interval.count} datasets and {self.pooled.seeds} pairs of runs"
        words = f"{name}: {show_margins(self.pooled.interval)} margins {over}"
        if self.pooled.between >= 0.005:
            words += f", \u00b1 {self.pooled.between:.2f} between datasets"
        return f"{words}; {self.judgement}."

    @property
    def judgement(self) -> str:
        """Return the outcome in words; of an open one also what would decide it."""
        if self.outcome == "undecided":
            return f"open: {self.cure}"
        return _in_words(self.outcome)

    @property
    def cure(self) -> str:
        """Say what would decide an open setting."""
        if all(len(one.differences) == 1 for one in self.comparisons):
            return "no row has more than one seed"
        seeds = seeds_to_decide_pooled(_by_seed(self), 1.0)
        return "only more datasets would decide it" if seeds is None else f"about {seeds:,} seeds a row would"


def pool_settings(found: Sequence[Comparison]) -> list[SettingPool]:
    """Pool the rows of every setting that have a margin."""
    usable = [one for one in found if one.in_margins]
    pools = []
    for setting in dict.fromkeys(one.key.setting for one in usable):
        rows = [one for one in usable if one.key.setting == setting]
        # A setting may be judged by another number where it has no first one: never pooled with the first.
        rows = [one for one in rows if one.metric == rows[0].metric]
        single = SettingPool(setting=setting, comparisons=rows, pooled=None)
        pools.append(replace(single, pooled=pool(_by_seed(single))))
    return pools


def _pooled_in_words(pools: Sequence[SettingPool]) -> str:
    """Name the settings by what their pooled estimates say; nothing where none could be pooled."""
    by_judgement: dict[str, list[str]] = {}
    for one in pools:
        if one.pooled is not None:
            name = short_title_of(one.setting)
            is_open = one.outcome == "undecided"
            by_judgement.setdefault(_in_words(one.outcome), []).append(
                f"{name} ({one.cure})" if is_open else name
            )
    parts = [f"{judgement} in {', '.join(names)}" for judgement, names in by_judgement.items()]
    return f"pooled over datasets {'; '.join(parts)}" if parts else ""


def _in_words(outcome: Outcome) -> str:
    return OUTCOMES[outcome].removeprefix("Aaren ")


def show_margins(one: Interval) -> str:
    """Write an advantage in margins with its interval.

    >>> show_margins(Interval(mean=0.5, low=-0.25, high=1.25, count=3))
    '+0.50 [\u22120.25, +1.25]'
    """
    numbers = [one.mean, *(end for end in (one.low, one.high) if end is not None)]
    first, *ends = (f"{number:+.2f}".replace("-", "\u2212") for number in numbers)
    return f"{first} [{', '.join(ends)}]" if ends else first


def _by_seed(one: SettingPool) -> list[list[list[float]]]:
    return [[row.in_margins for row in rows] for rows in one.by_dataset.values()]


def first_comparisons(results: Results) -> list[Comparison]:
    """Return every row with both models by its setting's first number, at the published variant.

    Rows of a protocol that is not today's are variants. A dataset that was run at several profiles or on
    several versions of its files counts once: where it has the most pairs of runs, then as published. Smoke
    runs are left out unless there is nothing else.
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
    chosen: dict[tuple[str, str], list[Comparison]] = {}
    groups: dict[tuple[str, str, str, str], list[Comparison]] = {}
    for one in serious:
        key = one.key
        groups.setdefault((key.setting, key.dataset, key.profile, key.data), []).append(one)
    for (setting, dataset, *_), rows in groups.items():
        best = chosen.setdefault((setting, dataset), rows)
        if _rank(rows) > _rank(best):
            chosen[setting, dataset] = rows
    return [one for rows in chosen.values() for one in rows]


def _rank(rows: Sequence[Comparison]) -> tuple[int, bool]:
    return sum(len(one.differences) for one in rows), rows[0].key.profile == "paper"


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
            sentences=["Measure: python benchmarks/stream.py --record bench/stream.json, train.py likewise."],
        )
    is_cheaper = min(ratios) > 1.0
    return Verdict(
        claim="Cheaper?",
        word="yes, at these sizes" if is_cheaper else "in part",
        kind="good" if is_cheaper else "mixed",
        sentences=sentences,
    )


def _word(found: list[Comparison], pools: Sequence[SettingPool]) -> tuple[str, str]:
    counts = count_outcomes(found)
    bad = counts["worse"]
    good = sum(counts[outcome] for outcome in WITHIN) + counts["better"]
    decided = good + bad
    open_rows = len(found) - decided
    if open_rows > decided or not decided:
        return f"not decided yet: {decided} of {len(found)} comparisons are", "open"
    rest = f" ({open_rows} of {len(found)} open)" if open_rows else ""
    losses = [short_title_of(one.setting) for one in pools if one.outcome == "worse"]
    if losses:
        rest += f"; on the whole worse in {' and '.join(losses)}"
    if bad == 0 and not losses:
        all_decided = "the one decided comparison" if decided == 1 else f"all {decided} decided comparisons"
        return f"yes, in {all_decided}{rest}", "good"
    if good / decided >= MOSTLY and not losses:
        return f"mostly: in {good} of {decided} decided comparisons{rest}", "good"
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


def _waiting(results: Results) -> list[str]:
    """Say how many rows were run by an earlier protocol alone."""
    counts = {
        setting: sum(
            row.key.variant == f"protocol={row.key.protocol}" and row.runs.keys() >= set(PAIR)
            for row in results.select(setting)
        )
        for setting in results.settings()
    }
    words = [f"{short_title_of(setting)} {count}" for setting, count in counts.items() if count]
    return [f"Rows of an earlier protocol that count for nothing here: {', '.join(words)}."] if words else []


def _counts(found: list[Comparison]) -> list[str]:
    counts = count_outcomes(found)
    tested = len(found) - counts["untested"]
    sentences = []
    if tested:
        within = sum(counts[outcome] for outcome in WITHIN)
        sentences.append(
            f"Of {tested} comparisons with an interval, Aaren is within the margin in {within} (of them "
            f"better in {counts['better_within']}, worse in {counts['worse_within']}), better by more in "
            f"{counts['better']}, worse in {counts['worse']}; {counts['undecided']} open."
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
