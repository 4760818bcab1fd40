"""The table or folder that a sink has committed to is removed, replaced or put back by somebody: the job
fails with one sentence and writes nothing, in the running job and from every checkpoint."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

import unistream as us
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.operator.sink import CommitterOperator
from unistream.operator.sink.committables import announce
from unistream.port.operator import CommitPermit
from unistream.port.sink import Sink, SinkContext
from unistream.savepoint.finalize import Outcome, finalize
from unistream.testing.harness import OperatorHarness, restore_state
from unistream.testing.harness.operators import CountingMetrics

UID = OperatorUid("sink")
LINEAGE = LineageId("lineage")


@dataclass
class Case:
    """A sink and where it writes. `log`: what tells that it is a table, or the folder of this sink."""

    sink: Sink
    folder: Path
    log: Path

    def ids(self) -> list[int]:
        if isinstance(self.sink, us.DeltaSink):
            if not DeltaTable.is_deltatable(str(self.folder)):
                return []
            return sorted(DeltaTable(str(self.folder)).to_pyarrow_table().column("id").to_pylist())
        found = [pq.read_table(path)["id"].to_pylist() for path in self.folder.glob("part-*.parquet")]
        return sorted(id for ids in found for id in ids)


def delta(folder: Path) -> Case:
    return Case(us.DeltaSink(str(folder)), folder, folder / "_delta_log")


def files(folder: Path) -> Case:
    return Case(us.FileSink(str(folder)), folder, folder / "_unistream")


@pytest.fixture(params=[delta, files], ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    made: Case = request.param(tmp_path / "out")
    return made


class HasSink(Protocol):
    @property
    def sink(self) -> Sink: ...


class Committing:
    """The committer of a running job. `snapshot`: its newest."""

    def __init__(self, case: HasSink, state: OperatorState | None = None) -> None:
        self.case = case
        self.harness = OperatorHarness(CommitterOperator(case.sink), name=UID, state=state)
        try:
            self.harness.open()
        except Exception:
            self.harness.close()
            raise
        self.snapshot = OperatorSnapshot()

    def prepare(self, checkpoint: int, *ids: int) -> None:
        payloads = staged(self.case.sink, checkpoint, *ids) if ids else []
        self.harness.operator.process_batch(Batch(announce(checkpoint, 0, 1, payloads)), 0)
        self.snapshot = self.harness.snapshot(checkpoint)

    def complete(self, checkpoint: int) -> None:
        context = self.harness.context
        self.harness.operator.notify_checkpoint_complete(
            CommitPermit(lineage=context.lineage, checkpoint_id=CheckpointId(checkpoint), epoch=context.epoch)
        )

    def checkpoint(self, number: int, *ids: int) -> OperatorState:
        self.prepare(number, *ids)
        self.complete(number)
        return self.state(number)

    def state(self, number: int) -> OperatorState:
        return restore_state([self.snapshot], CheckpointId(number))


def staged(sink: Sink, checkpoint: int, *ids: int) -> list[bytes]:
    job = JobId("0" * 32)
    writer = sink.create_writer()
    writer.open(
        SinkContext(
            job=job,
            lineage=LINEAGE,
            sink_uid=UID,
            attempt=AttemptId(job, VertexId("1" * 32), 0, 0),
            index=0,
            parallelism=1,
            restored=None,
            metrics=CountingMetrics(),
        ),
        (),
    )
    writer.write(Batch(pa.RecordBatch.from_arrays([pa.array(ids, pa.int64())], names=["id"])))
    writer.flush(end_of_input=False)
    prepared = list(writer.prepare_commit(CheckpointId(checkpoint)))
    writer.close()
    return prepared


def everything(case: Case) -> None:
    shutil.rmtree(case.folder)


def the_log(case: Case) -> None:
    shutil.rmtree(case.log)


def replaced(case: Case) -> None:
    """By one of the same kind that another job has filled."""
    shutil.rmtree(case.folder)
    fill_by_another(case)


def fill_by_another(case: Case) -> None:
    for number in range(1, 5):
        if isinstance(case.sink, us.DeltaSink):
            write_deltalake(str(case.folder), pa.table({"id": [1000 + number]}), mode="append")
        else:
            case.folder.mkdir(exist_ok=True)
            pq.write_table(pa.table({"id": [1000 + number]}), case.folder / f"part-{number}.parquet")


REMOVALS = [everything, the_log, replaced]


@pytest.fixture(params=REMOVALS, ids=lambda how: how.__name__)
def remove(request: pytest.FixtureRequest) -> Callable[[Case], None]:
    how: Callable[[Case], None] = request.param
    return how


def refused(case: Case, attempt: Callable[[], object]) -> str:
    """Nothing is there that was not there before."""
    before = case.ids() if case.log.exists() else None
    with pytest.raises(ConfigError) as error:
        attempt()
    text = str(error.value)
    assert str(case.folder) in text
    assert "checkpoint 2" in text
    assert "nothing was written" in text
    if before is None:
        assert not case.log.exists()
    else:
        assert case.ids() == before
    return text


def test_removed_between_two_checkpoints_of_a_running_job(case: Case, remove: Callable[[Case], None]) -> None:
    job = Committing(case)
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    remove(case)
    refused(case, lambda: job.checkpoint(3, 3))


def test_removed_between_prepare_and_commit(case: Case, remove: Callable[[Case], None]) -> None:
    job = Committing(case)
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    job.prepare(3, 3)
    remove(case)
    refused(case, lambda: job.complete(3))


def test_removed_while_the_job_is_stopped(case: Case, remove: Callable[[Case], None]) -> None:
    job = Committing(case)
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    stopped = job.checkpoint(3, 3)
    remove(case)
    refused(case, lambda: Committing(case, stopped))


def test_removed_before_a_restart_and_nothing_to_commit(case: Case, remove: Callable[[Case], None]) -> None:
    """What was committed is remembered by checkpoints without rows too, and over restarts."""
    job = Committing(case)
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    third = job.checkpoint(3)
    restarted = Committing(case, third)
    fourth = restarted.checkpoint(4)
    remove(case)
    refused(case, lambda: Committing(case, fourth))


def test_put_back_to_an_earlier_state_of_the_same(case: Case, tmp_path: Path) -> None:
    job = Committing(case)
    job.checkpoint(1, 1)
    shutil.copytree(case.folder, tmp_path / "backup")
    job.checkpoint(2, 2)
    third = job.checkpoint(3)
    shutil.rmtree(case.folder)
    shutil.copytree(tmp_path / "backup", case.folder)
    refused(case, lambda: job.checkpoint(4, 4))
    refused(case, lambda: Committing(case, third))
    assert case.ids() == [1]


def test_put_back_together_with_the_job(case: Case, tmp_path: Path) -> None:
    """The savepoint and the backup of one moment belong together."""
    job = Committing(case)
    job.checkpoint(1, 1)
    second = job.checkpoint(2)
    shutil.copytree(case.folder, tmp_path / "backup")
    job.checkpoint(3, 3)
    shutil.rmtree(case.folder)
    shutil.copytree(tmp_path / "backup", case.folder)
    again = Committing(case, second)
    again.checkpoint(3, 30)
    assert case.ids() == [1, 30]


def test_the_commit_that_a_backup_does_not_have_is_repeated_from_the_savepoint(
    case: Case, tmp_path: Path
) -> None:
    job = Committing(case)
    job.checkpoint(1, 1)
    job.prepare(2, 2)
    shutil.copytree(case.folder, tmp_path / "backup")
    job.complete(2)
    shutil.rmtree(case.folder)
    shutil.copytree(tmp_path / "backup", case.folder)
    Committing(case, job.state(2))
    assert case.ids() == [1, 2]


def test_removed_before_the_first_commit_is_no_new_table(case: Case) -> None:
    """The staged files went with it."""
    job = Committing(case)
    job.prepare(1, 1)
    shutil.rmtree(case.folder)
    with pytest.raises(CorruptSnapshot, match="is missing"):
        job.complete(1)
    assert not case.log.exists()


def test_a_savepoint_that_does_not_know_restores(case: Case) -> None:
    """Former versions kept no more than what is pending."""
    job = Committing(case)
    job.checkpoint(1, 1)
    second = job.checkpoint(2, 2)
    former = OperatorState(
        checkpoint_id=second.checkpoint_id,
        lists={name: items for name, items in second.lists.items() if name == "committables"},
    )
    again = Committing(case, former)
    again.checkpoint(3, 3)
    assert case.ids() == [1, 2, 3]
    everything(case)
    with pytest.raises(ConfigError, match="checkpoint 3"):
        again.checkpoint(4, 4)


def test_an_allowed_rewind_is_no_removal(case: Case) -> None:
    job = Committing(case)
    states = [job.checkpoint(n, n) for n in range(1, 6)]
    case.sink = type(case.sink)(str(case.folder), on_rewind="allow_duplicates")  # type: ignore[call-arg]
    again = Committing(case, states[2])
    again = Committing(case, states[2])  # and it was killed before its first checkpoint
    fourth = again.checkpoint(4, 40)
    fifth = Committing(case, fourth).checkpoint(5, 50)
    Committing(case, fifth)
    assert case.ids() == [1, 2, 3, 4, 5, 40, 50]


def test_another_place_is_another_output(case: Case, tmp_path: Path) -> None:
    """Its former one is committed, and removed since: a changed path says that this is meant."""
    job = Committing(case)
    job.checkpoint(1, 1)
    second = job.checkpoint(2)
    shutil.rmtree(case.folder)
    moved = elsewhere(case, tmp_path)
    third = Committing(moved, second).checkpoint(3, 3)
    Committing(moved, third).checkpoint(4, 4)
    assert moved.ids() == [3, 4]


def elsewhere(case: Case, tmp_path: Path) -> Case:
    other = type(case.sink)(str(tmp_path / "other"))  # type: ignore[call-arg]
    return Case(other, tmp_path / "other", tmp_path / "other" / case.log.name)


def test_a_stop_that_has_committed_can_go_on_elsewhere(case: Case, tmp_path: Path) -> None:
    """Its savepoint lists what the stop committed afterwards; the former place says that it has."""
    job = Committing(case)
    job.checkpoint(1, 1)
    stopped = job.checkpoint(2, 2)
    other = elsewhere(case, tmp_path)
    resumed = Committing(other, stopped)
    assert resumed.harness.commits == [(2, 0, None)]
    resumed.checkpoint(3, 3)
    assert (case.ids(), other.ids()) == ([1, 2], [3])


def test_a_stop_whose_output_was_moved_can_go_on_there(case: Case, tmp_path: Path) -> None:
    stopped = Committing(case).checkpoint(1, 1)
    other = elsewhere(case, tmp_path)
    case.folder.rename(other.folder)
    Committing(other, stopped).checkpoint(2, 2)
    assert other.ids() == [1, 2]


@pytest.mark.parametrize("removed", [False, True])
def test_what_is_not_committed_elsewhere_is_named(case: Case, tmp_path: Path, removed: bool) -> None:
    job = Committing(case)
    job.checkpoint(1, 1)
    job.prepare(2, 2)
    if removed:
        shutil.rmtree(case.folder)
    other = elsewhere(case, tmp_path)
    with pytest.raises(ConfigError, match="unistream savepoint finalize") as error:
        Committing(other, job.state(2))
    assert str(case.folder) in str(error.value)
    assert not other.log.exists()


def test_finalizing_a_savepoint_makes_no_new_table(case: Case, tmp_path: Path) -> None:
    job = Committing(case)
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    job.prepare(3, 3)
    everything(case)
    writer = us.SavepointWriter()
    lists = job.state(3).lists
    [pending] = [msgspec.msgpack.decode(item) for item in lists["committables"]]
    renumbered = msgspec.msgpack.encode(
        [{**part, "checkpoint_id": 1} for part in pending]
    )  # a savepoint's id
    writer.with_list(UID, "committables", [renumbered])
    writer.with_list(UID, "committed-into", lists["committed-into"])
    path = str(tmp_path / "savepoint")
    writer.write(path)
    [found] = finalize(us.read_savepoint(path), Configuration({})).commits
    assert found.outcome is Outcome.ERROR
    assert "nothing was written" in found.reason
    assert not case.log.exists()


# --- what others may do with a Delta table --------------------------------------------------------


def optimize(table: DeltaTable) -> None:
    table.optimize.compact()


def vacuum(table: DeltaTable) -> None:
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def log_cleanup(table: DeltaTable) -> None:
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table = DeltaTable(table.table_uri)
    table.create_checkpoint()
    table.cleanup_metadata()


def delete_all(table: DeltaTable) -> None:
    table.delete()


def restore_first(table: DeltaTable) -> None:
    table.restore(1)


def overwrite(table: DeltaTable) -> None:
    write_deltalake(table.table_uri, pa.table({"id": [7]}), mode="overwrite", schema_mode="overwrite")


@pytest.mark.parametrize(
    ("maintain", "left"),
    [
        (optimize, [1, 2]),
        (vacuum, [1, 2]),
        (log_cleanup, [1, 2]),
        (delete_all, []),
        (restore_first, [1]),
        (overwrite, [7]),
    ],
)
def test_a_new_version_by_others_is_the_same_table(
    tmp_path: Path, maintain: Callable[[DeltaTable], None], left: list[int]
) -> None:
    case = delta(tmp_path / "out")
    job = Committing(case)
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    maintain(DeltaTable(str(case.folder)))
    third = job.checkpoint(3, 3)
    assert case.ids() == sorted([*left, 3])
    maintain(DeltaTable(str(case.folder)))
    Committing(case, third).checkpoint(4, 4)
    assert 4 in case.ids()


def test_a_table_that_another_job_had_filled_and_somebody_removes_is_not_made_again(tmp_path: Path) -> None:
    case = delta(tmp_path / "out")
    fill_by_another(case)
    job = Committing(case)
    the_log(case)
    job.prepare(1, 1)
    with pytest.raises(ConfigError, match="nothing was written"):
        job.complete(1)
    assert not case.log.exists()


# --- what readers may do with a folder of files ---------------------------------------------------


def test_committed_files_may_be_moved_away(tmp_path: Path) -> None:
    case = files(tmp_path / "out")
    job = Committing(case)
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    for path in case.folder.glob("part-*"):
        path.unlink()
    third = job.checkpoint(3, 3)
    for path in case.folder.glob("part-*"):
        path.unlink()
    Committing(case, third).checkpoint(4, 4)
    assert case.ids() == [4]


# --- tables of a database -------------------------------------------------------------------------


class Rows:
    """A table of a database that a sink writes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sink = us.SqlSink(url, "rows")
        self.jobs: list[Committing] = []

    def job(self, state: OperatorState | None = None) -> Committing:
        """Its committer is closed with the test."""
        made = Committing(self, state)
        self.jobs.append(made)
        return made

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last one."""
        found: list[tuple[Any, ...]] = []
        with create_engine(self.url, poolclass=NullPool).begin() as connection:
            for statement in statements:
                result = connection.execute(text(statement))
                found = [tuple(row) for row in result] if result.returns_rows else []
        return found

    @property
    def is_there(self) -> bool:
        return inspect(create_engine(self.url, poolclass=NullPool)).has_table("rows")

    def ids(self) -> list[int]:
        return [id for (id,) in self.run("SELECT id FROM rows ORDER BY id")] if self.is_there else []


COPIED = "CREATE TABLE backup AS SELECT * FROM rows"
PUT_BACK = ("DROP TABLE rows", "ALTER TABLE backup RENAME TO rows")
REMOVED: Mapping[str, tuple[str, ...]] = {
    "the table was dropped": ("DROP TABLE rows",),
    "the record was dropped": ("DROP TABLE unistream_sink_commits",),
    "the record was deleted": ("DELETE FROM unistream_sink_commits",),
    "the record was put back": ("UPDATE unistream_sink_commits SET label = 1",),
    "another table was made": ("DROP TABLE rows", "CREATE TABLE rows (id BIGINT)"),
    "a copy was put back": (COPIED, *PUT_BACK),
}
OF_POSTGRESQL = ("another table was made", "a copy was put back")  # SQLite does not number its tables


@pytest.fixture(params=["sqlite", "postgresql"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    if request.param == "sqlite":
        made = Rows(f"sqlite:///{tmp_path / 'rows.db'}")
    else:
        made = Rows(request.getfixturevalue("postgres").new_database())
    yield made
    for job in made.jobs:
        job.harness.close()


@pytest.fixture(params=list(REMOVED))
def removed(request: pytest.FixtureRequest, rows: Rows) -> tuple[str, ...]:
    if rows.url.startswith("sqlite") and request.param in OF_POSTGRESQL:
        pytest.skip("SQLite does not number its tables")
    return REMOVED[request.param]


def refused_of(rows: Rows, attempt: Callable[[], object]) -> str:
    """Nothing is there that was not there before."""
    before, was_there = rows.ids(), rows.is_there
    with pytest.raises(ConfigError) as error:
        attempt()
    found = str(error.value)
    assert "table rows" in found
    assert re.search("had committed checkpoint [23], but", found)
    assert "nothing was written" in found
    assert (rows.ids(), rows.is_there) == (before, was_there)
    return found


def test_a_table_that_changes_between_two_checkpoints(rows: Rows, removed: tuple[str, ...]) -> None:
    job = rows.job()
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    rows.run(*removed)
    refused_of(rows, lambda: job.checkpoint(3, 3))


def test_a_table_that_changes_between_prepare_and_commit(rows: Rows, removed: tuple[str, ...]) -> None:
    job = rows.job()
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    job.prepare(3, 3)
    rows.run(*removed)
    refused_of(rows, lambda: job.complete(3))


def test_a_table_that_changes_while_the_job_is_stopped(rows: Rows, removed: tuple[str, ...]) -> None:
    job = rows.job()
    job.checkpoint(1, 1)
    job.checkpoint(2, 2)
    stopped = job.checkpoint(3, 3)
    rows.run(*removed)
    refused_of(rows, lambda: rows.job(stopped))


def test_a_database_that_is_put_back_as_a_whole_has_other_numbers_and_is_the_same(rows: Rows) -> None:
    """As by pg_dump: the table of records came from it as well."""
    job = rows.job()
    job.checkpoint(1, 1)
    second = job.checkpoint(2, 2)
    commits = "unistream_sink_commits"
    rows.run(
        COPIED,
        *PUT_BACK,
        f"CREATE TABLE copied AS SELECT * FROM {commits}",
        f"DROP TABLE {commits}",
        f"ALTER TABLE copied RENAME TO {commits}",
        f"CREATE UNIQUE INDEX copied_key ON {commits} (lineage, sink_uid)",
    )
    again = rows.job(second)
    third = again.checkpoint(3, 3)
    rows.job(third).checkpoint(4, 4)
    assert rows.ids() == [1, 2, 3, 4]


def test_the_record_of_a_table_with_the_same_rows_can_be_taken_back(rows: Rows) -> None:
    job = rows.job()
    job.checkpoint(1, 1)
    second = job.checkpoint(2, 2)
    rows.run(COPIED, *PUT_BACK, "UPDATE unistream_sink_commits SET table_identity = NULL")
    rows.job(second).checkpoint(3, 3)
    assert rows.ids() == [1, 2, 3]


def test_a_table_of_records_that_a_former_version_has_made(rows: Rows) -> None:
    """It gets the column; until then the sink cannot know whether the table is the same."""
    job = rows.job()
    job.checkpoint(1, 1)
    second = job.checkpoint(2, 2)
    rows.run("ALTER TABLE unistream_sink_commits DROP COLUMN table_identity")
    assert rows.sink.last_commit(UID) is not None, "reading needs no column"
    again = rows.job(second)
    again.checkpoint(3, 3)
    [(identity,)] = rows.run("SELECT table_identity FROM unistream_sink_commits")
    assert bool(identity) is not rows.url.startswith("sqlite")
    assert rows.ids() == [1, 2, 3]


def test_a_truncated_table_is_the_same(rows: Rows) -> None:
    job = rows.job()
    job.checkpoint(1, 1)
    rows.run("DELETE FROM rows" if rows.url.startswith("sqlite") else "TRUNCATE rows")
    job.checkpoint(2, 2)
    assert rows.ids() == [2]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("ALTER TABLE rows ADD COLUMN n INT", "ALTER TABLE rows DROP COLUMN id"), "id"),
        (
            (
                "ALTER TABLE rows ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
                "ALTER TABLE rows ALTER kind DROP DEFAULT",
            ),
            'null value in column "kind"',
        ),
    ],
)
def test_columns_that_change_while_the_job_runs(rows: Rows, changed: tuple[str, ...], says: str) -> None:
    """One sentence, and nothing of the checkpoint."""
    if rows.url.startswith("sqlite") and "kind" in says:
        pytest.skip("SQLite adds no such column")
    job = rows.job()
    job.checkpoint(1, 1)
    rows.run(*changed)
    with pytest.raises(ConfigError, match=f"refused committing to table rows: .*{says}.*; nothing was"):
        job.checkpoint(2, 2, 3)
    assert rows.run("SELECT COUNT(*) FROM rows") == [(1,)]
    [(label,)] = rows.run("SELECT label FROM unistream_sink_commits")
    assert label == 1
