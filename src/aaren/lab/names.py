"""What the report calls settings, models, data and numbers, and which runs it counts.

A setting that is not in `SETTINGS` is called by its name in the record; it is never imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from aaren.datasets.catalogue import DATASETS, EXTRAS
from aaren.engine.record import RunRecord
from aaren.lab import published

PAIR = ("aaren", "transformer")
GAP = "\u2013"  # stands where there is no number
MINUS = "\u2212"
# In the order of the report.
PROFILES = MappingProxyType(
    {
        "paper": "the published hyper-parameters",
        "cpu": "the same protocol, smaller or shorter, minutes on one core: levels are not the paper's",
        "smoke": "a smoke test of seconds: nothing can be concluded from it",
        "custom": "runs from configs of their own",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingNames:
    """What the report says of a setting."""

    title: str
    short_title: str
    note: str = ""  # above its tables
    baselines: tuple[str, ...] = ()  # whose best number the gain of the Transformer is measured from
    usual_cell: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # values that make no variant
    cell_keys: Mapping[str, str] = field(default_factory=dict)  # name in a cell -> key of the config
    model_suffixes: Mapping[str, str] = field(default_factory=dict)  # "-causal" -> words of a variant
    stand_in_note: str = "stands for {}"  # beside a dataset that stands for one of the paper's
    stand_in_reason: str = ""  # why published numbers cannot stand beside such a dataset; empty: they can
    stand_in_origin: str = ""  # what published numbers beside such a dataset are of
    stand_in_remark: str = ""  # below tables, instead of what the catalogue says of each dataset
    extra_reports: tuple[str, ...] = ()  # further numbers of the tables of baselines
    only_without: Mapping[str, str] = field(default_factory=dict)  # report -> the one shown instead of it


SETTINGS = MappingProxyType(
    {
        "forecasting": SettingNames(
            title="Time-series forecasting",
            short_title="Forecasting",
            note="96 steps in, the whole horizon out; errors on scaled data, over every test window. ECL is "
            "univariate, as in the published script. At profile paper, seed 0 of ETTh1-96 and Exchange-96 is "
            "of 2026-11-16, before the list of cells was written.",
            stand_in_reason="not the series of the paper's {}",
        ),
        "classification": SettingNames(
            title="Time-series classification",
            short_title="Classification",
            note="Accuracy on TEST. As published, TEST also chooses the epoch (rule protocol), which "
            "flatters both models. Rows with rule=clean choose the epoch on a part of TRAIN and use TEST "
            "once. Adam and RAdam have rows of their own: Adam comes nearer to the published means, so the "
            "verdict counts it. The first margins date from 2026-11-17; 42 of the 48 RAdam runs are of "
            "2026-11-16, the day before. Seeds 5 to 9 with Adam were fixed on 2026-11-19, before the first "
            "of them was run. The verdict counts them for a dataset once all five pairs exist, and seeds 0 "
            "to 4 until then.",
            usual_cell={"rule": ("protocol",), "recipe": ("radam-halving", "adam-halving")},
            model_suffixes={"-causal": "embedding=causal"},
            stand_in_note="{}, held-out part of TRAIN",
            stand_in_reason="tested on a held-out part of TRAIN, the published {} on TEST",
        ),
        "events": SettingNames(
            title="Event forecasting",
            short_title="Events",
            note="After every event: when does the next one come, and of which kind? Log-likelihood and "
            "error depend on the unit of time. The published unit is known for Sin and probable for MIMIC; "
            "elsewhere only accuracies stand beside published ones. Differences of log-likelihoods do not "
            "depend on the unit.",
            baselines=("poisson", "renewal", "markov"),
            cell_keys={"rule": "censoring"},
            extra_reports=("test.gap_to_truth",),
        ),
        "rl": SettingNames(
            title="Reinforcement learning",
            short_title="RL",
            note="Offline reinforcement learning in MuJoCo, D4RL's normalised score: 0 is random, 100 an "
            "expert. D4RL's own data is unavailable: rows named -regen are on regenerated data, and the "
            "published scores beside them are of D4RL. The first number is of fresh episodes with the "
            "weights of the best evaluation; the paper does not say whether it reports the best evaluation "
            "or the last, so both follow. HalfCheetah-medium-expert is counted without seed 0, on which its "
            "settings were chosen.",
            stand_in_note="regenerated data",
            stand_in_origin="D4RL",
            stand_in_remark="Regenerated data: rolled out from public policies in MuJoCo -v4; it is not "
            "D4RL's.",
            # A return has a unit of its own in every environment: only where there is no score.
            only_without={"test.return": "best.score"},
        ),
    }
)
MODELS = MappingProxyType(
    {
        "aaren": "Aaren",
        "transformer": "Transformer",
        "aaren-decay": "Aaren, decay",
        "streaming": "Aaren, streaming",
        "streaming-carried": "Aaren, streaming, carried",
        "aaren-features": "Aaren over random convolutions",
        "linear-336": "linear, 336 rows",
        "lagged-base": "lags alone, linear",
        "naive-last": "last value",
        "naive-seasonal": "last season",
        "majority": "majority class",
        "dtw": "1-NN DTW",
        "minirocket": "MiniRocket",
        "poisson": "Poisson",
        "markov": "Markov",
        "gru": "GRU",
        "behaviour": "the data's own",
        "random": "random actions",
    }
)
CATALOGUE = MappingProxyType({row.name: row for row in (*DATASETS, *EXTRAS)})
_STAND_INS = {row.name: row.stands_for for row in EXTRAS if row.stands_for}
_PAPERS = frozenset(row.name for row in DATASETS)
NEW_SEEDS = range(5, 10)  # of classification with Adam; results/plan.md
ADAM, EARLIER_ADAM, RADAM = "Adam, seeds 5 to 9", "Adam, seeds 0 to 4", "RAdam"
TUNED = "seed 0, used for tuning"
GROUPS = (ADAM, EARLIER_ADAM, RADAM, "", TUNED)  # of runs of one cell, in the order of the report


def names_of(setting: str) -> SettingNames:
    """Return what the report says of a setting; of an unknown one little more than its name.

    >>> names_of("events").title, names_of("no.such.module").title
    ('Event forecasting', 'no.such.module')
    """
    return SETTINGS.get(setting) or SettingNames(title=setting, short_title=setting)


def model_label(model: str) -> str:
    """Return the display name of a model.

    >>> model_label("transformer"), model_label("dtw"), model_label("mine")
    ('Transformer', '1-NN DTW', 'mine')
    """
    return MODELS.get(model, model)


def group_of(record: RunRecord) -> str:
    """Return which group of runs of its cell a run belongs to; groups have rows of their own."""
    recipe = record.cell.get("recipe")
    if record.setting == "classification" and recipe == "adam-halving":
        return ADAM if record.seed in NEW_SEEDS else EARLIER_ADAM
    if record.setting == "classification" and recipe == "radam-halving":
        return RADAM
    is_tuned = record.cell.get("dataset") == "halfcheetah-medium-expert-regen" and record.profile == "cpu"
    return TUNED if is_tuned and record.seed == 0 and str(record.cell.get("model")) in PAIR else ""


def is_ours(model: str) -> bool:
    """Tell Aaren in any form and the Transformer from the baselines that they should beat."""
    return model in PAIR or model.startswith(("aaren", "streaming"))


def papers_name(dataset: str) -> str:
    """Return the dataset of the paper that ours is, or stands for; empty for what the paper does not have.

    >>> papers_name("ETTh1"), papers_name("mooc-partial"), papers_name("hawkes")
    ('ETTh1', 'mooc', '')
    """
    return dataset if dataset in _PAPERS else _STAND_INS.get(dataset, "")


def is_stand_in(dataset: str) -> bool:
    """Tell whether a dataset is a part, a sample or a remake of one of the paper's."""
    return dataset in _STAND_INS


def stand_in_note(setting: str, dataset: str) -> str:
    """Say what the data of a row is, where it stands for a dataset of the paper."""
    return names_of(setting).stand_in_note.format(papers_name(dataset)) if is_stand_in(dataset) else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One of the numbers that a setting is judged by."""

    report: str  # its place in a record: "test.mse"
    label: str
    is_lower_better: bool
    scale: float = 1.0  # what it is multiplied by for display: accuracies become percent
    decimals: int = 3

    @property
    def name(self) -> str:
        """Return its bare name, as the published cells have it."""
        return self.report.rpartition(".")[2]

    @property
    def direction(self) -> float:
        """Return what turns a difference into an advantage."""
        return -1.0 if self.is_lower_better else 1.0

    def show(self, value: float | None, *, sign: str = "") -> str:
        """Write a number for display; with sign "+" also in front of positive ones.

        >>> Metric(report="test.accuracy", label="", is_lower_better=False, scale=100.0, decimals=2).show(0.5)
        '50.00'
        """
        if value is None or value != value:
            return GAP
        number = value * self.scale
        decimals = self.decimals if abs(number) < 1_000 else 0
        return f"{number:{sign},.{decimals}f}".replace("-", MINUS)


_KNOWN: Mapping[str, tuple[str, bool, float, int]] = {
    "mse": ("MSE", True, 1.0, 3),
    "mae": ("MAE", True, 1.0, 3),
    "nll": ("NLL", True, 1.0, 3),
    "rmse": ("RMSE", True, 1.0, 3),
    "accuracy": ("accuracy, %", False, 100.0, 2),
    "score": ("score", False, 1.0, 1),
    "return": ("return", False, 1.0, 1),
    "gap_to_truth": ("nats per event above the true process", True, 1.0, 3),
}
_PARTS = {"test": "", "best": ", best evaluation", "last": ", last evaluation"}


def metric(report: str, *, is_higher_better: bool = False) -> Metric:
    """Describe a number by its place in a record; of a user's own, the record says what is better.

    >>> metric("best.score").label, metric("test.mse").is_lower_better
    ('score, best evaluation', True)
    """
    part, _, name = report.rpartition(".")
    known = _KNOWN.get(name) or _KNOWN.get(name.rpartition("_")[2]) or (name, not is_higher_better, 1.0, 3)
    label, is_lower_better, scale, decimals = known
    label += ", fresh episodes" if report == "test.score" else _PARTS.get(part, f", {part}")
    return Metric(report=report, label=label, is_lower_better=is_lower_better, scale=scale, decimals=decimals)


def half_digit(metric_name: str) -> float:
    """Return half of the last digit that the paper prints of a number, in our unit: two decimals.

    >>> half_digit("mse"), half_digit("accuracy")
    (0.005, 5e-05)
    """
    units = dict(published.METRICS.values())
    return round(0.005 * units.get(metric_name, 1.0), 8)
