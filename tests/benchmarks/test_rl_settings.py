"""Both models by several settings: one row, on a generated set."""

from rl_settings import ASKED, EPISODES, measure


def test_a_row_has_the_returns_of_all_episodes() -> None:
    row = measure("transformer", "updates=2 warm_up=1 episode_steps=5", dataset="pendulum")
    assert list(row["asked"]) == list(ASKED)
    for found in row["asked"].values():
        assert len(found["returns"]) == EPISODES
        assert found["returns"] == sorted(found["returns"])
