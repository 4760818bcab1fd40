"""Which clusters there are and were, and whose job a row is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from unistream.base.ids import NO_CLUSTER, ClusterId
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase, fields
from unistream.port.metadata import ClusterRecord, JobRecord


def record_cluster(database: MetadataDatabase, record: ClusterRecord) -> None:
    """See `MetadataStore.record_cluster`."""
    values = fields(record)
    row = database.insert(t.clusters).values(values)
    changed = {name: value for name, value in values.items() if name != "cluster"}
    # a former leader that ends later says nothing of the cluster
    mine = None if record.ended_ms is None else t.clusters.c.mark == record.mark
    with database.write() as connection:
        connection.execute(row.on_conflict_do_update(index_elements=["cluster"], set_=changed, where=mine))


def read_clusters(database: MetadataDatabase, limit: int) -> Sequence[ClusterRecord]:
    """See `MetadataStore.clusters`."""
    newest = select(t.clusters).order_by(t.clusters.c.heartbeat_ms.desc()).limit(limit)
    return [_cluster(row) for row in database.rows(newest)]


def read_cluster(database: MetadataDatabase, cluster: ClusterId) -> ClusterRecord | None:
    """See `MetadataStore.cluster`."""
    found = database.rows(select(t.clusters).where(t.clusters.c.cluster == cluster))
    return _cluster(found[0]) if found else None


def is_replaceable(connection: Connection, new: JobRecord, stored: Any) -> bool:
    """Whether the row of `new`'s id is that of another cluster's job which does not run any more. Two
    clusters have jobs of one id if both were sent the same request id."""
    if NO_CLUSTER in (new.cluster, stored.cluster) or new.cluster == stored.cluster:
        return False
    if stored.ended_ms is not None:
        return True
    found = connection.execute(select(t.clusters).where(t.clusters.c.cluster == stored.cluster)).one_or_none()
    return found is None or not _cluster(found).is_alive(new.changed_ms or new.submitted_ms)


def _cluster(row: Row[Any]) -> ClusterRecord:
    return ClusterRecord(**row._mapping)
