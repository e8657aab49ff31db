# extras: data,report
# %% [markdown]
# # Forecasting: from a table to live forecasts
#
# A table of hours with a gap goes in; forecasts with intervals come out; new rows are taken in one by one.

# %%
import numpy as np
import pandas as pd

from aaren import AarenForecaster

hours = pd.date_range("2024-01-01", periods=1_500, freq="h", tz="Europe/Berlin")
noise = np.random.default_rng(0)
load = 50 + 20 * np.sin(2 * np.pi * hours.hour / 24) + 3 * noise.normal(size=len(hours))
table = pd.DataFrame({"ds": hours, "load": load}).drop(index=range(700, 705))
known, later = table[:-48], table[-48:]
table.head(3)

# %% [markdown]
# Five rows are missing: `fill` says what to put there. The table compares the model with simple baselines
# on rows that it did not see.

# %%
model = AarenForecaster(horizon=24, fill="seasonal").fit(known)
print(model.table())

# %%
model.predict(levels=[80, 95]).head(3)

# %%
axes = model.plot(levels=[80, 95])

# %% [markdown]
# **Live**: a row at a time, in constant memory. `push` returns nothing that you have to keep; ask when you
# like.

# %%
for row in later.itertuples():
    model.push([row.load], when=row.ds)
print(model.state_.nbytes, "bytes of state")
model.predict(3, levels=[80])

# %% [markdown]
# Save it; load it in another process; continue where it was. The folder can be exported to C, WebAssembly
# or ONNX.

# %%
model.save("load-model")
AarenForecaster.load("load-model").predict(3)
