"""What is asked about rows, as SQL: which of them the constraints of a table refuse. Pure: no connection.

Temporary tables of one connection, so that nobody sees them and a crash leaves none:

    unistream_in     rows of one batch as they are staged (PostgreSQL alone)
    unistream_rows   the same with the types of the target; what is refused is removed from it
    unistream_seen   rows that were passed on, until their checkpoint is committed: columns of constraints
    unistream_bad    what a loop in the server has found (PostgreSQL alone)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from unistream.connector.sql.constraints import Constraints, Foreign, Unique
from unistream.connector.sql.statements import SqlTableName

IN, ROWS, SEEN, BAD = "unistream_in", "unistream_rows", "unistream_seen", "unistream_bad"
PLACE: Final = "__row"  # of a row in its batch
LABEL: Final = "__label"  # one above the barrier before it
UNDONE: Final = "UN001"  # PostgreSQL: the error by which a block undoes its own changes
FIRST, NUMBER = "__unistream_first", "__unistream_number"  # columns of questions, next to those of the rows
Quote = Callable[[str], str]


class Quoting(NamedTuple):
    """How names and texts are written in a statement: the name of a column, a text, and the name of a table
    that the database has quoted."""

    column: Quote
    text: Quote
    table: Quote


class Questions:
    """The questions about one table and the columns of rows. `columns`: those that are asked about; `target`:
    and how it is called in a statement."""

    def __init__(
        self,
        target: tuple[SqlTableName, str],
        found: Constraints,
        columns: Sequence[str],
        key: Sequence[str],
        quoting: Quoting,
    ) -> None:
        self._name, self._target = str(target[0]), target[1]
        self._found = found
        self._key = tuple(key)
        self._quote, self._text, self._table = quoting
        self.columns = tuple(columns)
        self.seen = self.columns if found.with_seen else self._of_constraints()

    def _of_constraints(self) -> tuple[str, ...]:
        found = self._found
        own = [name for one in found.foreign if one.own for name in one.others]
        names = {*(name for one in found.unique for name in one.columns), *own}
        names |= set(self._key) if names else set()
        return tuple(name for name in self.columns if name in names)

    def listed(self, names: Sequence[str], of: str = "") -> str:
        return ", ".join(f"{of}{self._quote(name)}" for name in names)

    def indexes(self) -> Iterator[str]:
        """Yields the statements that create the indexes by which rows that were seen are found."""
        found = self._found
        sets = [one.columns for one in found.unique] + [one.others for one in found.foreign if one.own]
        for number, names in enumerate(dict.fromkeys(sets)):
            yield f"CREATE INDEX {SEEN}_{number} ON {SEEN} ({self.listed(names)})"

    def _reason(self, one: Unique) -> str:
        return self._text(one.reason(self._name))

    # --- of the target and of what was seen ---------------------------------------------------------

    def in_the_way(self) -> str | None:
        """Rows of which the target, or what was seen, has one that is in the way; and foreign rows that are
        not there. With the name of the constraint."""
        asked = [self._taken(one, where) for one in self._found.unique for where in (self._target, SEEN)]
        asked += [self._missing(one) for one in self._found.foreign if not one.own]
        return " UNION ALL ".join(asked) or None

    def twice(self) -> str | None:
        """Rows behind others of the batch with the same values."""
        return " UNION ALL ".join(self._twice(one) for one in self._found.unique) or None

    def orphans(self) -> str | None:
        """Rows whose foreign row would be one of the table itself. To be asked until there are none."""
        return " UNION ALL ".join(self._missing(one) for one in self._found.foreign if one.own) or None

    def _taken(self, one: Unique, where: str) -> str:
        same = " AND ".join(f"t.{self._quote(name)} = s.{self._quote(name)}" for name in one.columns)
        return (
            f"SELECT s.{PLACE}, {self._reason(one)} FROM {ROWS} s WHERE EXISTS (SELECT 1 FROM {where} t "  # noqa: S608  (quoted)
            f"WHERE {same}{self._other_key()})"
        )

    def _other_key(self) -> str:
        """A row is not in the way of one of its own key, which replaces it."""
        unlike = (f"t.{self._quote(name)} <> s.{self._quote(name)}" for name in self._key)
        return f" AND ({' OR '.join(unlike)})" if self._key else ""

    def _twice(self, one: Unique) -> str:
        whole = " AND ".join(f"{self._quote(name)} IS NOT NULL" for name in one.columns)
        same = f"PARTITION BY {self.listed(one.columns)} ORDER BY {PLACE}"
        if not self._key:
            return (
                f"SELECT {PLACE}, {self._reason(one)} FROM (SELECT {PLACE}, "  # noqa: S608  (quoted)
                f"row_number() OVER ({same}) AS {NUMBER} FROM {ROWS} WHERE {whole}) AS ranked "
                f"WHERE {NUMBER} > 1"
            )
        firsts = ", ".join(
            f"first_value({self._quote(name)}) OVER ({same}) AS {FIRST}_{n}"
            for n, name in enumerate(self._key)
        )
        unlike = " OR ".join(f"{self._quote(name)} <> {FIRST}_{n}" for n, name in enumerate(self._key))
        return (
            f"SELECT {PLACE}, {self._reason(one)} FROM (SELECT {PLACE}, {self.listed(self._key)}, {firsts} "  # noqa: S608  (quoted)
            f"FROM {ROWS} WHERE {whole}) AS ranked WHERE {unlike}"
        )

    def _missing(self, one: Foreign) -> str:
        pairs = list(zip(one.columns, one.others, strict=True))
        whole = " AND ".join(f"s.{self._quote(name)} IS NOT NULL" for name in one.columns)
        same = " AND ".join(f"t.{self._quote(other)} = s.{self._quote(name)}" for name, other in pairs)
        other = self._table(one.other)
        places = (other, SEEN, ROWS) if one.own else (other,)
        nowhere = " AND ".join(
            f"NOT EXISTS (SELECT 1 FROM {where} t WHERE {same})"  # noqa: S608  (quoted)
            for where in places
        )
        return f"SELECT s.{PLACE}, {self._text(one.reason)} FROM {ROWS} s WHERE {whole} AND {nowhere}"  # noqa: S608  (quoted)

    # --- as the target would be written --------------------------------------------------------------

    def put(self, source: str, where: str) -> str:
        """A statement that puts all rows of `source` into `where`."""
        names, mark = self.columns, (PLACE,) if where == ROWS else ()
        order = "" if where == ROWS else f" ORDER BY {PLACE}"
        return (
            f"INSERT INTO {where} ({self.listed((*mark, *names))}) SELECT {self.listed((*mark, *names))} "  # noqa: S608  (quoted)
            f"FROM {source} WHERE true{order}{self._replacing(where)}"
        )

    def put_rest(self) -> str:
        """A statement that puts the rows that are not in `BAD` (PostgreSQL)."""
        return f"{self.put(IN, ROWS)} AND {PLACE} NOT IN (SELECT {PLACE} FROM {BAD})"  # noqa: S608  (quoted)

    def put_seen(self) -> str:
        """A statement that puts what was seen into the target: of each key the last one."""
        names = self.listed(self.columns)
        last = f"SELECT {names} FROM {SEEN}"  # noqa: S608  (quoted)
        if self._key:
            newest = f"ORDER BY {LABEL} DESC, {PLACE} DESC"
            rank = f"row_number() OVER (PARTITION BY {self.listed(self._key)} {newest})"
            last = (
                f"SELECT {names} FROM (SELECT *, {rank} AS {NUMBER} FROM {SEEN}) AS ranked WHERE {NUMBER} = 1"  # noqa: S608  (quoted)
            )
        return f"INSERT INTO {self._target} ({names}) {last}{self._replacing(self._target)}"

    def put_one(self) -> str:
        """A statement that puts one row into the target (SQLite)."""
        names = self.listed(self.columns)
        return (
            f"INSERT INTO {self._target} ({names}) SELECT {names} FROM {ROWS} WHERE {PLACE} = ?"  # noqa: S608  (quoted)
            f"{self._replacing(self._target)}"
        )

    def _replacing(self, where: str) -> str:
        """The clause by which a row replaces another one; "": not in the target, the only one that has a
        key."""
        if not self._key or where != self._target:
            return ""
        others = [name for name in self.columns if name not in self._key]
        sets = ", ".join(f"{self._quote(name)} = excluded.{self._quote(name)}" for name in others)
        begin = f" ON CONFLICT ({self.listed(self._key)}) DO"
        return f"{begin} UPDATE SET {sets}" if others else f"{begin} NOTHING"

    def loop(self, source: str, where: str) -> str:
        """PostgreSQL: row after row of `source` into `where`, all of it undone; those that it refuses are in
        `BAD`, with its sentence. A variable keeps what it has when a block is undone."""
        names = (PLACE, *self.columns) if where == ROWS else self.columns
        values = f"VALUES ({self.listed(names, 'unistream_row.')}){self._replacing(where)}"
        seen = f"{self.put_seen()};" if self._found.with_seen and where == self._target else ""
        body = f"""
#variable_conflict use_column
DECLARE unistream_row record; unistream_places bigint[] := '{{}}'; unistream_texts text[] := '{{}}';
BEGIN
  BEGIN
    {seen}
    FOR unistream_row IN SELECT * FROM {source} ORDER BY {PLACE} LOOP
      BEGIN
        INSERT INTO {where} ({self.listed(names)}) {values};
      EXCEPTION WHEN integrity_constraint_violation OR data_exception OR raise_exception THEN
        unistream_places := unistream_places || unistream_row.{PLACE};
        unistream_texts := unistream_texts || SQLERRM;
      END;
    END LOOP;
    RAISE EXCEPTION SQLSTATE '{UNDONE}';
  EXCEPTION WHEN SQLSTATE '{UNDONE}' THEN NULL;
  END;
  INSERT INTO {BAD} SELECT unnest(unistream_places), unnest(unistream_texts);
END """  # noqa: S608  (quoted)
        mark = "$unistream$"
        while mark in body:
            mark = f"{mark[:-1]}_$"
        return f"DO {mark}{body}{mark}"

    def note(self, parameter: str) -> str:
        """Rows that are passed on were seen; of the barrier that is asked for by one parameter."""
        names = self.listed((PLACE, *self.seen))
        return f"INSERT INTO {SEEN} ({LABEL}, {names}) SELECT {parameter}, {names} FROM {ROWS}"  # noqa: S608  (quoted)
