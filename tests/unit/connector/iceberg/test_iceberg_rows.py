"""Rows as files of a table: values of every type, columns that do not fit. Read by iceberg-rust."""

from __future__ import annotations

import datetime as dt
import errno
import os
import traceback
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.utils.config import Config

from tests.contract.sinks.case import batch, context, permit, request
from tests.fault_fs import PowerCut
from tests.iceberg_lake import TABLE, Lake
from tests.unit.connector.iceberg.parts import Parts, rows
from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable, UserCodeError
from unistream.base.secrets import Secret
from unistream.connector.catalogue import committer_of
from unistream.connector.iceberg import IcebergSink
from unistream.connector.iceberg.record import RECORDS_MAX, IcebergCommitRecord, outdated
from unistream.model.elements import Batch

AT = dt.datetime(2026, 3, 29, 1, 30, 15, 250_000, tzinfo=dt.UTC)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")

VALUES: dict[str, tuple[pa.DataType, Any, str, Any]] = {
    "flag": (pa.bool_(), True, "boolean", True),
    "tiny": (pa.int8(), -1, "int", -1),
    "unsigned": (pa.uint32(), 2**32 - 1, "long", 2**32 - 1),
    "large": (pa.int64(), -(2**63), "long", -(2**63)),
    "half": (pa.float32(), 0.5, "float", 0.5),
    "ratio": (pa.float64(), float("inf"), "double", float("inf")),
    "price": (pa.decimal128(12, 2), Decimal("12.50"), "decimal(12, 2)", Decimal("12.50")),
    "day": (pa.date32(), AT.date(), "date", AT.date()),
    "at": (pa.timestamp("ms"), AT.replace(tzinfo=None), "timestamp", AT.replace(tzinfo=None)),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), AT, "timestamptz", AT),
    "text": (pa.large_string(), 'a,"b"\n', "string", 'a,"b"\n'),
    "code": (pa.dictionary(pa.int32(), pa.string()), "x", "string", "x"),
    "bytes": (pa.binary(), b"\x00\xff", "binary", b"\x00\xff"),
    "fixed": (pa.binary(3), b"abc", "fixed[3]", b"abc"),
    "many": (pa.list_(pa.int32()), [1, None], "list<int>", [1, None]),
    "inner": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        {"a": 1, "b": ["x"]},
        "struct",
        {"a": 1, "b": ["x"]},
    ),
    "pairs": (pa.map_(pa.string(), pa.int64()), [("a", 1)], "map", [("a", 1)]),
}


def test_values_of_every_type_come_back(lake: Lake, parts: Parts) -> None:
    columns = {name: pa.array([value, None], kind) for name, (kind, value, _, _) in VALUES.items()}
    parts.add(1, rows(id=[1, 2], **columns))
    with lake.table() as table:
        types = {field.name: str(field.field_type) for field in table.schema().fields}
    for name, (_, _, kind, _) in VALUES.items():
        assert types[name].startswith(kind), name
    names = ", ".join(f'"{name}"' for name in VALUES)
    [found, empty] = lake.rows(f"SELECT {names} FROM t ORDER BY id")
    assert dict(zip(VALUES, found, strict=True)) == {name: row[3] for name, row in VALUES.items()}
    assert set(empty) == {None}


def test_a_time_and_a_uuid_come_back(lake: Lake, parts: Parts) -> None:
    """By pyiceberg: DataFusion has no times of Iceberg."""
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes], pa.binary(16)))
    parts.add(1, rows(id=[1], time=pa.array([AT.time()], pa.time64("us")), key=ids))
    with lake.table() as table:
        [found] = table.scan().to_arrow().to_pylist()
    assert found == {"id": 1, "time": AT.time(), "key": ID}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (pa.duration("s"), "column 'n' is duration[s], which an Iceberg table cannot hold"),
        (pa.uint64(), "column 'n' is uint64, which an Iceberg table cannot hold"),
        (pa.null(), "column 'n' is null, which an Iceberg table cannot hold"),
    ],
)
def test_types_that_iceberg_does_not_have_are_refused(parts: Parts, kind: pa.DataType, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parts.sink().check(pa.schema([("n", kind)]))
    assert says in str(refused.value)


def test_values_that_do_not_fit_are_named_and_nothing_is_staged(lake: Lake, parts: Parts) -> None:
    nanos = Batch(pa.record_batch({"at": pa.array([1], pa.timestamp("ns"))}))
    with pytest.raises(UserCodeError, match=r"column 'at' \(timestamp\[ns\]\) cannot be stored as"):
        parts.staged(1, nanos)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lake.drop()
    without = Batch(pa.record_batch([pa.array([None], pa.int64())], schema=schema))
    with pytest.raises(UserCodeError, match="column 'id' is declared without nulls but has some"):
        parts.staged(1, without)
    assert lake.files() == []


# --- columns ------------------------------------------------------------------------------------------

HELD = pa.schema(
    [("id", pa.int32()), ("price", pa.decimal128(5, 2)), ("inner", pa.struct([("a", pa.int32())]))]
)


@pytest.mark.parametrize(
    ("stream", "options", "says"),
    [
        ([("id", pa.int32()), ("new", pa.string())], {}, "has no column 'new' (string); add it"),
        ([("id", pa.int64())], {}, "column 'id' is int, the stream's is long; cast it"),
        ([("inner", pa.struct([("b", pa.int32())]))], {}, "has no column 'inner.b' (int); add it"),
        ([("id", pa.string())], {"schema_evolution": "add"}, "column 'id' is int, the stream's is string"),
        ([("price", pa.decimal128(9, 3))], {"schema_evolution": "add"}, "the stream's is decimal(9, 3)"),
        ([("id", pa.int32())], {"partition_by": "id"}, "is partitioned by nothing, the sink by id"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_job_starts(
    lake: Lake, parts: Parts, stream: list[Any], options: dict[str, Any], says: str
) -> None:
    lake.create(HELD)
    with pytest.raises(ConfigError) as refused:
        parts.sink(**options).check(pa.schema(stream))
    assert says in str(refused.value)
    with lake.table() as table:
        assert len(table.schemas()) == 1


def test_a_table_that_must_be_there_is_not(parts: Parts) -> None:
    sink = parts.sink(create=False)
    for act in (lambda: sink.check(None), lambda: parts.staged(1, batch(1), parts.writer(sink))):
        with pytest.raises(
            ConfigError, match=r"table lake.rows .* does not exist, and the sink has create=False"
        ):
            act()


def test_new_columns_are_added_and_types_widened(lake: Lake, parts: Parts) -> None:
    lake.create(HELD)
    old = pa.table({"id": [1], "price": [Decimal("1.00")], "inner": [{"a": 1}]}, HELD)
    lake.change(lambda table: table.append(old))
    inner = pa.array([{"a": 2, "b": ["x"]}], pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))
    price = pa.array([Decimal("100000.00")], pa.decimal128(9, 2))
    wider = rows(id=pa.array([2**40]), price=price, inner=inner, new=pa.array(["n"]))
    sink = parts.sink(schema_evolution="add")
    sink.check(wider.records.schema)
    committer, writers = parts.committer(sink), [parts.writer(sink, index=index) for index in (0, 1)]
    staged = [one for writer in writers for one in parts.staged(1, wider, writer)]
    committer.commit(permit(1), request(1, *staged))
    with lake.table() as table:  # iceberg-rust reads no older files of a struct that has grown
        found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found[0] == {"id": 1, "price": Decimal("1.00"), "inner": {"a": 1, "b": None}, "new": None}
    grown = {"id": 2**40, "price": Decimal("100000.00"), "inner": {"a": 2, "b": ["x"]}, "new": "n"}
    assert found[1:] == [grown, grown]
    assert lake.rows("SELECT id, price, new FROM t ORDER BY id")[0] == (1, Decimal("1.00"), None)


def test_a_stream_may_lack_columns_of_the_table_and_be_narrower(lake: Lake, parts: Parts) -> None:
    lake.create(pa.schema([("name", pa.string()), ("id", pa.int64()), ("more", pa.float64())]))
    parts.add(1, rows(id=pa.array([1], pa.int32())))
    assert lake.rows("SELECT name, id, more FROM t") == [(None, 1, None)]


# --- what is stored -----------------------------------------------------------------------------------


def test_no_secret_is_in_what_a_savepoint_stores_and_its_commits_need_no_code_of_the_user(
    lake: Lake, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_TOKEN", "hunter2")
    secrets: dict[str, Any] = {
        **lake.properties,
        "s3.secret-access-key": Secret("hunter2"),
        "token": "hunter2",
        "credential": "${env:LAKE_TOKEN}",
        "s3.endpoint": "https://me:hunter2@store",
    }
    sink = IcebergSink(TABLE, catalog_properties=secrets)
    writer = parts.writer(sink)
    prepared = parts.staged(1, batch(1, 2), writer)
    state = b"".join([*prepared, *writer.snapshot_state(1)])
    assert b"hunter2" not in state
    assert b"${env:LAKE_TOKEN}" in state
    committer = committer_of("iceberg", prepared)
    parts.made.append(committer)
    committer.open(context(restored=1))
    assert committer.commit(permit(1), request(1, *prepared)).rows == 2
    assert lake.ids() == [1, 2]


@pytest.mark.parametrize(
    "properties",
    [
        {"uri": "postgresql+psycopg://nobody:hunter2@127.0.0.1:9/nothing"},
        {"uri": "nonsense://nobody:hunter2@127.0.0.1", "type": "sql"},
        {"type": "nonsense", "token": "hunter2"},
        {"token": "hunter2"},
        {"uri": "http://nobody:hunter2@127.0.0.1:9", "token": "hunter2"},
    ],
)
def test_no_secret_is_in_what_is_said_of_a_catalog_that_fails(properties: dict[str, str]) -> None:
    with pytest.raises((ConfigError, Unreachable)) as failed:
        IcebergSink(TABLE, catalog_properties=properties).check(None)
    assert "hunter2" not in str(failed.value)
    assert "hunter2" not in "".join(traceback.format_exception(failed.value))


def test_a_catalog_is_found_by_the_configuration_of_pyiceberg(
    lake: Lake, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in lake.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    parts.add(1, batch(1), IcebergSink(TABLE, catalog="prod"))
    assert lake.ids() == [], "a table is stored under the name of its catalog"
    committables = parts.staged(2, batch(2), parts.writer(IcebergSink(TABLE, catalog="prod")))
    finishing = committer_of("iceberg", committables)
    parts.made.append(finishing)
    finishing.open(context(restored=1))
    assert finishing.commit(permit(2), request(2, *committables)).rows == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"table": "rows"},
            "table is 'namespace.name', such as 'lake.orders', without blanks, '#' and '?', not 'rows'",
        ),
        ({"mode": "merge"}, "mode must be one of append, upsert, overwrite-partitions, not 'merge'"),
        ({"mode": "upsert"}, "an Iceberg sink with mode='upsert' needs a key"),
        ({"schema_evolution": True}, "schema_evolution must be 'refuse' or 'add', not True"),
        ({"catalog_properties": {"uri": ["x"]}}, "catalog property 'uri' is text, not ['x']"),
        ({"catalog": ""}, "catalog is the name of a catalog"),
        ({"table_properties": {"format-version": "3"}}, "'format-version' must be 1 or 2, not '3'"),
    ],
)
def test_arguments_that_are_wrong_are_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        IcebergSink(**{"table": TABLE, **arguments})
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "sql"},
        {},
        {"type": "sql", "uri": "lake"},
        {"type": "sql", "uri": "nonsense://host/lake"},
        {"type": "rest", "uri": "lake"},
    ],
)
def test_a_catalog_that_cannot_be_is_a_matter_of_configuration(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"Iceberg, catalog 'default': opening it was refused: .*"):
        IcebergSink(TABLE, catalog_properties=properties).check(None)


def test_records_of_the_oldest_sinks_are_dropped_when_there_are_too_many() -> None:
    records = {
        (str(n), "sink"): IcebergCommitRecord(
            lineage=str(n), sink_uid="sink", job="j", checkpoint=1, number=n
        )
        for n in range(RECORDS_MAX)
    }
    mine = IcebergCommitRecord(lineage="new", sink_uid="sink", job="j", checkpoint=1, number=RECORDS_MAX)
    assert outdated(records, mine) == ["unistream.commit.0/sink"]
    assert outdated({("new", "sink"): mine}, mine) == []


def test_a_committable_of_another_format_is_refused(parts: Parts) -> None:
    [content] = parts.staged(1, batch(1))
    newer = msgspec.msgpack.encode({**msgspec.msgpack.decode(content), "format": 3})
    with pytest.raises(CorruptSnapshot, match="has format 3, this version reads 2"):
        parts.committer().commit(permit(1), request(1, newer))


def test_a_storage_that_fails_is_named_and_may_be_tried_again(
    lake: Lake, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    sink = parts.sink()
    parts.staged(1, batch(1), parts.writer(sink))  # makes the table
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", broken)
        with pytest.raises(Unreachable, match=r"table lake.rows did not answer while writing file://"):
            parts.staged(1, batch(1), parts.writer(sink))
    parts.add(1, batch(1), sink)
    assert lake.ids() == [1]


def test_a_path_that_will_never_be_a_folder_is_refused(lake: Lake, parts: Parts) -> None:
    blocked = lake.warehouse.parent / "blocked"
    blocked.write_text("no folder")
    sink = parts.sink(table_properties={"write.data.path": blocked.as_uri()})
    with pytest.raises(ConfigError, match=r"table lake.rows: writing file://.*blocked.* was refused"):
        parts.staged(1, batch(1), parts.writer(sink))
    blocked.unlink()
    parts.add(1, batch(1), sink)
    assert lake.ids() == [1]


def test_a_commit_survives_a_power_cut(
    lake: Lake, parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the catalog names is durable; its database takes care of itself."""
    lake.warehouse.mkdir()
    real, power = os.fsync, PowerCut(lake.warehouse)

    def recorded(handle: int) -> None:
        with monkeypatch.context() as itself:
            itself.setattr(os, "fsync", real)
            power.fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    parts.add(1, batch(1, 2), parts.sink(partition_by="name"))
    power.cut()
    assert lake.ids() == [1, 2]
