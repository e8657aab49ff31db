"""What settings, models and numbers are called in a report, which way is better, and how digits are shown.

A setting that is not installed is called by the name in its record; it is never imported.
"""

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from aaren.datasets.catalogue import DATASETS, EXTRAS
from aaren.datasets.settings import BUILT_IN
from aaren.engine.setting import Setting, find_setting
from aaren.errors import ConfigError
from aaren.lab import published

PAIR = ("aaren", "transformer")
GAP = "\u2013"  # stands where there is no number
# In the order of the report.
PROFILES = MappingProxyType(
    {
        "paper": "the published hyper-parameters",
        "cpu": "the same protocol, smaller or shorter, minutes on one core: levels are not the paper's",
        "smoke": "a smoke test of seconds: nothing can be concluded from it",
        "custom": "runs from configs of their own",
    }
)


class _NotInstalled(Setting[Any, Any]):
    """A setting that a record names and that is not installed: shown by its name and the defaults."""

    reports = ()
    config_type = make_experiment = cell = None  # type: ignore[assignment]  # nothing of it can be run

    def __init__(self, name: str) -> None:
        self.name = name


def setting_of(name: str) -> Setting[Any, Any]:
    """Return a setting that is installed or imported already; of any other, the defaults."""
    try:
        found: object = find_setting(name)
    except ConfigError:
        found = None
    return found if isinstance(found, Setting) else _NotInstalled(name)


def title_of(setting: str) -> str:
    """Return what a setting is called in a heading.

    >>> title_of("events"), title_of("no.such.module")
    ('Event forecasting', 'no.such.module')
    """
    return setting_of(setting).title or setting


def short_title_of(setting: str) -> str:
    """Return what a setting is called in a menu or a table."""
    return setting_of(setting).short_title or title_of(setting)


def notes_of(setting: str, *, cautions_only: bool = False) -> list[str]:
    """Return what is said above a setting's tables; the cautions stand wherever its numbers do."""
    found = setting_of(setting)
    notes = [found.report_caution] if cautions_only else [found.report_note, found.report_caution]
    return [note for note in notes if note]


def model_label(model: str) -> str:
    """Return the display name of a model.

    >>> model_label("transformer"), model_label("dtw"), model_label("mine")
    ('Transformer', '1-NN DTW', 'mine')
    """
    return _labels().get(model, model)


@cache
def _labels() -> dict[str, str]:
    settings = [find_setting(name) for name in BUILT_IN]
    own = {model: label for setting in settings for model, label in setting.model_labels.items()}
    return {"aaren": "Aaren", "transformer": "Transformer", **own}


def stand_in_note(setting: str, dataset: str) -> str:
    """Say what the data of a row is, where it stands for a dataset of the paper; empty where it does not."""
    return setting_of(setting).stand_in_note.format(papers_name(dataset)) if is_stand_in(dataset) else ""


def other_data_reason(setting: str, dataset: str) -> str:
    """Say why published numbers cannot stand beside a row that stands for one of theirs; empty: they can."""
    return setting_of(setting).stand_in_reason.format(papers_name(dataset)) if is_stand_in(dataset) else ""


def stand_in_origin(setting: str, dataset: str) -> str:
    """Say what the published numbers beside a row are of, where its data was made in place of theirs."""
    return setting_of(setting).stand_in_origin if is_stand_in(dataset) else ""


def is_ours(model: str) -> bool:
    """Tell Aaren in any form and the Transformer from the baselines that they should beat."""
    return model in PAIR or model.startswith(("aaren", "streaming"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One of the numbers that a setting is judged by."""

    report: str  # its place in a record: "test.mse"
    label: str
    is_lower_better: bool
    scale: float = 1.0  # what it is multiplied by for display: accuracies become percent
    unit: str = ""  # of differences
    decimals: int = 3

    @property
    def name(self) -> str:
        """Return its bare name, as the published cells have it."""
        return self.report.rpartition(".")[2]

    def show(self, value: float | None, *, signed: bool = False) -> str:
        """Write a number for display.

        >>> Metric(report="test.accuracy", label="", is_lower_better=False, scale=100.0, decimals=2).show(0.5)
        '50.00'
        """
        if value is None or value != value:
            return GAP
        number = value * self.scale
        decimals = self.decimals if abs(number) < 1_000 else 0
        text = f"{number:+,.{decimals}f}" if signed else f"{number:,.{decimals}f}"
        return text.replace("-", "\u2212")


_KNOWN = {
    "mse": ("MSE", True, 1.0, "", 3),
    "mae": ("MAE", True, 1.0, "", 3),
    "nll": ("NLL", True, 1.0, "nats", 3),
    "rmse": ("RMSE", True, 1.0, "", 3),
    "accuracy": ("accuracy, %", False, 100.0, "points", 2),
    "score": ("score", False, 1.0, "points", 1),
    "return": ("return", False, 1.0, "", 1),
    "gap_to_truth": ("nats per event above the true process", True, 1.0, "", 3),
}
_GROUPS = {"test": "", "best": ", best evaluation", "last": ", last evaluation"}


def metric(report: str, *, is_higher_better: bool = False) -> Metric:
    """Describe a number by its place in a record; of one of a user's own, the record says what is better.

    >>> metric("best.score").label, metric("test.mse").is_lower_better
    ('score, best evaluation', True)
    """
    group, _, name = report.rpartition(".")
    known = (
        _KNOWN.get(name) or _KNOWN.get(name.rpartition("_")[2]) or (name, not is_higher_better, 1.0, "", 3)
    )
    label, is_lower_better, scale, unit, decimals = known
    if report == "test.score":
        label = "score, fresh episodes"
    return Metric(
        report=report,
        label=label + _GROUPS.get(group, f", {group}"),
        is_lower_better=is_lower_better,
        scale=scale,
        unit=unit,
        decimals=decimals,
    )


def half_digit(metric_name: str) -> float:
    """Return half of the last digit that the paper prints of a number, in our unit: two decimals.

    >>> half_digit("mse"), half_digit("accuracy")
    (0.005, 5e-05)
    """
    units = dict(published.METRICS.values())
    return round(0.005 * units.get(metric_name, 1.0), 8)


_STAND_INS = {row.name: row.stands_for for row in EXTRAS if row.stands_for}
_PAPERS = frozenset(row.name for row in DATASETS)
_DATASETS = _PAPERS | {row.name for row in EXTRAS}


def papers_name(dataset: str) -> str:
    """Return the dataset of the paper that ours is, or stands for; empty for what the paper does not have.

    >>> papers_name("ETTh1"), papers_name("mooc-partial"), papers_name("hawkes")
    ('ETTh1', 'mooc', '')
    """
    return dataset if dataset in _PAPERS else _STAND_INS.get(dataset, "")


def is_known(dataset: str) -> bool:
    """Tell whether a dataset is in the catalogue; a user's own file is not."""
    return dataset in _DATASETS


def is_stand_in(dataset: str) -> bool:
    """Tell whether a dataset is a part, a sample or a remake of one of the paper's."""
    return dataset in _STAND_INS
