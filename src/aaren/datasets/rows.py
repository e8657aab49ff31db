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
        remark="D4RL v2; where its server cannot be reached, `aaren data make rl` makes a stand-in",
    )


# Of `aaren data make rl NAME` with Gymnasium 1.4.0 and MuJoCo 4.0.0, on two machines; other versions or
# processors may round otherwise, and `aaren data verify` then remarks that these are other bytes.
_REGENERATED = {
    "halfcheetah-medium": "7df47a694c128bad1602058d090e331b2782f7fe325e9b98fac7d0fdb7c57379",
    "halfcheetah-medium-replay": "000284caf6ccc8072f75be34886e4c9f1b5c7751dbfd4a99604e50073d8a2dc5",
    "halfcheetah-medium-expert": "cd8fa5d77b50c970f5dcff6cccec9d36df145a3e7c9e802abf5972cbbf34822e",
    "hopper-medium": "8461b2c0e1e3c6b48fbf8b1ce0e1e70e22b937ba198abb14982d2beeba9473da",
    "hopper-medium-replay": "a43b21b9e1168ee09f7e2b3f32fea8176ec4242c7f3e168478cea313b80d1c98",
    "hopper-medium-expert": "8d7cb7703d065988465cb1c4add811f3e5badd36af94b6bc8c78a582e6fa2962",
    "walker2d-medium": "fe5fa63312f09da556600d1904264d390fe01c39f3fde7aa8704b1bfdfde2fb2",
    "walker2d-medium-replay": "25e5d3b15848634b50e8b1bf2ef8d240c79e11d2066c0caf92895076479a1c4b",
    "walker2d-medium-expert": "1e696ca3a3f95a22a16489de8b75708b4cf35ed216e5b6f893a6a068527671ee",
    "ant-medium": "a7192310ac647341f49561db7d0e72c2b5054023f9390156158c8149a2d1948f",
    "ant-medium-replay": "592a3edbf8250d608d1e0bd1a99cd3a62e450750befce32a11d102071eb0ca90",
    "ant-medium-expert": "86a02649023e027488c5dc2eb11ad66233444547f499e5df21ef49216d870f9d",
}


def regenerated_row(original: Dataset) -> Dataset:
    """Describe the stand-in for a D4RL set that `aaren data make rl` rolls out."""
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
        source=f"aaren data make rl {original.name}",
        options=original.options,
        remark="rolled out from public policies in Gymnasium's MuJoCo environments; not D4RL's data",
    )
