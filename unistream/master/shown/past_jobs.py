"""The history of jobs that do not run, of all clusters on a database, page by page."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from unistream.base.errors import UNDECODABLE
from unistream.base.ids import ClusterId, JobId, OperatorUid
from unistream.master.shown.history import summary_from_line
from unistream.model.job_info import JobSummary
from unistream.port.metadata import ClusterRecord, HistoryPlace, JobHistoryRow, MetadataStore, PastJobs

LOOKS_MAX: Final = 5  # into the database for one page, if a text is in graphs but in no table

logger = logging.getLogger(__name__)


class JobsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that do not run, newest first, with the tables and topics that they wrote. `next`: what to ask
    for to go on; null: there are no more. A page may have fewer jobs than were asked for, even none, and not
    be the last one."""

    jobs: tuple[JobSummary, ...]
    next: str | None
    now_ms: int


def search_past_jobs(
    store: MetadataStore,
    wanted: PastJobs,
    *,
    own: ClusterId,
    limit: int,
    before: HistoryPlace | None,
    now_ms: int,
) -> JobsPage:
    """`wanted` without what runs: its `running` are those of the cluster `own`."""
    others = {cluster.cluster: cluster for cluster in store.clusters() if cluster.cluster != own}
    alive = tuple(id_ for id_, cluster in others.items() if cluster.is_alive(now_ms))
    wanted = replace(wanted, alive=alive)
    found: list[JobSummary] = []
    for _ in range(LOOKS_MAX):
        lines = store.search(wanted, limit + 1, before)
        for line in lines[:limit]:
            before = HistoryPlace(line.record.submitted_ms, line.record.job)
            found += _hit(line, wanted, others, now_ms)
            if len(found) == limit:
                break
        if len(lines) <= limit and (not lines or before == _place(lines[-1])):
            return JobsPage(jobs=tuple(found), next=None, now_ms=now_ms)
        if len(found) == limit:
            break
    return JobsPage(jobs=tuple(found), next=None if before is None else cursor(before), now_ms=now_ms)


def _place(line: JobHistoryRow) -> HistoryPlace:
    return HistoryPlace(line.record.submitted_ms, line.record.job)


def _hit(
    line: JobHistoryRow, wanted: PastJobs, clusters: Mapping[ClusterId, ClusterRecord], now_ms: int
) -> Iterable[JobSummary]:
    """Nothing if only another part of its graph has the text that one of its tables should have."""
    writes = writes_of(line.record.graph_json)
    text = wanted.table.lower()
    if text and not any(text in uri.lower() for uris in writes.values() for uri in uris):
        return ()
    summary = summary_from_line(line, clusters.get(line.record.cluster), now_ms)
    return (replace(summary, writes=writes),)


class _Writes(msgspec.Struct):
    """The part of a recorded graph that is read here."""

    writes: dict[OperatorUid, tuple[str, ...]] = {}


def writes_of(graph_json: str) -> dict[OperatorUid, tuple[str, ...]]:
    """The tables and topics of a recorded graph, by uid of the sink; none if it cannot be read."""
    try:
        return msgspec.json.decode(graph_json, type=_Writes).writes if graph_json else {}
    except UNDECODABLE as error:
        logger.warning("event=recorded_tables_not_read reason=%r", str(error))
        return {}


def cursor(place: HistoryPlace) -> str:
    """The text of a place in the history, which `place_of` reads again.

    >>> cursor(HistoryPlace(12, JobId("ab")))
    '12-ab'
    """
    return f"{place.submitted_ms}-{place.job}"


def history_place(text: str) -> HistoryPlace | None:
    """None: it is no cursor.

    >>> history_place("12-" + "a" * 32)
    HistoryPlace(submitted_ms=12, job='aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')
    """
    ms, _, job = text.partition("-")
    is_job = len(job) == 32 and all(letter in "0123456789abcdef" for letter in job)
    if not (ms.isascii() and ms.isdecimal() and len(ms) <= 16 and is_job):
        return None
    return HistoryPlace(int(ms), JobId(job))
