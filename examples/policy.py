"""Learn from recorded episodes to balance a pole, ask for a return, and act: constant work per step."""

import gymnasium

from aaren import AarenPolicy


def play(policy: AarenPolicy, seed: int) -> float:
    """Play one episode to its end; in its middle, it moves into another session."""
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=seed)
    session, reward, collected, steps = policy.stream(), None, 0.0, 0
    while True:
        if steps == 20:
            blob = session.to_bytes()  # a kilobyte: keep it, send it, resume anywhere
            session = policy.stream()
            session.restore(blob)
        action = session.push(observation, reward)
        observation, reward, is_terminal, is_truncated, _ = environment.step(action)
        collected, steps = collected + reward, steps + 1
        if is_terminal or is_truncated:
            return collected


def main() -> None:
    # A third each of skilled, clumsy and random episodes, made here; your own: a list of dicts, or a file.
    policy = AarenPolicy(updates=300, threads=1).fit("cartpole")
    print(policy.table())
    print(f"one episode, moved in its middle: {play(policy, seed=1):.0f}")
    policy.save("cartpole-policy")
    print(f"saved and loaded: {AarenPolicy.load('cartpole-policy').evaluate(episodes=10)}")


if __name__ == "__main__":
    main()
