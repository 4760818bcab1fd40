"""The statement of a commit, explained by the database before a job starts: it compares types, and finds what
`ON CONFLICT` needs and the rights. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import BigInteger, Integer, Text, cast, null, select
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table

from unistream.connector.sql.columns import sql_type
from unistream.connector.sql.database import SinkDatabase
from unistream.connector.sql.statements import ATTEMPT, LABEL, ROW, SUBTASK, SqlStagedRows, SqlTableName, move


def explain_commit(database: SinkDatabase, target: SqlTableName, rows: pa.Schema, key: Sequence[str]) -> None:
    """Has the database explain the commit of rows with these columns.

    Raises:
        ConfigError: the table would refuse all of them, in the words of the database.
        Unreachable: it does not answer.
    """
    ours = {SUBTASK: Integer(), LABEL: BigInteger(), ATTEMPT: Text(), ROW: BigInteger()}
    types: dict[str, Any] = ours | {field.name: sql_type(field.name, field.type) for field in rows}
    staged = select(*(cast(null(), kind).label(name) for name, kind in types.items())).subquery("staged")
    statement = move(
        database.dialect,
        stage=staged,
        target=sql_table(target.name, *map(sql_column, rows.names), schema=target.schema or None),
        columns=rows.names,
        key=key,
        parts=[SqlStagedRows(0, 0, "")],
    )
    with database.read(f"rows for table {target}") as connection:
        compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        connection.exec_driver_sql(f"EXPLAIN {compiled}")
