"""Which rows a table would refuse, as far as its columns say so: before they are staged.

    null in a column that is NOT NULL, or in the key
    PostgreSQL: a text longer than VARCHAR(n); a whole number beyond SMALLINT or INTEGER; a text with the
    character NUL, which no text has there. SQLite takes these.

What depends on other rows (a unique key, a foreign key) or on an expression (CHECK) the database is asked, if
the table has anything of the kind (`asked_rows`): of the rows that are in the table, and of those that this
subtask has passed on and that are not committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import types as sql

from unistream.base.errors import Unreachable
from unistream.base.ids import CheckpointId
from unistream.connector.common import (
    TWICE,
    deletes,
    json_column,
    reasons_of,
    repeated_keys,
    with_single_keys,
)
from unistream.connector.sql.asked_rows import AskedRows
from unistream.connector.sql.constraints import constraints
from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.line import checkpoint_of
from unistream.connector.sql.stage import SqlTable
from unistream.model.elements import Batch

_NUMBERS: Final = ((sql.SmallInteger, 2**15), (sql.BigInteger, None), (sql.Integer, 2**31))
RESTORED_S: Final = 120  # as long as a statement of a commit may take, unless the sink says otherwise
POLL_S: Final = 0.05
_NUL_IN_JSON: Final = r"(?:^|[^\\])(?:\\\\)*\\u0000"  # and not behind a backslash that is one itself


class Passed(msgspec.Struct, frozen=True):
    """State: the newest barrier before which rows went to the writer of that table."""

    address: str
    barrier: int


class SqlRowCheck:
    """See `unistream.port.sink.RowCheck`."""

    def __init__(self, table: SqlTable, delete_when: pc.Expression | None = None) -> None:
        self._table = table
        self._delete_when = delete_when
        self._columns: Mapping[str, Mapping[str, Any]] = {}
        self._strict = False
        self._database: SinkDatabase | None = None
        self._asked: AskedRows | None = None
        self._has_asked = False
        self._sink: tuple[str, str] | None = None  # its line, and its uid
        self._passed = 0  # the newest barrier that rows have gone before
        self._restored = 0  # the same, of the checkpoint that was restored
        self._label = 1

    def open(self) -> None:
        """Asks the database for the columns of the table; one that is made later has those of the rows."""
        database = SinkDatabase(self._table.url)
        try:
            self._columns = database.columns(self._table.target)
            self._strict = database.dialect != "sqlite"
        finally:
            database.close()

    def follow(
        self, lineage: str, sink_uid: str, restored: CheckpointId | None, items: Sequence[bytes]
    ) -> None:
        """See `unistream.port.sink.FollowsCommits`."""
        found = [msgspec.json.decode(item, type=Passed) for item in items]
        self._restored = max((one.barrier for one in found if one.address == self._table.address), default=0)
        self._sink, self._label = (lineage, sink_uid), (restored or 0) + 1

    def passed(self, checkpoint_id: CheckpointId) -> None:
        """See `unistream.port.sink.FollowsCommits`."""
        if self._asked is not None and self._asked.is_waiting(self._label):
            self._passed = checkpoint_id
        self._label = checkpoint_id + 1
        if self._asked is not None:
            self._asked.committed(self._committed(self._asked))

    def snapshot_state(self) -> Sequence[bytes]:
        """See `unistream.port.sink.FollowsCommits`."""
        barrier = max(self._passed, self._restored)
        return [msgspec.json.encode(Passed(self._table.address, barrier))] if barrier else []

    def close(self) -> None:
        """See `unistream.port.sink.FollowsCommits`."""
        if self._asked is not None:
            self._asked.close()
        if self._database is not None:
            self._database.close()

    def refused(self, batch: Batch) -> Mapping[int, str]:
        gone = None if self._delete_when is None else deletes(self._delete_when, batch.records)
        columns = zip(batch.records.schema.names, batch.records.columns, strict=True)
        reasons = reasons_of(
            (pc.and_kleene(unfit, pc.invert(gone)) if gone is not None and of_target else unfit, reason)
            for name, column in columns
            for unfit, reason, of_target in self._reasons(name, column)
        )
        asked = self._opened(batch.records.schema)
        if asked is None:
            return reasons
        written = np.ones(batch.num_rows, np.bool_) if gone is None else ~gone.to_numpy(zero_copy_only=False)
        written[list(reasons)] = False
        if not written.any():
            return reasons
        places = pa.array(np.flatnonzero(written))
        rows = batch.records if written.all() else batch.records.take(places)
        return reasons | asked.refused(rows, places, self._label)

    def _opened(self, schema: pa.Schema) -> AskedRows | None:
        """What asks the database, opened with the first rows, which have the columns. None: there is nothing
        to ask."""
        if self._has_asked or not self._columns:
            return self._asked
        self._has_asked = True
        target, key = self._table.target, self._table.key
        database = self._database = SinkDatabase(self._table.url)
        with database.read(f"looking at the constraints of table {target}") as connection:
            found = constraints(database, connection, target, schema.names, key)
        if found:
            self._asked = AskedRows(database, target, found, key, schema)
            self._await_restored(self._asked)
        else:
            self._database = None
            database.close()
        return self._asked

    def _await_restored(self, asked: AskedRows) -> None:
        """Rows of the restored checkpoint are in the table before others are compared with it: the committer,
        which runs elsewhere, commits them before anything else. Raises Unreachable."""
        until = time.monotonic() + RESTORED_S
        while self._committed(asked) < self._restored:
            if time.monotonic() > until:
                raise Unreachable(
                    f"table {self._table.target}: rows of the restored checkpoint were not committed within "
                    f"{RESTORED_S} s, so it is not known which rows it refuses"
                )
            time.sleep(POLL_S)

    def _committed(self, asked: AskedRows) -> int:
        """The newest checkpoint of which rows are in the table."""
        return checkpoint_of(asked.newest(*self._sink, self._table.target.schema)) if self._sink else 0

    def _reasons(self, name: str, column: pa.Array) -> Iterator[tuple[pa.Array, str, bool]]:
        """Rows with a bad value in that column, why it is bad, and whether a row that deletes may have it: it
        is staged, and not written to the table. Only if there are any."""
        target, where = self._table.target, self._columns.get(name, {})
        if column.null_count and (name in self._table.key or where.get("nullable") is False):
            rule = "in the key of" if name in self._table.key else "NOT NULL in"
            yield (
                column.is_null(),
                f"null in {name!r}, which is {rule} table {target}",
                name not in self._table.key,
            )
        if (twice := repeated_keys(column)) is not None:
            yield twice, TWICE.format(name), False
        if self._strict:
            yield from self._of_strict(name, column, where.get("type"))

    def _of_strict(self, name: str, column: pa.Array, kind: Any) -> Iterator[tuple[pa.Array, str, bool]]:
        """The values that a database refuses which checks those of a column by its type."""
        target = self._table.target
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if (has_nul := _has_nul(column)) is not None:
            yield has_nul, f"the character NUL in {name!r}, which no text of PostgreSQL has", False
        if _is_text(column.type):
            length = getattr(kind, "length", None) if isinstance(kind, sql.String) else None
            if length is not None and (pc.max(pc.utf8_length(column)).as_py() or 0) > length:
                longer = pc.greater(pc.utf8_length(column), length)
                yield longer, f"a text of more than {length} characters in {name!r} of table {target}", True
        elif pa.types.is_integer(column.type):
            limit = next((end for number, end in _NUMBERS if isinstance(kind, number)), None)
            if limit is not None:
                least, greatest = pc.min_max(column).as_py().values()
                if least is not None and (least < -limit or greatest >= limit):
                    beyond = pc.or_(pc.less(column, -limit), pc.greater_equal(column, limit))
                    yield beyond, f"a number beyond {kind} in {name!r} of table {target}", True


def _has_nul(column: pa.Array) -> pa.BooleanArray | None:
    """Values with the character NUL, also inside of them; None: there are none."""
    if pa.types.is_nested(column.type):
        found = pc.match_substring_regex(json_column(with_single_keys(column)), _NUL_IN_JSON)
    elif _is_text(column.type):
        found = pc.match_substring(column, "\0")
    else:
        return None
    return found if pc.any(found).as_py() else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
