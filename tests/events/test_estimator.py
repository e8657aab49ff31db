"""AarenEventForecaster: frames in, dates and names out, live sessions, oddities found."""

import re
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
import torch

from aaren.errors import ConfigError, DataError
from aaren.events import AarenEventForecaster
from aaren.events.fitting import EventFit, divide, fit_markov, shrink_correction, terms, windows
from aaren.events.frames import Clock, Columns, as_frame, find_resolution, guess_columns, read_events
from aaren.events.likelihood import explain
from aaren.events.model import EventModel, EventModelConfig
from aaren.events.sequences import EventSequences

KINDS = ("buy", "login", "view")


def log_of_users(num_users: int = 24, zone: str | None = "Europe/Paris", *, seed: int = 0) -> pd.DataFrame:
    """A login, then views every minute or so, and after a buy a long pause."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(num_users):
        time, kind = pd.Timestamp("2026-03-01", tz=zone), "login"
        for _ in range(25):
            rows.append((f"u{user}", time, kind))
            time += pd.Timedelta(seconds=int(rng.lognormal(8.0 if kind == "buy" else 4.0, 0.3)))
            kind = "login" if kind == "buy" else str(rng.choice(["view", "buy"], p=[0.8, 0.2]))
    return pd.DataFrame(rows, columns=["user", "when", "action"]).sample(frac=1.0, random_state=0)


@pytest.fixture(scope="module")
def fitted() -> AarenEventForecaster:
    with pytest.warns(UserWarning, match="still improving"):
        return AarenEventForecaster(updates=3, width=16, random_state=1).fit(log_of_users())


def test_columns_are_guessed_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    columns, said = guess_columns(log_of_users(2), sequence=None, time=None, kind=None)
    assert (columns.sequence, columns.time, columns.kind) == ("user", "when", "action")
    assert "times in 'when'" in said
    with pytest.raises(DataError, match=r"which column holds the times\? There are 'a', 'b'"):
        guess_columns(pd.DataFrame({"a": [1], "b": [2]}), sequence=None, time=None, kind=None)
    with pytest.raises(DataError, match="no column 'x', which kind= names"):
        guess_columns(log_of_users(2), sequence=None, time=None, kind="x")
    assert capsys.readouterr().out == ""


def test_dates_and_names_come_back(fitted: AarenEventForecaster) -> None:
    found = fitted.predict(levels=[50, 90])
    sides = [f"when{suffix}" for suffix in ("", "-lo-50", "-hi-50", "-lo-90", "-hi-90")]
    assert list(found) == ["user", "last", *sides, "action", "probability"]
    assert len(found) == 24
    assert str(found["when"].dt.tz) == "Europe/Paris"
    ends = log_of_users().groupby("user")["when"].max()
    assert (found.set_index("user")["last"] == ends[found["user"]]).all()
    assert (found["last"] <= found["when-lo-90"]).all()
    assert (found["when-lo-90"] < found["when-lo-50"]).all()
    assert (found["when-lo-50"] < found["when"]).all()
    assert (found["when"] < found["when-hi-90"]).all()
    assert set(found["action"]) <= set(KINDS)
    shares = fitted.predict_proba()
    assert list(shares.columns) == list(KINDS)
    assert np.allclose(shares.sum(axis=1), 1.0)


def test_silence_moves_the_next_event(fitted: AarenEventForecaster) -> None:
    now = log_of_users()["when"].max() + pd.Timedelta("1h")
    assert (fitted.predict(now=now)["when-lo-80"] >= now).all()
    with pytest.raises(DataError, match="is before the last event of sequence"):
        fitted.predict(now="2026-02-01 00:00+01:00")


def test_a_new_frame_is_its_own_history(fitted: AarenEventForecaster) -> None:
    everything = fitted.predict()
    again = fitted.predict(log_of_users())
    pd.testing.assert_frame_equal(
        again.sort_values("user").reset_index(drop=True),
        everything.sort_values("user").reset_index(drop=True),
    )


def test_surprise_is_the_likelihood_and_keeps_the_order(fitted: AarenEventForecaster) -> None:
    frame = log_of_users(4)
    found = fitted.score_events(frame)
    assert found.index.equals(frame.index)
    is_first = frame.groupby("user")["when"].rank(method="first") == 1
    assert (found["surprise"].isna() == is_first).all()
    assert np.allclose(found["surprise"], found["surprise_time"] + found["surprise_kind"], equal_nan=True)
    scale = np.log(fitted.model_.config.time_scale)
    assert fitted.score(frame) == pytest.approx(-(found["surprise"].mean() + scale))


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_session_says_what_the_batch_says(fitted: AarenEventForecaster, engine: str) -> None:
    frame = log_of_users(1).sort_values("when", kind="stable")
    session = fitted.stream(engine=engine)
    found = fitted.score_events(frame)["surprise"]
    for row, wanted in zip(frame.itertuples(), found, strict=True):
        coming = session.push(row.when, row.action)
        if coming.surprise is None:
            assert np.isnan(wanted)
        else:
            assert coming.surprise == pytest.approx(wanted, abs=2e-3)
    assert session.engine == engine
    expected = fitted.predict(frame).iloc[0]
    assert abs((coming.time - expected["when"]).total_seconds()) < 0.05
    assert coming.kind == expected["action"]
    again = fitted.stream()
    again.restore(session.to_bytes())
    assert abs((again.coming.time - coming.time).total_seconds()) < 0.05


def test_a_session_resumes_a_fitted_sequence(fitted: AarenEventForecaster) -> None:
    session = fitted.stream("u3")
    expected = fitted.predict().set_index("user").loc["u3"]
    assert abs((session.coming.time - expected["when"]).total_seconds()) < 0.05
    last = expected["last"]
    assert session.push(last, "view").surprise is not None  # equal times: the clock counts seconds
    with pytest.raises(DataError, match=re.escape(f"lies before the last one, {last}: times")):
        session.push(last - pd.Timedelta("1s"), "view")
    with pytest.raises(DataError, match="the kind 'sell' was not fitted"):
        session.push(last, "sell")
    with pytest.raises(
        DataError, match=r"2026-05-01: times without a time zone; .* tz_localize\('Europe/Paris'\) first"
    ):
        session.push("2026-05-01", "view")
    with pytest.raises(DataError, match="no sequence 'nobody' was fitted"):
        fitted.stream("nobody")


def test_futures_are_drawn_to_a_number_or_a_horizon(fitted: AarenEventForecaster) -> None:
    found = fitted.simulate(3, num_paths=2)
    assert (found.groupby(["user", "path"]).size() == 3).all()
    assert found["when"].dt.tz is not None
    ends = fitted.predict().set_index("user")["last"]
    near = fitted.simulate(horizon="1h", seed=3)
    assert (near["when"].to_numpy() - ends[near["user"]].to_numpy() <= np.timedelta64(1, "h")).all()
    pd.testing.assert_frame_equal(near, fitted.simulate(horizon="1h", seed=3))
    with pytest.raises(ConfigError, match="either n"):
        fitted.simulate()


def test_saved_and_loaded(fitted: AarenEventForecaster, tmp_path: object) -> None:
    again = AarenEventForecaster.load(fitted.save(f"{tmp_path}/saved"))
    pd.testing.assert_frame_equal(again.predict(), fitted.predict())
    assert again.table() == fitted.table()
    assert again.get_params() == fitted.get_params()
    with pytest.raises(DataError, match=r"no saved AarenEventForecaster in .*estimator\.json is missing"):
        AarenEventForecaster.load(f"{tmp_path}")


def test_settings_are_checked_and_changed_by_name() -> None:
    model = AarenEventForecaster(updates=7)
    assert repr(model) == "AarenEventForecaster(updates=7)"
    assert model.set_params(width=32).get_params()["width"] == 32
    with pytest.raises(ConfigError, match="unknown setting 'widht'; did you mean 'width'"):
        model.set_params(widht=3)
    with pytest.raises(ConfigError, match="updates must be a whole number, at least 1; got 0"):
        AarenEventForecaster(updates=0)
    with pytest.raises(ConfigError, match="not fitted yet"):
        model.predict()


@pytest.mark.filterwarnings("ignore:after 2 updates")
@pytest.mark.parametrize("unit", [1e-6, 3e7])
def test_any_unit_of_time_gives_the_same_fit(unit: float) -> None:
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(1.0, 120))
    plain = AarenEventForecaster(updates=2, width=16).fit(times)
    scaled = AarenEventForecaster(updates=2, width=16).fit(times * unit)
    assert scaled.held_out_["markov"].total - plain.held_out_["markov"].total == pytest.approx(
        np.log(unit), abs=1e-4
    )
    assert scaled.gain_[0] == pytest.approx(plain.gain_[0], abs=1e-3)
    assert scaled.predict()["time"][0] == pytest.approx(plain.predict()["time"][0] * unit, rel=1e-4)


def test_what_cannot_be_read_is_told() -> None:
    frame = log_of_users(3)
    model = AarenEventForecaster()
    with pytest.raises(DataError, match=r"expected a kind .*fillna"):
        model.fit(frame.assign(action=[None, *frame["action"][1:]]))
    with pytest.raises(DataError, match="the name of its sequence"):
        model.fit(frame.assign(user=[None, *frame["user"][1:]]))
    with pytest.raises(DataError, match="expected a date"):
        model.fit(pd.DataFrame({"time": ["2026-01-01", "soon"]}))
    with pytest.raises(DataError, match="too few to learn from"):
        model.fit({"a": [1.0], "b": [2.0, 3.0]})
    with pytest.raises(DataError, match="the frame has no rows"):
        model.fit(frame[:0])
    with pytest.raises(DataError, match="sequence 'a': 2 times but 1 kinds"):
        model.fit({"a": ([1.0, 2.0], ["x"])})


def test_sequences_of_one_event_are_predicted_though_not_learned(fitted: AarenEventForecaster) -> None:
    one = pd.DataFrame({"user": ["new"], "when": [pd.Timestamp("2026-04-01", tz="UTC")], "action": ["login"]})
    assert fitted.predict(one)["when"].notna().all()
    with pytest.raises(DataError, match="nothing to explain"):
        fitted.score(one)


def test_what_is_held_out_is_never_trained_on() -> None:
    rng = np.random.default_rng(0)
    long = EventSequences.from_lists([np.cumsum(rng.exponential(1.0, 1000))])
    parts = divide(long, fraction=0.2, seed=0)
    assert parts.train.times.max() < parts.stop.events.times[parts.stop.is_judged].min()
    assert (
        parts.stop.events.times[parts.stop.is_judged].max()
        < parts.judge.events.times[parts.judge.is_judged].min()
    )
    assert parts.stop.is_judged.sum() == parts.judge.is_judged.sum() == 100
    many = EventSequences.from_lists([np.cumsum(rng.exponential(1.0, 10)) + 100 * i for i in range(50)])
    parts = divide(many, fraction=0.2, seed=0)
    assert [len(part) for part in (parts.train, parts.stop.events, parts.judge.events)] == [40, 5, 5]
    assert not set(parts.train.times) & {*parts.stop.events.times, *parts.judge.events.times}


def test_windows_hold_every_gap_once() -> None:
    rng = np.random.default_rng(0)
    events = EventSequences.from_lists([np.cumsum(rng.exponential(1.0, n)) for n in (2, 10, 11, 37)])
    cut = windows(events, 10)
    assert cut.lengths.max() <= 10
    assert np.allclose(np.sort(cut.gaps[~cut.is_first]), np.sort(events.gaps[~events.is_first]))


def test_explaining_in_parts_changes_nothing(
    fitted: AarenEventForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = fitted._read(log_of_users(5)).events
    whole = explain(fitted.model_, events)
    monkeypatch.setattr("aaren.events.likelihood.WALKED_EVENTS", 7)
    monkeypatch.setattr("aaren.events.likelihood.WALKED_SEQUENCES", 2)
    parts = explain(fitted.model_, events)
    assert np.allclose(whole.time, parts.time, atol=1e-4, equal_nan=True)
    assert np.allclose(whole.state.output, parts.state.output, atol=1e-4)


def test_a_rounded_clock_is_found() -> None:
    rng = np.random.default_rng(0)
    exact = np.cumsum(rng.exponential(1.0, 200))
    ends = np.array([0, 200])
    assert find_resolution(exact, ends) == 0.0
    assert find_resolution(np.round(exact), ends) == 1.0
    assert find_resolution(np.round(exact * 52) / 52, ends) == pytest.approx(1 / 52)
    assert find_resolution(np.round(exact, 6), ends) == 0.0  # far finer than the gaps: it does not matter


def test_the_markov_baseline_finds_its_own_process() -> None:
    rng = np.random.default_rng(0)
    chain, means = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.0, 2.0])
    kinds = [0]
    for _ in range(20_000):
        kinds.append(int(rng.random() < chain[kinds[-1], 1]))
    gaps = rng.lognormal(means[kinds[:-1]], 0.5)
    frame = pd.DataFrame({"time": np.cumsum([0.0, *gaps]), "kind": kinds})
    read = read_events(frame, guess_columns(frame, sequence=None, time=None, kind=None)[0])
    tables = fit_markov(read.events).tables
    assert tables is not None
    assert np.allclose(tables.marks[1:].exp(), chain, atol=0.02)
    assert np.allclose(tables.gaps[1:], [[0.0, 0.5], [2.0, 0.5]], atol=0.03)


def test_the_only_column_of_words_left_holds_the_kinds() -> None:
    """They were left out, with a line that was easy to miss."""
    frame = pd.DataFrame(
        {"customer": ["a", "b"] * 30, "when": np.arange(60.0), "what": ["view", "view", "buy"] * 20}
    )
    columns, said = guess_columns(frame, sequence=None, time=None, kind=None)
    assert columns.kind == "what"
    assert "kinds in 'what'" in said
    for other in (frame.assign(what=np.arange(60) % 3), frame.assign(what=[f"note {n}" for n in range(60)])):
        columns, said = guess_columns(other, sequence=None, time=None, kind=None)
        assert columns.kind is None  # numbers may be amounts, and no word comes again
        assert "no column of kinds found among 'what'" in said
    assert guess_columns(frame.assign(price=1.0), sequence=None, time=None, kind=None)[0].kind is None


def test_sequences_are_found_by_the_order_of_times() -> None:
    """All users were taken for one, in whose log the times went back."""
    frame = pd.DataFrame(
        {"who": np.repeat(["a", "b", "c"], 20), "at": np.tile(np.arange(20.0), 3), "what": ["x", "y"] * 30}
    ).rename(columns={"at": "time"})
    columns, said = guess_columns(frame, sequence=None, time=None, kind=None)
    assert (columns.sequence, columns.kind) == ("who", "what")
    assert "sequences in 'who'" in said
    twice = frame.assign(copy=frame["who"])  # which of the two?
    assert guess_columns(twice, sequence=None, time=None, kind=None)[0].sequence is None
    log = frame.sort_values("time")  # one after the other: nothing tells
    assert guess_columns(log, sequence=None, time=None, kind=None)[0].sequence is None


def test_dates_and_lengths_of_time_that_would_be_misread() -> None:
    days = pd.date_range("2026-01-05", periods=30, freq="D")
    read = read_events(pd.DataFrame({"time": days.strftime("%d.%m.%Y %H:%M")}), Columns(time="time"))
    assert np.allclose(np.diff(read.events.times), 86_400.0)
    for times, message in (
        (days[:7].strftime("%d/%m/%Y"), "day first or month first. Say which"),
        (days.strftime("%Y%m%d").astype(int), "ends of months would be gaps.*format='%Y%m%d'"),
        (days - days[0], r"lengths of time.*dt.total_seconds\(\)"),
    ):
        with pytest.raises(DataError, match=message):
            read_events(pd.DataFrame({"time": times}), Columns(time="time"))
    numbers = read_events(pd.DataFrame({"time": np.arange(30.0)}), Columns(time="time"))
    with pytest.raises(DataError, match="expected a number, as those that were fitted"):
        read_events(pd.DataFrame({"time": days}), Columns(time="time"), clock=numbers.clock)


def test_columns_in_a_dictionary_and_events_in_a_list() -> None:
    times, kinds, users = [1.0, 2.5, 4.0, 4.5], ["a", "b", "a", "b"], ["x", "x", "y", "y"]
    table = as_frame({"user": users, "timestamp": times, "event": kinds})
    assert list(table.columns) == ["user", "timestamp", "event"]
    assert len(table) == 4
    listed = as_frame(list(zip(times, kinds, strict=True)))
    assert listed["time"].tolist() == times
    assert listed["kind"].tolist() == kinds
    assert as_frame([(1.0, 2.0), (3.0, 5.0)])["sequence"].tolist() == [0, 0, 1, 1]  # two sequences of times
    with pytest.raises(
        DataError, match=r"Of events \(time, kind\) make such a pair: tuple\(zip\(\*events\)\)"
    ):
        as_frame([[(1.0, "a"), (2.0, "b"), (3.0, "b")]])


def test_levels_are_in_percent(fitted: AarenEventForecaster) -> None:
    for levels in (80, [0.8]):
        with pytest.raises(ConfigError, match=r"levels are in percent, .*as \[80, 95\]; got"):
            fitted.predict(levels=levels)


def test_what_a_network_adds_is_kept_only_where_it_helps() -> None:
    """Kinds of a chain and gaps that alternate: nothing is to be learned of the first, much of the second."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(2, size=600)
    gaps = np.where(np.arange(600) % 2, 0.1, 3.0) * rng.lognormal(0.0, 0.1, 600)
    frame = pd.DataFrame({"time": np.cumsum(gaps), "kind": kinds})
    events = read_events(frame, guess_columns(frame, sequence=None, time=None, kind=None)[0]).events
    parts = divide(events, fraction=0.2, seed=0)
    torch.manual_seed(0)
    experiment = EventFit(
        parts,
        EventModelConfig(num_marks=2, width=16, num_heads=2, ff_width=16, encoding="log-gaps", base="markov"),
        **{"batch_size": 4, "learning_rate": 1e-2, "updates": 1, "patience": 1, "seed": 0},
    )
    model = experiment.build_model()
    assert isinstance(model, EventModel)
    model.draw_to_base(gaps=0.0, kinds=0.0)
    chain = terms(fit_markov(parts.train), parts.stop)
    np.testing.assert_allclose(terms(model, parts.stop)[:2], chain[:2], atol=1e-4)
    optimiser = experiment.build_optimiser(model)
    with torch.no_grad():
        assert model.mark_head is not None
        model.mark_head.weight.normal_()  # as if kinds had been learned by heart
        model.gap_numbers.weight.normal_(std=0.1)
    for epoch in range(80):
        for batch in experiment.batches(epoch):
            loss = experiment.loss(model, batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.eval()
    before = terms(model, parts.stop)[:2].mean(axis=1)
    of_gaps, of_kinds = shrink_correction(model, parts.stop)
    after = terms(model, parts.stop)[:2].mean(axis=1)
    assert of_gaps > of_kinds
    assert (after >= before).all()
    assert after[0] > chain[0].mean() + 0.5
    assert after[1] >= chain[1].mean() - 0.01


def events_of(times: object) -> pd.DataFrame:
    return pd.DataFrame({"time": times, "kind": ["a", "b", "a"]})


@pytest.mark.parametrize(
    "times",
    [
        [1j, 2, 3],
        np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False]),
        [1.0, 2.0, np.inf],
        [1.0, 2.0, 1e300],
        [-(2**63), 0, 2**63 - 1],
        [True, False, True],
        ["now", "today", "now"],
        ["2026-01-01", "now", "2026-01-03"],
        ["2026-01-01", "-1", "2026-01-03"],
        ["2026-01-01", True, "2026-01-03"],
        ["9999-01-01", "9999-01-02", "9999-01-03"],
        np.array(["2026-01-01", "2026-01-02", "5000-01-01"], dtype="datetime64[us]"),
    ],
)
def test_times_that_would_be_misread_are_refused(times: object) -> None:
    with pytest.raises(DataError, match="time"):
        AarenEventForecaster().fit(events_of(times))


@pytest.mark.parametrize("column", ["sequence", "kind"])
@pytest.mark.parametrize("names", [[[1], [2], [1]], [1j, 2, 1j], [{}, {}, {}]])
def test_names_that_cannot_be_looked_up_are_refused(column: str, names: object) -> None:
    with pytest.raises(DataError, match=column):
        AarenEventForecaster().fit(pd.DataFrame({"time": [1.0, 2.0, 3.0], column: names}))


def test_a_column_of_events_stands_once() -> None:
    frame = pd.DataFrame([[1, 2, "a"], [2, 3, "b"]], columns=["time", "time", "kind"])
    with pytest.raises(DataError, match="'time' is there twice"):
        AarenEventForecaster().fit(frame)
    with pytest.raises(DataError, match="different columns"):
        AarenEventForecaster(time="time", kind="time").fit(events_of([1.0, 2.0, 3.0]))


def test_the_number_of_a_row_names_no_sequence() -> None:
    frame = pd.DataFrame({"id": range(40), "time": np.arange(40.0), "kind": ["a", "b"] * 20})
    columns, said = guess_columns(frame, sequence=None, time=None, kind=None)
    assert columns == Columns(time="time", kind="kind")
    assert "no column of sequences found among 'id'" in said
    assert (
        guess_columns(frame.assign(id=[1, 2] * 20), sequence=None, time=None, kind=None)[0].sequence == "id"
    )


@pytest.mark.parametrize("moment", ["now", True, "-1", "9999-01-01Z", datetime(9999, 1, 1, tzinfo=UTC)])
def test_a_session_takes_dates_only(fitted: AarenEventForecaster, moment: object) -> None:
    session = fitted.stream()
    for take in (lambda: session.push(moment, "order"), lambda: fitted.predict(now=moment)):
        with pytest.raises(DataError):
            take()


def test_a_length_of_time_is_not_its_bare_number() -> None:
    clock = Clock(is_date=True)
    assert clock.duration(np.timedelta64(7, "D")) == 7 * 86_400.0
    for length in (np.timedelta64("NaT"), True, "-1", np.inf):
        with pytest.raises(DataError):
            clock.duration(length)
    with pytest.raises(DataError):
        Clock(is_date=False).duration(np.timedelta64(7, "D"))
    for moment in (True, np.nan, np.inf, 1e300, "1e400", 1j):
        with pytest.raises(DataError):
            Clock(is_date=False).read_one(moment)
