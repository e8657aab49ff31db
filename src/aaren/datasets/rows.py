"""How an entry of the catalogue is written for each kind of source, so that the table itself stays short."""

from aaren.datasets.dataset import MEGABYTE, Dataset, Fact

_ETT = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/"
_TSLIB = "https://huggingface.co/datasets/thuml/Time-Series-Library/resolve/main/"
_UEA = "https://timeseriesclassification.com/"
_FOLDS = "https://raw.githubusercontent.com/dunan/NeuralPointProcess/master/data/real/"
_D4RL = "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/"

# name: state size, action size, transitions of medium, medium-replay, medium-expert
ROBOTS = {
    "halfcheetah": (17, 6, 1_000_000, 202_000, 2_000_000),
    "hopper": (11, 3, 1_000_000, 402_000, 2_000_000),
    "walker2d": (17, 6, 1_000_000, 302_000, 2_000_000),
    "ant": (111, 8, 1_000_000, 302_000, 2_000_000),
}
_ENVIRONMENTS = {
    "halfcheetah": "HalfCheetah-v4",
    "hopper": "Hopper-v4",
    "walker2d": "Walker2d-v4",
    "ant": "Ant-v4",
}
QUALITIES = ("medium", "medium-replay", "medium-expert")


def ett_row(name: str, rows_per_hour: int, digest: str) -> Dataset:
    """Describe an electricity-transformer file: 12, 4 and 4 months of 30 days; later rows are unused."""
    month = 30 * 24 * rows_per_hour
    rows = {"rows": 17_420 * rows_per_hour, "train": 12 * month, "validation": 4 * month, "test": 4 * month}
    return Dataset(
        name=name,
        setting="forecasting",
        files=(f"{name}.csv",),
        facts={**rows, "series": 7},
        licence="CC BY-ND 4.0",
        source="https://github.com/zhouhaoyi/ETDataset",
        urls=(f"{_ETT}{name}.csv",),
        sha256={f"{name}.csv": digest},
        limit_bytes=50 * MEGABYTE,
        options={"split": "months", "rows_per_hour": rows_per_hour},
    )


def csv_row(name: str, path: str, rows: int, series: int, digest: str) -> Dataset:
    """Describe a file of the Time-Series-Library collection: 70 % train, 20 % test, the rest validation."""
    file = path.rpartition("/")[2]
    train, test = int(0.7 * rows), int(0.2 * rows)
    facts = {"rows": rows, "series": series, "train": train, "validation": rows - train - test, "test": test}
    return Dataset(
        name=name,
        setting="forecasting",
        files=(file,),
        facts=facts,
        licence="none stated",
        urls=(_TSLIB + path,),
        source="https://huggingface.co/datasets/thuml/Time-Series-Library",
        sha256={file: digest},
        options={"split": "ratio"},
    )


def ts_row(
    name: str,
    sizes: tuple[int, int, int, int, int],
    licence: str,
    *,
    seen: bool = True,
    digests: tuple[str, ...] = (),
) -> Dataset:
    """Describe a set of the UEA archive: train, test, channels, longest series, classes.

    The digests are of the copies that our numbers were made with; the archive has others of the same values.
    """
    facts = dict(zip(("train", "test", "channels", "length", "classes"), sizes, strict=True))
    return Dataset(
        name=name,
        setting="classification",
        files=(f"{name}_TRAIN.ts", f"{name}_TEST.ts"),
        facts=facts,
        licence=licence,
        source=f"{_UEA}description.php?Dataset={name}",
        urls=(f"{_UEA}aeon-toolkit/{name}.zip",),
        convert="zip",
        sha256=dict(zip((f"{name}_TRAIN.ts", f"{name}_TEST.ts"), digests, strict=False)),
        uncertain=() if seen else tuple(facts),
    )


def event_row(name: str, file: str, facts: dict[str, Fact], licence: str, source: str) -> Dataset:
    """Describe event sequences that are kept as one `.npz` file."""
    return Dataset(name=name, setting="events", files=(file,), facts=facts, licence=licence, source=source)


def fold_texts(folder: str) -> tuple[str, ...]:
    """List the four texts (times, marks; train, test) of the first fold of a set of Du et al. (2016)."""
    return tuple(
        f"{_FOLDS}{folder}/{kind}-1-{part}.txt" for part in ("train", "test") for kind in ("time", "event")
    )


def d4rl_row(robot: str, quality: str) -> Dataset:
    """Describe a locomotion set of D4RL, version 2."""
    state_size, action_size, *transitions = ROBOTS[robot]
    count = transitions[QUALITIES.index(quality)]
    facts = {"state_size": state_size, "action_size": action_size, "transitions": count}
    file = f"{robot}_{quality.replace('-', '_')}-v2.hdf5"
    return Dataset(
        name=f"{robot}-{quality}",
        setting="rl",
        files=(file,),
        facts=facts,
        uncertain=("transitions",),
        licence="CC BY 4.0",
        source="https://github.com/Farama-Foundation/D4RL/wiki/Tasks",
        urls=(_D4RL + file,),
        limit_bytes=2_000 * MEGABYTE,
        options={"environment": _ENVIRONMENTS[robot], "quality": quality},
        remark="D4RL v2; without its server: a stand-in by `benchmarks/rl_data` of the repository",
    )


# Of `python benchmarks/rl_data NAME` with Gymnasium 1.4.0 and MuJoCo 4.0.0 on a processor with AVX2, as in
# the committed records; other versions or processors may round otherwise, and it and `verify` then say so.
_REGENERATED = {
    "halfcheetah-medium": "872cff45bf04000cbbd962b566cdb35a949139c2f51dc488d7c9e292bdfeb2ee",
    "halfcheetah-medium-replay": "7426036d98b3e85a00b69e62a9b9c024738463766fd99e21966cc969d922a0ab",
    "halfcheetah-medium-expert": "7d6739aad82f338957c4a590346a509b622f7d608f9125c383fe661bba79d322",
    "hopper-medium": "7b6a171e336ed2af10c8304855c5a597aa9b990e07a59b71bbe2c887135608e5",
    "hopper-medium-replay": "da1159e3b74ffbcdbb1153a04ad9a1f777bf89861d044e35c254b543b8bc38f2",
    "hopper-medium-expert": "f579ade88773758307a8855c56589deb4d21eab332327e74deafcafc4ad09f02",
    "walker2d-medium": "337d8ad5a409012814c3ad8eaa0e8e797c2ee28557fc45eeeb938925aa84f895",
    "walker2d-medium-replay": "46d2ac9ec990a2a5cdc661393c5db7784fd00d4e6f313ccbe55133686da9aff8",
    "walker2d-medium-expert": "18e17a4b9476620711c20a6dec4ab8007faf3abfe08c9e600e999a71b50032bb",
    "ant-medium": "f6ba52a4edf4fc9e7cb988df025e8eb5d48d30b67fc6589cb656ba02c62c1f50",
    "ant-medium-replay": "f13488e917efecb568a1033b53b8896f36e572758ebbeee0069de7bc76cd7f9b",
    "ant-medium-expert": "70cc7d1aec07dc11f97dac30fad6c25e6a695b0f8dd6859fe4965d8e686a816c",
}


def regenerated_row(original: Dataset) -> Dataset:
    """Describe the stand-in for a D4RL set that `benchmarks/rl_data` rolls out."""
    sizes = {key: original.facts[key] for key in ("state_size", "action_size")}
    if original.name.startswith("ant-"):
        sizes["state_size"] = 27  # of D4RL's 111 the last 84 are zero; Gymnasium's Ant-v4 leaves them out
    return Dataset(
        name=f"{original.name}-regen",
        setting="rl",
        files=(f"{original.name}-regen.npz",),
        facts=sizes,
        sha256={f"{original.name}-regen.npz": _REGENERATED[original.name]},
        stands_for=original.name,
        licence="made here",
        source=f"python benchmarks/rl_data {original.name}",
        options=original.options,
        remark="rolled out from public policies in Gymnasium's MuJoCo environments; not D4RL's data",
    )
