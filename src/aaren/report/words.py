"""What the report says in words: about each setting, and how its statistics are to be read."""

from aaren.report.bolding import check_published

SETTING_WORDS = {
    "forecasting": [
        "96 steps in, the whole horizon out; errors on scaled data, over every test window. ECL is "
        "univariate, as the published script has it."
    ],
    "classification": [
        "Accuracy on TEST. As published, TEST also chooses the epoch (rule protocol): that flatters both "
        "models. Rows with rule=clean let a held-out part of TRAIN choose and touch TEST once."
    ],
    "events": [
        "After every event: when does the next one come, and of which kind? Log-likelihood and error "
        "depend on the unit of time. The published unit is known for Sin alone, so elsewhere only "
        "accuracies stand beside published ones; differences of log-likelihoods do not depend on the "
        "unit and are tested all the same."
    ],
    "rl": [
        "Offline reinforcement learning in MuJoCo, D4RL's normalised score: 0 is random, 100 an expert. Rows "
        "named -regen are on regenerated data, because D4RL's own could not be had: the published scores "
        "beside them are of another dataset and never mixed with ours. The paper does not say whether it "
        "reports the best evaluation or the last; both are here, and fresh episodes of the selected weights."
    ],
}

NOTHING_AS_PUBLISHED = "Of the paper's rows none was run here as it stands."

HOW_TO_READ = [
    (
        "Seeds.",
        "Every number is a mean over seeds ± sample deviation (ddof 1). One seed has no deviation, and "
        "nothing is tested with it. Profiles are never mixed, and rows with changed keys stand apart.",
    ),
    (
        "Differences.",
        "Both models of a seed see the same data in the same order, so their difference is taken seed by "
        "seed. Brackets are 90 % t intervals of its mean.",
    ),
    (
        "Margin.",
        "The paper prints two models as equals when their intervals mean ± deviation touch, that is when "
        "their means differ by no more than the sum of both deviations. That sum, from the published "
        "table, is the margin; a deviation printed as 0.00 counts as 0.005.",
    ),
    (
        "Judgement.",
        "Within the margin: the 90 % interval lies inside ± margin, which is two one-sided t tests "
        "(TOST) passed at 5 %. Better or worse: it does not, and excludes zero. Undecided: neither; more "
        "seeds would tell.",
    ),
    (
        "Bold.",
        "The paper's own rule, applied to ours: both are bold if their intervals mean ± deviation touch, "
        "else the better one.",
    ),
    (
        "Published numbers.",
        "They stand in columns of their own and enter no mean of ours. At profile paper, a mean of ours "
        "that is more than three published deviations away from the published one says so.",
    ),
]


def published_words() -> list[str]:
    """Say what the same rules give on the published tables."""
    found = check_published()
    words = (
        f"On the {found.pairs} pairs of the published tables the rule of bold type gives {found.both} "
        f"equals, {found.transformer} wins of the Transformer and {found.aaren} of Aaren."
    )
    if found.exceptions:
        words += f" The paper prints otherwise in one place: both bold at {'; '.join(found.exceptions)}."
    tested = (
        "Touching intervals are a weak test. With the same margin, an equivalence test on the published "
        f"means and deviations (five seeds, Welch) passes for {found.equivalent} of the {found.pairs} "
        "pairs."
    )
    return [words, tested]
