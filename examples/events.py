"""A log of machines: when does the next event come, of what kind, and which events are odd?

Machines start, work in bursts, and pause; a few events are planted where they do not belong. The model
predicts dates and kinds and gives every event a surprise, compared here with a constant rate.
"""

import numpy as np
import pandas as pd

from aaren import AarenEventForecaster

SECONDS = {"stop": 8.0, "check": 5.0, "start": 3.0, "step": 3.0}  # mean logarithm of the gap that follows


def draw_log(num_machines: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw one day of every machine: three quick steps, then a check; now and then it stops and rests."""
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


def main() -> None:
    rng = np.random.default_rng(0)
    train, test = draw_log(60, rng), draw_log(20, rng)
    model = AarenEventForecaster(kind="what", width=32, updates=600, patience=4).fit(train)
    print(model.table(), model.predict(levels=[90]).head(3).to_string(index=False), sep="\n\n")

    session = model.stream()  # one machine, live: constant memory
    for when, what in (("10:00:00", "start"), ("10:00:20", "step"), ("10:00:41", "step")):
        coming = session.push(f"2026-03-03 {when}+00:00", what)
    print(f"\n{coming}\nthe state always takes {session.state.nbytes:,} bytes\n")

    odd = test[test["what"] == "check"].sample(20, random_state=0)  # a stop two seconds before a check
    odd = odd.assign(when=odd["when"] - pd.Timedelta(seconds=2), what="stop", is_odd=True)
    log = pd.concat([test.assign(is_odd=False), odd]).sort_values(["machine", "when"], ignore_index=True)
    is_odd = log["is_odd"] | log["is_odd"].shift(fill_value=False)  # what follows comes much too soon
    gaps = log.groupby("machine")["when"].diff().dt.total_seconds()
    shares = log["what"].map(log["what"].value_counts(normalize=True))
    surprise = model.score_events(log.drop(columns="is_odd"))["surprise"]
    print("planted events, and those right behind them, among the 40 highest scores:")
    for name, scores in {"surprise": surprise, "rate and share": gaps / gaps.mean() - np.log(shares)}.items():
        print(f"  {name:14} {is_odd[scores.nlargest(40).index].sum()}")

    futures = model.simulate(horizon="1h", num_paths=50)
    counts = futures.groupby(["machine", "path"]).size().groupby("machine").mean()
    print(f"\nevents of m00 in the next hour: {counts['m00']:.1f} on average")


if __name__ == "__main__":
    main()
