"""Everything that can be checked while the job still runs, as a plan; nothing is changed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from unistream.api.environment import Environment
from unistream.api.frames import refuse_detached
from unistream.api.upgrade import check_starts_from
from unistream.backfill.coverage import check_covers, event_time_span
from unistream.backfill.jobs import RunningJob, request_id, running_job, savepoint_folder
from unistream.backfill.journal import BackfillJournal, BackfillOrder
from unistream.backfill.pipeline import Recomputation, batch_job, recomputation
from unistream.backfill.run import check_finished, check_quiet
from unistream.base.config import SAVEPOINT_DIR, Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import NO_CLUSTER, job_of_request
from unistream.client.job.upgrade import IncompatibleSnapshot
from unistream.core.backfill import begun
from unistream.model.lineage import dataset_at
from unistream.model.time_range import TimeRange, time_text

_LATE: Final = (
    "no window drops late rows here: an event that the stream reads after the fence is added as always, also "
    "if its time is before --to and the history has it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user asks for; see `unistream backfill --help`.

    Attributes:
        pipeline: MODULE:FUNCTION.
        target: Where the range is computed.
        savepoint_root: None: below the configured one, or next to the journal.
        complete: The history is not compared with the range.
    """

    range: TimeRange
    pipeline: str
    target: str
    sink: str | None = None
    column: str | None = None
    lookback_ms: int | None = None
    savepoint_root: str | None = None
    complete: bool = False


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done; times are ISO 8601 in UTC.

    Attributes:
        rows: Of the range in the table now; they are replaced.
        reads_from, reads_to: Event times of the history that are used.
        history: Source -> its first and last event time.
        job: None: it does not run.
        finished_to: The greatest --to that is allowed by now; None: not known yet.
        resumes: Id of the job that goes on.
        notes: What else to know.
    """

    table: str
    table_version: int
    sink: str
    column: str
    begin: str
    end: str
    rows: int
    reads_from: str
    reads_to: str
    history: dict[str, tuple[str, str]]
    job: str | None
    job_name: str
    cluster: str | None
    finished_to: str | None
    resumes: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBackfill:
    """A backfill that has not begun."""

    order: BackfillOrder
    plan: BackfillPlan
    found: Recomputation

    def begin(self, root: Path) -> BackfillJournal:
        """The first durable step."""
        order = self.order
        if not order.savepoint_root:
            folder = BackfillJournal.folder_of(root, order)
            order = msgspec.structs.replace(order, savepoint_root=savepoint_folder(folder))
        return BackfillJournal.create(root, order, begun(stops_job=order.job is not None))


def prepare(
    environment: Environment, wanted: Wanted, name: str, running: RunningJob | None
) -> PreparedBackfill:
    """Checks everything.

    Args:
        environment: With the pipeline, as the job is resumed.
        wanted: By the user.
        name: Of the job.
        running: None: it does not run.

    Raises:
        ConfigError: it cannot be done, so nothing is begun.
        Unreachable: the table or the history cannot be read.
    """
    refuse_detached(environment.stream_graph())
    recomputed = recomputation(
        environment, sink=wanted.sink, column=wanted.column, lookback_ms=wanted.lookback_ms
    )
    if running is not None:
        _check_job(environment, wanted, recomputed, running)
    state = recomputed.target.look()
    watermark_ms = None if running is None else running.info.metrics.get("watermark")
    if running is None:
        check_quiet(recomputed.target, recomputed.reach, wanted.range)
    elif watermark_ms is not None:
        check_finished(recomputed.reach, watermark_ms, wanted.range, recomputed.target.newest_ms)
    # What this refuses, it refuses now.
    batch_job(environment, recomputed, wanted.range, recomputed.target.folder, name)
    environment.job_graph(name)
    spans = _spans(recomputed, wanted)
    order = _order(environment, wanted, recomputed, name, running)
    needed = recomputed.reach.rows_for(wanted.range)
    finished = None if watermark_ms is None else time_text(recomputed.reach.finished_until(watermark_ms))
    plan = BackfillPlan(
        table=order.table,
        table_version=state.version,
        sink=order.sink,
        column=order.column,
        begin=time_text(wanted.range.begin_ms),
        end=time_text(wanted.range.end_ms),
        rows=recomputed.target.count(wanted.range),
        reads_from=time_text(needed.begin_ms),
        reads_to=time_text(needed.end_ms),
        history={label: (time_text(low), time_text(high)) for label, (low, high) in spans.items()},
        job=order.job,
        job_name=name,
        cluster=order.url,
        finished_to=finished,
        resumes=None if running is None else job_of_request(request_id(order)),
        notes=() if recomputed.has_windows else (_LATE,),
    )
    return PreparedBackfill(order=order, plan=plan, found=recomputed)


def _check_job(environment: Environment, wanted: Wanted, found: Recomputation, running: RunningJob) -> None:
    """Raises ConfigError unless the job writes the table, and the pipeline can go on from its state: it is
    stopped first, and resumed with this pipeline."""
    job, table = running.info, found.target.address
    written = {uri for uris in job.writes.values() for uri in uris}
    if written and dataset_at(table).uri not in written:
        raise ConfigError(
            f"job {job.name!r} ({job.job}) does not write {table}, as {wanted.pipeline} does; it writes "
            f"{', '.join(sorted(written))}. Give the id of the job that writes the table"
        )
    try:
        _check_state(environment, running)
    except IncompatibleSnapshot as error:
        raise ConfigError(
            f"job {job.name!r} ({job.job}) could not go on with {wanted.pipeline}: {error}; it runs on"
        ) from None


def _check_state(environment: Environment, running: RunningJob) -> None:
    """Against the newest snapshot of the job, which a newer one may replace while it is read."""
    job = running.info
    if job.latest_checkpoint is None:
        raise ConfigError(
            f"job {job.name!r} ({job.job}) has no checkpoint yet against which the pipeline can be checked; "
            f"wait for one, or take one: unistream checkpoint {job.job}"
        )
    try:
        check_starts_from(environment, job.name, job.latest_checkpoint)
    except IncompatibleSnapshot:
        raise
    except (ConfigError, CorruptSnapshot):
        now = running_job(environment.config, job.job)
        if now.info.latest_checkpoint in (None, job.latest_checkpoint):
            raise
        check_starts_from(environment, job.name, now.info.latest_checkpoint or "")


def _order(
    environment: Environment, wanted: Wanted, found: Recomputation, name: str, running: RunningJob | None
) -> BackfillOrder:
    backfill = uuid.uuid4().hex[:12]
    return BackfillOrder(
        id=backfill,
        job_name=name,
        range=wanted.range,
        sink=found.sink_uid,
        table=found.target.address,
        column=found.target.column,
        pipeline=wanted.pipeline,
        config=environment.config.to_dict(),
        around=sorted(environment.config.to_dict().keys() - environment.options.given.to_dict().keys()),
        target=wanted.target,
        lookback_ms=wanted.lookback_ms,
        job=None if running is None else running.info.job,
        url=None if running is None else running.url,
        cluster=NO_CLUSTER if running is None else running.cluster,
        session=running is not None and running.session,
        cluster_target="" if running is None else running.info.target,
        savepoint_root=_savepoint_root(environment.config, wanted, backfill),
    )


def _savepoint_root(config: Configuration, wanted: Wanted, name: str) -> str:
    """Empty: next to the journal."""
    if wanted.savepoint_root is not None:
        return wanted.savepoint_root
    configured = config.find(SAVEPOINT_DIR)
    return "" if configured is None else f"{configured.rstrip('/')}/backfill-{name}"


def _spans(found: Recomputation, wanted: Wanted) -> dict[str, tuple[int, int]]:
    """First and last event time of each history. Raises ConfigError: one does not cover the range."""
    spans: dict[str, tuple[int, int]] = {}
    if wanted.complete:
        return spans
    for node, history in found.histories.items():
        label = str(found.graph.nodes[node].uid or found.graph.nodes[node].name)
        column = found.times.get(node) or next(iter(found.times.values()), None)
        if column is None or column not in history.schema.names:
            continue
        span = event_time_span(history, column)
        check_covers(repr(label), span, wanted.range)
        if span is not None:
            spans[label] = span
    return spans
