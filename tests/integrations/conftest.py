from pathlib import Path

import pytest

from aaren.engine.presets import make_run
from aaren.engine.run import train


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with two channels, calm and storm."""
    folder = tmp_path_factory.mktemp("run")
    head = "@problemName waves\n@timeStamps false\n@univariate false\n@dimensions 2\n@equalLength true\n"
    head += "@seriesLength 4\n@classLabel true calm storm\n@data\n"
    source = folder / "waves.ts"
    source.write_text(head + "0,1,0,1:1,0,1,0:calm\n2,3,2,3:3,2,3,2:storm\n" * 10)
    choices = ["epochs=1", "updates_per_epoch=1", "network.head=pooled"]
    config = make_run(
        "classification", model="aaren-causal", profile="smoke", data_file=str(source), assignments=choices
    )
    train(config, folder / "run")
    return folder / "run"
