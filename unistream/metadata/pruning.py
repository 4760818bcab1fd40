"""Removes what is no longer kept, in steps that hold up no other writer for long.

Every step reads the keys of at most `STEP_ROWS` rows through an index, and removes them in one transaction;
a dry run reads the same keys. Totals of removed rows are added up in the transaction that removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from unistream.base.ids import JobId, LeaderEpoch
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase
from unistream.metadata.thinning import Cuts, SnapshotRow, Thinning
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.port.retention import DAY_MS, MetadataRetention, Pruned

STEP_ROWS: Final = 500
EPOCHS_KEPT: Final = 10_000
ATTACHMENTS_KEPT: Final = 1_000  # of a key
CLUSTER_GONE_MS: Final = DAY_MS  # a cluster without a heartbeat for so long does not come back by itself

_CHILDREN: Final = (
    t.attempts,
    t.vertices,
    t.checkpoints,
    t.exceptions,
    t.commits,
    t.events,
    t.pruned_commits,
    t.pruned_checkpoints,
    t.artifact_uses,
    t.archives,
)


class Pruning:
    """One pass over the database."""

    def __init__(
        self,
        database: MetadataDatabase,
        retention: MetadataRetention,
        now_ms: int,
        epoch: LeaderEpoch,
        *,
        dry_run: bool,
    ) -> None:
        self._database = database
        self._keep = retention
        self._now_ms = now_ms
        self._epoch = epoch
        self._dry_run = dry_run
        self._removed: set[JobId] = set()

    def steps(self, ended_since_ms: int) -> Iterator[Pruned]:
        """See `MetadataStore.prune`."""
        oldest_ms = self._now_ms - self._keep.age_ms
        yield from self._old(t.outbox, self._now_ms - self._keep.outbox_age_ms)
        yield from self._beyond(t.outbox, t.outbox.c.seq, None, self._keep.outbox)
        yield from self._old(t.events, oldest_ms)
        yield from self._beyond(t.leader_epochs, t.leader_epochs.c.granted_ms, None, EPOCHS_KEPT)
        for job in chain(self._jobs_to_remove(oldest_ms), self._left_behind(oldest_ms)):
            self._removed.add(job)
            yield from self._remove_job(job)
        for jobs in self._jobs_with_surplus(ended_since_ms):
            for job in jobs:
                if job not in self._removed:  # in a dry run it is still there
                    yield from self._prune_job(job)
            yield Pruned(t.jobs.name, 0)  # a step also where nothing is to be removed: others get their turn
        yield from self._prune_links(oldest_ms)
        yield from self._prune_clusters(oldest_ms)

    # --- jobs -------------------------------------------------------------------------------------

    def _jobs_to_remove(self, oldest_ms: int) -> Iterator[JobId]:
        j = t.jobs.c
        has_ended = select(j.job, j.ended_ms).where(j.ended_ms.is_not(None))
        cut = self._database.rows(has_ended.order_by(j.ended_ms.desc()).offset(self._keep.jobs).limit(1))
        before_ms = max(oldest_ms, cut[0].ended_ms + 1 if cut else oldest_ms)
        too_old = select(j.ended_ms, j.job).where(j.ended_ms < before_ms)
        for page in self._pages(too_old, (j.ended_ms, j.job)):
            yield from (JobId(row.job) for row in page)

    def _left_behind(self, oldest_ms: int) -> Iterator[JobId]:
        """Jobs without an end whose cluster is gone for good: too many, or too old."""
        j, c = t.jobs.c, t.clusters.c
        last_seen: dict[str, int] = {}
        for page in self._pages(select(c.cluster, c.heartbeat_ms), (c.cluster,)):
            last_seen |= {row.cluster: row.heartbeat_ms for row in page}
        gone = []
        unended = select(j.changed_ms, j.job, j.cluster).where(j.ended_ms.is_(None))
        for page in self._pages(unended, (j.changed_ms, j.job)):
            gone += [(max(row.changed_ms, last_seen.get(row.cluster, 0)), JobId(row.job)) for row in page]
        gone = sorted(one for one in gone if one[0] < self._now_ms - CLUSTER_GONE_MS)
        surplus = len(gone) - self._keep.jobs
        yield from (
            job for number, (seen_ms, job) in enumerate(gone) if number < surplus or seen_ms < oldest_ms
        )

    def _prune_clusters(self, oldest_ms: int) -> Iterator[Pruned]:
        """Removes clusters that are silent for long and have no job any more. One that lives may have none
        yet; without its row the job that it adds next would count as left behind."""
        oldest_ms = min(oldest_ms, self._now_ms - CLUSTER_GONE_MS)
        c = t.clusters.c
        without_jobs = ~select(t.jobs.c.job).where(t.jobs.c.cluster == c.cluster).exists()
        yield from self._all_of(t.clusters, (c.heartbeat_ms < oldest_ms) & without_jobs)

    def _remove_job(self, job: JobId) -> Iterator[Pruned]:
        for table in _CHILDREN:
            yield from self._all_of(table, table.c.job == job)
        yield from self._all_of(t.jobs, t.jobs.c.job == job)

    def _jobs_with_surplus(self, ended_since_ms: int) -> Iterator[list[JobId]]:
        """Jobs of which rows may go. One statement asks for a page: hardly any job of a long history has a
        surplus."""
        j = t.jobs.c
        for which in (j.ended_ms.is_(None), j.ended_ms >= ended_since_ms):
            query = select(j.job, self._may_have_surplus().label("surplus")).where(which)
            for page in self._pages(query, (j.job,)):
                yield [JobId(row.job) for row in page if row.surplus]

    def _may_have_surplus(self) -> ColumnElement[bool]:
        """A condition on a job that is true at least where `_prune_job` has something to remove. It reads no
        more rows of a job than are kept, however many there are."""
        keep = self._keep
        job = t.jobs.c.job
        return or_(
            _more_than(keep.checkpoints, t.checkpoints.c.job == job),
            _more_than(keep.commits, t.commits.c.job == job),
            _more_than(keep.exceptions, t.exceptions.c.job == job),
            _more_than(keep.events, t.events.c.job == job),
            _more_than(0, _surplus_attempts(job, keep.attempts)),
        )

    def _prune_job(self, job: JobId) -> Iterator[Pruned]:
        keep = self._keep
        yield from self._thin_checkpoints(job)
        yield from self._prune_commits(job)
        yield from self._beyond(t.exceptions, t.exceptions.c.id, t.exceptions.c.job == job, keep.exceptions)
        yield from self._beyond(t.events, t.events.c.id, t.events.c.job == job, keep.events)
        yield from self._all_of(t.attempts, _surplus_attempts(job, keep.attempts))

    def _thin_checkpoints(self, job: JobId) -> Iterator[Pruned]:
        c, s = t.checkpoints.c, t.savepoints.c
        of_job = c.job == job
        cuts = Cuts(
            all=self._cut(c.checkpoint_id, of_job, self._keep.checkpoints),
            savepoints=self._cut(s.checkpoint_id, s.job == job, self._keep.snapshots),
            failed=self._cut(
                c.checkpoint_id, of_job & (c.state == SnapshotStatus.FAILED.recorded), self._keep.snapshots
            ),
        )
        thinning = Thinning(self._now_ms, self._keep.age_ms, cuts)
        rows = select(c.job, c.checkpoint_id, c.kind, c.state, c.triggered_ms)
        candidates = rows.where(of_job, c.checkpoint_id < cuts.all)
        for page in self._pages(candidates, (c.checkpoint_id,)):
            removed = thinning.removed(_snapshot(row) for row in page)
            keys = [(job, row.checkpoint_id) for row in removed]
            yield self._delete(
                t.checkpoints, keys, lambda connection, r=removed: self._count(connection, job, r)
            )

    def _count(self, connection: Connection, job: JobId, removed: Sequence[SnapshotRow]) -> None:
        c = t.checkpoints.c
        ids = [row.checkpoint_id for row in removed]
        there = self._still_there(connection, c.checkpoint_id, (c.job == job) & c.checkpoint_id.in_(ids))
        states = [row.state for row in removed if row.checkpoint_id in there]
        counted = {
            "completed": states.count(SnapshotStatus.COMPLETED.recorded),
            "failed": states.count(SnapshotStatus.FAILED.recorded),
        }
        p = t.pruned_checkpoints.c
        row = self._database.insert(t.pruned_checkpoints).values(job=job, leader_epoch=self._epoch, **counted)
        more: dict[str, Any] = {name: p[name] + number for name, number in counted.items()}
        connection.execute(row.on_conflict_do_update(index_elements=["job"], set_={**more, **self._by_us(p)}))

    def _prune_commits(self, job: JobId) -> Iterator[Pruned]:
        c = t.commits.c
        for (uid,) in self._database.rows(select(c.sink_uid).where(c.job == job).distinct()):
            of_sink = (c.job == job) & (c.sink_uid == uid)
            cut = self._cut(c.checkpoint_id, of_sink, self._keep.commits)
            rows = select(c.job, c.sink_uid, c.checkpoint_id, c.rows, c.table_version)
            surplus = rows.where(of_sink, c.checkpoint_id < cut)
            for page in self._pages(surplus, (c.checkpoint_id,)):
                keys = [tuple(row)[:3] for row in page]
                yield self._delete(t.commits, keys, lambda connection, p=page: self._add_up(connection, p))

    def _add_up(self, connection: Connection, page: Sequence[Row[Any]]) -> None:
        p, c = t.pruned_commits.c, t.commits.c
        of_sink = (c.job == page[0].job) & (c.sink_uid == page[0].sink_uid)
        ids = [row.checkpoint_id for row in page]
        there = self._still_there(connection, c.checkpoint_id, of_sink & c.checkpoint_id.in_(ids))
        removed = [row for row in page if row.checkpoint_id in there]
        if not removed:
            return
        last = removed[-1]
        versions = [row.table_version for row in removed if row.table_version is not None]
        first = self._database.insert(t.pruned_commits).values(
            job=last.job,
            sink_uid=last.sink_uid,
            rows=sum(row._mapping["rows"] for row in removed),
            commits=len(removed),
            checkpoint_id=last.checkpoint_id,
            table_version=max(versions, default=None),
            leader_epoch=self._epoch,
        )
        new = first.excluded
        more = {
            "rows": p.rows + new.rows,
            "commits": p.commits + new.commits,
            "checkpoint_id": new.checkpoint_id,
            "table_version": func.coalesce(new.table_version, p.table_version),
            **self._by_us(p),
        }
        connection.execute(first.on_conflict_do_update(index_elements=["job", "sink_uid"], set_=more))

    def _still_there(
        self, connection: Connection, column: ColumnElement[int], where: ColumnElement[bool]
    ) -> set[int]:
        """What another cluster that prunes at the same time has not removed and counted: it waits for us."""
        return {row[0] for row in connection.execute(select(column).where(where).with_for_update())}

    def _by_us(self, columns: Any) -> dict[str, Any]:
        return {"version": columns.version + 1, "leader_epoch": self._epoch}

    # --- links ------------------------------------------------------------------------------------

    def _prune_links(self, oldest_ms: int) -> Iterator[Pruned]:
        """Keys that nobody has watched for long and whose job is gone; their history; long histories."""
        k, a = t.run_links.c, t.run_attachments
        gone = ~select(t.jobs.c.job).where(t.jobs.c.job == k.job).exists()
        silent = select(k.key, k.heartbeat_ms).where(k.heartbeat_ms < oldest_ms, gone)
        for page in self._pages(silent, (k.heartbeat_ms, k.key)):
            for row in page:
                yield from self._all_of(a, a.c.key == row.key)
            yield self._delete(t.run_links, [(row.key,) for row in page])
        long = _more_than(ATTACHMENTS_KEPT, a.c.key == k.key)
        watched = select(k.key, k.heartbeat_ms).where(k.heartbeat_ms >= self._now_ms - DAY_MS, long)
        for page in self._pages(watched, (k.heartbeat_ms, k.key)):
            for row in page:
                yield from self._beyond(a, a.c.id, a.c.key == row.key, ATTACHMENTS_KEPT)

    # --- steps ------------------------------------------------------------------------------------

    def _cut(self, column: ColumnElement[int], where: ColumnElement[bool] | None, kept: int) -> int:
        """The smallest of the newest `kept` values; below it rows are surplus. 0: there are fewer."""
        newest = select(column).order_by(column.desc()).offset(max(0, kept - 1)).limit(1)
        found = self._database.rows(newest if where is None else newest.where(where))
        return int(found[0][0]) + (kept == 0) if found else 0

    def _beyond(
        self, table: Table, column: ColumnElement[int], where: ColumnElement[bool] | None, kept: int
    ) -> Iterator[Pruned]:
        surplus = column < self._cut(column, where, kept)
        yield from self._all_of(table, surplus if where is None else where & surplus)

    def _old(self, table: Table, before_ms: int) -> Iterator[Pruned]:
        """Rows whose numbers grow with time, until the first one that is young enough."""
        key = tuple(table.primary_key.columns)
        for page in self._pages(select(*key, table.c.at_ms), key):
            old = list(takewhile(lambda row: row.at_ms < before_ms, page))
            if old:
                yield self._delete(table, [tuple(row)[: len(key)] for row in old])
            if len(old) < len(page):
                return

    def _all_of(self, table: Table, where: ColumnElement[bool]) -> Iterator[Pruned]:
        key = tuple(table.primary_key.columns)
        for page in self._pages(select(*key).where(where), key):
            yield self._delete(table, [tuple(row) for row in page])

    def _pages(self, query: Select[Any], key: Sequence[ColumnElement[Any]]) -> Iterator[Sequence[Row[Any]]]:
        """Rows in the order of `key`, which are columns of `query`; each page is read when it is asked
        for."""
        page = self._database.rows(query.order_by(*key).limit(STEP_ROWS))
        while page:
            yield page
            if len(page) < STEP_ROWS:
                return
            last = [getattr(page[-1], column.key or "") for column in key]
            rest = query.where(key[0] > last[0] if len(key) == 1 else tuple_(*key) > tuple_(*last))
            page = self._database.rows(rest.order_by(*key).limit(STEP_ROWS))

    def _delete(
        self, table: Table, keys: Iterable[Sequence[Any]], first: Any = lambda _connection: None
    ) -> Pruned:
        columns = tuple(table.primary_key.columns)
        rows = [{f"key_{i}": value for i, value in enumerate(key)} for key in keys]
        if rows and not self._dry_run:
            mine = [column == bindparam(f"key_{i}") for i, column in enumerate(columns)]
            with self._database.write() as connection:
                first(connection)
                connection.execute(delete(table).where(*mine), rows)
        return Pruned(table.name, len(rows))


def _snapshot(row: Row[Any]) -> SnapshotRow:
    return SnapshotRow(row.checkpoint_id, row.kind, row.state, row.triggered_ms)


def _more_than(kept: int, mine: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether there are more than so many rows of which `mine`, a condition with columns of the statement
    around, is true."""
    return select(literal(1)).where(mine).offset(kept).limit(1).exists()


def _surplus_attempts(job: JobId | ColumnElement[str], kept: int) -> ColumnElement[bool]:
    """Attempts of a subtask that are older than its newest one by `kept` and more."""
    a, other = t.attempts.c, t.attempts.alias("other")
    o = other.c
    newest = (
        select(func.max(o.attempt))
        .where(o.job == a.job, o.vertex == a.vertex, o.subtask == a.subtask)
        .scalar_subquery()
    )
    return (a.job == job) & (a.attempt < newest - kept)
