"""Which artifacts of user code there are, and which jobs refer to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, delete, exists, select

from unistream.base.ids import JobId, LeaderEpoch
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase, fields, without
from unistream.port.metadata import PAGE_ROWS, ArtifactRecord

_UNUSED = ~exists().where(t.artifact_uses.c.sha256 == t.artifacts.c.sha256)


class SqlArtifacts:
    """`port.metadata.Artifacts`. A use ends when the row of its job is pruned."""

    def __init__(self, database: MetadataDatabase) -> None:
        self._database = database

    def use(self, job: JobId, artifact: ArtifactRecord, epoch: LeaderEpoch) -> None:
        """See the port. An artifact may be used by jobs of several clusters, so its epoch does not fence."""
        values = fields(artifact)
        a = t.artifacts.c
        row = self._database.insert(t.artifacts).values(**values, leader_epoch=epoch)
        again = {"used_ms": values["used_ms"], "version": a.version + 1, "leader_epoch": epoch}
        use = self._database.insert(t.artifact_uses).values(sha256=artifact.sha256, job=job)
        with self._database.of_job(job, epoch) as (connection, _):
            connection.execute(row.on_conflict_do_update(index_elements=["sha256"], set_=again))
            connection.execute(use.on_conflict_do_nothing())

    def of_job(self, job: JobId) -> Sequence[ArtifactRecord]:
        """The artifacts that a job refers to, by hash."""
        u = t.artifact_uses.c
        used = select(t.artifacts).join(t.artifact_uses, u.sha256 == t.artifacts.c.sha256)
        return self._read(used.where(u.job == job).order_by(t.artifacts.c.sha256).limit(PAGE_ROWS))

    def unused(self, used_before_ms: int, limit: int = PAGE_ROWS) -> Sequence[ArtifactRecord]:
        """See the port."""
        a = t.artifacts
        old = select(a).where(a.c.used_ms < used_before_ms, _UNUSED).order_by(a.c.used_ms, a.c.sha256)
        return self._read(old.limit(limit))

    def forget(self, sha256: str) -> bool:
        """See the port."""
        with self._database.write() as connection:
            # PostgreSQL checks again what it has waited for, but not for rows of other tables: so wait first
            connection.execute(
                select(t.artifacts.c.sha256).where(t.artifacts.c.sha256 == sha256).with_for_update()
            )
            gone = connection.execute(delete(t.artifacts).where(t.artifacts.c.sha256 == sha256, _UNUSED))
            return gone.rowcount == 1

    def _read(self, query: Select[Any]) -> list[ArtifactRecord]:
        rows = self._database.rows(query)
        return [ArtifactRecord(**without(row, "version", "leader_epoch")) for row in rows]
