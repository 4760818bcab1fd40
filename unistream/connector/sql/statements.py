"""The tables of a SQL sink, and what is done with them. Pure: SQLAlchemy's expressions, no connection.

    unistream_stage_HASH     rows of one sink that are not committed: subtask, label, attempt, row, columns
    unistream_sink_commits   one row for each sink: up to which checkpoint its rows are in the target

The hash is of the sink and of its columns, so that a job whose rows have other columns has a staging table of
its own, and what the former one has prepared is committed from where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    and_,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy import delete as sql_delete
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import Delete, Select

from unistream.connector.sql.columns import sql_type

COMMITS: Final = "unistream_sink_commits"
IDENTITY: Final = "table_identity"  # see `identity`; a table of a former version does not have the column
STAGE_BEGIN: Final = "unistream_stage_"
SUBTASK, LABEL, ATTEMPT, ROW = "__subtask", "__label", "__attempt", "__row"
OURS: Final = (SUBTASK, LABEL, ATTEMPT, ROW)
OWN_BEGIN: Final = "__unistream_"  # of columns of statements, next to those of the rows
PLACE: Final = "__unistream_place"  # of a staged row among those of its key
DELETED: Final = "__deleted"  # of rows that delete others, behind their own columns
_INSERTS: Final[dict[str, Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


class Form(Protocol):
    """How a table compares a column of its key."""

    def of(self, column: Any) -> Any:
        """The staged column, in that form."""


Forms: TypeAlias = Mapping[str, Form]


class SqlTableName(NamedTuple):
    """A table, as users name it. `schema`: "": that of the connection."""

    name: str
    schema: str = ""

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class SqlStagedRows(NamedTuple):
    """Staged rows of one checkpoint of one subtask. `label`: one above the barrier before them."""

    subtask: int
    label: int
    attempt: str


def stage_name(lineage: str, sink_uid: str, columns: Sequence[tuple[str, str]]) -> str:
    """The name of the staging table of a sink with these columns (name, type).

    >>> stage_name("5f0c", "to table", [("n", "int64")])
    'unistream_stage_0259362e1795'
    """
    text = repr((lineage, sink_uid, [tuple(one) for one in columns]))
    return STAGE_BEGIN + hashlib.sha256(text.encode()).hexdigest()[:12]


def stage_table(name: str, schema: str, rows: pa.Schema) -> Table:
    ours: list[Column[Any]] = [
        Column(SUBTASK, Integer, nullable=False),
        Column(LABEL, BigInteger, nullable=False),
        Column(ATTEMPT, Text, nullable=False),
        Column(ROW, BigInteger, nullable=False),
    ]
    theirs: list[Column[Any]] = [Column(field.name, sql_type(field.name, field.type)) for field in rows]
    return Table(name, MetaData(), *ours, *theirs, schema=schema or None)


def target_table(target: SqlTableName, types: Mapping[str, Any], key: Sequence[str]) -> Table:
    """The target as it is created. `types`: of its columns."""
    columns = [Column(name, kind, nullable=name not in key) for name, kind in types.items()]
    keys = [PrimaryKeyConstraint(*key)] if key else []
    return Table(target.name, MetaData(), *columns, *keys, schema=target.schema or None)


def commits_table(schema: str) -> Table:
    """The table of commits in the schema of the target."""
    return Table(
        COMMITS,
        MetaData(),
        Column("lineage", Text, primary_key=True),
        Column("sink_uid", Text, primary_key=True),
        Column("target", Text, nullable=False),
        Column("label", BigInteger, nullable=False),
        Column("job", Text, nullable=False),
        Column("snapshot", Text, nullable=False),
        Column("at_ms", BigInteger, nullable=False),
        Column(IDENTITY, Text),
        schema=schema or None,
    )


def of_part(stage: Any, part: SqlStagedRows) -> Any:
    """The condition that staged rows are of this part."""
    c = stage.c
    return and_(c[SUBTASK] == part.subtask, c[LABEL] == part.label, c[ATTEMPT] == part.attempt)


def count_part(stage: Any, part: SqlStagedRows) -> Select[Any]:
    return select(func.count()).select_from(stage).where(of_part(stage, part))


def remove_part(stage: Any, part: SqlStagedRows) -> Delete:
    return sql_delete(stage).where(of_part(stage, part))


def attempt_of(job: str, attempt: int) -> str:
    """How an attempt of a job is named in the staging table."""
    return f"{job}-{attempt}"


def remove_left(
    stage: Table, *, job: str, index: int, parallelism: int, restored: int, attempt: str
) -> Delete:
    """What former attempts of the job have staged behind the restored checkpoint.

    Of this subtask, and of subtasks that there are no more, which are divided among all.
    """
    c = stage.c
    own = c[SUBTASK] == index
    beyond = and_(c[SUBTASK] >= parallelism, c[SUBTASK] % parallelism == index)
    of_job = c[ATTEMPT].startswith(f"{job}-") & (c[ATTEMPT] != attempt)
    return sql_delete(stage).where((own | beyond) & (c[LABEL] > restored) & of_job)


def remove_former(stage: Any, job: str) -> Delete:
    """A statement that removes what other jobs of the line have staged, none of which commits any more."""
    return sql_delete(stage).where(~stage.c[ATTEMPT].startswith(f"{job}-"))


def remove_rivals(stage: Any, parts: Sequence[SqlStagedRows]) -> Delete:
    """What other attempts of these subtasks have staged, of which these ones have won."""
    return sql_delete(stage).where(stage.c[SUBTASK].in_({part.subtask for part in parts}))


def move(
    dialect: str,
    *,
    stage: Any,
    target: Any,
    columns: Sequence[str],
    key: Sequence[str],
    parts: Sequence[SqlStagedRows],
    deletes: bool = False,
    forms: Forms = MappingProxyType({}),
) -> Any:
    """A statement that puts staged rows into the target, in their order; with a key the last row of each
    replaces what is there, unless it `deletes`, see `remove_deleted`. `forms`: see `key_forms`."""
    c = stage.c
    insert = _INSERTS[dialect](target)
    if not key:
        rows = select(*(c[name] for name in columns)).where(_of_parts(stage, parts))
        return insert.from_select(list(columns), rows.order_by(c[SUBTASK], c[ROW]))
    last = _last_of_key(stage, columns, key, parts, forms, deleted=False if deletes else None)
    adding = insert.from_select(list(columns), last)
    others = [name for name in columns if name not in key]
    if not others:
        return adding.on_conflict_do_nothing(index_elements=list(key))
    return adding.on_conflict_do_update(
        index_elements=list(key), set_={name: adding.excluded[name] for name in others}
    )


def remove_deleted(
    *,
    stage: Any,
    target: Any,
    key: Sequence[str],
    parts: Sequence[SqlStagedRows],
    forms: Forms = MappingProxyType({}),
) -> Delete:
    """Rows of the target whose key has, as its last staged row, one that deletes."""
    gone = _last_of_key(stage, key, key, parts, forms, deleted=True)
    return sql_delete(target).where(tuple_(*(target.c[name] for name in key)).in_(gone))


def _last_of_key(
    stage: Any,
    columns: Sequence[str],
    key: Sequence[str],
    parts: Sequence[SqlStagedRows],
    forms: Forms,
    *,
    deleted: bool | None,
) -> Select[Any]:
    """The last staged row of each key; of these all, or only those that delete, or that do not."""
    c = stage.c
    place = func.row_number().over(
        partition_by=[forms[name].of(c[name]) if name in forms else c[name] for name in key],
        order_by=[c[SUBTASK].desc(), c[ROW].desc()],
    )
    marks = [] if deleted is None else [c[DELETED]]
    chosen = select(*(c[name] for name in columns), *marks, place.label(PLACE))
    ranked = chosen.where(_of_parts(stage, parts)).subquery()
    compared = forms if deleted else {}  # with those of the table, and not written into it
    values = (compared[name].of(ranked.c[name]) if name in compared else ranked.c[name] for name in columns)
    last = select(*values).where(ranked.c[PLACE] == 1)
    return last if deleted is None else last.where(ranked.c[DELETED] if deleted else ~ranked.c[DELETED])


def _of_parts(stage: Any, parts: Sequence[SqlStagedRows]) -> Any:
    """The condition that staged rows are of one of these parts."""
    return or_(*(of_part(stage, part) for part in parts))


def record(dialect: str, commits: Table, values: dict[str, Any]) -> Any:
    """The commit of a sink, instead of its former one."""
    insert = _INSERTS[dialect](commits).values(**values)
    changed = {
        name: insert.excluded[name] for name in ("target", "label", "job", "snapshot", "at_ms", IDENTITY)
    }
    return insert.on_conflict_do_update(index_elements=["lineage", "sink_uid"], set_=changed)
