"""The overview: every table of a report in one line."""

from aaren.report.gathered import Gathered
from aaren.report.macro import Macro, summarise_table
from aaren.report.names import SHORT
from aaren.report.table import Cell, Column, Table

_GAP = "\u2013"


def macro_table(gathered: Gathered) -> Table:
    """Sum up every table in one line."""
    table = Table(
        name="macro",
        title="Aaren \u2212 Transformer, on average",
        columns=[
            Column(label="table", kind="text"),
            Column(label="number", kind="text"),
            Column(label="pairs"),
            Column(label="over all pairs [90 %]", help="Every dataset, horizon and seed is one observation."),
            Column(label="over datasets [90 %]", help="Every dataset is one observation: the cautious one."),
            Column(label="within"),
            Column(label="better"),
            Column(label="worse"),
            Column(label="undecided"),
            Column(label="untested", help="One seed, or no margin."),
        ],
        notes=[
            "Lower is better for MSE, MAE, NLL and RMSE, higher for accuracy and score. "
            "RMSE is averaged in percent of the Transformer's, because every dataset has its own unit."
        ],
    )
    for setting, profile, variant, macro in macros(gathered):
        name = f"{SHORT.get(setting, setting)}, {profile}"
        pairs = macro.over_pairs
        is_alone = macro.over_datasets.count == 1
        table.add(
            Cell(text=name, key=f"{name} {variant}", note=variant),
            Cell(text=f"{macro.metric.label}, in %" if macro.is_relative else macro.metric.label),
            Cell.of(pairs.count),
            Cell(text=macro.show(pairs), key=pairs.mean),
            Cell(
                text=_GAP if is_alone else macro.show(macro.over_datasets),
                key=None if is_alone else macro.over_datasets.mean,
            ),
            *(
                Cell.of(macro.outcomes.get(outcome, 0))
                for outcome in ("equivalent", "better", "worse", "undecided", "untested")
            ),
        )
    return table


def macros(gathered: Gathered) -> list[tuple[str, str, str, Macro]]:
    """Sum up every setting, profile, variant and number."""
    found = []
    for setting in gathered.settings():
        for profile in gathered.profiles(setting):
            for variant in gathered.variants(setting, profile):
                for number in gathered.metrics(setting):
                    macro = summarise_table(gathered.compare(setting, profile, variant, number))
                    if macro is not None:
                        found.append((setting, profile, variant, macro))
    return found
