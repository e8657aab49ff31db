"""The base of the estimators, on the smallest one: a linear layer whose weights are the mean of the data."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from aaren.engine.estimator import ARRAYS, DESCRIPTION, Estimator, Learned, RandomState, draw_seed
from aaren.errors import ConfigError, DataError
from aaren.events import EventModel, EventModelConfig


class Smallest(Estimator):
    def __init__(
        self,
        *,
        width: int = 8,
        levels: tuple[float, ...] = (80.0,),
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self.width = width
        self.levels = levels
        self.random_state = random_state
        self.verbose = verbose
        self._check_settings()

    def _check_settings(self) -> None:
        faults: list[str] = []
        self._numbers({"width": 1}, {}, faults)
        self._check_random_state(faults)
        if faults:
            raise ConfigError("; ".join(faults) + ".")

    def fit(self, values: np.ndarray) -> "Smallest":
        with torch.random.fork_rng():
            torch.manual_seed(draw_seed(self.random_state))
            self.model_ = EventModel(EventModelConfig(num_marks=2, width=self.width))
        self.means_, self.names_ = values.mean(axis=0), [f"n{place}" for place in range(values.shape[1])]
        return self

    def _state_dict(self) -> Learned:
        return Learned(
            model=self.model_,
            facts={"names": list(self.names_)},
            arrays={"means": self.means_, "state": np.frombuffer(b"\x00\x01", np.uint8)},
            others={"second": self.model_},
        )

    def _restore(self, learned: Learned) -> None:
        assert isinstance(learned.model, EventModel)
        assert torch.equal(weights(learned.model), weights(learned.others["second"]))
        assert learned.arrays["state"].tobytes() == b"\x00\x01"
        self.model_, self.means_ = learned.model, learned.arrays["means"]
        self.names_ = learned.facts["names"]


class Other(Smallest):
    pass


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture(scope="module")
def fitted() -> Smallest:
    return Smallest(levels=(50.0, 90.0)).fit(np.arange(6.0).reshape(2, 3))


def test_saved_and_loaded(fitted: Smallest, tmp_path: Path) -> None:
    again = Smallest.load(fitted.save(tmp_path / "saved"))
    assert again.get_params() == fitted.get_params()
    assert torch.equal(weights(again.model_), weights(fitted.model_))
    np.testing.assert_array_equal(again.means_, fitted.means_)
    assert again.names_ == fitted.names_
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert [name.removeprefix("saved/") for name in files] == [
        ARRAYS,
        "checksums.json",
        "config.json",
        DESCRIPTION,
        "model.safetensors",
        "second/checksums.json",
        "second/config.json",
        "second/model.safetensors",
    ]


def test_a_generator_is_saved_as_none(tmp_path: Path) -> None:
    values = np.ones((2, 2))
    folder = Smallest(random_state=np.random.RandomState(1)).fit(values).save(tmp_path)
    assert Smallest.load(folder).random_state is None
    assert Smallest.load(Smallest(random_state=np.int64(3)).fit(values).save(tmp_path)).random_state == 3


def test_before_fit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this Smallest is not fitted yet: call fit first"):
        Smallest().save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_settings() -> None:
    assert repr(Smallest(width=4)) == "Smallest(width=4)"
    assert Smallest().set_params(width=5).width == 5
    with pytest.raises(ConfigError, match="width must be a whole number, at least 1; got 0"):
        Smallest().set_params(width=0)
    with pytest.raises(ConfigError, match="unknown setting 'widht'; did you mean 'width'"):
        Smallest(**{"widht": 1})


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"format_version": 1}', b"\xff"])
def test_any_other_description_is_refused(fitted: Smallest, tmp_path: Path, damage: bytes) -> None:
    fitted.save(tmp_path)
    (tmp_path / DESCRIPTION).write_bytes(damage)
    with pytest.raises(DataError, match="damaged or was edited"):
        Smallest.load(tmp_path)


def test_another_class_format_or_folder(
    fitted: Smallest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save(tmp_path)
    with pytest.raises(DataError, match=r"holds a Smallest: read it with Smallest\.load"):
        Other.load(tmp_path)
    monkeypatch.setattr(Smallest, "format_version", 2)
    with pytest.raises(DataError, match="format version 1; this aaren reads 2"):
        Smallest.load(tmp_path)
    with pytest.raises(DataError, match=r"no saved Smallest in .*: estimator\.json is missing"):
        Smallest.load(tmp_path / "second")


@pytest.mark.parametrize("limit", [0, 200, 3000])
def test_a_full_disk_leaves_what_was_saved_before(fitted: Smallest, tmp_path: Path, limit: int) -> None:
    fitted.save(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = Smallest(random_state=1).fit(np.ones((2, 3)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match=r"(?i)large"):
            other.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    np.testing.assert_array_equal(Smallest.load(tmp_path).means_, fitted.means_)
    assert json.loads((tmp_path / DESCRIPTION).read_text())["settings"]["levels"] == [50.0, 90.0]
