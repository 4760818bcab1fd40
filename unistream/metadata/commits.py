"""Commits of sinks, their totals, and the outbox in which readers follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from unistream.base.ids import JobId, LeaderEpoch
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase, fields, without
from unistream.model.positions import decode_positions, encode_positions
from unistream.port.metadata import CommitRecord, OutboxRecord, SinkTotals

_KEY = ("job", "sink_uid", "checkpoint_id")


def record_commit(database: MetadataDatabase, record: CommitRecord, epoch: LeaderEpoch) -> int | None:
    """See `MetadataStore.record_commit`. The outbox has a row for what is new in it."""
    positions = encode_positions(record.positions) if record.positions else None
    values = {**fields(record), "positions": positions}
    key = {name: values.pop(name) for name in _KEY}
    with database.of_job(record.job, epoch) as (connection, job):
        if not _is_news(connection, key, record):
            return None
        database.upsert(connection, t.commits, key, values, epoch)
        seq = database.next_number(connection, t.OUTBOX)
        row = {"seq": seq, "job_name": job.name, "lineage": job.lineage, "leader_epoch": epoch}
        connection.execute(insert(t.outbox).values(**row, **key, **values))
        return seq


def _is_news(connection: Connection, key: dict[str, Any], record: CommitRecord) -> bool:
    c, p = t.commits.c, t.pruned_commits.c
    same = (c.job == record.job) & (c.sink_uid == key["sink_uid"]) & (c.checkpoint_id == record.checkpoint_id)
    known = connection.execute(select(c.rows, c.table_version).where(same)).one_or_none()
    if known is not None:
        return tuple(known) != (record.rows, record.table_version)
    of_sink = (p.job == record.job) & (p.sink_uid == key["sink_uid"])
    pruned_to = connection.execute(select(p.checkpoint_id).where(of_sink)).scalar_one_or_none()
    return pruned_to is None or record.checkpoint_id > pruned_to


def read_commits(database: MetadataDatabase, job: JobId, limit: int) -> Sequence[CommitRecord]:
    """See `MetadataStore.commits`."""
    c = t.commits
    newest = select(c).where(c.c.job == job).order_by(c.c.checkpoint_id.desc(), c.c.sink_uid.desc())
    return [
        _commit(without(row, "version", "leader_epoch"))
        for row in reversed(database.rows(newest.limit(limit)))
    ]


def _commit(values: dict[str, Any]) -> CommitRecord:
    text, where = values.pop("positions"), f"the record of checkpoint {values['checkpoint_id']}"
    return CommitRecord(**values, positions=decode_positions(text, where) if text else ())


def read_sinks(database: MetadataDatabase, job: JobId) -> dict[str, SinkTotals]:
    """See `MetadataStore.sinks`."""
    c, p = t.commits.c, t.pruned_commits
    totals = select(
        c.sink_uid,
        func.sum(c.rows).label("rows"),
        func.count().label("commits"),
        func.max(c.checkpoint_id).label("checkpoint_id"),
        func.max(c.table_version).label("table_version"),
    )
    kept = {row.sink_uid: row for row in database.rows(totals.where(c.job == job).group_by(c.sink_uid))}
    pruned = {row.sink_uid: row for row in database.rows(select(p).where(p.c.job == job))}
    return {
        uid: _together([row for row in (kept.get(uid), pruned.get(uid)) if row is not None])
        for uid in sorted(kept.keys() | pruned.keys())
    }


def _together(parts: Sequence[Row[Any]]) -> SinkTotals:
    versions = [part.table_version for part in parts if part.table_version is not None]
    return SinkTotals(
        rows=sum(int(part.rows) for part in parts),
        commits=sum(part._mapping["commits"] for part in parts),
        checkpoint_id=max(part.checkpoint_id for part in parts),
        table_version=max(versions, default=None),
    )


def read_outbox(database: MetadataDatabase, after: int, limit: int) -> Sequence[OutboxRecord]:
    """See `MetadataStore.outbox`."""
    o = t.outbox
    page = select(o).where(o.c.seq > after).order_by(o.c.seq).limit(limit)
    return [
        OutboxRecord(
            seq=row.seq,
            job_name=row.job_name,
            lineage=row.lineage,
            commit=_commit(without(row, "seq", "job_name", "lineage", "leader_epoch")),
        )
        for row in database.rows(page)
    ]
