"""What happened to jobs, numbered so that a reader who follows the numbers misses nothing."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from unistream.base.ids import JobId, LeaderEpoch
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase, fields, without
from unistream.port.metadata import EventRecord


def insert_event(
    database: MetadataDatabase, connection: Connection, record: EventRecord, epoch: LeaderEpoch
) -> None:
    """Adds an event, as the last step of a transaction; see `MetadataDatabase.next_number`."""
    values = {**fields(record), "id": database.next_number(connection, t.EVENTS), "leader_epoch": epoch}
    connection.execute(insert(t.events).values(values))


def read_events(
    database: MetadataDatabase, after: int, limit: int, job: JobId | None
) -> Sequence[EventRecord]:
    """See `MetadataStore.events`."""
    page = select(t.events).where(t.events.c.id > after).order_by(t.events.c.id).limit(limit)
    if job is not None:
        page = page.where(t.events.c.job == job)
    return [EventRecord(**without(row, "leader_epoch")) for row in database.rows(page)]
