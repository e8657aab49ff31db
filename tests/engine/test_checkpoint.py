import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from aaren.engine.checkpoint import (
    MANIFEST,
    Checkpoint,
    Checkpoints,
    load_newest,
    remove,
    require_same_config,
    save,
)
from aaren.engine.loop import fit
from aaren.engine.progress import Observer
from aaren.errors import ConfigError
from support.toy_task import ToyExperiment


def make(number: int, size: int = 10) -> Checkpoint:
    return Checkpoint(
        tensors={"model": {"weight": torch.full((size,), float(number))}},
        facts={"status": {"update": number}},
    )


def newest(folder: Path) -> tuple[float | None, list[str]]:
    complaints: list[str] = []
    found = load_newest(folder, complain=complaints.append)
    return None if found is None else float(found.tensors["model"]["weight"][0]), complaints


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let the system refuse larger files, as a full disk does."""
    resource = pytest.importorskip("resource")  # not on Windows
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_newest_comes_back_and_two_are_kept(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        save(tmp_path, number, make(number))
    assert newest(tmp_path) == (10.0, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["update-000000002", "update-000000010"]


def test_nothing_there(tmp_path: Path) -> None:
    assert newest(tmp_path / "nowhere") == (None, [])


def test_values_come_back_exactly(tmp_path: Path) -> None:
    tied = torch.randn(3)
    tensors = {
        "model": {"a": tied, "b": tied, "c": torch.randn(4, 4).t()},
        "random": {"cpu": torch.get_rng_state()},
    }
    facts = {"seconds": 0.1 + 0.2, "curve": [{"b": 1, "a": float("nan")}]}
    save(tmp_path, 1, Checkpoint(tensors=tensors, facts=facts))
    found = load_newest(tmp_path, complain=pytest.fail)
    for group, members in tensors.items():
        for name, tensor in members.items():
            assert torch.equal(found.tensors[group][name], tensor)
    assert str(found.facts) == str(facts)


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        (
            "model.safetensors",
            lambda data: data[:-1],
            r"model\.safetensors is missing or has another checksum",
        ),
        ("model.safetensors", lambda data: data[:-1] + b"\x07", "has another checksum"),
        ("model.safetensors", None, "is missing"),
        (MANIFEST, lambda data: data[: len(data) // 2], "its manifest is not readable"),
        (MANIFEST, lambda data: data.replace(b"update", b"Update"), "its manifest has another checksum"),
        (MANIFEST, lambda _data: b"", "its manifest is not readable"),
        (MANIFEST, None, "it has no manifest"),
    ],
)
def test_a_damaged_one_is_named_and_the_one_before_taken(
    tmp_path: Path, file: str, damage: object, words: str
) -> None:
    save(tmp_path, 1, make(1))
    save(tmp_path, 2, make(2))
    path = tmp_path / "update-000000002" / file
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    value, complaints = newest(tmp_path)
    assert value == 1.0
    assert len(complaints) == 1
    assert complaints[0].startswith("the checkpoint update-000000002 is damaged (")
    assert complaints[0].endswith("); taking the one before.")
    assert re.search(words, complaints[0])
    save(tmp_path, 2, make(22))  # the run comes by again
    assert newest(tmp_path) == (22.0, [])


def test_all_damaged_means_from_the_beginning(tmp_path: Path) -> None:
    save(tmp_path, 1, make(1))
    (tmp_path / "update-000000001" / MANIFEST).unlink()
    value, complaints = newest(tmp_path)
    assert value is None
    assert complaints[-1] == "no checkpoint is whole: starting from the beginning."


def test_another_format_is_not_read(tmp_path: Path) -> None:
    save(tmp_path, 1, make(1))
    path = tmp_path / "update-000000001" / MANIFEST
    outer = json.loads(path.read_text())
    text = outer["content"].replace('"format": 3', '"format": 9')
    path.write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}))
    assert "it has format 9; this version of aaren reads format 3" in newest(tmp_path)[1][0]


@pytest.mark.parametrize("limit", [0, 100, 3000])
def test_a_full_disk_leaves_the_one_before(tmp_path: Path, limit: int) -> None:
    save(tmp_path, 1, make(1, size=5))
    with file_size_limit(limit), pytest.raises(OSError, match=r"(?i)too large|space|error"):
        save(tmp_path, 2, make(2, size=5000))
    assert newest(tmp_path) == (1.0, [])
    assert [path.name for path in tmp_path.iterdir()] == ["update-000000001"]


def test_leftovers_of_a_killed_process_are_cleared(tmp_path: Path) -> None:
    save(tmp_path, 1, make(1))
    (tmp_path / ".update-000000002.123.4").mkdir()
    (tmp_path / ".update-000000002.123.4" / "model.safetensors").write_bytes(b"half")
    assert newest(tmp_path) == (1.0, [])
    assert not (tmp_path / ".update-000000002.123.4").exists()


def test_remove(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints", 1, make(1))
    remove(tmp_path / "checkpoints")
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    "manifest",
    [
        "[" * 100_000,
        "9" * 5_000,
        "[]",
        "{}",
        '{"format": 3, "files": [], "facts": {}}',
        '{"format": 3, "files": {}, "facts": 3}',
        '{"format": 3, "files": {}, "facts": {}}',
        '{"format": 3, "files": {"../../x.safetensors": "0"}, "facts": {"status": 1}}',
        '{"format": {"a": 1}, "files": {}, "facts": {}}',
    ],
)
def test_a_hostile_manifest_is_named_and_the_one_before_taken(manifest: str, tmp_path: Path) -> None:
    good = Checkpoint(tensors={"model": {"w": torch.ones(2)}}, facts={"status": 1})
    save(tmp_path, 1, good)
    save(tmp_path, 2, good)
    text = json.dumps({"sha256": hashlib.sha256(manifest.encode()).hexdigest(), "content": manifest})
    complaints: list[str] = []
    for outer in (text, manifest):
        (tmp_path / "update-000000002" / "manifest.json").write_text(outer)
        found = load_newest(tmp_path, complain=complaints.append, facts=("status",))
        assert found is not None
        assert found.facts == {"status": 1}
    assert len(complaints) == 2
    assert all("update-000000002 is damaged" in complaint for complaint in complaints)


Toy = Callable[..., ToyExperiment]


class Listener(Observer):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def say(self, message: str) -> None:
        self.heard.append(message)


def test_a_full_disk_does_not_end_the_run(toy: Toy, tmp_path: Path) -> None:
    """From update 5 to 12 no file can be written; the run continues, says so, and ends with the same bits."""
    resource = pytest.importorskip("resource")  # not on Windows
    limits, calls, listener = resource.getrlimit(resource.RLIMIT_FSIZE), [], Listener()

    def fill_the_disk() -> bool:
        calls.append(1)
        if len(calls) in (5, 12):
            size = 64 if len(calls) == 5 else limits[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        return False

    try:
        fitted = fit(
            toy(),
            seed=1,
            checkpoints=Checkpoints(folder=tmp_path, config={}, every_seconds=0.0),
            observer=listener,
            is_pause_wanted=fill_the_disk,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(listener.heard) == 7
    assert listener.heard[0].startswith("no checkpoint at update 5: ")
    assert listener.heard[0].endswith("Training continues; the last one is kept.")
    plain = fit(toy(), seed=1)
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(fitted.model.state_dict()[name], tensor)


def test_a_damaged_checkpoint_costs_only_the_way_from_the_one_before(toy: Toy, tmp_path: Path) -> None:
    whole = fit(toy(), seed=1, checkpoints=Checkpoints(folder=tmp_path, config={}, every_seconds=0.0))
    newest = max(tmp_path.iterdir())
    (newest / "model.safetensors").write_bytes(b"rubbish")
    listener = Listener()
    again = fit(toy(), seed=1, checkpoints=Checkpoints(folder=tmp_path, config={}), observer=listener)
    assert listener.heard == [
        f"the checkpoint {newest.name} is damaged (model.safetensors is missing or has another checksum); "
        "taking the one before."
    ]
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)


def test_saving_takes_a_small_share_of_the_time(tmp_path: Path) -> None:
    checkpoints = Checkpoints(folder=tmp_path, config={}, every_seconds=1.0)
    checkpoints.saved_at -= 2.0
    assert checkpoints.is_due()
    checkpoints.save_seconds = 0.1  # two per cent of five seconds
    assert not checkpoints.is_due()
    checkpoints.saved_at -= 4.0
    assert checkpoints.is_due()


def test_keys_without_influence_may_differ() -> None:
    old = {"engine": {"checkpoint_seconds": 1.0, "threads": 1}, "changed": []}
    new = {"engine": {"checkpoint_seconds": 9.0, "threads": 1}, "changed": ["x"]}
    require_same_config(old, new, where="here")
    with pytest.raises(
        ConfigError, match=r"here holds a run of another config: engine\.threads: 1, now 2\. Use"
    ):
        require_same_config(old, {**new, "engine": {"checkpoint_seconds": 1.0, "threads": 2}}, where="here")
