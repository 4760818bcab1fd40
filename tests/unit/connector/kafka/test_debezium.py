"""Changes of a table, as Debezium writes them in JSON."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connector.kafka.framed_records import framed
from unistream.base.errors import ConfigError
from unistream.connector.kafka.format.decode import PartitionRows, RecordDecoder, RecordForm
from unistream.connector.kafka.format.layout import checked_layout

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
SOURCE = {"ts_ms": 1_000, "db": "shop", "schema": "public", "table": "items", "lsn": 7}


def event(op, before, after, *, wrapped=False, **more) -> bytes:
    payload = {"before": before, "after": after, "op": op, "ts_ms": 2_000, "source": SOURCE, **more}
    return json.dumps({"schema": {"type": "struct"}, "payload": payload} if wrapped else payload).encode()


def item(id, name="n", **more):
    return {"id": id, "name": name, **more}


def decoded(values, *, schema=SCHEMA, on_bad="fail", **more) -> PartitionRows:
    layout = checked_layout(schema, "debezium-json", **more)
    decoder = RecordDecoder(RecordForm(layout=layout, values="debezium-json", on_bad_record=on_bad))
    piece = decoder.decode(framed([(None, value) for value in values]), "shop.items", 0)
    piece.records.validate(full=True)
    assert piece.records.schema.equals(layout.schema)
    return piece


def rows(piece: PartitionRows) -> list[tuple]:
    return [tuple(row.values()) for row in piece.records.to_pylist()]


@pytest.mark.parametrize("wrapped", [False, True, None], ids=["alone", "behind a schema", "both"])
def test_a_row_is_what_the_table_has_afterwards_or_had_before_it_was_deleted(wrapped):
    changes = [
        ("r", None, item(1, "a")),
        ("c", None, item(2, "b")),
        ("u", item(2, "b"), item(2, "c")),
        ("u", None, item(1, None)),
        ("d", item(2, "c"), None),
    ]
    values = [event(*one, wrapped=i % 2 if wrapped is None else wrapped) for i, one in enumerate(changes)]
    piece = decoded([*values, None], metadata={"op": "op", "at": "offset"})
    assert rows(piece) == [
        (1, "a", "r", 0),
        (2, "b", "c", 1),
        (2, "c", "u", 2),
        (1, None, "u", 3),
        (2, "c", "d", 4),
    ]
    assert piece.tombstones == 1


def test_what_is_known_of_a_change():
    metadata = {
        "written": "ingestion-timestamp",
        "changed": "source.timestamp",
        "db": "source.database",
        "in": "source.schema",
        "of": "source.table",
    }
    values = [event("c", None, item(1)), json.dumps({"op": "c", "after": item(2)}).encode()]
    second = datetime.fromtimestamp(1, UTC)
    assert rows(decoded(values, metadata=metadata)) == [
        (1, "n", second.replace(second=2), second, "shop", "public", "items"),
        (2, "n", None, None, None, None, None),
    ]


TIMES = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("ms", tz="UTC")),
        ("clock", pa.time64("us")),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def test_times_are_text_or_numbers_by_the_column():
    of = {"day": 18_262, "at": 1_500_000, "zoned": "2020-01-01T00:00:00Z", "clock": 1_000_000, "kind": "k"}
    text = {**of, "day": "2020-01-01", "at": "1970-01-01T00:00:01.5", "clock": "00:00:01"}
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000)  # noqa: DTZ001  (as its type)
    expected = (1, date(2020, 1, 1), at, datetime(2020, 1, 1, tzinfo=UTC), time(0, 0, 1), "k")
    for one in (of, text):
        piece = decoded(
            [event("c", None, {"id": 1, **one}), event("d", {"id": 1, **one}, None)], schema=TIMES
        )
        assert rows(piece) == [expected, expected]


def test_what_is_no_change_is_a_bad_record():
    required = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("day", pa.date32())]
    )
    values = [
        event("c", None, item(1, day="2020-01-01")),
        event("t", None, None),
        event("d", None, None),
        event("u", item(1), None),
        json.dumps(item(3)).encode(),
        event("c", None, {"name": "x"}),
        event("c", None, item("one")),
        event("c", None, item(5, day="someday")),
        b"[]",
        event("r", None, item(9)),
    ]
    piece = decoded(values, schema=required, on_bad="dead-letter")
    assert [row[0] for row in rows(piece)] == [1, 9]
    assert piece.dead_letters is not None
    reasons = piece.dead_letters.column("reason").to_pylist()
    assert piece.dead_letters.column("offset").to_pylist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert reasons[:5] == [
        "its 'op' is 't', not one of c, r, u, d",
        "it deletes a row and does not say which: its 'before' is null (PostgreSQL: REPLICA IDENTITY)",
        "its 'op' is 'u', and its 'after' is null",
        "it has no 'op'",
        "field 'id' is missing or null",
    ]
    assert reasons[5] == "field 'after.id' is of JSON type string, where the schema needs a number"
    assert reasons[6] == "'someday' is not a date32[day]"
    assert reasons[7] == "it is not a JSON object"


CHANGELOG = {"kind": "row-kind", "at": "offset"}


def test_a_changelog_has_the_former_row_of_an_update_too():
    changes = [
        ("r", None, item(1, "a")),
        ("u", item(1, "a"), item(1, "b")),
        ("u", item(1, "b"), item(1, None)),
        ("c", None, item(2, "c")),
        ("d", item(1, None), None),
    ]
    piece = decoded([*(event(*one) for one in changes), None], metadata=CHANGELOG)
    assert rows(piece) == [
        (1, "a", "+I", 0),
        (1, "a", "-U", 1),
        (1, "b", "+U", 1),
        (1, "b", "-U", 2),
        (1, None, "+U", 2),
        (2, "c", "+I", 3),
        (1, None, "-D", 4),
    ]
    assert (len(piece.timestamps), piece.tombstones) == (7, 1)


def test_of_an_update_that_is_half_bad_no_row_is_left():
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.date32())])
    values = [
        event("u", {"id": 1, "day": "2020-01-01"}, {"id": 1, "day": "2020-01-02"}),
        event("u", None, {"id": 2}),
        event("u", {"id": 3, "day": "someday"}, {"id": 3, "day": "2020-01-01"}),
        event("u", {"id": 4}, {"id": None}),
        event("u", {"id": None}, {"id": None}),
        event("u", {"id": 6}, {"id": 7}),
    ]
    piece = decoded(values, schema=schema, on_bad="dead-letter", metadata=CHANGELOG)
    assert [(row[0], row[2], row[3]) for row in rows(piece)] == [
        (1, "-U", 0),
        (1, "+U", 0),
        (6, "-U", 5),
        (7, "+U", 5),
    ]
    assert piece.dead_letters is not None
    assert piece.dead_letters.column("offset").to_pylist() == [1, 2, 3, 4]
    assert piece.dead_letters.column("reason").to_pylist()[0] == (
        "it updates a row and does not say what that was: its 'before' is null "
        "(PostgreSQL: REPLICA IDENTITY FULL)"
    )


def test_rows_of_a_changelog_have_the_key_of_their_record_and_tombstones_stay_rows():
    schema = pa.schema([("k", pa.string()), ("id", pa.int64())])
    layout = checked_layout(
        schema,
        "debezium-json",
        key_format="bytes",
        key_fields=["k"],
        metadata={"kind": "row-kind", "gone": "tombstone"},
        tombstones="row",
    )
    decoder = RecordDecoder(RecordForm(layout=layout, values="debezium-json", keys="bytes"))
    records = [
        (b"one", event("u", item(1), item(2))),
        (None, event("u", item(3), item(4))),
        (b"two", None),
        (b"three", event("c", None, item(5))),
    ]
    assert rows(decoder.decode(framed(records), "t", 0)) == [
        ("one", 1, "-U", False),
        ("one", 2, "+U", False),
        (None, 3, "-U", False),
        (None, 4, "+U", False),
        ("two", None, None, True),
        ("three", 5, "+I", False),
    ]


@given(
    st.lists(st.tuples(st.sampled_from("crud"), st.integers(0, 3), st.sampled_from("ab")), max_size=30),
    st.lists(st.integers(0, 29), max_size=4, unique=True),
)
def test_a_changelog_adds_up_to_the_table(steps, broken):
    table: dict[int, str] = {}
    events: list[bytes] = []
    for op, id, name in steps:
        before = item(id, table[id]) if id in table else None
        op = {"c": "u", "r": "u"}.get(op, op) if before else {"u": "c", "d": None}.get(op, op)  # noqa: PLW2901
        if op is None:
            continue
        table.pop(id, None)
        if op != "d":
            table[id] = name
        events.append(event(op, before, None if op == "d" else item(id, name)))
    for at in broken:
        events.insert(min(at, len(events)), b"{}")
    piece = decoded(events, on_bad="skip", metadata=CHANGELOG)
    sums: Counter[tuple[int, str]] = Counter()
    for id, name, kind, _ in rows(piece):
        sums[id, name] += 1 if kind.startswith("+") else -1
    assert {key: n for key, n in sums.items() if n} == dict.fromkeys(table.items(), 1)
    assert piece.skipped == len(broken)
    assert (np.diff(piece.records.column("at")) >= 0).all()


def test_what_is_refused():
    with pytest.raises(ConfigError, match=r"column 'x' cannot have 'op'; there is topic, "):
        checked_layout(SCHEMA, "json", metadata={"x": "op"})
    with pytest.raises(ConfigError, match=r"column 'name' has the source.timestamp of a record"):
        checked_layout(SCHEMA, "debezium-json", metadata={"name": "source.timestamp"})
    assert checked_layout(SCHEMA, "debezium-json", metadata={"name": "op"}).schema.equals(SCHEMA)
