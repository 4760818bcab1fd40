"""How fast do libraries put rows into a table of PostgreSQL or SQLite, as the sink stages them?

    python -m benchmarks.sql_libraries                     those that are installed
    uv run --with asyncpg --with adbc-driver-postgresql --with adbc-driver-sqlite --with pgpq \\
        python -m benchmarks.sql_libraries                 all of them
    python -m benchmarks.sql_libraries checks              rows that are asked about before they are staged

Rows have six columns: two integers, a float, two texts, a time. One JSON line for each library: rows for each
second of processor time, of the client, and of client and server, the best of REPEATS. So other work of the
machine hardly counts.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa

from tests.postgres import PostgresServer

ROWS: Final = 100_000
BATCH: Final = 20_000  # as the sink
REPEATS: Final = 3
COLUMNS: Final = "id bigint, user_id integer, price double precision, channel text, url text, at timestamp"
NAMES: Final = ("id", "user_id", "price", "channel", "url", "at")
MARKS: Final = ", ".join(["%s"] * len(NAMES))
OIDS: Final = ("int8", "int4", "float8", "text", "text", "timestamp")


def batches() -> list[pa.RecordBatch]:
    made = []
    for start in range(0, ROWS, BATCH):
        ids = np.arange(start, start + BATCH)
        columns = {
            "id": pa.array(ids),
            "user_id": pa.array((ids % 9973).astype(np.int32)),
            "price": pa.array(ids / 7),
            "channel": pa.array([("Google", "Facebook", "Baidu")[i % 3] for i in ids]),
            "url": pa.array([f"https://example.com/item/{i}" for i in ids]),
            "at": pa.array(ids * 1_000 + 1_767_225_600_000_000, pa.timestamp("us")),
        }
        made.append(pa.record_batch(columns))
    return made


class Psycopg:
    """`put` with a cursor of it."""

    def __init__(self, put: Callable[[Any, pa.RecordBatch], None]) -> None:
        self._put = put

    def open(self, port: int, _folder: str) -> None:
        import psycopg

        self._connection = psycopg.connect(f"host=127.0.0.1 port={port} user=unistream dbname=postgres")

    def put(self, rows: pa.RecordBatch) -> None:
        with self._connection.cursor() as cursor:
            self._put(cursor, rows)

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


def arrow_csv(cursor: Any, rows: pa.RecordBatch) -> None:
    from unistream.connector.sql.columns import csv_pieces

    with cursor.copy("COPY rows FROM STDIN WITH (FORMAT csv)") as copy:
        for piece in csv_pieces(rows):
            copy.write(piece)


def copy_text(cursor: Any, rows: pa.RecordBatch) -> None:
    with cursor.copy("COPY rows FROM STDIN") as copy:
        for row in tuples(rows):
            copy.write_row(row)


def copy_binary(cursor: Any, rows: pa.RecordBatch) -> None:
    with cursor.copy("COPY rows FROM STDIN WITH (FORMAT binary)") as copy:
        copy.set_types(OIDS)
        for row in tuples(rows):
            copy.write_row(row)


def executemany(cursor: Any, rows: pa.RecordBatch) -> None:
    cursor.executemany(f"INSERT INTO rows VALUES ({MARKS})", tuples(rows))


def pgpq(cursor: Any, rows: pa.RecordBatch) -> None:
    from pgpq import ArrowToPostgresBinaryEncoder  # type: ignore[import-not-found]

    encoder = ArrowToPostgresBinaryEncoder(rows.schema)
    with cursor.copy("COPY rows FROM STDIN WITH (FORMAT binary)") as copy:
        copy.write(encoder.write_header())
        copy.write(encoder.write_batch(rows))
        copy.write(encoder.finish())


def tuples(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


class SqlAlchemy:
    def open(self, port: int, _folder: str) -> None:
        from sqlalchemy import MetaData, Table, create_engine

        self._engine = create_engine(f"postgresql+psycopg://unistream@127.0.0.1:{port}/postgres")
        self._connection = self._engine.connect()
        self._table = Table("rows", MetaData(), autoload_with=self._connection)

    def put(self, rows: pa.RecordBatch) -> None:
        self._connection.execute(self._table.insert(), rows.to_pylist())

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


class Asyncpg:
    def open(self, port: int, _folder: str) -> None:
        import asyncpg  # type: ignore[import-not-found]

        self._loop = asyncio.new_event_loop()
        where = {"host": "127.0.0.1", "port": port, "user": "unistream", "database": "postgres"}
        self._connection = self._loop.run_until_complete(asyncpg.connect(**where))

    def put(self, rows: pa.RecordBatch) -> None:
        self._loop.run_until_complete(self._connection.copy_records_to_table("rows", records=tuples(rows)))

    def commit(self) -> None:
        """Each call is a transaction."""

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


class Adbc:
    """`module`: of the driver."""

    def __init__(self, module: str) -> None:
        self._module = module

    def open(self, port: int, folder: str) -> None:
        where = f"postgresql://unistream@127.0.0.1:{port}/postgres"
        where = where if "postgresql" in self._module else f"{folder}/rows.db"
        self._connection = importlib.import_module(f"{self._module}.dbapi").connect(where)

    def put(self, rows: pa.RecordBatch) -> None:
        with self._connection.cursor() as cursor:
            cursor.adbc_ingest("rows", rows, mode="append")

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


class Sqlite:
    """As the sink does it."""

    def open(self, _port: int, folder: str) -> None:
        import sqlite3

        self._connection = sqlite3.connect(f"{folder}/rows.db")

    def put(self, rows: pa.RecordBatch) -> None:
        from unistream.connector.sql.columns import python_rows

        marks = ", ".join("?" * rows.num_columns)
        self._connection.executemany(f"INSERT INTO rows VALUES ({marks})", python_rows(rows))

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


CASES: Final[dict[str, tuple[str, Callable[[], Any]]]] = {  # the module that it needs
    "the sink: CSV by Arrow, COPY by psycopg": ("psycopg", lambda: Psycopg(arrow_csv)),
    "pgpq: binary by Arrow, COPY by psycopg": ("pgpq", lambda: Psycopg(pgpq)),
    "ADBC ingest": ("adbc_driver_postgresql", lambda: Adbc("adbc_driver_postgresql")),
    "asyncpg copy_records_to_table": ("asyncpg", Asyncpg),
    "psycopg COPY, text": ("psycopg", lambda: Psycopg(copy_text)),
    "psycopg COPY, binary": ("psycopg", lambda: Psycopg(copy_binary)),
    "psycopg executemany": ("psycopg", lambda: Psycopg(executemany)),
    "SQLAlchemy executemany": ("sqlalchemy", SqlAlchemy),
    "the sink, SQLite: executemany": ("sqlite3", Sqlite),
    "SQLite: ADBC ingest": ("adbc_driver_sqlite", lambda: Adbc("adbc_driver_sqlite")),
}


def measured(
    make: Callable[[], Any], server: PostgresServer, rows: Sequence[pa.RecordBatch]
) -> tuple[float, float]:
    """Processor time of this process, and of it and the server."""
    import sqlite3

    server.execute("DROP TABLE IF EXISTS rows")
    server.execute(f"CREATE TABLE rows ({COLUMNS})")
    with tempfile.TemporaryDirectory() as folder:
        with sqlite3.connect(f"{folder}/rows.db") as made:
            made.execute(f"CREATE TABLE rows ({COLUMNS})")
        made.close()
        case = make()
        case.open(server.port, folder)
        own, others = time.process_time(), backends(server)
        for batch in rows:
            case.put(batch)
        case.commit()
        own, others = time.process_time() - own, backends(server) - others
        case.close()
    return own, own + others


def backends(server: PostgresServer) -> float:
    """Processor time of the server's processes."""
    found = 0.0
    for process in psutil.process_iter(["cmdline", "ppid"]):
        with suppress(psutil.NoSuchProcess):
            if str(server.folder) in " ".join(process.info["cmdline"] or ()):
                family = [process, *process.children()]
                found = sum(sum(one.cpu_times()[:2]) for one in family)
                break
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("libraries", "checks"), default="libraries")
    options = parser.parse_args(arguments)
    server = PostgresServer()
    try:
        (libraries if options.what == "libraries" else checks)(server)
    finally:
        server.close()


def libraries(server: PostgresServer) -> None:
    rows = batches()
    for name, (module, make) in CASES.items():
        if importlib.util.find_spec(module) is None:
            print(json.dumps({"benchmark": "sql_libraries", "case": name, "missing": module}), flush=True)
            continue
        found = [measured(make, server, rows) for _ in range(REPEATS)]
        client, both = (min(times) for times in zip(*found, strict=True))
        report(name, client, both)


def report(name: str, client: float, both: float) -> None:
    rates = {"rows_per_client_cpu_s": round(ROWS / client), "rows_per_cpu_s": round(ROWS / both)}
    print(json.dumps({"benchmark": "sql_libraries", "case": name, "rows": ROWS, **rates}), flush=True)


TABLE: Final = (
    "CREATE TABLE rows (id bigint{key}, user_id integer{user}, price double precision{price}, "
    "channel text, url text, at timestamp)"
)
CHECKS: Final = {  # constraints, and which rows are bad
    "staged alone": ({}, ""),
    "a primary key": ({"key": " PRIMARY KEY"}, ""),
    "a primary key, one in ten is there": ({"key": " PRIMARY KEY"}, "id"),
    "a primary key, a foreign key": ({"key": " PRIMARY KEY", "user": " REFERENCES users"}, ""),
    "a check": ({"price": " CHECK (price >= 0)"}, ""),
    "a check, one in ten violates it": ({"price": " CHECK (price >= 0)"}, "price"),
}


def checks(server: PostgresServer) -> None:
    for name, (constraints, bad) in CHECKS.items():
        found = [checked(server, constraints, bad) for _ in range(REPEATS)]
        client, both = (min(times) for times in zip(*found, strict=True))
        report(name, client, both)


def checked(server: PostgresServer, constraints: dict[str, str], bad: str) -> tuple[float, float]:
    """The same for rows that are asked about, if there are constraints, and staged."""
    import unistream as us
    from tests.contract.sinks.case import context
    from unistream.model.elements import Batch

    parts = {"key": "", "user": "", "price": "", **constraints}
    for statement in (
        "DROP TABLE IF EXISTS rows",
        "DROP TABLE IF EXISTS users",
        "CREATE TABLE users (id integer PRIMARY KEY)",
        "INSERT INTO users SELECT generate_series(0, 9999)",
        TABLE.format(**parts),
        "INSERT INTO rows SELECT -g, 1, 1 FROM generate_series(1, 100000) g",
        "ANALYZE rows",
    ):
        server.execute(statement)
    sink = us.SqlSink(server.url("postgres"), "rows")
    check, writer = sink.create_row_check(), sink.create_writer()
    check.open()
    writer.open(context(), [])
    own, others = time.process_time(), backends(server)
    for batch in [Batch(spoilt(rows, bad)) for rows in batches()]:
        refused = check.refused(batch) if constraints else {}
        kept = [row for row in range(batch.num_rows) if row not in refused]
        writer.write(batch if not refused else batch.take(pa.array(kept)))
    writer.flush(end_of_input=False)
    times = time.process_time() - own, time.process_time() - own + backends(server) - others
    check.close()  # type: ignore[attr-defined]
    writer.close()
    return times


def spoilt(rows: pa.RecordBatch, column: str) -> pa.RecordBatch:
    """One row in ten has a value that is refused."""
    if not column:
        return rows
    values = rows.column(column).to_numpy().copy()
    values[::10] = -1 - np.arange(len(values[::10]))
    return rows.set_column(rows.schema.get_field_index(column), column, pa.array(values))


if __name__ == "__main__":
    main()
