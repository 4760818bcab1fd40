"""Dead letters of a hybrid source: the one that has sent them reads them, on its side of the fence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64())])


def topic(name: str, *, bounded: bool = False) -> us.KafkaSource:
    return us.KafkaSource(
        bootstrap_servers="localhost:1",
        topic=name,
        schema=SCHEMA if bounded else pa.schema(list(SCHEMA)[::-1]),
        bounded=bounded,
        on_bad_record="dead-letter",
    )


def letters(*of: tuple[str, int]) -> pa.Table:
    """Of topic and event time; the ids are those times."""
    return pa.table(
        {
            "topic": [name for name, _ in of],
            "partition": pa.array([0] * len(of), pa.int32()),
            "offset": list(range(len(of))),
            "timestamp": pa.array([datetime(1970, 1, 1, tzinfo=UTC)] * len(of), pa.timestamp("ms", tz="UTC")),
            "reason": ["no"] * len(of),
            "raw": [b'{"id": %d, "at": %d}' % (at, at) for _, at in of],
            "key": pa.nulls(len(of), pa.binary()),
            "headers": pa.array(
                [[]] * len(of), pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
            ),
        }
    )


def ids(found: Any) -> list[list[int] | None]:
    return [None if one is None else one.column("id").to_pylist() for one in found.rows]


def test_each_is_read_by_its_own_source_in_the_columns_of_both() -> None:
    hybrid = us.HybridSource(topic("old", bounded=True), topic("new"))
    given = letters(("new", 1), ("old", 2), ("other", 3))
    assert hybrid.own_letters(given).to_pylist() == [True, True, False]
    found = hybrid.read_letters(given.slice(0, 2))
    assert ids(found) == [[1], [2]]
    assert {one.schema.names[0] for one in found.rows if one is not None} == {hybrid.schema.names[0]}


def test_rows_on_the_other_side_of_the_fence_are_left_out() -> None:
    hybrid = us.HybridSource(topic("old", bounded=True), topic("new"), fence=10, timestamp_column="at")
    found = hybrid.read_letters(letters(("old", 9), ("old", 10), ("new", 9), ("new", 10)))
    assert ids(found) == [[9], [], [], [10]], "the other source has these rows"
    assert found.reasons == {}


def test_a_fence_that_is_not_known_any_more_is_refused() -> None:
    hybrid = us.HybridSource(
        topic("old", bounded=True), topic("new"), switch="last-event-time", timestamp_column="at"
    )
    with pytest.raises(ConfigError, match="not known any more where the fence was"):
        hybrid.read_letters(letters(("old", 9)))


def test_two_sources_that_read_the_same_are_refused() -> None:
    hybrid = us.HybridSource(topic("both", bounded=True), topic("both"))
    with pytest.raises(ConfigError, match="not known which of them has sent these letters"):
        hybrid.read_letters(letters(("both", 9)))


def test_a_history_without_letters() -> None:
    hybrid = us.HybridSource(us.StaticSource(SCHEMA.empty_table()), topic("new"))
    given = letters(("new", 1), ("old", 2))
    assert hybrid.own_letters(given).to_pylist() == [True, False]
    assert ids(hybrid.read_letters(given.slice(0, 1))) == [[1]]
