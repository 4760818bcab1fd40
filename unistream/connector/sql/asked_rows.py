"""Asks a database which rows of a batch the constraints of a table refuse, before they are staged.

One connection, which has what was seen in a temporary table (`questions`): when it is lost, so is that,
and the subtask begins again from its checkpoint. Nothing of the target is changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, MetaData, Table, select
from sqlalchemy.exc import DBAPIError

from unistream.connector.common import sqlstate
from unistream.connector.sql.columns import sql_type
from unistream.connector.sql.constraints import Constraints
from unistream.connector.sql.database import SinkDatabase, of_driver
from unistream.connector.sql.failures import OF_ROWS
from unistream.connector.sql.key_forms import KeyForm, key_forms
from unistream.connector.sql.questions import BAD, IN, LABEL, PLACE, ROWS, SEEN, Questions, Quoting
from unistream.connector.sql.statements import SqlTableName, commits_table
from unistream.model.columns.column_names import distinct


class AskedRows:
    """Asks about the rows of one subtask. `schema`: of the rows. The caller closes it, and the database."""

    def __init__(
        self,
        database: SinkDatabase,
        target: SqlTableName,
        found: Constraints,
        key: Sequence[str],
        schema: pa.Schema,
    ) -> None:
        self._database = database
        self._target = target
        self._found = found
        self._is_sqlite = database.dialect == "sqlite"
        self._key = tuple(key)
        self._forms: Mapping[str, KeyForm] = {}
        whole = found.of_row or found.tries_target
        names = {*key, *(name for one in found.unique for name in one.columns)}
        names |= {name for one in found.foreign for name in one.columns}
        names |= {name for one in found.foreign if one.own for name in one.others}
        asked = tuple(name for name in schema.names if whole or name in names)
        self._schema = pa.schema([schema.field(name) for name in asked])
        quoting = Quoting(database.quote, database.literal, database.in_statement)
        self._ask = Questions((target, database.quoted(target)), found, asked, key, quoting)
        self._connection = database.connected("asking which rows are refused")
        self._labels: set[int] = set()  # of rows that may be seen
        with self._transaction() as connection:
            self._forms = key_forms(connection, (target, database.quoted_value(target)), key)
            for statement in self._tables():
                connection.exec_driver_sql(statement)

    def close(self) -> None:
        self._connection.close()

    def is_waiting(self, label: int) -> bool:
        """Rows of that label were passed on, and are not known to be committed."""
        return label in self._labels

    def refused(self, records: pa.RecordBatch, places: pa.Array, label: int) -> dict[int, str]:
        """Finds the rows that are refused: row -> why. `places`: what each row is called; `label`: of those
        that are not."""
        with self._transaction() as connection:
            self._put(connection, records.select(self._schema.names), places)
            bad = self._tried(connection, records)
            for question in (self._ask.in_the_way(), self._ask.twice()):
                bad |= self._asked(connection, question)
            while orphans := self._asked(connection, self._ask.orphans()):
                bad |= orphans
            if len(bad) < records.num_rows:
                self._labels.add(label)
            if self._ask.seen:
                note = self._ask.note("?" if self._is_sqlite else "%s")
                connection.exec_driver_sql(note, (label,))
        return bad

    def committed(self, label: int) -> None:
        """Rows of that label, and before it, are in the target."""
        gone, self._labels = (
            min(self._labels, default=label + 1) <= label,
            {n for n in self._labels if n > label},
        )
        if not gone or not self._ask.seen:
            return
        with self._transaction() as connection:
            connection.exec_driver_sql(f"DELETE FROM {SEEN} WHERE {LABEL} <= {int(label)}")  # noqa: S608
        if not self._is_sqlite:  # nobody else tidies a temporary table
            driver: Any = self._connection.connection.driver_connection
            with self._classified(), of_driver(self._connection):
                driver.autocommit = True
                try:
                    driver.execute(f"VACUUM {SEEN}")
                finally:
                    driver.autocommit = False

    def newest(self, lineage: str, sink_uid: str, schema: str) -> int:
        """The label of the last commit of a sink; 0: there is none."""
        commits = commits_table(schema)
        c = commits.c
        with self._transaction() as connection:
            if not self._database.has_table(connection, SqlTableName(commits.name, schema)):
                return 0
            own = (c.lineage == lineage) & (c.sink_uid == sink_uid)
            return int(connection.execute(select(c.label).where(own)).scalar_one_or_none() or 0)

    # --- in a transaction ---------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        connection = self._connection
        with self._classified(), connection.begin():
            if not self._is_sqlite:  # each row is looked up in an index, however large the target is
                connection.exec_driver_sql(
                    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; "
                    "SET LOCAL enable_seqscan = off"
                )
            yield connection

    @contextmanager
    def _classified(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._database.our_error(
                error, f"asking which rows table {self._target} refuses"
            ) from error

    def _tables(self) -> Iterator[str]:
        ask, target = self._ask, self._database.quoted(self._target)
        names = ask.listed(ask.columns)
        if self._is_sqlite:
            yield f"CREATE TEMP TABLE {ROWS} AS SELECT 0 AS {PLACE}, {names} FROM {target} WHERE false"  # noqa: S608
        else:
            preparer = self._connection.dialect
            kinds = [
                f"{self._database.quote(field.name)} {sql_type(field.name, field.type).compile(preparer)}"
                for field in self._schema
            ]
            at_end = "ON COMMIT DELETE ROWS"
            yield f"CREATE TEMP TABLE {IN} ({PLACE} bigint, {', '.join(kinds)}) {at_end}"
            yield f"CREATE TEMP TABLE {BAD} ({PLACE} bigint, reason text) {at_end}"
            yield from self._like(target, names, at_end)
        if ask.seen:
            kept = ask.listed((PLACE, *ask.seen))
            yield f"CREATE TEMP TABLE {SEEN} AS SELECT 0 AS {LABEL}, {kept} FROM {ROWS} WHERE false"  # noqa: S608
            if not self._is_sqlite:
                yield f"ALTER TABLE {SEEN} ALTER COLUMN {LABEL} TYPE bigint"
            yield from ask.indexes()

    def _like(self, target: str, names: str, at_end: str) -> Iterator[str]:
        """A table with the types of the target; with its checks if a row alone can be refused."""
        if not self._found.of_row:
            yield (
                f"CREATE TEMP TABLE {ROWS} {at_end} AS "  # noqa: S608  (quoted)
                f"SELECT 0::bigint AS {PLACE}, {names} FROM {target} WITH NO DATA"
            )
            return
        including = "INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING GENERATED"
        yield f"CREATE TEMP TABLE {ROWS} (LIKE {target} {including}, {PLACE} bigint) {at_end}"
        for name, column in self._database.columns_in(self._connection, self._target).items():
            changes = [] if name in self._ask.columns or column.get("computed") else ["NOT NULL"]
            changes += ["DEFAULT"] if "nextval(" in str(column.get("default")) else []
            for one in changes:  # a value that the rows do not bring comes later
                yield f"ALTER TABLE {ROWS} ALTER COLUMN {self._database.quote(name)} DROP {one}"

    def _put(self, connection: Connection, records: pa.RecordBatch, places: pa.Array) -> None:
        whole = pa.RecordBatch.from_arrays([places, *records.columns], names=[PLACE, *records.schema.names])
        if self._is_sqlite:
            connection.exec_driver_sql(f"DELETE FROM {ROWS}")  # noqa: S608
        self._database.copy(connection, Table(ROWS if self._is_sqlite else IN, MetaData()), whole)

    def _tried(self, connection: Connection, records: pa.RecordBatch) -> dict[int, str]:
        """What is found by writing the rows into a table like the target, or into itself, which is undone."""
        bad: dict[int, str] = {}
        target = self._database.quoted(self._target)
        if not self._is_sqlite:
            bad = self._written(connection, IN, ROWS, [self._ask.put(IN, ROWS)], undo=False)
        if not self._found.tries_target:
            return bad
        if self._key and (self._forms or _repeats(records.select(list(self._key)))):
            # rows of one key, or of what the table takes for one, are written one after the other
            return bad | self._one_by_one(connection, ROWS, target)
        seen = [self._ask.put_seen()] if self._found.with_seen else []
        return bad | self._written(connection, ROWS, target, [*seen, self._ask.put(ROWS, target)], undo=True)

    def _written(
        self, connection: Connection, source: str, where: str, statements: Sequence[str], *, undo: bool
    ) -> dict[int, str]:
        attempt = connection.begin_nested()
        try:
            if undo and not self._is_sqlite:
                connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
            for statement in statements:
                connection.exec_driver_sql(statement)
        except DBAPIError as error:
            attempt.rollback()
            if not _is_of_rows(error):
                raise
        else:
            (attempt.rollback if undo else attempt.commit)()
            return {}
        bad = self._one_by_one(connection, source, where)
        if where == ROWS:
            connection.exec_driver_sql(self._ask.put_rest())
        return bad

    def _one_by_one(self, connection: Connection, source: str, where: str) -> dict[int, str]:
        """Tries row after row, and undoes all of it. What is refused is removed from `ROWS`."""
        if self._is_sqlite:
            bad = self._loop(connection)
        else:
            connection.exec_driver_sql(f"TRUNCATE {BAD}")
            connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
            connection.exec_driver_sql(self._ask.loop(source, where))
            bad = dict(tuple(row) for row in connection.exec_driver_sql(f"SELECT {PLACE}, reason FROM {BAD}"))  # noqa: S608
        self._drop(connection, bad)
        return {
            place: f"table {self._target}: {reason}".replace(ROWS, self._target.name)
            for place, reason in bad.items()
        }

    def _loop(self, connection: Connection) -> dict[int, str]:
        driver: Any = connection.connection.driver_connection
        cursor, one, bad = driver.cursor(), self._ask.put_one(), dict[int, str]()
        attempt = connection.begin_nested()
        if self._found.with_seen:
            connection.exec_driver_sql(self._ask.put_seen())
        with of_driver(connection):
            for (place,) in cursor.execute(f"SELECT {PLACE} FROM {ROWS} ORDER BY {PLACE}").fetchall():  # noqa: S608
                try:
                    cursor.execute(one, (place,))
                except sqlite3.IntegrityError as error:
                    bad[place] = str(error)
        attempt.rollback()
        return bad

    def _asked(self, connection: Connection, question: str | None) -> dict[int, str]:
        """Rows that a constraint refuses; they are removed."""
        if question is None:
            return {}
        bad = dict(tuple(row) for row in connection.exec_driver_sql(question))
        self._drop(connection, bad)
        return bad

    def _drop(self, connection: Connection, bad: Mapping[int, str]) -> None:
        if not bad:
            return
        if self._is_sqlite:
            one = f"DELETE FROM {ROWS} WHERE {PLACE} = ?"  # noqa: S608
            connection.exec_driver_sql(one, [(place,) for place in bad])
        else:
            connection.exec_driver_sql(f"DELETE FROM {ROWS} WHERE {PLACE} = ANY(%s::bigint[])", (list(bad),))  # noqa: S608


def _is_of_rows(error: DBAPIError) -> bool:
    orig = error.orig or error
    return isinstance(orig, sqlite3.IntegrityError) or sqlstate(orig).startswith(OF_ROWS)


def _repeats(key: pa.RecordBatch) -> bool:
    return bool(distinct(pa.Table.from_batches([key])).num_rows < key.num_rows)
