# extras: rl
# %% [markdown]
# # Policies: act as the better recorded episodes did
#
# Episodes of a pole on a cart were recorded by good, clumsy and random players. A policy is learned from
# the recordings alone, and then balances the pole, one step at a time.

# %%
import gymnasium

from aaren import AarenPolicy

policy = AarenPolicy(updates=300, comparison_episodes=5, threads=1, random_state=0)  # small
policy.fit("cartpole")  # your own: a list of dicts of observations, actions and rewards, or a file
print(policy.table())

# %% [markdown]
# The clone of the best third of the episodes stands beside it: where it is as good, it is the simpler
# choice. What the policy adds is a return to ask for, and a memory.

# %%
environment = gymnasium.make("CartPole-v1")
observation, _ = environment.reset(seed=1)
session, reward, steps = policy.stream(), None, 0
while True:
    action = session.push(observation, reward)
    observation, reward, is_over, is_cut, _ = environment.step(action)
    steps += 1
    if steps == 20:  # move to another session in mid-episode: another process, another machine
        blob = session.to_bytes()
        session = policy.stream()
        session.restore(blob)
    if is_over or is_cut:
        break
print(f"balanced for {steps} steps, with {len(blob):,} bytes of memory")

# %%
policy.save("cartpole-policy")
print(AarenPolicy.load("cartpole-policy").evaluate(episodes=5))
