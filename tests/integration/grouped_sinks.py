"""Commit groups whose members get the same rows, and a reader of their records in a loop.

`build` is for `unistream run` in a process of its own; the tables are in the working directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

import unistream as us
from tests.eventually import WAIT_S
from tests.iceberg_lake import TABLE, Lake
from tests.integration.cascaded_sinks import ROWS, rows_of
from unistream.base.errors import Unreachable
from unistream.port.group import GroupCommit
from unistream.port.sink import Sink

Sums = tuple[int, int]
"""Number of rows, and the sum of their ids: equal ones are the same rows, as ids grow from 0."""


def delta_sums(address: str, version: int | None) -> Sums:
    """`version` None: the newest, which may be none yet."""
    if version is None and not DeltaTable.is_deltatable(address):
        return 0, 0
    ids = DeltaTable(address, version=version).to_pyarrow_table(columns=["id"])["id"]
    return len(ids), sum(ids.to_pylist())


@dataclass
class Group:
    """Sinks with the same rows, and what a reader sees of them.

    Attributes:
        sinks: Of a group, new ones, by uid.
        where: Of the records, for readers.
        location: As users give it.
        look: What a reader of the newest record sees in each; raises NotFound before the first one.
    """

    sinks: Callable[[], dict[str, Sink]]
    where: str
    location: str | None
    look: Callable[[], tuple[Sums, ...]]
    looks: list[Sums] = field(default_factory=list)

    def build(self, env: us.Environment, _folder: Path, rows_per_second: int | None = 16_000) -> None:
        rows = rows_of(env, rows_per_second)
        group = us.CommitGroup("both", self.location)
        for uid, sink in self.sinks().items():
            (rows if uid == "a" else rows.select("id")).sink_to(sink, group=group).uid(uid)

    def check_once(self) -> None:
        try:
            seen = self.look()
        except us.NotFound:
            seen = ((0, 0),)
        except (OperationalError, Unreachable):  # the database is away
            return
        assert len(set(seen)) == 1, "a reader sees one without the other"
        if not self.looks or self.looks[-1] != seen[0]:
            assert not self.looks or seen[0] > self.looks[-1], "a reader sees less than before"
            self.looks.append(seen[0])

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A reader in a loop."""
        ended, errors = threading.Event(), list[BaseException]()

        def loop() -> None:
            while not ended.is_set() and not errors:
                try:
                    self.check_once()
                except BaseException as error:
                    errors.append(error)
                ended.wait(0.02)

        reader = threading.Thread(target=loop)
        reader.start()
        try:
            yield
        finally:
            ended.set()
            reader.join(WAIT_S)
        if errors:
            raise errors[0]

    def assert_whole(self) -> None:
        assert set(self.look()) == {(ROWS, ROWS * (ROWS - 1) // 2)}


def two_delta(folder: Path, _postgres: Callable[[], str]) -> Group:
    return _delta(folder, {})


def delta_and_upsert(folder: Path, _postgres: Callable[[], str]) -> Group:
    return _delta(folder, {"mode": "upsert", "key": "id"})


def _delta(folder: Path, options: dict[str, Any]) -> Group:
    """`options`: of the second one."""
    a, b = str(folder / "a"), str(folder / "b")
    where = str(folder / "groups")

    def look() -> tuple[Sums, ...]:
        found = us.read_group(where, "both").tables
        return delta_sums(a, found["a"].version), delta_sums(b, found["b"].version)

    return Group(lambda: {"a": us.DeltaSink(a), "b": us.DeltaSink(b, **options)}, where, where, look)


def delta_and_iceberg(folder: Path, _postgres: Callable[[], str]) -> Group:
    a, lake, where = str(folder / "a"), Lake(folder), (folder / "groups").as_uri()

    def look() -> tuple[Sums, ...]:
        found = us.read_group(where, "both").tables
        return delta_sums(a, found["a"].version), iceberg_sums(lake, found["b"].version)

    def sinks() -> dict[str, Sink]:
        return {"a": us.DeltaSink(a), "b": us.IcebergSink(TABLE, catalog_properties=lake.properties)}

    return Group(sinks, where, where, look)


def iceberg_sums(lake: Lake, version: int | None) -> Sums:
    with lake.table() as table:
        ids = table.scan(snapshot_id=version, selected_fields=("id",)).to_arrow()["id"]
    return len(ids), sum(ids.to_pylist())


def _sums(connection: Connection, table: str) -> Sums:
    if not inspect(connection).has_table(table):
        return 0, 0
    found = connection.execute(text(f"SELECT COUNT(*), COALESCE(SUM(id), 0) FROM {table}")).one()
    return int(found[0]), int(found[1])


@contextmanager
def _one_look(url: str) -> Iterator[Connection]:
    """All that is read inside is of one moment."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="REPEATABLE READ")
    with engine.connect() as connection, connection.begin():
        yield connection


def _with_postgres(
    url: str, tables: dict[str, Sink], with_versions: Callable[[GroupCommit], tuple[Sums, ...]]
) -> Group:
    """The record and the table "p" are read in one transaction; what it names elsewhere stays. `tables`: the
    other members."""

    def look() -> tuple[Sums, ...]:
        for _ in range(20):
            with _one_look(url) as connection:
                before = us.read_group(url, "both")
                found = _sums(connection, "p")
            if us.read_group(url, "both") == before:
                return *with_versions(before), found
        raise AssertionError("there was a commit between every two looks")

    return Group(lambda: {**tables, "p": us.SqlSink(url, "p")}, url, None, look)


def delta_and_postgres(folder: Path, postgres: Callable[[], str]) -> Group:
    a = str(folder / "a")
    return _with_postgres(
        postgres(), {"a": us.DeltaSink(a)}, lambda found: (delta_sums(a, found.tables["a"].version),)
    )


def iceberg_and_postgres(folder: Path, postgres: Callable[[], str]) -> Group:
    lake = Lake(folder)
    return _with_postgres(
        postgres(),
        {"a": us.IcebergSink(TABLE, catalog_properties=lake.properties)},
        lambda found: (iceberg_sums(lake, found.tables["a"].version),),
    )


def all_three(folder: Path, postgres: Callable[[], str]) -> Group:
    a, lake = str(folder / "a"), Lake(folder)
    return _with_postgres(
        postgres(),
        {"a": us.DeltaSink(a), "b": us.IcebergSink(TABLE, catalog_properties=lake.properties)},
        lambda found: (
            delta_sums(a, found.tables["a"].version),
            iceberg_sums(lake, found.tables["b"].version),
        ),
    )


def two_postgres(_folder: Path, postgres: Callable[[], str]) -> Group:
    """Their readers need no record."""
    url = postgres()

    def look() -> tuple[Sums, ...]:
        with _one_look(url) as connection:
            return _sums(connection, "a"), _sums(connection, "b")

    return Group(lambda: {"a": us.SqlSink(url, "a"), "b": us.SqlSink(url, "b")}, url, None, look)


def build(env: us.Environment) -> None:
    two_delta(Path.cwd(), str).build(env, Path.cwd(), 8_000)
