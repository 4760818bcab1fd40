"""Names of Spark, Flink and DataFrames, and slips of the pen, are answered with what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import unistream as us
from unistream.api.other_names import OF_A_KEYED_STREAM, OF_A_STREAM, OF_THE_PACKAGE, OF_WINDOWS
from unistream.base.errors import ConfigError

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
        pytest.param(lambda: us.avg, r"write us\.mean\(", id="Spark's mean"),  # type: ignore[attr-defined]
        pytest.param(lambda: us.F.col, r"write us\.col, us\.count", id="Spark's functions"),  # type: ignore[attr-defined]
        pytest.param(lambda: us.udf, r"write map_batches\(", id="functions of users"),  # type: ignore[attr-defined]
        pytest.param(
            lambda: us.StreamExecutionEnvironment,  # type: ignore[attr-defined]
            r"write us\.Environment\(\)",
            id="Flink's environment",
        ),
        pytest.param(lambda: keyed().key_by("n"), "write key_by once", id="a key of a key"),
        pytest.param(lambda: us.zzz, "has no attribute 'zzz'$", id="nothing is near"),  # type: ignore[attr-defined]
    ],
)
def test_it_says_what_to_write(write: Callable[[], object], said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        write()


@pytest.mark.parametrize(
    ("make", "hints"),
    [(lambda: us, OF_THE_PACKAGE), (stream, OF_A_STREAM), (keyed, OF_A_KEYED_STREAM), (windows, OF_WINDOWS)],
)
def test_no_hint_hides_a_method(make: Callable[[], object], hints: dict[str, str]) -> None:
    assert not [name for name in hints if hasattr(make(), name)]


def test_hints_name_what_there_is() -> None:
    hints = [
        *OF_THE_PACKAGE.values(),
        *OF_A_STREAM.values(),
        *OF_A_KEYED_STREAM.values(),
        *OF_WINDOWS.values(),
    ]
    named = {name for hint in hints for name in re.findall(r"\bus\.(\w+)", hint)}
    assert not [name for name in named if not hasattr(us, name)]


@pytest.mark.parametrize(
    ("write", "said"),
    [
        pytest.param(
            lambda: windows().aggregate(us.count()),
            r"aggregate: count\(\*\) needs a name, as a keyword: write aggregate\(n=us\.count\(\)\)",
            id="an aggregate without a name",
        ),
        pytest.param(
            lambda: stream().with_columns(us.col("n") * 2),
            r"with_columns: \(n \* 2\) needs a name, as a keyword",
            id="an expression without a name",
        ),
        pytest.param(
            lambda: stream().union([stream()]), r"union takes streams without a key, not \[", id="a list"
        ),
        pytest.param(
            lambda: stream().union(keyed()), "union takes streams without a key", id="a keyed union"
        ),
        pytest.param(
            lambda: stream().join({"a": 1}, on="k"),
            r"write join\(dimension, on='shop'\)",
            id="a dict to join",
        ),
        pytest.param(
            lambda: keyed().connect(keyed()), "connect takes a stream without a key", id="two keyed streams"
        ),
    ],
)
def test_wrong_arguments_are_answered_with_what_to_write(write: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write()
