import numpy as np
import pytest
import torch

from aaren.errors import ConfigError, ShapeError
from aaren.rl.batches import TrajectoryBatch, TrajectoryBatches
from aaren.rl.data import StateStatistics, Trajectories

LENGTHS = [30, 5, 100, 20, 7, 12, 64, 21]


@pytest.fixture(scope="module")
def made() -> Trajectories:
    count = sum(LENGTHS)
    ends = np.zeros(count, dtype=bool)
    ends[np.cumsum(LENGTHS) - 1] = True
    rng = np.random.default_rng(0)
    return Trajectories.from_flat(
        observations=rng.normal(3.0, 2.0, size=(count, 3)),
        actions=rng.uniform(-1, 1, size=(count, 2)),
        rewards=rng.normal(size=count),
        terminals=ends,
        timeouts=np.zeros(count),
    )


def test_a_window_shows_what_is_in_the_set(made: Trajectories) -> None:
    batches = TrajectoryBatches(made, context_steps=20, batch_size=8)
    chosen, starts = batches.plan(3)
    batch = next(batches.epoch(3))
    for row, (trajectory, start) in enumerate(zip(chosen, starts, strict=True)):
        real = min(20, LENGTHS[trajectory])
        window = slice(made.offsets[trajectory] + start, made.offsets[trajectory] + start + real)
        assert batch.mask[row].tolist() == [True] * real + [False] * (20 - real)
        np.testing.assert_array_equal(batch.actions[row, :real], made.actions[window])
        np.testing.assert_array_equal(
            batch.observations[row, :real], made.state_statistics.normalise(made.observations[window])
        )
        want = (made.returns_to_go[window] / 1000).astype(np.float32)
        np.testing.assert_array_equal(batch.returns_to_go[row, :real], want)
        assert batch.timesteps[row].tolist() == list(range(start, start + 20))
        for padded in (batch.actions, batch.observations, batch.returns_to_go):
            assert not padded[row, real:].any()
    assert batch.observations.dtype == torch.float32
    assert len(batch.to("cpu")) == 8


def test_an_epoch_is_one_pass_over_trajectories(made: Trajectories) -> None:
    chosen, starts = TrajectoryBatches(made, batch_size=4).plan(0)
    assert sorted(chosen.tolist()) == list(range(8))
    latest = np.maximum(made.lengths[chosen] - 20, 0)
    assert (starts <= latest).all()
    assert len(TrajectoryBatches(made, batch_size=3)) == 2  # the last partial batch is dropped


def test_starts_are_uniform_from_0_to_length_minus_k(made: Trajectories) -> None:
    batches = TrajectoryBatches(made, context_steps=20, batch_size=8)
    starts = np.concatenate([start[chosen == 0] for chosen, start in map(batches.plan, range(2_200))])
    counts = np.bincount(starts, minlength=11)
    assert len(counts) == 11  # a trajectory of 30: 0..10, both ends included
    assert counts.min() > 140  # 200 each, four standard deviations


def test_a_set_smaller_than_a_batch_is_passed_over_again(made: Trajectories) -> None:
    batches = TrajectoryBatches(made, batch_size=20)
    chosen, _ = batches.plan(0)
    assert len(batches) == 1
    assert np.bincount(chosen).tolist().count(2) + np.bincount(chosen).tolist().count(3) == 8


def test_sampling_by_length_reaches_every_step(made: Trajectories) -> None:
    batches = TrajectoryBatches(made, context_steps=4, batch_size=8, sampling="length")
    drawn = [batches.plan(number) for number in range(300)]
    chosen, starts = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    shares = np.bincount(chosen, minlength=8) / len(chosen)
    np.testing.assert_allclose(shares, np.array(LENGTHS) / sum(LENGTHS), atol=0.01)
    assert starts[chosen == 1].max() == 4  # up to the very last step of a trajectory of 5
    last = batches.gather(np.array([1]), np.array([4]))
    assert last.mask.tolist() == [[True, False, False, False]]


def test_an_epoch_depends_on_seed_and_number_alone(made: Trajectories) -> None:
    one, two = TrajectoryBatches(made, batch_size=4, seed=1), TrajectoryBatches(made, batch_size=4, seed=1)
    list(two.epoch(0))
    for first, second in zip(one.epoch(5), two.epoch(5), strict=True):
        assert torch.equal(first.observations, second.observations)
    assert not np.array_equal(one.plan(5)[0], one.plan(6)[0])
    assert len(list(one)) == 2


def test_discrete_actions_stay_whole_numbers() -> None:
    ends = np.array([0, 0, 1, 0, 0, 1])
    found = Trajectories.from_flat(
        observations=np.zeros((6, 2)),
        actions=np.array([0, 1, 2, 1, 1, 0]),
        rewards=np.ones(6),
        terminals=ends,
        timeouts=0 * ends,
    )
    batch = next(TrajectoryBatches(found, context_steps=4, batch_size=2).epoch(0))
    assert (batch.actions.dtype, batch.actions.shape) == (torch.int64, (2, 4))


def test_statistics_and_scale_can_be_given(made: Trajectories) -> None:
    plain = StateStatistics(np.zeros(3), np.ones(3))
    batches = TrajectoryBatches(made, context_steps=4, batch_size=8, statistics=plain, return_scale=1.0)
    chosen, starts = batches.plan(0)
    batch = next(iter(batches))
    np.testing.assert_array_equal(batch.observations[:, 0], made.observations[made.offsets[chosen] + starts])
    np.testing.assert_allclose(
        batch.returns_to_go[:, 0], made.returns_to_go[made.offsets[chosen] + starts], rtol=1e-6
    )


def test_wrong_settings_and_shapes_are_told(made: Trajectories) -> None:
    with pytest.raises(ConfigError, match="unknown sampling of trajectories 'lenght'; did you mean 'length'"):
        TrajectoryBatches(made, sampling="lenght")
    with pytest.raises(ConfigError, match="context_steps and batch_size must be at least 1; got 0, 64"):
        TrajectoryBatches(made, context_steps=0)
    batch = next(iter(TrajectoryBatches(made, batch_size=4)))
    parts = {
        name: getattr(batch, name)
        for name in ("returns_to_go", "observations", "actions", "timesteps", "mask")
    }
    with pytest.raises(ShapeError, match=r"actions must begin with \(b, k\) = \(4, 20\); got \(3, 20, 2\)"):
        TrajectoryBatch(**{**parts, "actions": batch.actions[:3]})
    with pytest.raises(ShapeError, match=r"mask must be \(b, k\) bool"):
        TrajectoryBatch(**{**parts, "mask": batch.mask.float()})
