"""Batches and errors on the wire, without a wire."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import flight

from unistream.base.errors import ConfigError, ProtocolError, UnistreamError, Unreachable
from unistream.model.elements import Batch
from unistream.net import wire

ROWS = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "z"]})
TIMES = pa.array([10, 20, 30], pa.int64())


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(Batch(ROWS), id="without event times"),
        pytest.param(Batch(ROWS, TIMES), id="with event times"),
        pytest.param(Batch(ROWS.select([]), TIMES), id="no columns but event times"),
        pytest.param(
            Batch(ROWS.rename_columns(["a", wire.TIMESTAMP_COLUMN])), id="a column with the hidden name"
        ),
        pytest.param(
            Batch(ROWS.append_column(wire.TIMESTAMP_COLUMN, TIMES), TIMES), id="hidden name and event times"
        ),
        pytest.param(
            Batch(ROWS.replace_schema_metadata({"made": "here"}), TIMES), id="metadata of the schema is kept"
        ),
    ],
)
def test_a_batch_comes_back_as_it_was(batch: Batch) -> None:
    back = wire.from_wire(wire.to_wire(batch))
    assert back.records.equals(batch.records, check_metadata=True)
    assert back.records.num_rows == 3
    assert back.timestamps == batch.timestamps


def test_a_batch_that_contradicts_itself_is_refused() -> None:
    good = pa.record_batch({"text": ["abc", "def"]})
    offsets = pa.array([0, 3, 6], pa.int32()).buffers()[1].to_pybytes()[:12]
    beyond_the_text = pa.array([0, 3, 6_000_000], pa.int32()).buffers()[1].to_pybytes()[:12]
    message = good.serialize().to_pybytes().replace(offsets, beyond_the_text)
    bad = pa.ipc.read_record_batch(pa.py_buffer(message), good.schema)
    with pytest.raises(ProtocolError, match="malformed"):
        wire.from_wire(bad)


@given(st.lists(st.text(max_size=200), max_size=60), st.integers(min_value=1500, max_value=4000))
def test_a_split_loses_nothing_and_keeps_the_limit(texts: list[str], bytes_max: int) -> None:
    records = pa.record_batch({"text": pa.array(texts, pa.string())})
    parts = list(wire.split(records, bytes_max))
    assert [text for part in parts for text in part["text"].to_pylist()] == texts
    assert all(part.nbytes <= bytes_max for part in parts)


def test_a_row_that_does_not_fit_is_refused_with_its_size() -> None:
    with pytest.raises(ProtocolError, match=r"a row of \d+ B does not fit"):
        list(wire.split(pa.record_batch({"text": ["x" * 5000]}), 1000))


@pytest.mark.parametrize(
    ("error", "arrives_as"),
    [
        (ProtocolError("bad frame"), ProtocolError),
        (Unreachable("not there"), Unreachable),
        (ConfigError("handler's own"), ProtocolError),
        (KeyError("handler's own"), ProtocolError),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
def test_an_error_keeps_its_class_and_text(error: Exception, arrives_as: type[UnistreamError]) -> None:
    arrived = wire.from_peer(wire.to_peer(error), "call to x")
    assert type(arrived) is arrives_as
    assert str(arrived).startswith("call to x: ")
    assert str(error.args[0]) in str(arrived)


@pytest.mark.parametrize(
    "error",
    [
        flight.FlightUnavailableError("connection refused"),
        flight.FlightTimedOutError("deadline"),
        flight.FlightCancelledError("stream removed"),
        flight.FlightInternalError("connection reset"),
        flight.FlightServerError("connection reset"),
        OSError("broken pipe"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_broken_connection_is_unreachable(error: Exception) -> None:
    assert isinstance(wire.from_peer(error, "x"), Unreachable)


def test_what_grpc_adds_for_its_developers_is_left_out() -> None:
    error = flight.FlightUnavailableError(
        "no. gRPC client debug context: UNKNOWN:{file:1}. Client context: OK"
    )
    assert str(wire.from_peer(error, "x")) == "x: no"
