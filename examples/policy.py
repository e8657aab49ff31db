"""Learn from recorded episodes to balance a pole, then act: three tokens of work per step, for ever."""

import gymnasium
import torch

from aaren.rl.batches import TrajectoryBatches
from aaren.rl.data import load
from aaren.rl.model import DecisionModel, DecisionModelConfig, Steps
from aaren.rl.session import PolicySession


def play(session: PolicySession, seed: int, *, steps: int = 300) -> float:
    """Play one episode; in its middle, the policy moves into another session."""
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=seed)
    reward, collected, is_over = None, 0.0, False
    for step in range(steps):
        if step == 20:
            blob = session.to_bytes()  # a few kilobytes: keep it, send it, resume anywhere
            session = session.policy.stream()
            session.restore(blob)
        action = session.push(observation, reward)
        observation, reward, is_over, _, _ = environment.step(action)
        collected += reward
        if is_over:
            break
    return collected


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # small tensors: a second thread would wait more than work
    data = load("cartpole")  # a third each of skilled, clumsy and random episodes
    sizes = {"state_size": 4, "action_size": 2, "width": 32, "num_layers": 2}
    model = DecisionModel(DecisionModelConfig(**sizes, actions="discrete", return_scale=500.0))
    mean, std = map(torch.from_numpy, data.state_statistics)
    model.set_scales(state_mean=mean, state_std=std)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    batches = TrajectoryBatches(data, context_steps=40, batch_size=30, return_scale=500.0)
    for epoch in range(60):
        for batch in batches.epoch(epoch):
            steps = Steps(batch.returns_to_go, batch.observations, batch.actions, batch.timesteps)
            optimiser.zero_grad()
            model.loss(steps, mask=batch.mask).backward()
            optimiser.step()
    model.eval()
    print(f"recorded episodes collected {data.returns.mean():.0f} on average")
    for target in (500.0, 20.0):
        found = [play(model.stream(target_return=target), seed) for seed in range(3)]
        print(f"asked for {target:.0f}, the policy collects {sum(found) / len(found):.0f} in 300 steps")
    print(f"an episode's state takes {model.stream().state.nbytes:,} bytes, however long it lasts")


if __name__ == "__main__":
    main()
