# extras: classification,report
# %% [markdown]
# # Classification: which class, and how early can one tell?
#
# Nine men say two vowels (JapaneseVowels, which comes with `aeon`). A classifier is fitted on whole
# utterances, and then hears new ones sample by sample.

# %%
import numpy as np
from aeon.datasets import load_japanese_vowels

from aaren import AarenClassifier

train_x, train_y = load_japanese_vowels(split="train")
test_x, test_y = load_japanese_vowels(split="test")
print(
    len(train_x), "utterances;", train_x[0].shape[0], "channels,", train_x[0].shape[1], "samples in the first"
)

# %% [markdown]
# Closed form, a few seconds: no learning rate, no epochs.

# %%
classifier = AarenClassifier(random_state=0).fit(train_x, train_y)
print(f"{100 * classifier.score(test_x, test_y):.1f} % of {len(test_x)} new utterances are right")

# %% [markdown]
# **Early**: the probabilities after every sample. `stop_at="auto"` decides as soon as waiting longer would
# not pay; its threshold was chosen on the training data.

# %%
session = classifier.stream(stop_at="auto")
heard = []
for sample in test_x[40].T:
    heard.append(np.ravel(session.push(sample)))
truth, steps = test_y[40], test_x[40].shape[1]
print(f"speaker {session.decision} after {session.decided_at} of {steps} samples; it was {truth}")

# %%
import matplotlib.pyplot as plt

plt.figure(figsize=(6, 2.5))
plt.plot(range(1, len(heard) + 1), np.array(heard))
plt.axvline(int(np.ravel(session.decided_at)[0]), color="grey", linestyle=":")
plt.xlabel("samples heard")
plt.ylabel("probability of each speaker")
plt.tight_layout()

# %% [markdown]
# The state has a constant size, and moves: save it, send it, continue elsewhere with the same numbers.

# %%
blob = session.to_bytes()
print(len(blob), "bytes")
classifier.save("speakers")
AarenClassifier.load("speakers").predict(test_x[:3]), test_y[:3]
