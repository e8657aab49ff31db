"""AarenPolicy: what it takes, what it refuses, that it is trained as it acts, saving, and that it learns."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone as unfitted_copy

from aaren import AarenPolicy
from aaren.errors import ConfigError, DataError, ShapeError
from aaren.files.checksums import read_files, write_files
from aaren.rl.data import Trajectories, generate
from aaren.rl.episodes import read_episodes
from aaren.rl.model import Steps

gymnasium = pytest.importorskip("gymnasium")


def record(count: int = 8, *, steps: int = 12, is_discrete: bool = True) -> list[dict[str, Any]]:
    """Episodes whose good action is the sign of the first number; some act badly."""
    rng = np.random.default_rng(5)
    made = []
    for number in range(count):
        seen = rng.normal(size=(steps, 3))
        good = seen[:, 0] > 0
        acted = good if number % 2 else rng.random(steps) > 0.5
        actions = acted.astype(np.int64) if is_discrete else np.where(acted, 1.5, -0.5)[:, None]
        made.append({"observations": seen, "actions": actions, "rewards": (acted == good).astype(float)})
    return made


@pytest.fixture(scope="module", params=[True, False], ids=["discrete", "box"])
def fitted(request: pytest.FixtureRequest) -> AarenPolicy:
    return AarenPolicy(updates=12, random_state=0, width=16).fit(record(is_discrete=request.param))


def test_episodes_come_in_many_forms(tmp_path: Path) -> None:
    episodes = record()
    wanted = read_episodes(episodes)
    tuples = [(one["observations"], one["actions"], one["rewards"]) for one in episodes]
    longer = [  # with the observation after the last action, as environments and Minari give it
        {**one, "observations": np.concatenate([one["observations"], np.zeros((1, 3))])} for one in episodes
    ]
    rows = len(episodes) * 12
    ends = np.arange(rows) % 12 == 11
    flat = {key: np.concatenate([one[key] for one in episodes]) for key in episodes[0]}
    flat |= {"terminals": np.zeros(rows, dtype=bool), "timeouts": ends}
    path = tmp_path / "mine.npz"
    np.savez(path, **flat)
    for form in (tuples, longer, flat, path, str(path), wanted):
        found = read_episodes(form)
        assert len(found) == 8
        assert found.num_actions == 2
        np.testing.assert_array_equal(found.observations, wanted.observations)
        np.testing.assert_array_equal(found.actions, wanted.actions)
        np.testing.assert_array_equal(found.returns, wanted.returns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.ones(11)}, "episode 1: one observation, action and reward per step are needed"),
        ({"observations": np.zeros((14, 3))}, "got observations .14, 3., actions .12,., rewards .12,."),
        ({"observations": np.full((12, 3), np.nan)}, "episode 1: observations at .0, 0. is nan; finite"),
        ({"rewards": np.full(12, np.inf)}, "episode 1: rewards at .0,. is inf"),
        ({"observations": np.zeros((12, 2))}, "episode 1: observations .12, 2. of float64, but episode 0"),
        ({"actions": np.zeros((12, 1))}, "all must be of one environment"),
        ({"actions": np.array(["left"] * 12)}, "episode 1: actions are text, such as .left.; number them"),
        ({"actions": np.full(12, -1)}, "expected whole numbers from 0; got -1"),
        ({"observations": 3.0}, "episode 1: one observation"),
        ({"terminated": []}, "episode 1: terminated is empty"),
        ({"observations": np.full((12, 3), 1j)}, "episode 1: observations: expected real numbers"),
        ({"observations": np.ma.masked_all((12, 3))}, "episode 1: observations: some values are masked"),
        ({"actions": list(np.ma.array([0, 1] * 6, mask=[1] + [0] * 11))}, "episode 1: actions: .* masked"),
        ({"rewards": np.ma.array(np.ones(12), mask=[1] + [0] * 11)}, "episode 1: rewards: .* masked"),
        ({"terminated": np.ma.array([True], mask=[True])}, "episode 1: terminated: .* masked"),
        (
            {"observations": np.r_[np.zeros(35), 9.97e36].reshape(12, 3)},
            "observations, row 23: 9.97e.36 in column 2",
        ),
    ],
)
def test_episodes_that_are_wrong_are_named(change: dict[str, Any], message: str) -> None:
    episodes = record()
    episodes[1] = {**episodes[1], **change}
    with pytest.raises(DataError, match=message):
        AarenPolicy().fit(episodes)


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "episodes must be a dataset's name, a file, a Minari dataset, or a list .* got list of 0"),
        (7, "got int"),
        (
            [{"observations": np.zeros((3, 1)), "rewards": np.zeros(3)}],
            "actions missing in dict of 'observations', 'rewards'",
        ),
        ("no/such/set-v0", "minari download"),
    ],
)
def test_what_holds_no_episodes_is_refused(episodes: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        AarenPolicy().fit(episodes)


def test_choices_in_other_forms_than_whole_numbers_from_0() -> None:
    episodes = record()
    flags = [{**one, "actions": one["actions"].astype(bool).tolist()} for one in episodes]
    np.testing.assert_array_equal(read_episodes(flags).actions, read_episodes(episodes).actions)
    names = [{**one, "actions": np.where(one["actions"], "left", "right")} for one in episodes]
    with pytest.raises(DataError, match=r"episode 0: actions are text, such as '.*'; number them from 0"):
        read_episodes(names)
    large = [{**one, "actions": 100_000 * one["actions"] + 5} for one in episodes]
    with pytest.raises(DataError, match=r"whole numbers up to 100005, and only 2 of these were taken"):
        AarenPolicy(updates=1).fit(large)
    floats = [{**one, "actions": one["actions"].astype(float)} for one in episodes]
    with pytest.warns(UserWarning, match=r"the actions are 0, 1 in floating point.*actions.astype\(int\)"):
        AarenPolicy(updates=1, random_state=0).fit(floats)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (lambda one: one["actions"] + 1, "counted from 1. Count them from 0: actions - 1"),
        (lambda one: np.eye(2)[one["actions"]], r"whole numbers, actions.argmax\(-1\)"),
    ],
)
def test_actions_that_an_environment_counts_otherwise(form: Any, message: str) -> None:
    episodes = [
        {**one, "actions": form(one), "observations": np.zeros((12, 4), np.float32)} for one in record()
    ]
    with pytest.raises(DataError, match=message):
        AarenPolicy(updates=1).fit(episodes, environment="CartPole-v1")


def test_environments_that_must_be_wrapped_first() -> None:
    episodes = [{**one, "observations": np.zeros((12, 4), np.float32)} for one in record()]
    with pytest.raises(ConfigError, match=r"got Discrete and Discrete. .*FlattenObservation\(environment\)"):
        AarenPolicy().fit(episodes, environment="FrozenLake-v1")
    pole = gymnasium.make("CartPole-v1")
    from_one = gymnasium.wrappers.TransformAction(
        pole, lambda action: action - 1, gymnasium.spaces.Discrete(2, start=1)
    )
    with pytest.raises(
        ConfigError, match=r"counts its actions from 1; here they are counted from 0. Wrap it"
    ):
        AarenPolicy().fit(episodes, environment=from_one)


def test_steps_that_are_not_sorted_into_episodes() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"episode": 0, "x": [0.0, 1.0], "action": [0, 1], "reward": 1.0})
    for given in (frame, [frame]):
        with pytest.raises(DataError, match=r"Split a frame of steps: .*frame.groupby\('episode'\)"):
            read_episodes(given)
    steps = [([0.0], 1, 1.0), ([0.1], 0, 1.0), ([0.2], 0, 1.0), ([0.3], 0, 1.0)]
    with pytest.raises(DataError, match=r"make three lists: tuple\(zip\(\*steps\)\)"):
        read_episodes([steps])
    assert read_episodes([tuple(zip(*steps, strict=True))]).returns.tolist() == [4.0]
    short = [{key: part[:1] for key, part in one.items()} for one in record()]
    with pytest.raises(DataError, match="every episode has one step"):
        read_episodes(short, drop_short=True)
    with pytest.raises(ConfigError, match="unknown dataset of episodes 'cartpol'; did you mean 'cartpole'"):
        read_episodes("cartpol")


def test_an_observation_of_several_axes_is_flattened_by_the_user(fitted: AarenPolicy) -> None:
    with pytest.raises(ShapeError, match=r"must be \(3,\) .* got \(1, 3\). Flatten it: np.reshape"):
        fitted.stream().push([[0.0, 0.0, 0.0]])


def test_settings_that_cannot_be_are_told_together() -> None:
    policy = AarenPolicy(updates=0, target_quantile=1.5, target_return=float("nan"))
    with pytest.raises(
        ConfigError, match=r"updates must be at least 1; got 0; target_return .* target_quantile"
    ):
        policy.fit(record())


def test_an_environment_of_other_spaces_is_refused(fitted: AarenPolicy) -> None:
    with pytest.raises(
        DataError, match=r"CartPole-v1 shows 4 numbers .* the episodes have observations of 3"
    ):
        fitted.evaluate("CartPole-v1", episodes=1)
    with pytest.raises(DataError, match="they are of another environment"):
        AarenPolicy().fit(record(), environment="Pendulum-v1")
    coded = [
        {"observations": np.zeros((9, 4)), "actions": np.arange(9) % 2 + 0.0, "rewards": np.ones(9)}
        for _ in range(4)
    ]
    with pytest.raises(DataError, match=r"give discrete actions as whole numbers, actions.astype\(int\)"):
        AarenPolicy().fit(coded, environment="CartPole-v1")
    with pytest.raises(ConfigError, match="which environment"):
        fitted.evaluate()
    with pytest.raises(ConfigError, match="a Gymnasium id such as 'CartPole-v1', or one that is built"):
        fitted.evaluate(3.0)
    with pytest.raises(ConfigError, match="unknown player 'clown'; did you mean 'clone'"):
        fitted.evaluate("CartPole-v1", who="clown")


def test_it_is_scored_in_training_as_it_acts(fitted: AarenPolicy) -> None:
    """One context: what `forward` says of windows of K steps is what a session does, step by step."""
    model = fitted.model_
    seen = torch.from_numpy(record(1, steps=45)[0]["observations"])
    wanted = []
    for begin in range(0, 45, model.config.context_steps):
        part = model.normalise(seen[begin : begin + model.config.context_steps])[None]
        steps = Steps(
            torch.full(part.shape[:2], model.config.target_return),
            part,
            torch.zeros_like(model.init_state(1).action)
            .unsqueeze(1)
            .expand(1, part.shape[1], *[-1] * (not model.config.is_discrete)),
            torch.arange(begin, begin + part.shape[1])[None],
        )
        with torch.no_grad():
            wanted.append(model.to_environment(model(steps)[0][0]))
    session = fitted.stream(engine="torch")
    found = [session.push(row, None if t == 0 else 1.0) for t, row in enumerate(seen)]
    np.testing.assert_allclose(np.stack(found), torch.cat(wanted).numpy(), atol=1e-5)


def test_sessions_act_and_reset_forget(fitted: AarenPolicy) -> None:
    seen = [row.tolist() for row in record(1)[0]["observations"]]
    first = [fitted.act(row, None if t == 0 else 0.5) for t, row in enumerate(seen)]
    fitted.reset()
    np.testing.assert_array_equal(
        first, [fitted.act(row, None if t == 0 else 0.5) for t, row in enumerate(seen)]
    )
    session = fitted.stream()
    np.testing.assert_allclose(
        first, [session.push(row, None if t == 0 else 0.5) for t, row in enumerate(seen)], atol=1e-5
    )
    session.reset()
    np.testing.assert_allclose(session.push(seen[0]), first[0], atol=1e-5)
    fitted.reset()
    with pytest.raises(ShapeError, match=r"observation must be \(3,\)"):
        fitted.act([1.0])
    with pytest.raises(DataError, match="not finite"):
        fitted.act([1.0, float("nan"), 0.0])


def test_sessions_run_on_the_native_engine(fitted: AarenPolicy) -> None:
    seen = record(1)[0]["observations"]
    native, eager = fitted.stream(engine="native"), fitted.stream(engine="torch")
    for t, row in enumerate(seen):
        reward = None if t == 0 else 0.5
        np.testing.assert_allclose(native.push(row, reward), eager.push(row, reward), atol=1e-5)
    assert native.engine == "native"
    assert native.state.nbytes == eager.state.nbytes


def test_a_saved_policy_is_the_same(fitted: AarenPolicy, tmp_path: Path) -> None:
    fitted.save(tmp_path / "policy")
    loaded = AarenPolicy.load(tmp_path / "policy")
    assert loaded.get_params() == fitted.get_params()
    assert loaded.target_return_ == fitted.target_return_
    rows = record(1)[0]["observations"]
    mine, theirs = fitted.stream(), loaded.stream()
    for row in rows:
        np.testing.assert_array_equal(mine.push(row, 1.0), theirs.push(row, 1.0))
    np.testing.assert_array_equal(fitted.clone_.act(rows), loaded.clone_.act(rows))
    assert {path.suffix for path in (tmp_path / "policy").rglob("*") if path.is_file()} == {
        ".json",
        ".safetensors",
    }
    with pytest.raises(DataError, match="no saved AarenPolicy in"):
        AarenPolicy.load(tmp_path)


def test_it_has_parameters_as_scikit_learn_has() -> None:
    policy = AarenPolicy(width=16).set_params(updates=7, target_quantile=0.5)
    assert unfitted_copy(policy).get_params() == policy.get_params()
    assert policy.get_params()["updates"] == 7


def test_the_return_asked_for_is_a_stated_quantile(capsys: pytest.CaptureFixture[str]) -> None:
    episodes = record()
    returns = read_episodes(episodes).returns
    policy = AarenPolicy(updates=2, target_quantile=0.5, verbose=True, random_state=0).fit(episodes)
    assert policy.target_return_ == np.quantile(returns, 0.5)
    said = capsys.readouterr().err
    assert f"will ask for a return of {policy.target_return_:.1f} (quantile 0.5 of the data" in said
    assert "name one, fit(..., environment='ID')" in said
    places = [float(policy.stream(target_return=one).state.return_to_go) for one in (-9.0, *returns, 1e6)]
    assert places[0] == min(places)  # what no episode reached is asked for as the best or worst that one did
    assert places[-1] == max(places)
    assert places[1 + int(returns.argmax())] == places[-1]
    assert AarenPolicy(updates=2, target_return=4.0).fit(episodes).target_return_ == 4.0


def test_fits_repeat() -> None:
    first, second = (AarenPolicy(updates=4, random_state=3).fit(record()) for _ in range(2))
    for name, value in first.model_.state_dict().items():
        torch.testing.assert_close(value, second.model_.state_dict()[name], rtol=0, atol=0)


def test_few_episodes_are_all_learned_from() -> None:
    assert AarenPolicy(updates=3).fit(record(2)).n_iter_ == 3


def few_of_cartpole() -> Trajectories:
    return generate("cartpole", episodes=15)


def test_it_balances_a_pole_and_says_who_won(capsys: pytest.CaptureFixture[str]) -> None:
    policy = AarenPolicy(updates=150, random_state=0, comparison_episodes=5, verbose=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few episodes: the clone may win
        policy.fit(few_of_cartpole())
    said = capsys.readouterr().err
    assert "clone of the best third" in said
    assert policy.verdict() in said
    found = policy.evaluate(episodes=5)
    assert found.mean > 1.3 * policy.behaviour_return_
    assert found.lengths.max() <= 500
    assert len(found.returns) == 5
    assert found.standard_error == pytest.approx(found.returns.std(ddof=1) / 5**0.5)
    again = policy.evaluate(gymnasium.make("CartPole-v1"), episodes=5)  # one after the other
    np.testing.assert_array_equal(again.returns, found.returns)
    assert policy.evaluate(episodes=3, who="clone").target_return is None
    asked_for_less = policy.evaluate(episodes=5, target_return=10.0)
    assert asked_for_less.target_return == 10.0


def test_a_better_clone_is_told() -> None:
    with pytest.warns(UserWarning, match="Use the clone"):
        policy = AarenPolicy(updates=1, random_state=0, comparison_episodes=5).fit(few_of_cartpole())
    assert "use the clone" in policy.verdict()


def test_equal_returns_are_told(fitted: AarenPolicy) -> None:
    assert "all recorded returns are equal" not in fitted.table()
    episodes = [{**one, "rewards": np.full(12, -1.0)} for one in record()]
    assert "all recorded returns are equal" in AarenPolicy(updates=2, width=16).fit(episodes).table()


def test_a_damaged_folder_is_named(fitted: AarenPolicy, tmp_path: Path) -> None:
    folder = fitted.save(tmp_path)
    for text in ("", "{}", "[]"):
        write_files(folder, {**read_files(folder), "estimator.json": text.encode()})
        with pytest.raises(DataError, match=r"damaged or incomplete AarenPolicy .* Save it again"):
            AarenPolicy.load(folder)
