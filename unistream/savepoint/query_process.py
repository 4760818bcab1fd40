"""The process of one query: `python -m unistream.savepoint.query_process` (see `bounded_query`).

It first gives up what it does not need, reads the states, then gives up all the rest, and only then runs the
statement: what DuckDB, or a mistake in it, would do then finds no file, no socket and no environment.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any, Final

import msgspec

from unistream.base.bounded_process import READY, limit_self, memory_gave_out
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot, UnistreamError
from unistream.base.limits import MIB
from unistream.base.object_stores import use_store
from unistream.savepoint.bounded_query import (
    QueryLimits,
    QueryRefusal,
    Question,
    ResultColumn,
    ResultRows,
)
from unistream.savepoint.query import OutOfMemory, connected, opened, reported
from unistream.savepoint.reading import read_savepoint

QUESTION_BYTES_MAX: Final = MIB
DUCKDB_PART: Final = 2  # of the memory; the states and the rows have the rest
COLUMNS_MAX: Final = 500


def main() -> None:
    """Reads one `Question`, writes one answer."""
    with connected() as connection:
        connection.sql("SELECT 1").fetchall()  # imports what it needs
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    question = msgspec.json.decode(sys.stdin.buffer.read(QUESTION_BYTES_MAX), type=Question)
    limit_self(memory_bytes=question.limits.memory_bytes, seconds=question.limits.seconds)
    try:
        answer: ResultRows | QueryRefusal = answered(question)
    except Exception as error:
        answer = _refusal(error, question)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()
    os._exit(0)  # what ends in order may open files


def _refusal(error: Exception, question: Question) -> QueryRefusal:
    """Raises: `error`, where it is none of the limits and none of unistream's own."""
    if isinstance(error, OutOfMemory) or memory_gave_out(error):
        most = question.limits.memory_bytes // MIB
        return QueryRefusal(why=f"the query takes more than the {most} MiB of memory that it may have")
    if isinstance(error, UnistreamError):
        return QueryRefusal(why=str(error), damaged=isinstance(error, CorruptSnapshot))
    raise error


def seal() -> None:
    """Seals the rest of this process: nothing more is opened, and the environment is empty."""
    os.environ.clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def answered(question: Question) -> ResultRows:
    """Raises ConfigError, CorruptSnapshot: as `query`."""
    use_store(Configuration(question.store))
    try:
        savepoint = read_savepoint(question.path)
    except ConfigError as error:
        raise CorruptSnapshot(str(error)) from error  # it was there when the question was asked
    sql = question.sql.rstrip("; \t\r\n")  # a relation is part of a larger statement
    options = {
        "memory_limit": f"{question.limits.memory_bytes // DUCKDB_PART // MIB}MiB",
        "threads": "1",
    }
    with opened(savepoint, sql, state_bytes_max=question.limits.state_bytes, **options) as connection:
        connection.sql("SELECT 1").project("#1").fetchall()  # imports what it needs
        seal()
        return reported(connection, sql, savepoint, lambda: _rows(connection, sql, question.limits))


def _rows(connection: Any, sql: str, limits: QueryLimits) -> ResultRows:
    result = connection.sql(f"{sql}\n")
    columns = tuple(
        ResultColumn(name=name, type=str(type_))
        for name, type_ in zip(result.columns, result.types, strict=True)
    )
    if len(columns) > COLUMNS_MAX:
        raise ConfigError(f"the result has {len(columns):,} columns, and at most {COLUMNS_MAX} are shown")
    most = limits.cell_characters
    texts = (f"left(CAST(#{number} AS VARCHAR), {most + 1})" for number, _ in enumerate(columns, 1))
    found = result.project(", ".join(texts)).limit(limits.rows + 1).fetchall()
    return bounded_rows(columns, found, limits)


def bounded_rows(
    columns: tuple[ResultColumn, ...], found: list[tuple[str | None, ...]], limits: QueryLimits
) -> ResultRows:
    """The rows that the limits allow, and of each value as much as they do. Pure."""
    rows: list[list[str | None]] = []
    cut, left = 0, limits.answer_bytes
    for values in found[: limits.rows]:
        row = [value if value is None else value[: limits.cell_characters] for value in values]
        left -= sum(len(value.encode()) for value in row if value is not None) + len(row)
        if left < 0:
            break
        cut += sum(value is not None and len(value) > limits.cell_characters for value in values)
        rows.append(row)
    return ResultRows(columns=columns, rows=rows, more=len(rows) < len(found), cut=cut)


if __name__ == "__main__":
    main()
