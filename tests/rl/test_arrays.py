import numpy as np
import pytest

from aaren.errors import DataError
from aaren.rl.trajectories import Trajectories


def flat(lengths: list[int], *, tail: int = 0, **changes: object) -> dict[str, object]:
    count = sum(lengths) + tail
    rng = np.random.default_rng(0)
    ends = np.zeros(count, dtype=bool)
    ends[np.cumsum(lengths, dtype=int) - 1] = True
    arrays: dict[str, object] = {
        "observations": rng.normal(size=(count, 3)),
        "actions": rng.uniform(-1, 1, size=(count, 2)),
        "rewards": rng.normal(size=count),
        "terminals": ends & (np.arange(count) % 2 == 0),
        "timeouts": ends & (np.arange(count) % 2 == 1),
    }
    return arrays | changes


def make(lengths: list[int], *, drop_short: bool = False, tail: int = 0, **changes: object) -> Trajectories:
    return Trajectories.from_flat(**flat(lengths, tail=tail, **changes), drop_short=drop_short)  # type: ignore[arg-type]  # a table of arrays


def test_flat_arrays_are_split_after_either_flag_and_a_tail_is_left_out() -> None:
    made = make([3, 4, 2], tail=5)
    assert made.lengths.tolist() == [3, 4, 2]
    assert made.num_transitions == 9
    assert made.is_terminal.tolist() == [True, True, True]
    assert (made.state_size, made.action_size) == (3, 2)
    assert make([2, 3]).is_terminal.tolist() == [False, True]


def test_returns_to_go_are_suffix_sums_of_each_trajectory() -> None:
    made = make([3, 4, 2])
    for begin, end in zip(made.offsets[:-1], made.offsets[1:], strict=True):
        rewards = made.rewards[begin:end].astype(np.float64)
        want = [rewards[i:].sum() for i in range(len(rewards))]
        np.testing.assert_allclose(made.returns_to_go[begin:end], want, rtol=0, atol=1e-12)
    np.testing.assert_allclose(made.returns, made.returns_to_go[made.offsets[:-1]], atol=1e-12)


def test_statistics_are_float64_population_with_the_floor() -> None:
    made = make([50, 50])
    states = made.observations.astype(np.float64)
    np.testing.assert_array_equal(made.state_statistics.mean, states.mean(axis=0))
    np.testing.assert_array_equal(made.state_statistics.std, states.std(axis=0) + 1e-6)
    normal = made.state_statistics.normalise(made.observations)
    assert normal.dtype == np.float32
    np.testing.assert_allclose(normal.mean(axis=0), 0, atol=1e-6)


def test_constant_states_become_0_and_not_nan() -> None:
    made = make([4, 4], observations=np.full((8, 3), 2.5))
    assert not made.state_statistics.normalise(made.observations).any()


def test_whole_number_actions_are_discrete() -> None:
    made = make([3, 3], actions=np.array([0, 2, 1, 0, 0, 1]))
    assert (made.num_actions, made.action_size, made.actions.dtype) == (3, 3, np.int64)
    one_number = make([3, 3], actions=np.linspace(-1, 1, 6))
    assert (one_number.num_actions, one_number.action_size) == (None, 1)


def test_short_trajectories_are_told_or_dropped() -> None:
    with pytest.raises(DataError, match=r"trajectory 1 \(row 3\) has one step.*drop_short=True"):
        make([3, 1, 4])
    assert make([3, 1, 4], drop_short=True).lengths.tolist() == [3, 4]


@pytest.mark.parametrize("label", ["observations", "actions", "rewards"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_told_with_its_row(label: str, value: float) -> None:
    arrays = flat([3, 4])
    broken = np.array(arrays[label])
    broken[5] = value
    with pytest.raises(DataError, match=rf"{label}, row 5: not a finite number"):
        make([3, 4], **{label: broken})


def test_arrays_that_do_not_fit_are_told() -> None:
    with pytest.raises(DataError, match=r"one row per transition is needed .* observations \(2, 3\)"):
        Trajectories(
            observations=np.zeros((2, 3), np.float32),
            actions=np.zeros((4, 1), np.float32),
            rewards=np.zeros(4, np.float32),
            offsets=np.array([0, 4]),
            is_terminal=np.array([True]),
        )
    with pytest.raises(DataError, match="no finished trajectory"):
        make([], tail=5)


def test_names_and_bounds_can_be_given() -> None:
    made = make([3]).named("hopper-medium", "Hopper-v4").with_bounds(-2.0, 2.0)
    assert (made.name, made.environment) == ("hopper-medium", "Hopper-v4")
    assert made.action_high is not None
    assert made.action_high.tolist() == [2.0, 2.0]
    assert made.named("x", "Other-v0").environment == "Hopper-v4"
