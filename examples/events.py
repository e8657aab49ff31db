"""A log of machines: when does the next event come, of what kind, and which events are odd?

Machines start, work in bursts, and pause; a few events are planted where they do not belong. A frame goes in,
dates, names and a surprise for every event come out, beside what a constant rate would say.
"""

import numpy as np
import pandas as pd

from aaren import AarenEventForecaster

KINDS = ("start", "step", "check", "stop")


def draw_log(num_machines: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw one day of every machine: three quick steps, then a check; now and then it stops and rests."""
    rows = []
    for machine in range(num_machines):
        now, kind, steps = pd.Timestamp("2026-03-02", tz="UTC"), "start", 0
        for _ in range(60):
            rows.append((f"m{machine:02}", now, kind))
            seconds = rng.lognormal({"stop": 8.0, "check": 5.0}.get(kind, 3.0), 0.2)
            now += pd.Timedelta(seconds=round(seconds))
            if kind == "stop":
                kind, steps = "start", 0
            elif kind == "check":
                kind, steps = ("stop" if rng.random() < 0.3 else "step"), 1
            else:
                kind, steps = ("step", steps + 1) if steps < 3 else ("check", 0)
    return pd.DataFrame(rows, columns=["machine", "when", "what"])


def plant(log: pd.DataFrame, count: int, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.Series]:
    """Add steps in the middle of quick sequences, where a check was due; say which rows they are."""
    checks = log.index[log["what"] == "check"].to_numpy()
    odd = log.loc[rng.choice(checks, count, replace=False)].copy()
    odd["when"] -= pd.Timedelta(seconds=2)
    odd["what"] = "stop"
    both = pd.concat([log.assign(is_odd=False), odd.assign(is_odd=True)])
    both = both.sort_values(["machine", "when"], kind="stable").reset_index(drop=True)
    return both.drop(columns="is_odd"), both["is_odd"]


def found_among(scores: pd.Series, is_odd: pd.Series) -> int:
    """Count the planted events among as many rows of the highest scores."""
    return int(is_odd[scores.fillna(-np.inf).nlargest(int(is_odd.sum())).index].sum())


def main() -> None:
    rng = np.random.default_rng(0)
    train, test = draw_log(60, rng), draw_log(20, rng)
    model = AarenEventForecaster(kind="what", width=32, updates=300, patience=4).fit(train)
    print(model.table(), end="\n\n")

    print(model.predict(levels=[90]).head(3).to_string(index=False), end="\n\n")

    session = model.stream()  # one machine, live: constant memory
    for when, what in (("10:00:00", "start"), ("10:00:20", "step"), ("10:00:41", "step")):
        coming = session.push(f"2026-03-03 {when}+00:00", what)
    print(coming)
    print(f"the state takes {session.state.nbytes:,} bytes, for ever\n")

    mixed, is_odd = plant(test, 20, rng)
    surprise = model.score_events(mixed)["surprise"]
    gaps = mixed.groupby("machine")["when"].diff().dt.total_seconds()
    rate = (gaps / gaps.mean()).sub(np.log(mixed["what"].map(mixed["what"].value_counts(normalize=True))))
    print("planted events among the 20 highest scores:")
    print(f"  surprise                {found_among(surprise, is_odd)}")
    print(f"  constant rate and share {found_among(rate, is_odd)}")

    futures = model.simulate(horizon="1h", num_paths=50)
    counts = futures.groupby(["machine", "path"]).size().groupby("machine").mean()
    print(f"\nevents of m00 in the next hour: {counts['m00']:.1f} on average")


if __name__ == "__main__":
    main()
