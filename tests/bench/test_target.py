from dataclasses import replace

from aaren.bench.target import Target, at_least, at_most, targets_sheet, within


def test_limits_belong_to_what_is_promised() -> None:
    judged = [at_least("a", 2.0, 2.0), at_most("b", 2.0, 2.0), within("c", 2.0, 1.0, 2.0)]
    assert [target.verdict for target in judged] == ["met"] * 3
    judged = [at_least("a", 1.99, 2.0), at_most("b", 2.01, 2.0), within("c", 2.01, 1.0, 2.0)]
    assert [target.verdict for target in judged] == ["missed"] * 3


def test_a_ratio_of_scattered_times_says_so() -> None:
    target = Target(name="a", wanted="w", measured="1.00x", is_met=True, is_noisy=True)
    assert target.verdict == "met, noisy"
    assert replace(target, measured=None, is_met=None).verdict == "not run"  # nothing to distrust


def test_sheet_stresses_what_was_missed_and_counts_what_was_not_measured() -> None:
    judged = [at_least("slow", 1.0, 2.0), at_least("absent", None, 2.0), at_least("fast", 3.0, 2.0)]
    sheet = targets_sheet(judged, whole_run="aaren bench it")
    assert [row[0] for row in sheet.rows] == ["slow", "fast"]
    assert sheet.bold_rows == {"slow"}
    assert "| **1.00x** | **missed** |" in sheet.to_markdown()
    assert sheet.note == "1 of 3 targets need the whole run: aaren bench it"
    assert targets_sheet(judged[:1]).note == ""
