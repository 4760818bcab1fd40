"""What a value of Kafka Connect's JSON stands for, by the schema in front of it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connector.kafka.framed_records import framed
from unistream.connector.kafka.format.decode import PartitionRows, RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import checked_layout

CONNECT, DEBEZIUM, TIME = "org.apache.kafka.connect.data.", "io.debezium.data.", "io.debezium.time."
D = Decimal


def coded(value: int | bytes) -> str:
    raw = (
        value if isinstance(value, bytes) else value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    )
    return base64.b64encode(raw).decode()


def decimal(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "name": f"{CONNECT}Decimal", "version": 1, "parameters": {"scale": str(scale)}}


def wire(type: str, name: str = "") -> dict[str, Any]:
    return {"type": type, "optional": True} | ({"name": name} if name else {})


VARIABLE = {
    "type": "struct",
    "name": f"{DEBEZIUM}VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "optional": True}


def event(value: Any, written: dict[str, Any] | None, *, op: str = "c") -> bytes:
    image = "before" if op == "d" else "after"
    payload = {"op": op, "ts_ms": 1, image: {"id": 1, "v": value}}
    if written is None:
        return json.dumps(payload).encode()
    fields = [{"type": "int64", "field": "id"}, {**written, "field": "v"}]
    images = [{"type": "struct", "fields": fields, "field": name} for name in ("before", "after")]
    envelope = {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}]}
    return json.dumps({"schema": envelope, "payload": payload}).encode()


def decoded(values: list[bytes], kind: pa.DataType) -> PartitionRows:
    layout = checked_layout(pa.schema([("id", pa.int64()), ("v", kind)]), "debezium-json")
    decoder = RecordDecoder(RecordForm(layout=layout, values="debezium-json", on_bad_record="dead-letter"))
    piece = decoder.decode(framed([(None, value) for value in values]), "shop.items", 0)
    piece.records.validate(full=True)
    assert piece.records.schema.equals(layout.schema)
    return piece


def found(value: Any, written: dict[str, Any] | None, kind: pa.DataType) -> Any:
    """The value, or why it is refused."""
    piece = decoded([event(value, written)], kind)
    if piece.dead_letters is not None:
        return piece.dead_letters.column("reason")[0].as_py().removeprefix(f"field 'v' is not a {kind}: ")
    return piece.records.column("v")[0].as_py()


MONEY, US, ZONED = pa.decimal128(10, 4), pa.timestamp("us"), pa.timestamp("ms", tz="UTC")
AT = datetime(2020, 7, 29, 5, 38, 19, 434_000)  # noqa: DTZ001  (as its type)
AT_MS = 1_596_001_099_434
NAMED = pa.struct([("a", pa.decimal128(5, 1)), ("b", pa.list_(pa.binary()))])


@pytest.mark.parametrize(
    ("value", "written", "kind", "expected"),
    [
        pytest.param(coded(2346), decimal(4), MONEY, D("0.2346"), id="digits of a decimal"),
        pytest.param(coded(-2658824), decimal(4), MONEY, D("-265.8824"), id="digits that look like a number"),
        pytest.param("1234", decimal(0), pa.decimal128(20, 0), D(-2658824), id="Base64 of digits alone"),
        pytest.param(coded(-12), decimal(4), MONEY, D("-0.0012"), id="a negative decimal of one byte"),
        pytest.param(coded(0), decimal(4), MONEY, D("0.0000"), id="zero"),
        pytest.param(coded(15), decimal(1), MONEY, D("1.5000"), id="fewer digits than the column"),
        pytest.param(coded(15), decimal(-2), MONEY, D("1500.0000"), id="a negative scale"),
        pytest.param(coded(10**38), decimal(0), pa.decimal256(40, 0), D(10**38), id="39 digits"),
        pytest.param(coded(2346), decimal(4), pa.string(), "0.2346", id="a decimal as text"),
        pytest.param(coded(2346), decimal(4), pa.float64(), 0.2346, id="a decimal as a float"),
        pytest.param(0.2346, decimal(4), MONEY, D("0.2346"), id="decimal.format=NUMERIC"),
        pytest.param("1234", wire("string"), MONEY, D("1234.0000"), id="decimal.handling.mode=string"),
        pytest.param(12.5, wire("double"), MONEY, D("12.5000"), id="decimal.handling.mode=double"),
        pytest.param(
            {"scale": 3, "value": coded(-1500)}, VARIABLE, MONEY, D("-1.5000"), id="a scale of its own"
        ),
        pytest.param(
            [coded(5), None], list_of(decimal(1)), pa.list_(MONEY), [D("0.5"), None], id="in a list"
        ),
        pytest.param(
            [{"scale": 1, "value": coded(5)}],
            list_of(VARIABLE),
            pa.list_(MONEY),
            [D("0.5")],
            id="a list of them",
        ),
        pytest.param(
            {"a": coded(15), "b": [coded(b"x"), ""]},
            {
                "type": "struct",
                "fields": [{**decimal(1), "field": "a"}, {**list_of(wire("bytes")), "field": "b"}],
            },
            NAMED,
            {"a": D("1.5"), "b": [b"x", b""]},
            id="in a struct",
        ),
        pytest.param(coded(b"\x00\xff\x10"), wire("bytes"), pa.binary(), b"\x00\xff\x10", id="bytes"),
        pytest.param("", wire("bytes"), pa.binary(), b"", id="no bytes"),
        pytest.param(coded(b"\x05"), wire("bytes", f"{DEBEZIUM}Bits"), pa.binary(), b"\x05", id="bits"),
        pytest.param(18_262, wire("int32", f"{TIME}Date"), pa.date32(), date(2020, 1, 1), id="a date"),
        pytest.param(
            18_262,
            wire("int32", f"{CONNECT}Date"),
            ZONED,
            datetime(2020, 1, 1, tzinfo=UTC),
            id="a date as a time",
        ),
        pytest.param(
            "2020-01-01Z", wire("string", f"{TIME}IsoDate"), pa.date32(), date(2020, 1, 1), id="an ISO date"
        ),
        pytest.param(AT_MS, wire("int64", f"{TIME}Timestamp"), US, AT, id="milliseconds into microseconds"),
        pytest.param(AT_MS * 1000, wire("int64", f"{TIME}MicroTimestamp"), US, AT, id="microseconds"),
        pytest.param(
            AT_MS * 1000,
            wire("int64", f"{TIME}MicroTimestamp"),
            ZONED,
            AT.replace(tzinfo=UTC),
            id="microseconds into milliseconds",
        ),
        pytest.param(AT_MS * 10**6, wire("int64", f"{TIME}NanoTimestamp"), US, AT, id="nanoseconds"),
        pytest.param(AT_MS, wire("int64", f"{CONNECT}Timestamp"), US, AT, id="Connect's timestamp"),
        pytest.param(
            "2020-07-29T05:38:19.434Z",
            wire("string", f"{TIME}ZonedTimestamp"),
            US,
            AT,
            id="a text with a zone",
        ),
        pytest.param(61_000, wire("int32", f"{TIME}Time"), pa.time64("us"), time(0, 1, 1), id="a time in ms"),
        pytest.param(
            61 * 10**6, wire("int64", f"{TIME}MicroTime"), pa.time32("ms"), time(0, 1, 1), id="in us"
        ),
        pytest.param(
            61 * 10**9, wire("int64", f"{TIME}NanoTime"), pa.time64("us"), time(0, 1, 1), id="in ns"
        ),
        pytest.param(
            "01:02:03+01:00",
            wire("string", f"{TIME}ZonedTime"),
            pa.time32("s"),
            time(0, 2, 3),
            id="a time of day with a zone",
        ),
        pytest.param("k", wire("string", f"{DEBEZIUM}Enum"), pa.string(), "k", id="an enum"),
        pytest.param('{"a": 1}', wire("string", f"{DEBEZIUM}Json"), pa.string(), '{"a": 1}', id="a document"),
        pytest.param("6f1b", wire("string", f"{DEBEZIUM}Uuid"), pa.string(), "6f1b", id="a UUID"),
        pytest.param(7, wire("int64", f"{TIME}MicroDuration"), pa.int64(), 7, id="a duration as a number"),
        pytest.param(None, decimal(4), MONEY, None, id="no value"),
        pytest.param("0.2346", None, MONEY, D("0.2346"), id="without a schema a text that is no Base64"),
        pytest.param(0.2346, None, MONEY, D("0.2346"), id="without a schema a number"),
        pytest.param(18_262, None, pa.date32(), date(2020, 1, 1), id="without a schema a number of days"),
    ],
)
def test_a_value_is_what_the_schema_says(value, written, kind, expected):
    assert found(value, written, kind) == expected


@pytest.mark.parametrize(
    ("value", "written", "kind", "reason"),
    [
        pytest.param(
            "1234", None, MONEY, "'1234' is one number as text (decimal.handling.mode=string)", id="unsure"
        ),
        pytest.param(
            "CSo=", None, MONEY, "'CSo=' is one number as text (decimal.handling.mode=string)", id="Base64"
        ),
        pytest.param(["1234"], None, pa.list_(MONEY), "'1234' is one number as text", id="unsure in a list"),
        pytest.param(
            "AQID", None, pa.binary(), "nothing says whether it is Base64: let its converter", id="bytes"
        ),
        pytest.param(
            "deadbeef", wire("string"), pa.binary(), "the connector writes text, or declare", id="hex"
        ),
        pytest.param("AQID", wire("bytes"), MONEY, "the connector writes bytes", id="bytes as a decimal"),
        pytest.param("1", decimal(4), MONEY, "it is no Base64", id="a text that the schema does not fit"),
        pytest.param("", decimal(4), MONEY, "it has no digits", id="no digits"),
        pytest.param(
            coded(23461), decimal(5), MONEY, "Rescaling Decimal value would cause data loss", id="finer"
        ),
        pytest.param(
            coded(10**9), decimal(0), MONEY, "Decimal value does not fit in precision 10", id="larger"
        ),
        pytest.param(
            coded(10**40), decimal(0), pa.decimal128(38, 0), "Decimal value does not fit", id="41 digits"
        ),
        pytest.param(
            coded(10**90), decimal(0), MONEY, "it has 38 bytes, and a decimal has at most 32", id="vast"
        ),
        pytest.param(
            AT_MS * 1000, None, ZONED, "it is not in the years 1 to 9999. Numbers are read in", id="unit"
        ),
        pytest.param(
            1,
            wire("int64", f"{TIME}MicroTimestamp"),
            ZONED,
            "Casting from timestamp[us, tz=UTC] to timestamp[ms, tz=UTC] would lose data",
            id="digits",
        ),
        pytest.param(
            18_262,
            wire("int32", f"{TIME}Date"),
            pa.time32("ms"),
            f"the connector writes {TIME}Date",
            id="day",
        ),
        pytest.param(
            -1,
            wire("int64", f"{TIME}MicroTime"),
            pa.time64("us"),
            "it is no time of a day",
            id="before midnight",
        ),
        pytest.param(
            2**40, wire("int32", f"{TIME}Time"), pa.time64("us"), "it is no time of a day", id="days"
        ),
    ],
)
def test_a_value_that_may_be_another_one_is_a_bad_record(value, written, kind, reason):
    assert str(found(value, written, kind)).startswith(reason)


def test_each_record_is_read_by_its_own_schema():
    values = [
        event(coded(15), decimal(1)),
        event("1.25", wire("string")),
        event(coded(15), decimal(2), op="d"),
        event("1234", None),
        event(coded(7), decimal(1)),
        b"[]",
    ]
    piece = decoded(values, MONEY)
    assert piece.records.column("v").to_pylist() == [D("1.5"), D("1.25"), D("0.15"), D("0.7")]
    assert piece.dead_letters is not None
    assert piece.dead_letters.column("offset").to_pylist() == [3, 5]


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), max_size=20), st.integers(0, 38))
def test_digits_are_javas(numbers, scale):
    values = [event(None if n is None else coded(n), decimal(scale)) for n in numbers]
    piece = decoded(values, pa.decimal128(38, scale))
    exact = Context(prec=80)
    found = [
        None if v is None else int(exact.scaleb(v, scale)) for v in piece.records.column("v").to_pylist()
    ]
    assert found == numbers
