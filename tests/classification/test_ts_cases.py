from typing import Literal

import pytest

from aaren.classification.ts import complete, parse_ts
from aaren.errors import DataError

HEADER = "@problemName X\n@timeStamps false\n@classLabel true a b\n@data\n"


@pytest.mark.parametrize("irregular", ["protocol", "strict"])
@pytest.mark.parametrize("text", ["inf", "-inf", "1e999"])
def test_infinity_is_refused_under_either_rule(irregular: Literal["protocol", "strict"], text: str) -> None:
    cases = parse_ts(f"{HEADER}1,2:3,4:a\n5,6,7:8,9,{text}:b\n".encode(), name="text")
    with pytest.raises(DataError, match=r"X: case 1, channel 1 holds -?inf \(1 such value\(s\)\).*as '\?'"):
        complete(cases, name="X", irregular=irregular)


def test_the_cure_of_an_irregular_file_is_named_for_every_way_in() -> None:
    cases = parse_ts(f"{HEADER}1,?:3,4:a\n".encode(), name="text")
    with pytest.raises(DataError) as caught:
        complete(cases, name="X", irregular="strict")
    for way in (
        "`aaren train` with --set allow_irregular=true, also for `aaren predict`",
        "`aaren data verify --allow-irregular`",
        "irregular='protocol'",
    ):
        assert way in str(caught.value)
