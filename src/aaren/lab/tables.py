"""The tables of a report as pandas frames of text, and how they become Markdown and HTML.

A cell in bold stands between two asterisks on either side, as in Markdown.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aaren.engine.record import RunRecord
from aaren.lab.comparison import MARGINS, Comparison, Numbers, compare_rows
from aaren.lab.names import (
    CATALOGUE,
    GAP,
    MINUS,
    PAIR,
    Metric,
    is_ours,
    is_stand_in,
    metric,
    model_label,
    names_of,
    stand_in_note,
)
from aaren.lab.published import PublishedCell
from aaren.lab.records import core_seconds, is_stale
from aaren.lab.rows import Results, Row
from aaren.lab.statistics import Interval, bootstrap_difference

_FAR = 3.0  # published standard deviations from the published mean that are worth a remark
_EPISODE = re.compile(r"return_\d+")
_BOLD = re.compile(r"\*\*(.+?)\*\*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A titled table of finished text."""

    title: str
    frame: pd.DataFrame
    notes: Sequence[str] = field(default_factory=list)  # below it
    is_prose: bool = False  # cells are broken into lines

    def to_markdown(self) -> str:
        """Write it as Markdown: words to the left, numbers to the right; text stays text."""
        rules = ["--:" if self._is_number(name) else ":--" for name in self.frame]
        cells = [[markdown_text(str(cell)) for cell in row] for row in self.frame.itertuples(index=False)]
        lines = [_line(list(map(markdown_text, self.frame))), _line(rules), *map(_line, cells)]
        parts = [f"**{markdown_text(self.title)}**"] if self.title else []
        return "\n\n".join([*parts, "\n".join(lines), *map(markdown_text, self.notes)]) + "\n"

    def to_html(self) -> str:
        """Write it as HTML, every value escaped."""
        with pd.option_context("display.max_colwidth", None):
            text: str = self.frame.to_html(index=False, border=0, classes="prose" * self.is_prose)
        title = f"<h4>{escape(self.title)}</h4>\n" if self.title else ""
        notes = "".join(f"<p class='note'>{escape(note)}</p>\n" for note in self.notes)
        text = _BOLD.sub(r"<b>\1</b>", text)
        return f"{title}<div class='scroll'>{text}</div>\n{notes}"

    def _is_number(self, name: str) -> bool:
        return not {str(cell)[:1] for cell in self.frame[name]} - set(f"0123456789±*+[{GAP}{MINUS}")


def markdown_text(text: str) -> str:
    r"""Write text into Markdown so that it stays text: no HTML, no link, no further column, one line.

    >>> markdown_text("<img src=x> [a](javascript:b)")
    '&lt;img src=x&gt; [a]\\(javascript:b)'
    """
    return escape(" ".join(text.split()), quote=False).replace("](", "]\\(").replace("|", "\\|")


def main_tables(results: Results, setting: str, profile: str) -> list[Table]:
    """Return the paper's table by every number of which something was run at a profile as published."""
    tables = [comparison_table(results, setting, profile, number) for number in results.metrics(setting)]
    return [table for table in tables if table is not None]


def profile_tables(results: Results, setting: str, profile: str) -> list[Table]:
    """Return all tables of a setting at a profile: the paper's, single episodes, variants, baselines."""
    numbers = results.metrics(setting)
    extra = [metric(report) for report in names_of(setting).extra_reports]
    tables = [
        *main_tables(results, setting, profile),
        episodes_table(results, profile) if setting == "rl" else None,
        *(comparison_table(results, setting, profile, number, is_varied=True) for number in numbers),
        *(baseline_table(results, setting, profile, number) for number in (*numbers, *extra)),
    ]
    return [table for table in tables if table is not None]


def comparison_table(
    results: Results, setting: str, profile: str, number: Metric, *, is_varied: bool = False
) -> Table | None:
    """Put both models side by side; with `is_varied` all variants but the published one."""
    variants = [name for name in results.variants(setting, profile) if bool(name) == is_varied]
    rows = [one for name in variants for one in compare_rows(results, setting, profile, name, number)]
    if all(one.is_gap for one in rows):
        return None
    names = names_of(setting)
    is_other = any(is_stand_in(one.key.dataset) for one in rows) and names.stand_in_origin
    paper = f"published on {names.stand_in_origin}" if is_other else "published"
    frame = pd.DataFrame(
        {
            _row_head(rows): [_row_name(one.key.name, setting, one.key.dataset) for one in rows],
            "changed": [one.key.variant for one in rows],
            **{
                model_label(model): [_show_numbers(getattr(one, model), one, place) for one in rows]
                for place, model in enumerate(PAIR)
            },
            "seeds": [_seeds(one) for one in rows],
            f"Aaren {MINUS} Transformer [90 %]": [show_interval(one.difference, number) for one in rows],
            "margin": [f"± {number.show(one.margin)}" if one.margin else GAP for one in rows],
            "judgement": [one.judgement for one in rows],
            **{
                f"{model_label(model)}, {paper}": [_show_published(one, model) for one in rows]
                for model in PAIR
            },
        }
    )
    frame = frame if is_varied else frame.drop(columns="changed")
    if not any(one.published for one in rows):
        frame = frame.iloc[:, :-2]
    title = f"{number.label}: rows with something changed" if is_varied else number.label
    return Table(title=title, frame=frame, notes=_remarks(rows))


def baseline_table(results: Results, setting: str, profile: str, number: Metric) -> Table | None:
    """Show every model of every row, the best in bold."""
    rows = [
        (row, model_means(row, number))
        for row in results.select(setting, profile)
        if row.runs.keys() - set(PAIR) and row.is_judged_by(number.report)
    ]
    rows = [(row, means) for row, means in rows if means]
    if not rows:
        return None
    others = {model for row, _ in rows for model in row.runs} - set(PAIR)

    def show(means: Mapping[str, float], model: str) -> str:
        text = number.show(means.get(model))
        return f"**{text}**" if model == _best(means, number) else text

    def judge(means: Mapping[str, float]) -> str:
        return model_label(_best(means, number)) + ": both lose to it" * is_beaten(means, number)

    frame = pd.DataFrame(
        {
            _row_head(row for row, _ in rows): [
                _row_name(row.key.name, setting, row.key.dataset) for row, _ in rows
            ],
            "changed": [row.key.variant for row, _ in rows],
            **{
                model_label(model): [show(means, model) for _, means in rows]
                for model in (*PAIR, *sorted(others, key=model_label))
            },
            "best": [judge(means) for _, means in rows],
        }
    )
    frame = frame if any(row.key.variant for row, _ in rows) else frame.drop(columns="changed")
    return Table(title=f"{number.label}: beside simple references", frame=frame)


def model_means(row: Row, number: Metric) -> dict[str, float]:
    """Return the mean of every model that has a number in a row."""
    values = {model: list(row.values(model, number.report).values()) for model in sorted(row.runs)}
    return {model: sum(listed) / len(listed) for model, listed in values.items() if listed}


def is_beaten(means: Mapping[str, float], number: Metric) -> bool:
    """Tell whether something simpler is ahead of both models."""
    return means.keys() >= set(PAIR) and not is_ours(_best(means, number))


def episodes_table(results: Results, profile: str) -> Table | None:
    """Compare policies by single episodes: a bootstrap over seeds and, within each, over episodes."""
    lines = []
    for row in results.select("rl", profile):
        ours, theirs = (_episodes(row, model) for model in PAIR)
        lead = bootstrap_difference(ours, theirs)
        if lead is not None:
            counts = (str(len(ours)), str(sum(map(len, ours.values()))))
            lines.append((row.key.name, row.key.variant, *counts, show_interval(lead, metric("test.score"))))
    heads = ["dataset", "changed", "seeds", "episodes", f"Aaren {MINUS} Transformer [90 %]"]
    note = "With one seed the interval does not include how much seeds differ: it is of these weights alone."
    frame = pd.DataFrame(lines, columns=heads)
    title = "Score of fresh episodes, bootstrap over seeds and episodes"
    return Table(title=title, frame=frame, notes=[note]) if lines else None


def _episodes(row: Row, model: str) -> dict[int, NDArray[np.float64]]:
    """Return the normalised scores of the single episodes of a model's runs, by seed."""
    from aaren.rl.environments import REFERENCE_RETURNS, normalised_score

    environment = str(row.facts.get("environment", ""))
    if environment.lower().partition("-")[0] not in REFERENCE_RETURNS:
        return {}
    scores = {
        seed: [
            normalised_score(environment, float(value))
            for name, value in run.metrics.get("test", {}).items()
            if _EPISODE.fullmatch(name) and value is not None
        ]
        for seed, run in row.by_seed(model)
    }
    return {seed: np.array(values) for seed, values in scores.items() if values}


def margin_table() -> Table:
    """Show the margins with their reasons."""
    return Table(title="", frame=pd.DataFrame(MARGINS, columns=["number", "margin", "reason"]), is_prose=True)


def runs_table(results: Results, setting: str) -> Table:
    """List every run of a setting with the command that repeats it."""
    lines = []
    for row in results.select(setting):
        for model in sorted(row.runs):
            for seed, record in row.by_seed(model):
                number = metric(next(iter(record.reports), ""))
                lines.append(
                    {
                        "dataset": ", ".join(filter(None, (row.key.name, row.key.variant))),
                        "model": model_label(model),
                        "profile": record.profile,
                        "seed": seed,
                        "number": number.show(row.values(model, number.report).get(seed)),
                        "epochs": f"{record.epochs:g}",
                        "ended by": record.ended_by.replace("_", " "),
                        "minutes": f"{core_seconds(record) / 60.0:.1f}",
                        "parameters": f"{record.parameters:,}",
                        "code": "stale" if is_stale(record, results.identities) else "today's",
                        "command": record.command,
                    }
                )
    return Table(title="", frame=pd.DataFrame(lines))


def work_table(results: Results) -> Table:
    """Say how many runs of each setting and profile there are and how long they took together."""
    frame = pd.DataFrame(
        [
            (names_of(row.key.setting).title, row.key.profile, row.key.dataset, seed, core_seconds(record))
            for row in results.rows
            for by_seed in row.runs.values()
            for seed, record in by_seed.items()
        ],
        columns=["setting", "profile", "dataset", "seed", "seconds"],
    )
    frame["stale"] = [is_stale(record, results.identities) for record in _records(results)]
    groups = frame.groupby(["setting", "profile"], sort=False)
    table = pd.DataFrame(
        {
            "runs": groups.size(),
            "of them stale": groups["stale"].sum(),
            "datasets": groups["dataset"].nunique(),
            "hours in all": (groups["seconds"].sum() / 3600.0).map("{:.2f}".format),
            "longest, minutes": (groups["seconds"].max() / 60.0).map("{:.1f}".format),
        }
    )
    notes = [
        "Times are CPU seconds of the run, without its test; of older records they are wall time.",
        "A run is stale where today's code computes other numbers, or where that is not known.",
    ]
    return Table(title="", frame=table.reset_index(), notes=notes)


def data_table(results: Results) -> Table:
    """List every data file that a run read, with its checksum."""
    files = pd.Series([item for record in _records(results) for item in record.data.items()], dtype=object)
    counts = files.value_counts()
    lines = sorted((name, digest, str(counts[name, digest])) for name, digest in counts.index)
    notes = ["Generated datasets need no file: their seed is in the code."]
    frame = pd.DataFrame(lines, columns=["file", "sha256 of its content", "runs"])
    return Table(title="Data files", frame=frame, notes=notes)


def machine_table(results: Results) -> Table:
    """List the machines and versions that runs were made on."""
    frame = pd.DataFrame(
        {
            "processor": str(record.machine.get("cpu")),
            "cores": str(record.machine.get("cores")),
            "versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
            "date": record.date[:10],
        }
        for record in _records(results)
    )
    groups = frame.groupby(["processor", "cores", "versions"], sort=False)["date"]
    table = groups.agg(runs="size", first="min", last="max").reset_index()
    return Table(title="Machines and versions", frame=table)


def show_interval(one: Interval | None, number: Metric) -> str:
    """Write a difference with its interval, if it has one."""
    if one is None:
        return GAP
    mean, low, high = (number.show(value, sign="+") for value in (one.mean, one.low, one.high))
    return mean if one.low is None else f"{mean} [{low}, {high}]"


def _show_numbers(numbers: Numbers | None, one: Comparison, place: int) -> str:
    """Write mean ± standard deviation, or the one number there is, bold by the paper's rule."""
    if numbers is None:
        return GAP
    text = one.metric.show(numbers.mean)
    if numbers.deviation is not None:
        text += f" ± {one.metric.show(numbers.deviation)}"
    return f"**{text}**" if one.bold[place] else text


def _seeds(one: Comparison) -> str:
    counts = [str(0 if numbers is None else numbers.count) for numbers in (one.aaren, one.transformer)]
    return GAP if one.is_gap else " / ".join(dict.fromkeys(counts))


def _show_published(one: Comparison, model: str) -> str:
    cell = one.published.get(model)
    if cell is None:
        return GAP
    off = one.deviations_off(model)
    is_same = one.key.profile == "paper" and not is_stand_in(one.key.dataset)
    text = describe(cell)
    if is_same and off is not None and abs(off) > _FAR:
        text += f" (ours {off:+.1f} standard deviations off)".replace("-", MINUS)
    return text


def describe(cell: PublishedCell) -> str:
    """Write a published cell as the paper does."""
    scale = metric(cell.metric).scale
    return f"{cell.mean * scale:.2f} ± {cell.std * scale:.2f}"


def _row_name(name: str, setting: str, dataset: str) -> str:
    note = stand_in_note(setting, dataset)
    return f"{name} ({note})" if note else name


def _row_head(rows: Iterable[Comparison | Row]) -> str:
    return "dataset, horizon" if any(row.key.horizon is not None for row in rows) else "dataset"


def _remarks(rows: Sequence[Comparison]) -> list[str]:
    """Say once what the data is where it is not the paper's, and why nothing published stands beside it."""
    run = [one for one in rows if not one.is_gap]
    remarks: list[str] = []
    for name, setting in dict.fromkeys((one.key.dataset, one.key.setting) for one in run):
        dataset = CATALOGUE.get(name)
        if dataset is not None and dataset.remark and (dataset.is_generated or dataset.stands_for):
            remarks.append(names_of(setting).stand_in_remark or f"{name}: {dataset.remark}.")
    reasons: dict[str, list[str]] = {}
    for one in run:
        if not one.published and one.remark:
            reasons.setdefault(one.remark, []).append(one.key.name)
    remarks += [
        f"Nothing published beside {', '.join(dict.fromkeys(names))}: {reason}."
        for reason, names in reasons.items()
    ]
    return list(dict.fromkeys(remarks))


def _best(means: Mapping[str, float], number: Metric) -> str:
    return max(means, key=lambda model: number.direction * means[model])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _records(results: Results) -> Iterable[RunRecord]:
    return (record for row in results.rows for record in row.records)
