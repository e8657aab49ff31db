"""Datasets that are not among the paper's 38: honest parts of them, neighbours of them, and generated ones.

They carry names of their own, so that no result on a part can be mistaken for a result on the whole.
"""

from aaren.data.dataset import Dataset

_MIRROR = "put together from public repositories: docs/data.md names them"


def _part(name: str, file: str, digest: str, of: str, sizes: tuple[int, ...], remark: str) -> Dataset:
    facts = dict(zip(("sequences", "events", "marks", "shortest", "longest"), sizes, strict=True))
    return Dataset(
        name=name,
        setting="events",
        files=(file,),
        facts=facts,
        licence="as the whole set",
        source=_MIRROR,
        sha256={file: digest},
        stands_for=of,
        remark=remark,
    )


def _process(name: str, remark: str) -> Dataset:
    return Dataset(
        name=name,
        setting="events",
        files=(f"{name}.npz",),
        facts={"sequences": 1_000, "marks": 1},
        licence="generated here",
        source=f"aaren data make {name}",
        is_generated=True,
        remark=remark,
    )


def _control(name: str, environment: str, state_size: int, action_size: int) -> Dataset:
    return Dataset(
        name=name,
        setting="rl",
        files=(f"{name}.npz",),
        facts={"state_size": state_size, "action_size": action_size, "trajectories": 60},
        licence="generated here",
        source="generated in memory",
        is_generated=True,
        options={"environment": environment},
        remark="classic control with a scripted policy: a first run without a download or MuJoCo",
    )


PARTIAL: tuple[Dataset, ...] = (
    Dataset(
        name="traffic-20",
        setting="forecasting",
        files=("traffic_first20of862.csv",),
        stands_for="Traffic",
        facts={"rows": 17_544, "series": 20, "train": 12_280, "validation": 1_756, "test": 3_508},
        licence="none stated (California PeMS)",
        source="the PyPI package imputegap 1.1.0, datasets/traffic.txt",
        sha256={
            "traffic_first20of862.csv": "a413e87d15a879de762076edba84ca8178b056583fdf5733a4fc6c1726bf6ef4"
        },
        options={"split": "ratio"},
        remark="series 0 to 19 of 862, no OT column; not a substitute for Traffic",
    ),
    Dataset(
        name="heartbeat-train",
        setting="classification",
        files=("Heartbeat_TRAIN.ts",),
        stands_for="Heartbeat",
        facts={"train": 204, "channels": 61, "length": 405, "classes": 2},
        licence="ODC-By 1.0 (PhysioNet)",
        source="rebuilt from public one-sample files",
        remark="the official TEST half is missing",
        sha256={"Heartbeat_TRAIN.ts": "2c93a5d861b9f97d92c31c60c75a8c4f39a6f0d3619b92e5e8bac101ddbcca5d"},
    ),
    _part(
        "stackoverflow-partial",
        "stackoverflow_partial.npz",
        "9cd66037a0c64560ebe9b017a027567c8305f9490ac3adc63f1cef74c9238807",
        "stackoverflow",
        (5_128, 370_270, 22, 41, 736),
        "77 % of the sequences; the whole test part of fold 1",
    ),
    _part(
        "mooc-partial",
        "mooc_subset_gntpp.npz",
        "b3df69fe46178674eba4a3399e99f50ed86f275dbad9c3b969afdf74bf5b7e02",
        "mooc",
        (2_537, 109_352, 97, 4, 324),
        "36 % of the sequences, all marks",
    ),
    _part(
        "uber-sample",
        "uber_sample2015.npz",
        "9932cac3374bb1ca9369f09adde6d42cb59f3bc56a326ec5f265ee53d1336865",
        "uber",
        (587, 95_267, 1, 20, 1_261),
        "100,000 of 14.3 million pickups, so every sequence is thinned",
    ),
    _part(
        "taxi-tritpp",
        "taxi_tritpp.npz",
        "66531abba51a6040af151ddd68a651e7c833da860e9707041a407a7c1215ddbd",
        "taxi",
        (182, 17_904, 1, 12, 140),
        "one sequence per day, hours of the day; the set of triangular-tpp, MIT",
    ),
)

GENERATED: tuple[Dataset, ...] = (
    Dataset(
        name="seasonal",
        setting="forecasting",
        files=("seasonal.csv",),
        is_generated=True,
        licence="generated here",
        facts={"rows": 4_000, "series": 7, "train": 2_800, "validation": 400, "test": 800},
        source="aaren data make seasonal",
        options={"split": "ratio"},
        remark="days, weeks, a drift and noise in seven hourly series: a first run without a download",
    ),
    _control("pendulum", "Pendulum-v1", 3, 1),
    _control("cartpole", "CartPole-v1", 4, 2),
    _process("poisson", "constant intensity; every gap is exponential"),
    _process("hawkes", "self-exciting, exponential kernel"),
    _process("renewal", "independent gaps of one law"),
)
