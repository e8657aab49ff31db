"""Modules of a user's own are imported when the command line names them, and never because a file does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aaren.cli.main import app
from aaren.errors import ConfigError
from support import toy_task

OWN = "trap_setting.task"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay out a module that could be imported, were it ever asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trap_setting").mkdir()
    shutil.copy(toy_task.__file__, tmp_path / "trap_setting" / "task.py")
    (tmp_path / "trap_environments.py").write_text(
        "import gymnasium\n"
        "gymnasium.registry.pop('Trap-v0', None)\n"
        "gymnasium.register('Trap-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    for name in ("trap_setting", OWN, "trap_environments"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def run(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def trained(folder: str = "run") -> Path:
    """Train a run, then let its files name the module that lies around."""
    run("train", "support.toy_task", "line", "--out", folder)
    for name in ("run.json", "record.json"):
        path = Path(folder) / name
        path.write_text(path.read_text().replace("support.toy_task", OWN))
    return Path(folder)


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "run"),
        ("evaluate", "run", "--sweep", "seed=0,1"),
        ("predict", "run", "--data", "new.json", "-o", "answer.json"),
        ("train", "run/run.json", "--out", "again"),
    ],
)
def test_a_run_does_not_choose_an_import(words: tuple[str, ...]) -> None:
    trained()
    Path("new.json").write_text("[[1, 2, 3, 4]]")
    with pytest.raises(ConfigError, match=r"a file may not choose what is imported.*--import trap_setting"):
        run(*words)
    assert OWN not in sys.modules
    run("--import", OWN, *words)
    assert OWN in sys.modules


def test_a_preset_of_a_file_does_not_choose_an_import() -> None:
    Path("own.toml").write_text(f'setting = "{OWN}"\n[preset]\ndataset = "line"\n')
    with pytest.raises(ConfigError, match="a file may not choose what is imported"):
        run("train", "own.toml")
    assert OWN not in sys.modules


def test_records_are_shown_and_not_imported() -> None:
    trained("runs/one")
    text = run("report", "runs", "-o", "report")
    assert "report/index.html" in text
    assert OWN in Path("report/tables.md").read_text()
    Path("runs/support.toy_grid").mkdir()
    run("reproduce", "support.toy_grid", "--profile", "smoke", "--out", "runs", "--plan")
    assert OWN not in sys.modules


def test_a_named_setting_is_imported() -> None:
    run("train", OWN, "line", "--out", "run")
    assert OWN in sys.modules


def episodes(environment: str) -> str:
    steps = 30
    record = {"name": "mine", "settings": {"environment": environment}}
    ends = np.arange(steps) % 10 == 9
    np.savez(
        "mine.npz",
        observations=np.zeros((steps, 4), dtype=np.float32),
        actions=np.zeros(steps, dtype=np.int64),
        rewards=np.ones(steps, dtype=np.float32),
        terminals=ends,
        timeouts=np.zeros(steps, dtype=bool),
        record=np.array(json.dumps(record)),
    )
    return "mine.npz"


def test_recorded_episodes_do_not_choose_an_import() -> None:
    data = episodes("trap_environments:Trap-v0")
    words = ("train", "rl", "--data", data, "--profile", "smoke", "--model", "random", "--out", "run")
    with pytest.raises(ConfigError, match="Nothing is imported because a file names it"):
        run(*words)
    assert "trap_environments" not in sys.modules
    run(*words, "--set", "environment=trap_environments:Trap-v0")


def test_an_environment_on_the_command_line_is_imported() -> None:
    words = ("train", "rl", "--data", episodes(""), "--profile", "smoke", "--model", "random", "--out", "run")
    run(*words, "--set", "environment=trap_environments:Trap-v0")
    del sys.modules["trap_environments"]
    with pytest.raises(ConfigError, match="a file may not choose what is"):
        run("evaluate", "run")
    assert "trap_environments" not in sys.modules


@pytest.mark.long
def test_workers_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    for name in ("queue", "torch", "json"):
        (tmp_path / f"{name}.py").write_text("open('trapped', 'w').close()")
    # As with the command `aaren`: the current folder is not on the path of whoever starts the workers.
    code = (
        "import sys; sys.path = [entry for entry in sys.path if entry]\n"
        "from pathlib import Path; from aaren.engine.presets import make_run\n"
        "from aaren.lab.plan import PlannedRun; from aaren.lab.run import run_here\n"
        "config = make_run('events', 'sin', model='poisson', profile='smoke')\n"
        "run = PlannedRun(config=config, folder=Path('run'), command='', dataset='sin')\n"
        "print(run_here([run], say=print).finished)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1:] == ["1"], done.stderr
    assert not Path("trapped").exists()


def test_commands_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    for name in ("queue", "matplotlib", "pandas", "gymnasium"):
        (tmp_path / f"{name}.py").write_text("open('trapped', 'w').close()")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "task.py").write_text("import queue, sys; SETTING = None; print(sys.path[-1])")
    main = "from aaren.cli.main import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for words in (("data", "list", "events"), ("--import", "own.task", "data", "list", "rl")):
        done = subprocess.run(
            [sys.executable, "-P", "-c", main, *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        assert not Path("trapped").exists()
    assert done.stdout.splitlines()[0] == str(tmp_path)
