"""A table of SQLite, and one of PostgreSQL, in plain SQL by the drivers of these databases."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from tests.contract.sinks.rig import (
    BETWEEN,
    WITH_ROWS,
    Combination,
    Foreign,
    Way,
    appended,
    deleted,
    updated,
)
from tests.contract.sinks.rigs.delta import plain
from tests.contract.sinks.values import KINDS
from unistream.connector.sql import SqlSink
from unistream.port.sink import Sink


def _doing(statement: str) -> Any:
    """With the place of the id of a row."""

    def begin(rig: SqlRig, victim: int, theirs: pa.RecordBatch) -> Any:
        return lambda: rig.execute(statement.format(id=victim))

    return begin


def _insert(rig: SqlRig, _victim: int, theirs: pa.RecordBatch) -> Any:
    return lambda: rig.insert(theirs)


FOREIGN = {
    "insert": Foreign(_insert, appended),
    "delete": Foreign(_doing("DELETE FROM rows WHERE id = {id}"), deleted),
    "update": Foreign(_doing("UPDATE rows SET n = 8 WHERE id = {id}"), updated),
    "new column": Foreign(_doing("ALTER TABLE rows ADD COLUMN more BIGINT")),
    "index": Foreign(_doing("CREATE INDEX theirs ON rows (n)")),
}
WAYS = {
    "append": Way("append", "column"),
    "upsert": Way("upsert", "column", {"mode": "upsert", "key": "id"}),
    "upsert by value": Way("upsert", "key", {"mode": "upsert", "key": "v"}),
}


class SqlRig(ABC):
    """What both databases share."""

    kinds: Sequence[str] = tuple(kind for kind in KINDS if kind != "names")
    ways = WAYS
    refused: Sequence[tuple[str, str]] = ()
    staging = ("sql.staged",)
    steps = ("sql.before_commit", "sql.committed")
    look = ""  # the look is in the transaction
    foreign = FOREIGN
    background = ""
    url: str
    types: Mapping[str, str]

    @staticmethod
    def is_possible(one: Combination) -> bool:
        """Others cannot insert a key that is there."""
        has_it = one.table == WITH_ROWS and one.way == "upsert by value" and one.when == BETWEEN
        return not (has_it and one.foreign == "insert")

    @abstractmethod
    def execute(self, statement: str, rows: Sequence[Sequence[Any]] = ()) -> list[tuple[Any, ...]]:
        """With `?` for the values of each row."""

    @abstractmethod
    def stored(self, value: Any) -> Any:
        """As the driver takes it."""

    def insert(self, rows: pa.RecordBatch) -> None:
        given = [[one["id"], self.stored(one["v"]), one["n"]] for one in plain(rows).to_pylist()]
        self.execute("INSERT INTO rows (id, v, n) VALUES (?, ?, ?)", given)

    def fill(self, way: Way, rows: pa.RecordBatch) -> None:
        kind = self.types[str(plain(rows).schema.field("v").type)]
        key = f", PRIMARY KEY ({way.options['key']})" if way.rule == "upsert" else ""
        self.execute(f"CREATE TABLE rows (id BIGINT, v {kind}, n BIGINT{key})")
        self.insert(rows)

    def is_empty(self) -> bool:
        return not self.tables()

    @abstractmethod
    def tables(self) -> list[tuple[Any, ...]]:
        """All of the database, ours too."""

    def sink(self, way: Way) -> Sink:
        return SqlSink(self.url, "rows", on_foreign="append", **way.options)


SQLITE_TYPES = {
    **{"string": "TEXT", "bool": "BOOLEAN", "int8": "SMALLINT", "int64": "BIGINT", "double": "DOUBLE"},
    **{"date32[day]": "DATE", "timestamp[us]": "DATETIME", "timestamp[us, tz=UTC]": "DATETIME"},
    **{"decimal128(6, 2)": "TEXT", "decimal128(38, 2)": "TEXT", "binary": "BLOB"},
    "list<item: int32>": "JSON",
}


class SqliteRig(SqlRig):
    refusals = (sqlite3.Error,)
    types = SQLITE_TYPES

    def __init__(self, folder: Path, _fixture: Callable[[str], Any]) -> None:
        self._path = folder / "rows.db"
        self.url = f"sqlite:///{self._path}"

    def execute(self, statement: str, rows: Sequence[Sequence[Any]] = ()) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path, timeout=60)) as database, database:
            done = database.executemany(statement, rows) if rows else database.execute(statement)
            return done.fetchall()

    def tables(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT name FROM sqlite_master") if self._path.exists() else []

    def stored(self, value: Any) -> Any:
        """SQLite has neither times nor exact numbers: they are text, times as SQLAlchemy writes them."""
        match value:
            case dt.datetime():
                return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
            case dt.date():
                return value.isoformat()
            case Decimal():
                return str(value)
            case list():
                return json.dumps(value, separators=(",", ":"))
            case bool():
                return int(value)
            case _:
                return value

    def shown(self, value: Any, way: Way) -> Any:
        return self.stored(value)

    def readers(self, way: Way, schema: pa.Schema) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        found = self.execute("SELECT id, v, n FROM rows")
        yield "sqlite3", [dict(zip(("id", "v", "n"), one, strict=True)) for one in found]


POSTGRES_TYPES = {
    **{"string": "TEXT", "bool": "BOOLEAN", "int8": "SMALLINT", "int64": "BIGINT"},
    **{"double": "DOUBLE PRECISION", "date32[day]": "DATE", "timestamp[us]": "TIMESTAMP"},
    **{"timestamp[us, tz=UTC]": "TIMESTAMPTZ", "decimal128(6, 2)": "NUMERIC(6, 2)"},
    **{"decimal128(38, 2)": "NUMERIC(38, 2)", "binary": "BYTEA", "list<item: int32>": "JSONB"},
}


class PostgresRig(SqlRig):
    kinds = ("text", "boolean", "64 bits", "double", "time with a zone", "decimal", "bytes", "list")
    refusals = (psycopg.Error,)
    types = POSTGRES_TYPES

    def __init__(self, folder: Path, fixture: Callable[[str], Any]) -> None:
        self.url = fixture("postgres").new_database()
        self._dsn = self.url.replace("+psycopg", "")

    def execute(self, statement: str, rows: Sequence[Sequence[Any]] = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn) as connection, connection.cursor() as cursor:
            if rows:
                cursor.executemany(statement.replace("?", "%s"), rows)  # type: ignore[arg-type]
                return []
            cursor.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def tables(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")

    def stored(self, value: Any) -> Any:
        return json.dumps(value) if isinstance(value, list) else value

    def shown(self, value: Any, way: Way) -> Any:
        return value

    def readers(self, way: Way, schema: pa.Schema) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        found = self.execute("SELECT id, v, n FROM rows")
        yield "psycopg", [dict(zip(("id", "v", "n"), one, strict=True)) for one in found]
