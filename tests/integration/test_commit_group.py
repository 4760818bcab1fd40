"""Sinks whose commits become visible together: a reader in a loop, while committers are killed.

Both members of a group get the same rows. A reader of the records sees the same rows in both, always; one
that takes the newest version of each table does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.pool import NullPool

import unistream as us
from tests.eventually import eventually
from tests.iceberg_lake import TABLE, Lake
from tests.integration.cascaded_sinks import ROWS, rows_of
from tests.integration.crash_runs import (
    OF_GROUPS,
    RECOVERING,
    WAIT_S,
    Crashes,
    in_the_gate,
    points_in_code,
    run_to_end,
    submit,
)
from tests.modes import STREAMING
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.embedded import EmbeddedCluster
from unistream.port.sink import Sink

OFTEN = {"execution.checkpointing.interval": "400 ms", **RECOVERING}
BATCH = {"execution.runtime-mode": "BATCH", "parallelism.default": "2"}
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
    """Two sinks with the same rows, and what a reader sees of them.

    Attributes:
        sinks: Of a group, new ones.
        where: Of the records, for readers.
        location: As users give it.
        look: What a reader of the newest record sees; raises NotFound before the first one.
    """

    sinks: Callable[[], tuple[Sink, Sink]]
    where: str
    location: str | None
    look: Callable[[], tuple[Sums, Sums]]
    looks: list[Sums] = field(default_factory=list)

    def build(self, env: us.Environment, _folder: Path, rows_per_second: int | None = 16_000) -> None:
        rows = rows_of(env, rows_per_second)
        group = us.CommitGroup("both", self.location)
        a, b = self.sinks()
        rows.sink_to(a, group=group).uid("a")
        rows.select("id").sink_to(b, group=group).uid("b")

    def check_once(self) -> None:
        try:
            a, b = self.look()
        except us.NotFound:
            a, b = (0, 0), (0, 0)
        assert a == b, "a reader sees one without the other"
        if not self.looks or self.looks[-1] != a:
            assert not self.looks or a > self.looks[-1], "a reader sees less than before"
            self.looks.append(a)

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
            reader.join(60)
        if errors:
            raise errors[0]

    def assert_whole(self) -> None:
        assert self.look() == ((ROWS, ROWS * (ROWS - 1) // 2),) * 2


def two_delta(folder: Path, _postgres: Callable[[], str]) -> Group:
    a, b = str(folder / "a"), str(folder / "b")
    where = str(folder / "groups")

    def look() -> tuple[Sums, Sums]:
        found = us.read_group(where, "both").tables
        return delta_sums(a, found["a"].version), delta_sums(b, found["b"].version)

    return Group(lambda: (us.DeltaSink(a), us.DeltaSink(b)), where, where, look)


def delta_and_iceberg(folder: Path, _postgres: Callable[[], str]) -> Group:
    a, lake, where = str(folder / "a"), Lake(folder), (folder / "groups").as_uri()

    def look() -> tuple[Sums, Sums]:
        found = us.read_group(where, "both").tables
        with lake.table() as table:
            ids = table.scan(snapshot_id=found["b"].version, selected_fields=("id",)).to_arrow()["id"]
        return delta_sums(a, found["a"].version), (len(ids), sum(ids.to_pylist()))

    def sinks() -> tuple[Sink, Sink]:
        return us.DeltaSink(a), us.IcebergSink(TABLE, catalog_properties=lake.properties)

    return Group(sinks, where, where, look)


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


def delta_and_postgres(folder: Path, postgres: Callable[[], str]) -> Group:
    """The record and the table of PostgreSQL are read in one transaction; what it names in Delta stays."""
    a, url = str(folder / "a"), postgres()

    def look() -> tuple[Sums, Sums]:
        for _ in range(20):
            with _one_look(url) as connection:
                before = us.read_group(url, "both")
                b = _sums(connection, "b")
            if us.read_group(url, "both") == before:
                return delta_sums(a, before.tables["a"].version), b
        raise AssertionError("there was a commit between every two looks")

    return Group(lambda: (us.DeltaSink(a), us.SqlSink(url, "b")), url, None, look)


def two_postgres(_folder: Path, postgres: Callable[[], str]) -> Group:
    """Their readers need no record."""
    url = postgres()

    def look() -> tuple[Sums, Sums]:
        with _one_look(url) as connection:
            return _sums(connection, "a"), _sums(connection, "b")

    return Group(lambda: (us.SqlSink(url, "a"), us.SqlSink(url, "b")), url, None, look)


KINDS = {one.__name__: one for one in (two_delta, delta_and_iceberg, delta_and_postgres, two_postgres)}
AGAIN = ("committer.before_commit:2", "restore.before_commit")
KILLS = {
    "two_delta: between the members": ("group.member_committed:3",),
    "two_delta: with all members, without the record": ("group.before_record:2",),
    "two_delta: behind the record": ("group.recorded:2",),
    "two_delta: between the members, while it is repeated": (*AGAIN, "group.member_committed"),
    "delta_and_iceberg: between the members": ("group.member_committed:3",),
    "delta_and_iceberg: in the second member": ("iceberg.manifests_written:2",),
    "delta_and_iceberg: behind the record": ("group.recorded:2",),
    "delta_and_postgres: before the transaction": ("group.member_committed:2",),
    "delta_and_postgres: in the transaction": ("sql.before_commit:2",),
    "delta_and_postgres: behind the transaction": ("sql.committed:2",),
    "two_postgres: in the transaction": ("sql.before_commit:2",),
    "two_postgres: in the transaction, while it is repeated": (*AGAIN, "sql.before_commit"),
}


def test_every_named_place_of_a_group_has_a_row_here() -> None:
    killed = {point.partition(":")[0] for points in KILLS.values() for point in points}
    assert {one for one in killed if one.startswith(OF_GROUPS)} == set(points_in_code(OF_GROUPS))


@pytest.fixture
def new_database(request: pytest.FixtureRequest) -> Callable[[], str]:
    """The server is started for those who need it."""
    return lambda: str(request.getfixturevalue("postgres").new_database())


@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 0, 6, 8))
def test_readers_never_see_one_without_the_other(
    tmp_path: Path, crashes: Crashes, new_database: Callable[[], str], what: str
) -> None:
    group = KINDS[what.partition(":")[0]](tmp_path, new_database)
    crashes.arm(*KILLS[what])
    with group.watched():
        result = run_to_end(tmp_path, crashes, group.build, OFTEN)
    group.assert_whole()
    assert [result.sinks[uid].rows for uid in ("a", "b")] == [ROWS, ROWS]
    assert any(0 < rows < ROWS for rows, _ in group.looks), "the reader saw checkpoints come"


@pytest.mark.parametrize("target", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_in_batch_there_is_one_record(tmp_path: Path, new_database: Callable[[], str], target: str) -> None:
    group = two_delta(tmp_path, new_database)
    env = us.Environment(BATCH, target=target)
    group.build(env, tmp_path, None)
    result = env.execute("batch")
    group.assert_whole()
    assert us.read_group(group.where, "both").number == 1
    assert [result.sinks[uid].rows for uid in ("a", "b")] == [ROWS, ROWS]
    again = us.Environment(BATCH, target=target)
    group.build(again, tmp_path, None)
    with pytest.raises(ConfigError, match=r"another line of jobs.*on_foreign='append'"):
        again.execute("batch")
    group.assert_whole()


def test_a_savepoint_that_lists_half_a_group_is_finished_by_hand(
    tmp_path: Path, crashes: Crashes, new_database: Callable[[], str]
) -> None:
    """The job died between two members and does not come back."""
    group = two_delta(tmp_path, new_database)
    crashes.arm("group.member_committed")
    values = {
        **OFTEN,
        **STREAMING,
        "restart-strategy.type": "none",
        "parallelism.default": "2",
        "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    with EmbeddedCluster("local", Configuration(values), workdir=tmp_path / "c", rest=False) as cluster:
        env = us.Environment(values)
        group.build(env, tmp_path)
        job = submit(cluster, env, values)
        result = job.wait(timeout_s=WAIT_S)
        assert result.state == "FAILED"
        checkpoint = result.latest_checkpoint
    crashes.assert_happened()
    assert checkpoint is not None
    rows_a, rows_b = (delta_sums(str(tmp_path / uid), None)[0] for uid in "ab")
    assert rows_a or rows_b, "some of it is visible to who takes the newest version"
    with pytest.raises(us.NotFound):
        group.look()
    done = us.finalize_savepoint(checkpoint)
    assert (done.is_complete, [one.sink for one in done.commits]) == (True, ["both"])
    a, b = group.look()
    assert a == b
    assert a[0] >= max(rows_a, rows_b), "the snapshot may list a second checkpoint"
    assert us.finalize_savepoint(checkpoint).had_nothing_to_do


def test_a_job_goes_on_from_the_savepoint_of_another(tmp_path: Path, new_database: Callable[[], str]) -> None:
    """At another parallelism; the records go on behind those of the first job."""
    group = delta_and_iceberg(tmp_path, new_database)
    values = {**OFTEN, **STREAMING, "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri()}
    with (
        EmbeddedCluster("local", Configuration(values), workdir=tmp_path / "c", rest=False) as cluster,
        group.watched(),
    ):
        env = us.Environment({**values, "parallelism.default": "2"})
        group.build(env, tmp_path, 4_000)
        job = submit(cluster, env, values)
        eventually(lambda: len(group.looks) > 2, "a reader saw two checkpoints")
        savepoint = job.stop(target=str(tmp_path / "savepoint"))
        first = us.read_group(group.where, "both")
        env = us.Environment({**values, "parallelism.default": "1"})
        group.build(env, tmp_path, None)
        submit(cluster, env, values, savepoint).result(timeout_s=WAIT_S)
    group.assert_whole()
    last = us.read_group(group.where, "both")
    assert last.number > first.number
    assert (last.lineage, last.job == first.job) == (first.lineage, False)
