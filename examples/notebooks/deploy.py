# extras: data,classification
# %% [markdown]
# # Deploy: many streams, and streams without Python
#
# A classifier is fitted, then runs for many machines at once, survives a kill, and leaves Python as C.

# %%
import numpy as np

from aaren import AarenClassifier, StreamPool

speed = np.where(np.arange(60) % 2, 0.9, 0.3)[:, None, None]
noise = 0.1 * np.random.default_rng(0).normal(size=(60, 1, 24))
X = np.sin(speed * np.arange(24) + np.arange(60)[:, None, None]) + noise  # (cases, channels, steps)
y = np.where(np.arange(60) % 2, "fast", "slow")
classifier = AarenClassifier(size="small", random_state=0, threads=1).fit(X, y)
print(f"{100 * classifier.score(X, y):.0f} % right")

# %% [markdown]
# **Many streams**: a pool holds them by key, in a file. Items that come twice change nothing.

# %%
with StreamPool(classifier, "states.db") as pool:
    for step in range(24):
        answers = pool.push(["pump-7", "pump-8"], [X[0, :, step], X[1, :, step]])
    for key, probabilities in zip(["pump-7", "pump-8"], answers, strict=True):
        print(
            key,
            *(
                f"{name} {p:.2f}"
                for name, p in zip(classifier.classes_, np.ravel(probabilities), strict=True)
            ),
        )
    print(len(pool), "streams,", pool.state_bytes, "bytes each,", pool.offset, "items")

# %% [markdown]
# From the shell: `aaren stream RUN --state states.db < rows.jsonl`, or over HTTP: `aaren serve RUN --state
# states.db`.
#
# **C**: sources without a library, raw numbers in, answers out. `check` replays rows through torch and
# through the artifact.

# %%
from aaren.export import export_stream

written = export_stream(classifier.model_, "pump", to="c", check=X[0].T)
print({key: written.manifest[key] for key in ("inputs", "outputs", "state_bytes")})

# %%
from pathlib import Path

print(*sorted(path.name for path in Path("pump").iterdir()), sep="  ")
print(Path("pump/aaren_model.h").read_text()[:900])

# %% [markdown]
# `make main` builds an example; `to="wasm"` and `to="onnx"` write the same for browsers and for ONNX
# Runtime.
