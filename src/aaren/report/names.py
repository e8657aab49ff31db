"""What numbers and models are called in a report, which way is better, and how many digits are shown.

Which dataset of the paper one of ours is, or stands for.
"""

from dataclasses import dataclass

from aaren.datasets.catalogue import DATASETS, EXTRAS
from aaren.lab import published

SETTINGS = {
    "forecasting": "Time-series forecasting",
    "classification": "Time-series classification",
    "events": "Event forecasting",
    "rl": "Reinforcement learning",
}
SHORT = {"forecasting": "Forecasting", "classification": "Classification", "events": "Events", "rl": "RL"}
PROFILES = ("paper", "cpu", "smoke", "custom")
PROFILE_WORDS = {
    "paper": "the published hyper-parameters",
    "cpu": "the same protocol, smaller or shorter, minutes on one core: levels are not the paper's",
    "smoke": "seconds, to see that everything turns: nothing can be concluded from it",
    "custom": "runs from configs of their own",
}
MODELS = {
    "aaren": "Aaren",
    "transformer": "Transformer",
    "linear": "linear",
    "naive-last": "last value",
    "naive-seasonal": "last season",
    "streaming": "Aaren, streaming",
    "streaming-carried": "Aaren, streaming, carried",
    "majority": "majority class",
    "dtw": "1-NN DTW",
    "minirocket": "MiniRocket",
    "poisson": "Poisson",
    "renewal": "renewal",
    "gru": "GRU",
    "aaren-decay": "Aaren, decay",
    "bc": "cloning, Aaren",
    "bc-transformer": "cloning, Transformer",
    "behaviour": "the data's own",
    "random": "random actions",
}
PAIR = ("aaren", "transformer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One of the numbers that a setting is judged by."""

    report: str  # its place in a record: "test.mse"
    label: str
    is_lower_better: bool
    scale: float = 1.0  # what it is multiplied by for people: accuracies become percent
    unit: str = ""  # of differences
    decimals: int = 3

    @property
    def name(self) -> str:
        """Return its bare name, as the published cells have it."""
        return self.report.rpartition(".")[2]

    def show(self, value: float | None, *, signed: bool = False) -> str:
        """Write a number for people.

        >>> Metric(report="test.accuracy", label="", is_lower_better=False, scale=100.0, decimals=2).show(0.5)
        '50.00'
        """
        if value is None or value != value:
            return "–"
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


def model_label(model: str) -> str:
    """Return what a model is called for people."""
    return MODELS.get(model, model)


# Generated event processes alone: how far a model is from the law that made the data.
TRUTH = Metric(
    report="test.gap_to_truth",
    label="nats per event above the true process",
    is_lower_better=True,
    decimals=3,
)


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
    """Tell whether a dataset is in the registry; a user's own file is not."""
    return dataset in _DATASETS


def is_stand_in(dataset: str) -> bool:
    """Tell whether a dataset is a part, a sample or a remake of one of the paper's."""
    return dataset in _STAND_INS
