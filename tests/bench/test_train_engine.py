from aaren.bench.record import number
from aaren.bench.train_engine import measure_engine, sheets
from aaren.presets import make_run


def test_shares_add_up_and_the_promise_is_judged() -> None:
    run = make_run("support.toy_task", "line")
    record = measure_engine({"aaren": run}, seconds=0.3, command="aaren bench engine")
    (row,) = record.measurements
    assert number(row, "updates") > 5
    assert 0.0 < number(row, "inside_seconds") < number(row, "update_seconds")
    assert number(row, "loop_share") < number(row, "outside_share") < 1.0
    table, targets = sheets(record)
    assert table.rows[0][0] == "aaren"
    assert targets.rows[0][1:3] == ("at most 5%", f"{number(row, 'outside_share'):.2%}")
