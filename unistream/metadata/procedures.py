"""What commands have reported of backfills and upgrades: `unistream.port.procedures.Procedures`."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, delete, select, update

from unistream.base.errors import UNDECODABLE, ConfigError, Transient
from unistream.base.ids import JobId
from unistream.metadata import tables as t
from unistream.metadata.database import MetadataDatabase
from unistream.model.procedures import ListedProcedures, Procedure, ProcedureReport, check_report, merged
from unistream.port.procedures import PROCEDURES_KEPT

_C: Final = t.procedures.c


class SqlProcedures:
    """One row for each procedure; each call is one transaction."""

    def __init__(self, database: MetadataDatabase) -> None:
        self._database = database

    def report(self, report: ProcedureReport, at_ms: int) -> None:
        """See the port."""
        check_report(report)
        first = {"id": report.id, "job": report.job, "begun_ms": at_ms, **_changed(report, at_ms)}
        insert = self._database.insert(t.procedures).values(first).on_conflict_do_nothing()
        with self._database.write() as connection:
            if connection.execute(insert.returning(_C.id)).one_or_none() is not None:
                _remove_surplus(connection)
                return
            mine = select(t.procedures).where(_C.id == report.id).with_for_update()
            row = connection.execute(mine).one_or_none()
            if row is None:
                raise Transient(f"procedure {report.id!r} was removed at this moment: report again")
            stored = _report(row)
            if stored is None:
                raise ConfigError(
                    f"procedure {report.id!r} was reported by another version of unistream, probably a later "
                    "one: what is stored of it stays. Go on with it by that version"
                )
            newest = _changed(merged(stored, report), max(at_ms, row.reported_ms))
            connection.execute(update(t.procedures).where(_C.id == report.id).values(newest))

    def procedures(self, job: JobId | None = None) -> ListedProcedures:
        """See the port."""
        newest = select(t.procedures).order_by(_C.reported_ms.desc(), _C.id).limit(PROCEDURES_KEPT)
        found = self._database.rows(newest if job is None else newest.where(_C.job == job))
        reports = [(row, _report(row)) for row in found]
        return ListedProcedures(
            tuple(
                Procedure(report=report, begun_ms=row.begun_ms, reported_ms=row.reported_ms)
                for row, report in reports
                if report is not None
            ),
            unreadable=tuple(row.id for row, report in reports if report is None),
        )


def _changed(report: ProcedureReport, at_ms: int) -> dict[str, Any]:
    return {"report": msgspec.json.encode(report).decode(), "reported_ms": at_ms}


def _report(row: Row[Any]) -> ProcedureReport | None:
    """None: it has a field, a kind or a state that this version does not know."""
    try:
        return msgspec.json.decode(row.report, type=ProcedureReport)
    except UNDECODABLE:
        return None


def _remove_surplus(connection: Connection) -> None:
    oldest = select(_C.id).order_by(_C.reported_ms.desc(), _C.id).offset(PROCEDURES_KEPT)
    ids = [row.id for row in connection.execute(oldest.limit(PROCEDURES_KEPT))]
    if ids:
        connection.execute(delete(t.procedures).where(_C.id.in_(ids)))
