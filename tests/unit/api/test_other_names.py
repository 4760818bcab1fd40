"""Names of Spark, Flink and DataFrames, and slips of the pen, are answered with what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import unistream as us
from unistream.api.other_names import OF_A_KEYED_STREAM, OF_A_STREAM, OF_WINDOWS

TIMED = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("n")


def stream() -> Any:
    return us.Environment().from_collection([{"n": 1, "k": "a"}]).assign_timestamps_and_watermarks(TIMED)


def keyed() -> Any:
    return stream().key_by("k")


def windows() -> Any:
    return keyed().window(us.TumblingEventTimeWindows.of("1 min"))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        pytest.param(lambda: stream().where, r"a stream has no 'where': write filter\(", id="SQL"),
        pytest.param(lambda: stream().withColumn, r"write with_columns\(", id="Spark"),
        pytest.param(lambda: stream().writeStream, r"write sink_to\(us\.DeltaSink", id="Spark's sinks"),
        pytest.param(lambda: stream().keyBy, r"write key_by\(", id="Flink"),
        pytest.param(lambda: stream().window, r"write key_by\(.*\.window\(", id="windows need a key"),
        pytest.param(lambda: stream().fliter, "write filter, perhaps", id="a slip"),
        pytest.param(lambda: keyed().sum, r"write key_by\(.*\.aggregate\(", id="aggregates need windows"),
        pytest.param(lambda: windows().sum, r"write aggregate\(n=us\.sum", id="an aggregate has a name"),
        pytest.param(lambda: us.colum, "did you mean 'col'", id="a name of the package"),  # type: ignore[attr-defined]
        pytest.param(lambda: us.zzz, "has no attribute 'zzz'$", id="nothing is near"),  # type: ignore[attr-defined]
    ],
)
def test_it_says_what_to_write(write: Callable[[], object], said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        write()


@pytest.mark.parametrize(
    ("make", "hints"), [(stream, OF_A_STREAM), (keyed, OF_A_KEYED_STREAM), (windows, OF_WINDOWS)]
)
def test_no_hint_hides_a_method(make: Callable[[], object], hints: dict[str, str]) -> None:
    assert not [name for name in hints if hasattr(make(), name)]
