"""What is kept of the history, and that reading it stays cheap however long a job runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from tests.contract import given_metadata
from tests.contract.given_metadata import ONE, commit, job_id, snapshot
from tests.metadata_rows import rows
from unistream.base.ids import AttemptId, CheckpointId, ClusterId, LeaderEpoch, VertexId
from unistream.metadata import tables
from unistream.metadata.pruning import STEP_ROWS
from unistream.metadata.store import SqlMetadataStore
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metadata import (
    PAGE_ROWS,
    ArchiveRecord,
    ArtifactRecord,
    AttemptChange,
    ClusterRecord,
    EpochRecord,
    EventRecord,
    ExceptionRecord,
    JobRecord,
)
from unistream.port.retention import DAY_MS, MetadataRetention
from unistream.port.run_links import Line, LineKind, Watcher

NOW_MS = 2_000 * DAY_MS
HOUR_MS = 3_600_000
WATCHER = Watcher(root_run="r", run="r", step="s")


def job(number: int = 1, **changes: Any) -> JobRecord:
    """Its events are not too old."""
    return given_metadata.job(number, **{"changed_ms": NOW_MS, **changes})


def pruned(
    metadata: SqlMetadataStore, retention: MetadataRetention, now_ms: int = NOW_MS, **options: Any
) -> dict[str, int]:
    """Rows by table."""
    found: Counter[str] = Counter()
    for step in metadata.prune(retention, now_ms, ONE, **options):
        assert step.rows <= STEP_ROWS
        found[step.table.removeprefix("unistream_")] += step.rows
    return +found


def fill(metadata: SqlMetadataStore, first: int, count: int, *, begin_ms: int, step_ms: int) -> None:
    """Completed checkpoints, made by the database itself."""
    numbers = "generate_series(0, CAST(:last AS bigint)) AS g(n)"
    if metadata._database.is_sqlite:
        counting = "SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n < :last"
        numbers = f"(WITH RECURSIVE g(n) AS ({counting}) SELECT n FROM g)"
    insert = f"""
        INSERT INTO unistream_checkpoints
            (job, checkpoint_id, kind, state, triggered_ms, duration_ms, state_bytes, path)
        SELECT CAST(:job AS VARCHAR), n + :first, 'checkpoint', 'completed', :begin + n * :step, 5, 9, '/chk'
        FROM {numbers}
    """
    values = {"job": job_id(1), "first": first, "last": count - 1, "begin": begin_ms, "step": step_ms}
    with metadata._database.write() as connection:
        connection.execute(text(insert), values)


def add_exceptions(metadata: SqlMetadataStore, count: int) -> None:
    for n in range(count):
        failure = ExceptionRecord(
            job=job_id(1), at_ms=n, attempt=None, task_manager=None, kind="K", message=str(n)
        )
        metadata.record_exception(failure, ONE)


def test_ended_jobs_go_by_age_and_number_with_all_their_rows(
    metadata: SqlMetadataStore, database_url: str
) -> None:
    metadata.add_job(job(1, ended_ms=NOW_MS - 91 * DAY_MS), ONE)
    for number in (2, 3, 4):
        metadata.add_job(job(number, ended_ms=NOW_MS - number), ONE)
    metadata.add_job(job(5), ONE)
    for number in (1, 4, 5):
        metadata.record_checkpoint(job_id(number), snapshot(1, at_ms=NOW_MS), ONE)
        metadata.record_commit(commit(1, of=number, at_ms=NOW_MS), ONE)
    kept = MetadataRetention(jobs=2)
    would = pruned(metadata, kept, dry_run=True)
    assert sorted(found.job for found in metadata.jobs()) == [job_id(n) for n in (1, 2, 3, 4, 5)]
    did = pruned(metadata, kept)
    assert did == would
    assert did["jobs"] == 2
    assert sorted(found.job for found in metadata.jobs()) == [job_id(n) for n in (2, 3, 5)]
    for table in (tables.checkpoints, tables.commits):
        assert rows(database_url, table, "job") == [(job_id(5),)]
    assert len(metadata.outbox()) == 3, "readers may still want what a removed job has committed"
    assert pruned(metadata, kept) == {}


@pytest.mark.parametrize("dry_run", [True, False])
def test_rows_of_a_running_job_are_kept_by_number(metadata: SqlMetadataStore, dry_run: bool) -> None:
    metadata.add_job(job(), ONE)
    add_exceptions(metadata, 12)
    for n in range(9):
        metadata.record_event(EventRecord(job=job_id(1), at_ms=NOW_MS, kind="k", detail=str(n)), ONE)
        attempt = AttemptId(job_id(1), VertexId("v"), 0, n)
        other = AttemptId(job_id(1), VertexId("v"), 1, 0)
        changes = [
            AttemptChange(attempt=a, vertex_name="v", state="FAILED", task_manager=None, at_ms=n)
            for a in (attempt, other)
        ]
        metadata.record_attempts(changes, ONE)
    keep = MetadataRetention(exceptions=5, events=4, attempts=3)
    first = {"exceptions": 7, "events": 6, "attempts": 5}
    assert pruned(metadata, keep, dry_run=dry_run) == first
    assert pruned(metadata, keep) == (first if dry_run else {})
    assert [e.message for e in metadata.exceptions(job_id(1))] == ["7", "8", "9", "10", "11"]
    assert [e.detail for e in metadata.events()] == ["5", "6", "7", "8"]


def test_a_surplus_of_one_table_alone_is_found(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    add_exceptions(metadata, 6)
    assert pruned(metadata, MetadataRetention(exceptions=6)) == {}
    assert pruned(metadata, MetadataRetention(exceptions=5)) == {"exceptions": 1}
    for n in range(5):
        attempt = AttemptId(job_id(1), VertexId("v"), 0, n)
        change = AttemptChange(attempt=attempt, vertex_name="v", state="FAILED", task_manager=None, at_ms=n)
        metadata.record_attempts([change], ONE)
    assert pruned(metadata, MetadataRetention(attempts=4)) == {}
    assert pruned(metadata, MetadataRetention(attempts=3)) == {"attempts": 1}


def test_the_outbox_goes_by_age_and_number(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    for n in range(1, 11):
        metadata.record_commit(commit(n, at_ms=NOW_MS - (10 - n) * DAY_MS), ONE)
    assert pruned(metadata, MetadataRetention()) == {"outbox": 2}
    assert pruned(metadata, MetadataRetention(outbox=3)) == {"outbox": 5}
    assert [row.commit.checkpoint_id for row in metadata.outbox()] == [8, 9, 10]
    assert len(metadata.commits(job_id(1))) == 10


def test_links_go_when_nobody_watches_and_their_job_is_gone(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(1), ONE)
    for key, number, at_ms in (("old", 9, 1), ("of a job", 1, 2), ("new", 9, NOW_MS)):
        metadata.links.attach(key, job_id(number), WATCHER, at_ms)
    assert pruned(metadata, MetadataRetention()) == {"run_attachments": 1, "run_links": 1}
    found = {key: metadata.links.job_of_key(key) is not None for key in ("old", "of a job", "new")}
    assert found == {"old": False, "of a job": True, "new": True}
    assert metadata.links.attachments("old") == []


def test_a_long_history_of_a_key_keeps_its_newest_rows(
    metadata: SqlMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unistream.metadata.pruning.ATTACHMENTS_KEPT", 3)
    metadata.add_job(job(), ONE)
    for key, attached in (("long", 7), ("short", 3)):
        metadata.links.attach(key, job_id(1), WATCHER, NOW_MS - 10)
        for n in range(1, attached):
            metadata.links.take_over(key, Watcher(root_run=f"r{n}", run="q", step="s"), NOW_MS - 10 + n, 0)
    assert pruned(metadata, MetadataRetention()) == {"run_attachments": 4}
    assert [line.watcher.root_run for line in metadata.links.attachments("long")] == ["r6", "r5", "r4"]
    assert len(metadata.links.attachments("short")) == 3
    assert pruned(metadata, MetadataRetention()) == {}


def test_a_pass_asks_no_more_where_more_jobs_have_nothing_to_remove(metadata: SqlMetadataStore) -> None:
    # one of the events is that of `add_job`
    keep = MetadataRetention(checkpoints=1, commits=1, exceptions=1, events=2, attempts=1)
    asked = []
    for numbers in (range(1, 3), range(3, 63)):
        for number in numbers:
            metadata.add_job(job(number, ended_ms=NOW_MS if number % 2 else None), ONE)
            metadata.record_checkpoint(job_id(number), snapshot(1, at_ms=NOW_MS), ONE)
            metadata.record_event(EventRecord(job=job_id(number), at_ms=NOW_MS, kind="k", detail=""), ONE)
            metadata.links.attach(f"key {number}", job_id(number), WATCHER, NOW_MS)
        with statements_of(metadata) as found:
            assert pruned(metadata, keep) == {}
        asked.append(len(found))
    assert asked[0] == asked[1]
    for number in (20, 33):
        metadata.record_event(EventRecord(job=job_id(number), at_ms=NOW_MS, kind="k", detail="new"), ONE)
    assert pruned(metadata, keep) == {"events": 2}
    assert [len(metadata.events(job=job_id(n))) for n in (20, 33, 34)] == [2, 2, 2]
    assert metadata.events(job=job_id(33))[-1].detail == "new"


def test_commits_are_kept_for_each_sink(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    for number in (1, 2, 3):
        for sink in ("a", "b")[: 4 - number]:  # the last is of "a" alone
            metadata.record_commit(commit(number, at_ms=NOW_MS, sink_uid=sink), ONE)
    assert pruned(metadata, MetadataRetention(commits=3)) == {}
    assert pruned(metadata, MetadataRetention(commits=2)) == {"commits": 1}
    left = [(c.sink_uid, c.checkpoint_id) for c in metadata.commits(job_id(1))]
    assert sorted(left) == [("a", 2), ("a", 3), ("b", 1), ("b", 2)]


def test_savepoints_and_failures_stay_longer_than_checkpoints(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    of_kinds = [{}, {"kind": SnapshotKind.SAVEPOINT}, {"status": SnapshotStatus.FAILED, "path": None}]
    for n in range(30):
        changes: dict[str, Any] = of_kinds[n % 3]
        metadata.record_checkpoint(job_id(1), snapshot(n, at_ms=NOW_MS - HOUR_MS + n, **changes), ONE)
    before = metadata.checkpoint_totals(job_id(1))
    assert pruned(metadata, MetadataRetention(checkpoints=3, snapshots=4)) == {"checkpoints": 8 + 6 + 6}
    left = [c.checkpoint_id for c in metadata.checkpoints(job_id(1))]
    assert left == [29, 28, 27, 26, 25, 23, 22, 20, 19, 0]
    assert metadata.checkpoint_totals(job_id(1)) == before
    assert (before.completed, before.failed) == (20, 10)


def test_a_year_of_checkpoints_every_second_is_small_after_pruning(metadata: SqlMetadataStore) -> None:
    """Its last two days in full, and before that what daily pruning has left of it."""
    metadata.add_job(job(), ONE)
    parts = [(365, 320, 86_400_000), (320, 32, 3_600_000), (32, 2, 60_000), (2, 0, 1_000)]
    number = 1
    for from_days, to_days, step_ms in parts:
        count = (from_days - to_days) * DAY_MS // step_ms
        fill(metadata, number, count, begin_ms=NOW_MS - from_days * DAY_MS, step_ms=step_ms)
        number += count
    assert metadata.checkpoint_totals(job_id(1)).completed == number - 1 > 200_000
    removed = pruned(metadata, MetadataRetention())["checkpoints"]
    left = number - 1 - removed
    assert left <= 1_000 + 1_440 + 720 + 90
    totals = metadata.checkpoint_totals(job_id(1))
    assert totals.completed == number - 1
    assert totals.latest_completed is not None
    assert totals.latest_completed.checkpoint_id == number - 1
    page = metadata.checkpoints(job_id(1))
    assert [c.checkpoint_id for c in page] == list(range(number - 1, number - 1 - PAGE_ROWS, -1))
    read = len(page)
    while page:
        page = metadata.checkpoints(job_id(1), before=page[-1].checkpoint_id)
        read += len(page)
    assert read == left


def test_jobs_are_listed_page_by_page(metadata: SqlMetadataStore) -> None:
    for number in range(7):
        metadata.add_job(job(number, submitted_ms=number // 3), ONE)
    pages = [metadata.jobs(limit=3)]
    while pages[-1]:
        pages.append(metadata.jobs(limit=3, before=pages[-1][-1]))
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    listed = [found.job for page in pages for found in page]
    assert listed == [found.job for found in metadata.jobs()]
    assert set(listed) == {job_id(n) for n in range(7)}


# --- plans ----------------------------------------------------------------------------------------


def use_everything(metadata: SqlMetadataStore) -> None:
    """Each statement that runs while jobs run, or that a page asks for."""
    last = metadata.add_job(job(1), ONE)
    last = metadata.put_job(job(1, state="RUNNING"), ONE)
    metadata.update_job(last, ONE)
    metadata.record_epoch(EpochRecord(epoch=LeaderEpoch(1), cluster=ClusterId("c"), granted_ms=1))
    metadata.record_cluster(
        ClusterRecord(
            cluster=ClusterId("c"), target="", goes_on="", process="", mark="", started_ms=1, heartbeat_ms=1
        )
    )
    metadata.clusters()
    metadata.cluster(ClusterId("c"))
    metadata.record_archive(ArchiveRecord(job=job_id(1), format=1, ended_ms=1, tasks={}, content="{}"), ONE)
    metadata.archive(job_id(1))
    metadata.history()
    metadata.unended(ClusterId("c"))
    metadata.attempts(job_id(1))
    metadata.record_event(EventRecord(job=job_id(1), at_ms=1, kind="k", detail=""), ONE)
    attempt = AttemptId(job_id(1), VertexId("v"), 0, 0)
    metadata.record_attempts(
        [AttemptChange(attempt=attempt, vertex_name="v", state="S", task_manager=None, at_ms=1)], ONE
    )
    metadata.record_checkpoint(job_id(1), snapshot(1, kind=SnapshotKind.SAVEPOINT), ONE)
    add_exceptions(metadata, 1)
    metadata.record_commit(commit(1), ONE)
    metadata.artifacts.use(
        job_id(1), ArtifactRecord(sha256="a" * 64, size_bytes=1, created_ms=1, used_ms=1), ONE
    )
    metadata.links.attach("key", job_id(1), WATCHER, 1)
    metadata.links.heartbeat("key", WATCHER, 2)
    metadata.links.take_over("key", Watcher(root_run="r", run="q", step="s"), NOW_MS, 1)
    for kind in LineKind:
        metadata.links.last_snapshot_of_line(Line(kind, "key"))
    metadata.links.keys_of_job(job_id(1))
    metadata.links.attachments("key")
    metadata.jobs(before=metadata.jobs()[0])
    metadata.events(after=1)
    metadata.events(job=job_id(1))
    metadata.epochs()
    metadata.checkpoints(job_id(1), before=CheckpointId(7))
    metadata.checkpoint_totals(job_id(1))
    metadata.exceptions(job_id(1))
    metadata.commits(job_id(1))
    metadata.sinks(job_id(1))
    metadata.outbox(after=1)
    metadata.artifacts.of_job(job_id(1))
    metadata.artifacts.unused(NOW_MS)
    metadata.artifacts.forget("b" * 64)
    keep = MetadataRetention(checkpoints=0, snapshots=0, commits=0, exceptions=0, events=0, attempts=0)
    list(metadata.prune(keep, NOW_MS, ONE))
    metadata.add_job(job(2, ended_ms=1), ONE)
    list(metadata.prune(keep, NOW_MS, ONE, ended_since_ms=2))


@contextmanager
def statements_of(metadata: SqlMetadataStore) -> Iterator[list[tuple[str, Any]]]:
    """What is asked of the database meanwhile, each with its (first) parameters."""
    found: list[tuple[str, Any]] = []

    def note(
        _connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool
    ) -> None:
        if re.match(r"\s*(SELECT|UPDATE|DELETE|INSERT)", statement):
            found.append((statement, parameters[0] if many else parameters))

    event.listen(metadata._database.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(metadata._database.engine, "before_cursor_execute", note)


def whole_reads(metadata: SqlMetadataStore, connection: Any, statement: str, parameters: Any) -> list[str]:
    """Lines of the plan that read a table from its beginning to its end."""
    if metadata._database.is_sqlite:
        plan = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters).all()
        return [row[3] for row in plan if re.match(r"SCAN unistream_\w+$", row[3])]
    connection.execute(text("SET enable_seqscan = off"))  # tables are small: is there another way at all?
    plan = connection.exec_driver_sql("EXPLAIN " + statement, parameters).all()
    return [row[0] for row in plan if "Seq Scan" in row[0]]


def test_no_hot_statement_reads_a_whole_table(metadata: SqlMetadataStore) -> None:
    with statements_of(metadata) as asked:
        use_everything(metadata)
    statements = dict(reversed(asked))  # each once, with the parameters of its first time
    assert len(statements) > 60
    whole = {}
    with metadata._database.engine.connect() as connection:
        for statement, parameters in statements.items():
            found = whole_reads(metadata, connection, statement, parameters)
            if found:
                whole[statement] = found
    assert whole == {}


def test_the_check_of_plans_finds_a_whole_read(metadata: SqlMetadataStore) -> None:
    with metadata._database.engine.connect() as connection:
        slow = "SELECT path FROM unistream_checkpoints WHERE path = 'x'"
        assert whole_reads(metadata, connection, slow, ()) != []
