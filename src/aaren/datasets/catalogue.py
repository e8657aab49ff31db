"""The catalogue: the 38 datasets of the paper, one entry each, and the extras beside them.

A 39th dataset is one more entry here and nothing elsewhere. Numbers from second-hand reports are named in
`uncertain`. Extras are parts of the 38, sets that stand in for them, and
generated ones: they have names of their own, so that no result on a part is mistaken for one on the whole.
"""

from dataclasses import replace
from pathlib import Path

from aaren.datasets.dataset import MEGABYTE, Dataset
from aaren.datasets.rows import (
    QUALITIES,
    ROBOTS,
    csv_row,
    d4rl_row,
    ett_row,
    event_row,
    fold_texts,
    regenerated_row,
    ts_row,
)
from aaren.datasets.settings import installed_settings
from aaren.errors import DataError, unknown_name

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
    _process("renewal", "independent gaps of one distribution"),
)


_JODIE = "https://snap.stanford.edu/jodie/"
_UBER = "https://github.com/fivethirtyeight/uber-tlc-foil-response/raw/master/uber-trip-data/"
_TAXI = "https://www.nyc.gov/site/tlc/about/tlc-trip-record-data.page"
_NPP = "https://github.com/dunan/NeuralPointProcess"

_FORECASTING = (
    ett_row("ETTh1", 1, "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"),
    ett_row("ETTh2", 1, "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b"),
    ett_row("ETTm1", 4, "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e"),
    ett_row("ETTm2", 4, "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd"),
    replace(
        csv_row(
            "Weather",
            "weather/weather.csv",
            52_696,
            21,
            "34ee981d07313e51da2a50bb600072c8ae4a69cb4b0651f4cb93a069d7a2ba63",
        ),
        irregular={"duplicate_dates": 1, "gaps": 1, "sentinels": 81},
        remark="repeats 2020-05-12 06:00, lacks a stamp before 2020-05-29 11:10, has -9999 in three columns",
    ),
    csv_row(
        "Exchange",
        "exchange_rate/exchange_rate.csv",
        7_588,
        8,
        "48b4d9d3d508f5104162e85b9a6042e3557fde11aa9f2944eba8c0d0efc89842",
    ),
    csv_row(
        "Traffic",
        "traffic/traffic.csv",
        17_544,
        862,
        "cb06463d56fa17d87f47027cd9389ceae82a69eddee51cdb61480e120dab0b16",
    ),
    replace(
        csv_row(
            "ECL",
            "electricity/electricity.csv",
            26_304,
            1,
            "7e45845d54c5219bad0ae6bc1b5316cf8ff9cead5d33fa998a5a51c2e4a497ad",
        ),
        options={"split": "ratio", "columns": "OT"},
        remark="univariate (OT of 321 series), as the paper's script reads it; ECL-multivariate reads all",
    ),
)

_CLASSIFICATION = (  # train, test, channels, longest series, classes
    replace(
        ts_row("EthanolConcentration", (261, 263, 3, 1751, 4), "UEA archive, research use", seen=False),
        options={"instance_norm": "across-channels"},
        remark="normalised once more per case, across channels, under the protocol option",
    ),
    ts_row("FaceDetection", (5890, 3524, 144, 62, 2), "UEA archive, research use", seen=False),
    ts_row(
        "Handwriting",
        (150, 850, 3, 152, 26),
        "UEA archive, research use",
        digests=(
            "c187e2288bd7f0667ab7453de436feeadb5dd417c5778a6c62b71852b50736cc",
            "156ee781ad41d58b4e5d48a907aef956f5a3756e1ab2d796c785db1a47863524",
        ),
    ),
    ts_row("Heartbeat", (204, 205, 61, 405, 2), "ODC-By 1.0 (PhysioNet)", seen=False),
    ts_row(
        "JapaneseVowels",
        (270, 370, 12, 29, 9),
        "CC BY 4.0 (UCI)",
        digests=(
            "72736f735163ce25d1dab5566a1115254601642db12c3b72b3ca5f49aafc95be",
            "41760aefffc8e4dd221ae33954ddbab2df8c15fd66ca0efe08b744e962311ac2",
        ),
    ),
    ts_row("PEMS-SF", (267, 173, 963, 144, 7), "CC BY 4.0 (UCI)", seen=False),
    ts_row(
        "SelfRegulationSCP1",
        (268, 293, 6, 896, 2),
        "BCI Competition II, research use",
        digests=(
            "841e9e5031d38aa407396a017e61173674282ecdd8010375f24350cf13083ff2",
            "d55b2ea9980bd86fcdf2905593d18f0ee9333a7e3ef3687b828776bcb749de20",
        ),
    ),
    ts_row(
        "SelfRegulationSCP2",
        (200, 180, 7, 1152, 2),
        "BCI Competition II, research use",
        digests=(
            "41c6a0310dc5c96155181509c4024ea139aa6ed38bb2252124b056fac8235fae",
            "1c2656ee44046ded9b901a4345cfb094f5585a2317919e2653a17708b2b38a70",
        ),
    ),
    ts_row(
        "SpokenArabicDigits",
        (6599, 2199, 13, 93, 10),
        "CC BY 4.0 (UCI)",
        digests=(
            "c2a28c5980a0cc09b0ac38a2f9258debeb58c994f3a572612096fa2992217176",
            "234a363db35bc60db1530614d4b2ecb0478f98b2ba9d2149d3807a107ef19f07",
        ),
    ),
    ts_row(
        "UWaveGestureLibrary",
        (120, 320, 3, 315, 8),
        "UEA archive, research use",
        digests=(
            "cb7cd8cb995775d30dacbfd5c2a9cb3a80dfbd186fd444294bae70c9162dead1",
            "517dbc817c3f181c64727a84ee8bd0cedd3554346042898b9107010b690c331a",
        ),
    ),
)

_EVENTS = (
    replace(
        event_row(
            "mimic", "mimic2.npz", {"sequences": 650, "events": 2_419, "marks": 75}, "research use", _NPP
        ),
        urls=fold_texts("mimic2"),
        convert="folds",
        sha256={"mimic2.npz": "6a3ea40458a3718c3309d82126646dde2af26299e195b66a9d65edbfc6676219"},
    ),
    replace(
        event_row(
            "wiki",
            "wiki.npz",
            {"sequences": 1_000, "events": 157_471, "marks": 8_227},
            "public (SNAP)",
            _JODIE,
        ),
        urls=(_JODIE + "wikipedia.csv",),
        convert="jodie-items",
        limit_bytes=1_000 * MEGABYTE,
        sha256={"wiki.npz": "6551fc2fc9ae74e02355db4c4c43cec22e45ed530bb65b9544d4290a7b6ba0ec"},
        remark="one sequence per page, marks are editors; papers also quote 8226 and 7628 marks",
    ),
    replace(
        event_row("reddit", "reddit.npz", {"sequences": 10_000, "marks": 984}, "public (SNAP)", _JODIE),
        uncertain=("sequences",),
        urls=(_JODIE + "reddit.csv",),
        convert="jodie-users",
        limit_bytes=4_000 * MEGABYTE,
    ),
    replace(
        event_row("mooc", "mooc.npz", {"sequences": 7_047, "marks": 97}, "public (SNAP)", _JODIE),
        uncertain=("sequences",),
        urls=(_JODIE + "mooc.csv",),
        convert="jodie-users",
        limit_bytes=500 * MEGABYTE,
    ),
    replace(
        event_row(
            "stackoverflow",
            "stackoverflow.npz",
            {"sequences": 6_633, "events": 480_414, "marks": 22},
            "CC BY-SA (Stack Exchange)",
            _NPP,
        ),
        urls=fold_texts("so"),
        convert="folds",
        options={"validation": 530},
    ),
    replace(
        event_row(
            "sin", "sin.npz", {"sequences": 1_000, "marks": 1}, "generated here", "aaren data make sin"
        ),
        is_generated=True,
        remark="our Sin: intensity 1 + sin(t/2) on [0, 32π]; the paper's generator is not public",
    ),
    replace(
        event_row("uber", "uber.npz", {"marks": 1}, "public (NYC TLC, FiveThirtyEight)", _UBER),
        urls=(_UBER + "uber-raw-data-janjune-15.csv.zip",),
        convert="uber",
        limit_bytes=500 * MEGABYTE,
        remark="keyed by dispatching base and zone, 100 to 500 events, coincident times dropped: our reading",
    ),
    replace(
        event_row("taxi", "taxi.npz", {"marks": 1}, "public (NYC TLC)", _TAXI),
        remark="the paper's January-February 2013 array is not public; bring your own, or use taxi-tritpp",
    ),
)

_RL = tuple(d4rl_row(robot, quality) for robot in ROBOTS for quality in QUALITIES)

DATASETS: tuple[Dataset, ...] = (*_FORECASTING, *_CLASSIFICATION, *_EVENTS, *_RL)

EXTRAS: tuple[Dataset, ...] = (
    replace(
        _FORECASTING[-1],
        name="ECL-multivariate",
        facts={**_FORECASTING[-1].facts, "series": 321},
        stands_for="ECL",
        options={"split": "ratio"},
        remark="all 321 series; not comparable with the paper's ECL, which is univariate",
    ),
    *PARTIAL,
    *GENERATED,
    *map(regenerated_row, _RL),
)


def lookup(name: str) -> Dataset:
    """Find a dataset or an extra by its name, in any spelling of capitals.

    >>> lookup("ettm1").facts["rows"]
    69680
    """
    known = {row.name.lower(): row for row in (*DATASETS, *EXTRAS)}
    if name.lower() not in known:  # settings of other packages are loaded only when they are needed
        known = {row.name.lower(): row for row in installed_datasets()} | known
    row = known.get(name.lower())
    if row is None and ("/" in name or Path(name).suffix):
        raise DataError(
            f"no file {name}. A file of yours goes with --data, datasets by name: aaren data list."
        )
    if row is None:
        raise unknown_name("dataset", name, (known_row.name for known_row in known.values()))
    return row


def select(names: tuple[str, ...]) -> tuple[Dataset, ...]:
    """Turn names of datasets and settings into rows; no name at all means the 38 and those of other packages.

    >>> [row.name for row in select(("ETTh1", "sin"))]
    ['ETTh1', 'sin']
    """
    listed = (*DATASETS, *installed_datasets())
    settings = {row.setting for row in listed}
    rows: dict[str, Dataset] = {} if names else {row.name: row for row in listed}
    for name in names:
        found = [row for row in listed if row.setting == name] if name in settings else [lookup(name)]
        rows.update((row.name, row) for row in found)
    return tuple(rows.values())


def installed_datasets() -> tuple[Dataset, ...]:
    """Return the rows that settings of other packages bring."""
    return tuple(row for setting in installed_settings().values() for row in setting.datasets)
