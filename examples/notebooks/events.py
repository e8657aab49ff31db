# extras: data
# %% [markdown]
# # Events: when does the next one come, what is it, and which events are odd?
#
# A log of machines: three quick steps, a check, now and then a stop and a long rest.

# %%
import numpy as np
import pandas as pd

from aaren import AarenEventForecaster

SECONDS = {"stop": 8.0, "check": 5.0, "start": 3.0, "step": 3.0}  # mean logarithm of the gap that follows


def draw_log(num_machines: int, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for machine in range(num_machines):
        now, kind, steps = pd.Timestamp("2026-03-02", tz="UTC"), "start", 0
        for _ in range(60):
            rows.append((f"m{machine:02}", now, kind))
            now += pd.Timedelta(seconds=round(rng.lognormal(SECONDS[kind], 0.2)))
            if kind == "stop":
                kind, steps = "start", 0
            elif kind == "check":
                kind, steps = ("stop" if rng.random() < 0.3 else "step"), 1
            else:
                kind, steps = ("step", steps + 1) if steps < 3 else ("check", 0)
    return pd.DataFrame(rows, columns=["machine", "when", "what"])


rng = np.random.default_rng(0)
log, other = draw_log(60, rng), draw_log(20, rng)
log.head(4)

# %% [markdown]
# The columns are found by their usual names, or named. The table compares with a Markov chain on held-out
# events.

# %%
model = AarenEventForecaster(kind="what", width=32, updates=300, learning_rate=3e-3, patience=4).fit(log)
print(model.table())

# %%
model.predict(levels=[90]).head(3)

# %% [markdown]
# **Odd events**: stops are planted two seconds before a check. Surprise, in nats, finds them, and the
# checks that follow them much too soon.

# %%
planted = other[other["what"] == "check"].sample(20, random_state=0)
planted = planted.assign(when=planted["when"] - pd.Timedelta(seconds=2), what="stop", is_planted=True)
mixed = pd.concat([other.assign(is_planted=False), planted]).sort_values(
    ["machine", "when"], ignore_index=True
)
surprise = model.score_events(mixed.drop(columns="is_planted"))["surprise"]
is_odd = mixed["is_planted"] | mixed["is_planted"].shift(fill_value=False)
print(is_odd[surprise.nlargest(40).index].sum(), "of the 40 most surprising events are these")

# %% [markdown]
# **Live**: one event at a time, in constant memory; and a possible future, drawn from the model.

# %%
session = model.stream()
for when, what in (("10:00:00", "start"), ("10:00:20", "step"), ("10:00:41", "step")):
    coming = session.push(f"2026-03-03 {when}+00:00", what)
print(coming)
print(session.state.nbytes, "bytes of state")

# %%
model.simulate(3, num_paths=1).head(3)
