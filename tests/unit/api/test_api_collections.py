"""`from_collection`: rows of the program as a source; and join keys of unlike types."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.connector.static import StaticSource
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import Exhausted, ReaderContext, Rows
from unistream.testing.harness.operators import CountingMetrics

N = pa.schema([("n", pa.int64())])


def rows_of(stream: us.DataStream) -> list[dict[str, Any]]:
    """What the source of the stream holds."""
    spec = stream._builder.graph.nodes[-1].operator
    assert isinstance(spec, SourceOperatorSpec)
    source = spec.source
    assert isinstance(source, StaticSource)
    from unistream.connector.catalogue import create_discovery

    reader = source.create_reader()
    reader.open(
        ReaderContext(
            index=0, parallelism=1, wake=lambda: None, request_split=lambda: None, metrics=CountingMetrics()
        )
    )
    reader.add_splits(create_discovery(source.info()).discover())
    reader.no_more_splits()
    found = []
    while not isinstance(polled := reader.poll(), Exhausted):
        if isinstance(polled, Rows):
            found.extend(polled.records.to_pylist())
    return found


@pytest.mark.parametrize(
    ("rows", "schema", "then"),
    [
        pytest.param([{"n": 1}, {"n": None}], None, [{"n": 1}, {"n": None}], id="dicts"),
        pytest.param([{"n": 1}, {"n": 1.5}], None, [{"n": 1.0}, {"n": 1.5}], id="types of all rows"),
        pytest.param(({"n": n} for n in range(2)), {"n": pa.int8()}, [{"n": 0}, {"n": 1}], id="a generator"),
        pytest.param([], N, [], id="no rows of a schema"),
        pytest.param(pa.table({"n": [1]}), None, [{"n": 1}], id="a table"),
        pytest.param(pa.record_batch({"n": [1]}), N, [{"n": 1}], id="a batch"),
    ],
)
def test_rows_of_the_program(rows: Any, schema: Any, then: list[dict[str, Any]]) -> None:
    stream = us.Environment().from_collection(rows, schema)
    assert stream.schema is not None
    assert stream.schema.names == ["n"]
    assert rows_of(stream) == then


@pytest.mark.parametrize(
    ("rows", "schema", "text"),
    [
        pytest.param([{"n": 1}, {"n": 1.5}], N, r"column 'n' \(int64\) cannot hold: 1.5.*; row 1", id="half"),
        pytest.param([{"n": 1}, {"m": 1}], None, r"columns \(m\), wanted \(n\); row 1", id="other columns"),
        pytest.param([{"n": 1}, (2,)], N, r"\(2,\) \(tuple\), wanted a dict of columns; row 1", id="a tuple"),
        pytest.param([1, 2], None, r"1 \(int\), wanted a dict of columns; row 0", id="numbers"),
        pytest.param([], None, "no rows, so their columns are not known: give a schema", id="nothing"),
        pytest.param(
            {"n": [1]}, None, "takes dicts, one for each row, or a pyarrow.Table, not dict", id="dict"
        ),
        pytest.param(5, None, "not int", id="no rows at all"),
        pytest.param(pa.table({"n": ["x"]}), N, "columns are not those of schema=", id="another table"),
        pytest.param([{"n": 1}], [("n", pa.int64())], "schema= takes", id="no schema"),
    ],
)
def test_what_is_no_row_is_refused(rows: Any, schema: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        us.Environment().from_collection(rows, schema)


def test_rows_are_taken_as_they_are_and_have_times_if_asked() -> None:
    rows = [{"at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "tags": ["a"]}]
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    stream = us.Environment().from_collection(rows, watermark_strategy=times, name="days")
    rows[0]["tags"].append("b")  # type: ignore[attr-defined]
    assert [row["tags"] for row in rows_of(stream)] == [["a"]]
    assert stream._builder.graph.nodes[-1].name == "days"


MOMENT = pa.timestamp


@pytest.mark.parametrize(
    ("fact", "dimension", "text"),
    [
        pytest.param(
            MOMENT("us"),
            MOMENT("s"),
            r"dimension.with_columns(k=us.col('k').cast(pa.timestamp('us')))",
            id="us, s",
        ),
        pytest.param(
            MOMENT("s"),
            MOMENT("us"),
            r"stream.with_columns(at=us.col('at').cast(pa.timestamp('us')))",
            id="s, us",
        ),
        pytest.param(
            MOMENT("ms", "UTC"),
            MOMENT("ms"),
            "dimension.with_columns(k=us.col('k').cast(pa.timestamp('ms', 'UTC'))); a time without a",
            id="a zone",
        ),
        pytest.param(
            pa.string(), pa.int64(), "dimension.with_columns(k=us.col('k').cast('string'))", id="text"
        ),
    ],
)
def test_join_keys_of_unlike_types_say_how_to_cast(
    fact: pa.DataType, dimension: pa.DataType, text: str
) -> None:
    env = us.Environment()
    stream = env.from_collection([], pa.schema([("at", fact)]))
    table = env.from_collection([], pa.schema([("k", dimension), ("name", pa.string())]))
    with pytest.raises(ConfigError) as caught:
        stream.join(table, on={"at": "k"})
    assert f"join: key 'at' is {fact}, that of the dimension, 'k', is {dimension}" in str(caught.value)
    assert text in str(caught.value)
    _, _, code = str(caught.value).partition("cast one before the join: ")
    cast = eval(code.partition(";")[0], {"us": us, "pa": pa, "stream": stream, "dimension": table})
    left, right = (cast, table) if code.startswith("stream") else (stream, cast)
    if fact != MOMENT("ms", "UTC"):
        left.join(right, on={"at": "k"})
