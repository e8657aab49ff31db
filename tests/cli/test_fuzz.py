"""The command line under words that nobody should type: one clear line and a documented exit code, always."""

import contextlib
import io
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import torch

from aaren.cli.main import main

TOY = "support.toy_task"
SECONDS = 20  # for one command, which takes a few hundredths


class HangError(BaseException):
    """A command that does not come back."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the toy task, and files of all sorts beside it."""
    root = tmp_path_factory.mktemp("fuzz")
    with contextlib.chdir(root):
        assert call("train", TOY, "line", "--set", "epochs=1", "--out", "run")[0] == 0
    (root / "folder.toml").mkdir()
    (root / "folder.csv").mkdir()
    (root / "table.csv").write_text("date,x\n2020-01-01,1\n2020-01-02,2\n")
    (root / "empty.csv").write_text("")
    (root / "bytes.csv").write_bytes(bytes(range(256)))
    (root / "page.md").write_text("nothing generated here\n")
    for number, text in enumerate(tomls()):
        (root / f"odd{number}.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    return root


def tomls() -> list[str]:
    head = f'setting = "{TOY}"\n'
    return [
        "",
        "\udcff",
        "setting = 3",
        "setting = ['a']",
        "setting = 1979-05-27",
        'setting = ".."',
        'setting = "a.b"',
        f"{head}seed = true",
        f"{head}seed = 1.5",
        f"{head}seed = {10**40}",
        f"{head}seed = {'9' * 5000}",
        f"{head}task = 3",
        f"{head}task = [1]",
        f"{head}[[task]]\nepochs = 1",
        f"{head}[engine]\nthreads = {10**18}",
        f"{head}[engine]\ndevice = 1979-05-27T07:32:00Z",
        f"{head}[engine]\ndevice = ['cpu']",
        f"{head}[engine]\ncheckpoint_seconds = nan",
        f"{head}[task]\ndata_file = 'a\\u0000b'",
        f'{head}[task]\ndata_file = "a\\u0000b"',
        f"{head}[task.optimiser]\nbeta1 = inf",
        f"{head}[task.optimiser]\nname = {{a = 1}}",
        f"{head}preset = 3",
        f"{head}[preset]\nseed = 'x'\ndataset = 'line'",
        f"{head}[preset]\nseed = []\ndataset = 'line'",
        f"{head}[preset]\ndataset = ['line']\ndepth = {{a = 1}}",
        f"{head}[preset]\ndataset = 'line'\ndepth = 1979-05-27",
        f"{head}[preset]\ndataset = 'line'\nprofile = 1",
        f"{head}changed = {'[' * 3000}{']' * 3000}",
        f"{head}changed = [1, 2]",
        f"{head}profile = ''",
    ]


NUMBERS = [
    *("-1", "0", str(10**20), str(10**400), "9" * 5000),
    *("nan", "inf", "-inf", "1e400", "x", "²", "1_0", "0x1"),
]
TEXTS = [
    *(
        "x",
        "..",
        "../../x",
        ".",
        "/",
        "-",
        "--",
        "~",
        "a" * 5000,
        "\udcff",
        "é",
        "[bold]",
        "%s{}",
        "\n",
        "a.b.c",
    ),
]
FILES = [
    *("folder.csv", "table.csv", "empty.csv", "bytes.csv", "nothing.csv", "page.md", "run"),
    "run/record.json",
    *("a" * 5000, "b/" * 2500, "/dev/null", "/proc/self/mem", "\udcff.csv", "x\n.csv", "run/run.json"),
]
DATASETS = {
    "forecasting": "seasonal",
    "classification": "JapaneseVowels",
    "events": "sin",
    "rl": "cartpole",
    TOY: "line",
}
SETTINGS = list(DATASETS)
MODELS = dict(zip(SETTINGS, ("naive-last", "majority", "poisson", "random", "aaren"), strict=True))
KEYS = [
    *("seed", "engine.threads", "engine.accumulate", "engine.device", "engine.checkpoint_seconds"),
    "engine.compile",
    *("optimiser.beta1", "beta2", "eps", "weight_decay", "learning_rate", "optimiser.name", "epochs"),
    "batch_size",
    *("patience", "horizon", "width", "num_heads", "dropout", "updates", "evaluations", "clip_norm"),
    "warm_up",
    *("environment", "target_return", "episodes", "changed", "setting", "profile", "task", "engine"),
    *("", "=", "data_file"),
]


def commands(rng: random.Random, count: int) -> Iterator[list[str]]:
    """Make up command lines, each with at least one word that cannot be."""
    odd = [*NUMBERS, *TEXTS]
    for _ in range(count):
        kind = rng.randrange(12)
        setting = rng.choice(SETTINGS)
        pair = [setting, DATASETS[setting]]
        if kind == 0:
            yield ["train", rng.choice(TEXTS), rng.choice(odd)]
        elif kind == 1:
            yield ["train", setting, rng.choice(odd), "--profile", "smoke"]
        elif kind in (2, 3, 4):
            key, value = rng.choice(KEYS), rng.choice(odd)
            toy = (
                [TOY, "line"]
                if rng.random() < 0.5
                else [*pair, "--profile", "smoke", "--model", MODELS[setting]]
            )
            yield ["train", *toy, "--set", f"{key}={value}", "--out", "new"]
        elif kind == 5:
            option = rng.choice(
                ["--model", "--profile", "--seed", "--data", "--json-log", "--import", "--set"]
            )
            yield ["train", TOY, option, rng.choice([*odd, *FILES]), "--out", "new"]
        elif kind == 6:
            yield ["train", setting, "--data", rng.choice(FILES), "--profile", "smoke", "--out", "new"]
        elif kind == 7:
            number = rng.randrange(len(tomls()))
            yield [
                "train",
                rng.choice([f"odd{number}.toml", f"odd{number}.toml", "folder.toml", "a" * 5000 + ".toml"]),
            ]
        elif kind == 8:
            more = [
                ["--part", rng.choice(odd)],
                ["--set", f"{rng.choice(KEYS)}={rng.choice(odd)}"],
                ["--set", "episodes=0"],
            ]
            more += [["--sweep", rng.choice(odd)], ["--sweep", f"target_scale={rng.choice(odd)}"], []]
            yield ["evaluate", rng.choice(["run", "run", *FILES]), *rng.choice(more)]
        elif kind == 9:
            option = rng.choice(["--seeds", "--workers", "--shard", "--ray", "--models", "--datasets"])
            value = rng.choice([n for n in odd if n != "0"])
            if option == "--shard":
                first, parts = (rng.choice(["1", "0", "²", "-1", str(10**30)]) for _ in range(2))
                value = rng.choice([value, f"{first}/{parts}"])
            what = rng.choice([*SETTINGS[:4], *TEXTS])
            yield ["reproduce", what, "--profile", "smoke", option, value, "--plan", "--out", "grid"]
        elif kind == 10:
            yield rng.choice(
                [
                    ["report", rng.choice(FILES), "-o", rng.choice(FILES[:-1])],
                    ["report", "run", "-o", rng.choice(["table.csv", "/proc/x", "a" * 5000])],
                    ["report", "run", "--readme", rng.choice(FILES)],
                    ["data", rng.choice(["list", "verify"]), rng.choice([*odd, *FILES])],
                    ["data", "fetch", rng.choice(["pendulum", *TEXTS]), rng.choice(TEXTS)],
                    ["data", "fetch", "sin", "--seed", rng.choice([n for n in NUMBERS if n != "0"])],
                    ["data", "verify", rng.choice(FILES), "--as", rng.choice([*SETTINGS, *TEXTS])],
                ]
            )
        else:
            yield ["check", "--json", rng.choice(["folder.csv", "table.csv/x", "a" * 5000, "/proc/x/y"])]


def call(*words: str, encoding: str = "utf-8") -> tuple[int, str]:
    """Run a command in this process as if it were typed; return its exit code and all that it wrote."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    before = sys.argv, list(sys.path), torch.get_num_threads(), dict(os.environ)
    handler = signal.signal(signal.SIGALRM, _ring)
    signal.alarm(SECONDS)
    try:
        sys.argv = ["aaren", *words]
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            try:
                main()
                code: object = 0
            except SystemExit as end:
                code = end.code
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        sys.argv, sys.path[:] = before[0], before[1]
        torch.set_num_threads(before[2])
        os.environ.clear()
        os.environ.update(before[3])
    return 0 if code is None else int(str(code)), written.getvalue().decode(encoding)


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise HangError


def is_answered(words: list[str], **how: str) -> str:
    """Run a command; return what is wrong with how it ended, or nothing."""
    shown = " ".join(word if len(word) < 60 else f"{word[:20]}...({len(word)})" for word in words)
    try:
        code, text = call(*words, **how)
    except HangError:
        return f"aaren {shown}: no end after {SECONDS} s"
    except BaseException as error:  # whatever comes out here, a user would see as a traceback
        return f"aaren {shown}: {type(error).__name__}: {str(error)[:150]}"
    if code not in (0, 1, 2) or "Traceback" in text:
        return f"aaren {shown}: exit code {code}: {text[-300:]}"
    if code == 2 and not re.search(r"error|Error|Usage", text):
        return f"aaren {shown}: exit code 2 and no reason: {text[-300:]}"
    return ""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
def test_odd_words_get_an_answer(
    seed: int, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AAREN_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    faults = []
    for words in commands(random.Random(seed), 100):
        fault = is_answered(words)
        if fault:
            faults.append(fault)
        shutil.rmtree("new", ignore_errors=True)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["train", ".."], 2),
        (["train", "../../x.y", "z"], 2),
        (["reproduce", "../../x"], 2),
        (["reproduce", "events", "--seeds", str(10**26), "--plan"], 2),
        (["reproduce", "events", "--seeds", "0", "--plan"], 2),
        (["reproduce", "events", "--shard", f"{10**20}/3", "--plan"], 2),
        (["train", TOY, "line", "--seed", str(10**20)], 2),
        (["train", TOY, "line", "--seed", "-1"], 2),
        (["train", TOY, "line", "--seed", str(2**63 - 1), "--set", "epochs=1"], 0),
        (["train", TOY, "line", "--set", f"engine.threads={10**20}"], 2),
        (["train", TOY, "line", "--set", "beta1=-1"], 2),
        (["train", TOY, "line", "--set", "learning_rate=nan"], 2),
        (["train", TOY, "line", "--set", "weight_decay=inf"], 2),
        (["train", TOY, "line", "--set", f"width={2**62}"], 2),
        (["train", TOY, "line", "--set", f"width={10**13}"], 2),
        (["train", TOY, "--data", "a" * 5000], 2),
        (["train", TOY, "--data", ""], 2),
        (["train", "forecasting", "--data", "folder.csv"], 2),
        (["train", "folder.toml"], 2),
        (["train", TOY, "line", "--profile", ""], 2),
        (["train", TOY, "line", "--profile="], 2),
        (["train", TOY, "line", "--model", ""], 2),
        (["train", TOY, "line", "--json-log", "folder.csv"], 2),
        (["train", TOY, "line", "--out", "a" * 5000], 2),
        (["train", TOY, "line", "--out", "table.csv"], 2),
        (["report", "run", "-o", "table.csv"], 2),
        (["train", TOY, "\udcff"], 2),
        (["train", TOY, "line", "--set", "data_file=\udcff"], 2),
    ],
)
def test_known_mistakes(
    words: list[str], code: int, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    assert not is_answered(words)
    assert call(*words)[0] == code


def test_the_current_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for words in (
        ["train", TOY, "line", "--set", "epochs=1"],
        ["train", "own.setting", "x"],
        ["evaluate", "run"],
        ["data", "list", "rl"],
        ["report", "run"],
    ):
        assert not is_answered(words)


def test_letters_that_the_terminal_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("é\udcff.csv").write_text("x")
    for words in (
        ["train", "é☃", "x"],
        ["train", "forecasting", "--data", "é\udcff.csv"],
        ["data", "list", "events"],
        ["train", TOY, "line", "--set", "epochs=1", "--out", "é☃"],
        ["report", "é☃", "-o", "☃"],
    ):
        assert not is_answered(words, encoding="ascii")
    assert Path("☃/index.html").is_file()
