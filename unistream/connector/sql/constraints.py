"""What a table demands of rows beyond its columns, by the catalogue of the database.

unique, foreign    sets of columns: asked of the target by joins (`questions`)
of_row             CHECK, domains, numbers with few digits: a row shows it in a table that is like the target
on_target          triggers, partitions: only an INSERT into the target itself shows it, which is undone
with_seen          exclusion constraints, indexes of expressions or of some rows: the same, behind the rows
                   that are staged, since any of them may be in the way
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, inspect, text

from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.sqlite_indexes import unique_indexes
from unistream.connector.sql.statements import SqlTableName

_UNIQUE: Final = text("""
SELECT c.relname, i.indpred IS NULL AND i.indexprs IS NULL AND i.indisunique
        AND coalesce(to_jsonb(i)->>'indnullsnotdistinct', 'false') = 'false',
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int[]) WITH ORDINALITY AS k(number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass(:target) AND (i.indisunique OR i.indisexclusion) ORDER BY 1
""")
_FOREIGN: Final = text("""
SELECT c.conname, c.confmatchtype, c.confrelid::regclass::text, c.confrelid = c.conrelid,
    ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k(number, place)
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place),
    ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY AS k(number, place)
        JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.place)
FROM pg_constraint c WHERE c.conrelid = to_regclass(:target) AND c.contype = 'f' AND c.conparentid = 0
ORDER BY 1
""")
_OTHERS: Final = text("""
SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = r.oid AND contype = 'c') OR EXISTS (
        SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND (t.typtype = 'd' OR a.attgenerated <> '' OR t.typname = 'float4'
                OR (t.typname IN ('numeric', 'bpchar', 'bit', 'varbit') AND a.atttypmod >= 0))),
    r.relkind <> 'r' OR EXISTS (
        SELECT FROM pg_trigger WHERE tgrelid = r.oid AND NOT tgisinternal AND tgenabled <> 'D'
            AND (tgtype & 4 > 0 OR (:updates AND tgtype & 16 > 0)))
FROM pg_class r WHERE r.oid = to_regclass(:target)
""")


_MADE: Final = text(
    "SELECT type, sql FROM sqlite_master WHERE tbl_name = :name AND type IN ('table', 'trigger')"
)


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows have the same values, all of which are there, in these columns."""

    name: str
    columns: tuple[str, ...]

    def reason(self, target: str) -> str:
        return f"another row of table {target} has its {', '.join(self.columns)} ({self.name})"


@dataclass(frozen=True, slots=True)
class Foreign:
    """Values, if all are there, are in the columns `others` of table `other`. `own`: that is the target."""

    name: str
    columns: tuple[str, ...]
    other: str
    others: tuple[str, ...]
    own: bool = False

    @property
    def reason(self) -> str:
        return f"table {self.other} has no row for its {', '.join(self.columns)} ({self.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """The constraints of a table, as far as they concern rows with certain columns. See the head of this
    module."""

    unique: tuple[Unique, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    of_row: bool = False
    on_target: bool = False
    with_seen: bool = False

    def __bool__(self) -> bool:
        return bool(self.unique or self.foreign or self.of_row or self.on_target or self.with_seen)

    @property
    def tries_target(self) -> bool:
        return self.on_target or self.with_seen


def constraints(
    database: SinkDatabase,
    connection: Connection,
    target: SqlTableName,
    columns: Collection[str],
    key: Sequence[str],
) -> Constraints:
    """Finds the constraints of a table. `columns`: of the rows; `key`: with which they replace each other.
    The key itself refuses none."""
    if database.dialect == "sqlite":
        return _of_sqlite(connection, target, columns, key)
    names = {"target": database.quoted_value(target)}
    of_row, on_target = connection.execute(_OTHERS, {**names, "updates": bool(key)}).one_or_none() or (
        False,
        False,
    )
    unique: list[Unique] = []
    foreign: list[Foreign] = []
    with_seen = False
    for name, is_plain, constrained in connection.execute(_UNIQUE, names):
        if not is_plain or _in_part(constrained, columns):
            with_seen = True
        elif set(constrained) <= set(columns) and set(constrained) != set(key):
            unique.append(Unique(name, tuple(constrained)))
    for name, match, other, own, constrained, others in connection.execute(_FOREIGN, names):
        if match == "f" or _in_part(constrained, columns) or (own and not set(others) <= set(columns)):
            on_target = True
        elif set(constrained) <= set(columns):
            foreign.append(Foreign(name, tuple(constrained), other, tuple(others), own))
    return Constraints(
        unique=tuple(unique),
        foreign=tuple(foreign),
        of_row=of_row,
        on_target=on_target,
        with_seen=with_seen,
    )


def _of_sqlite(
    connection: Connection, target: SqlTableName, columns: Collection[str], key: Sequence[str]
) -> Constraints:
    """Finds the constraints of a table of SQLite, which checks foreign keys only for programs that ask it to:
    the sink does not."""
    inspector, schema = inspect(connection), target.schema or None
    if not inspector.has_table(target.name, schema=schema):
        return Constraints()
    primary = inspector.get_pk_constraint(target.name, schema=schema)["constrained_columns"]
    listed: list[Any] = [("PRIMARY KEY", tuple(primary))] if primary else []
    with_seen = False
    for name, origin, in_index in unique_indexes(connection, target):
        if in_index is None:
            with_seen = True
        elif origin != "pk":
            listed.append((name if origin == "c" else "UNIQUE", in_index))
    statements = connection.execute(_MADE, {"name": target.name}).all()
    words = " ".join(sql.casefold() for kind, sql in statements if kind == "table")
    return Constraints(
        unique=tuple(
            Unique(name, tuple(names))
            for name, names in listed
            if set(names) <= set(columns) and set(names) != set(key)
        ),
        on_target=any(word in words for word in ("check", "strict", "generated", "as ("))
        or len(statements) > 1,
        with_seen=with_seen or "collate" in words or any(_in_part(names, columns) for _, names in listed),
    )


def _in_part(found: Sequence[str], columns: Collection[str]) -> bool:
    """Whether some of these columns come with the rows, and others do not."""
    return 0 < len(set(found) & set(columns)) < len(set(found))
