"""What is reported to Dagster about a job: metadata, observations, run tags.

Dagster's database may be unavailable for a moment. That must not end a stream, so nothing in `RunReport`
raises; a report that fails is logged by the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import dagster as dg
import msgspec
import pyarrow as pa

from unistream.base.errors import UnistreamError
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.client.job_client import JobClient
from unistream.dagster.policy_tag import POLICY_TAG
from unistream.dagster.savepoints import Savepoints, savepoints_of, was_stopped
from unistream.dagster.start import JOB_TAG
from unistream.master.job_info import JobInfo, SinkInfo
from unistream.model.positions import SourcePositions
from unistream.port.metrics import user_metrics_of
from unistream.port.sink import DescribesTable, Sink

SINK_METADATA: Final = "unistream/sink_uid"
"""Metadata key of an AssetSpec: the uid of the sink that writes this asset."""

SAVEPOINT_TAG: Final = "unistream/savepoint"
"""Tag of a run: the snapshot that its job has left; empty: none yet. Also metadata: the newest savepoint from
which a job can go on."""

TERMINAL_SAVEPOINT: Final = "unistream/terminal_savepoint"
"""Metadata: the savepoint after the end of data that a drain has taken, from which no job goes on."""

PAGE_METADATA: Final = "unistream/job_page"
"""Metadata: where the web UI shows the job; of a cluster that ends with its run as long as that lasts."""

OPERATION_METADATA: Final = "unistream/operation"
"""Metadata of a job of Dagster that stops a stream or takes its savepoint: the name of the stream's job."""

BACKFILL_METADATA: Final = "unistream/backfill_of"
"""Metadata key of an AssetSpec: the name of the job whose table it computes again."""

COLUMN_SCHEMA: Final = "dagster/column_schema"
ROW_COUNT: Final = "dagster/row_count"

_YEAR_9999_MS: Final = 253_370_764_800_000  # Dagster shows timestamps up to it

logger = logging.getLogger(__name__)


class RunReport:
    """Reports a job to the run of `context`; see `unistream.dagster.attached.StepListener`.

    `retention`: value of `execution.checkpointing.externalized-checkpoint-retention`.
    """

    def __init__(self, context: dg.AssetExecutionContext, *, target: str, retention: str) -> None:
        self._context = context
        self._target = target
        self._retention = retention
        self._page: str | None = None

    def started(self, client: JobClient) -> None:
        self._page = page_of(client)
        shown = "" if self._page is None else f"; its page is {self._page}"
        self.note(f"job {client.job_id} runs on {self._target}{shown}", is_error=False)
        copied = {SAVEPOINT_TAG: ""} if SAVEPOINT_TAG in self._context.run.tags else {}
        self.tag({JOB_TAG: str(client.job_id), **copied})

    def policy(self, text: str) -> None:
        """By what the run goes; see `unistream.dagster.policy_tag`."""
        self.tag({POLICY_TAG: text})

    def progress(self, info: JobInfo) -> None:
        self._observe(info)

    def detached(self, info: JobInfo) -> None:
        """A checkpoint is complete, and the run ends."""
        self.note(f"job {info.job} goes on in its cluster; 'unistream stop' ends it", is_error=False)

    def interrupted(self) -> None:
        self._reported(self._mark_as_canceling)

    def finished(self, info: JobInfo) -> None:
        """The job has ended by itself, or was stopped from outside: then the run says what it has left."""
        if was_stopped(info):
            self._note_stop(info, savepoints_of(info))

    def stopped(self, info: JobInfo, savepoint: str, *, resumable: bool) -> None:
        drained = Savepoints(info.resumable_savepoint, savepoint)
        self._note_stop(info, Savepoints(savepoint, None) if resumable else drained)
        self._observe(info)

    def _note_stop(self, info: JobInfo, left: Savepoints) -> None:
        """Also tags the run with what the next one goes on from."""
        then = "so no run can resume from it" if left.resumable is None else self._resume_from(left.resumable)
        if left.terminal is not None:
            then = f"it was drained: its windows have fired{', ' if left.resumable is None else '; '}{then}"
        savepoint = left.terminal or left.resumable
        self.note(f"job {info.job} was stopped with savepoint {savepoint}; {then}", is_error=False)

    def cancelled(self, info: JobInfo) -> None:
        self.note(f"job {info.job} was cancelled, without a savepoint; {self.left(info)}", is_error=False)
        self._observe(info)

    def left(self, info: JobInfo) -> str:
        """Says how to resume a job that was cancelled or has failed, and tags the run with the snapshot."""
        snapshot = retained(info, self._retention)
        return "it has left no checkpoint" if snapshot is None else self._resume_from(snapshot)

    def note(self, text: str, *, is_error: bool) -> None:
        log = self._context.log
        self._reported(lambda: log.error("%s", text) if is_error else log.info("%s", text))

    def forward(self, text: str, *, level: str) -> None:
        number = logging.getLevelNamesMapping().get(level, logging.INFO)
        self._reported(lambda: self._context.log.log(number, "%s", text))

    def _resume_from(self, snapshot: str) -> str:
        self.tag({SAVEPOINT_TAG: snapshot})
        return f"the next run goes on from {snapshot}"

    def _observe(self, info: JobInfo) -> None:
        for spec in specs_of(self._context):
            metadata = asset_metadata(spec, info) | self.page()
            observation = dg.AssetObservation(asset_key=spec.key, metadata=metadata)
            self._reported(partial(self._context.log_event, observation))

    def page(self) -> dict[str, Any]:
        """Where the web UI shows the job, as metadata; empty: its cluster has none."""
        return {} if self._page is None else {PAGE_METADATA: dg.MetadataValue.url(self._page)}

    def table(self, spec: dg.AssetSpec, sinks: Mapping[str, Sink]) -> dict[str, Any]:
        """Columns and rows of the whole table, as metadata; empty: they are not known."""
        sink, table = sinks[spec.metadata[SINK_METADATA]], None
        if isinstance(sink, DescribesTable):
            try:
                table = sink.description()
            except UnistreamError as error:  # the job has ended well; its table is away a moment later
                self.note(f"table {spec.key.to_user_string()} is not described: {error}", is_error=True)
        if table is None:
            return {}
        counted = {} if table.rows is None else {ROW_COUNT: table.rows}
        return {COLUMN_SCHEMA: table_schema(table.schema), **counted}

    def tag(self, tags: Mapping[str, str]) -> None:
        run = self._context.run.run_id
        self._reported(lambda: self._context.instance.add_run_tags(run, tags))

    def _mark_as_canceling(self) -> None:
        """Without a termination request in Dagster's database a signal makes the run fail, and a run that
        Dagster retries would start from nothing instead of from the savepoint."""
        run = self._context.instance.get_run_by_id(self._context.run.run_id)
        if run is not None and run.status == dg.DagsterRunStatus.STARTED:
            text = "The process of the run was terminated by a signal."
            self._context.instance.report_run_canceling(run, message=text)

    def _reported(self, report: Callable[[], object]) -> None:
        try:
            report()
        except Exception:  # an unavailable database of Dagster must not end the stream
            logger.exception("event=dagster_not_told run=%s", self._context.run.run_id)


def page_of(client: JobClient) -> str | None:
    """None: its cluster has no REST API, or another process leads it."""
    return None if client.rest_url is None else f"{client.rest_url}/ui/jobs/{client.job_id}"


def retained(info: JobInfo, retention: str) -> str | None:
    """Directory of the newest snapshot of a job that was cancelled or has failed, if it was not deleted."""
    kept_after = {
        "CANCELED": retention == "RETAIN_ON_CANCELLATION",
        "FAILED": retention != "NO_EXTERNALIZED_CHECKPOINTS",
        "SUSPENDED": True,
    }
    return info.latest_checkpoint if kept_after.get(info.state) else None


def specs_of(context: dg.AssetExecutionContext) -> Sequence[dg.AssetSpec]:
    """Of all assets that the step writes."""
    return list(context.assets_def.specs)


def assets_text(specs: Sequence[dg.AssetSpec]) -> str:
    """Their keys, as the option `dagster.assets` has them: so the page of the job links them."""
    return msgspec.json.encode([spec.key.path for spec in specs]).decode()


def asset_metadata(spec: dg.AssetSpec, info: JobInfo) -> dict[str, Any]:
    """The job's figures and those of the sink that writes this asset."""
    metadata = job_metadata(info)
    sink = info.sinks.get(spec.metadata.get(SINK_METADATA, ""))
    if sink is not None:
        metadata |= {"unistream/rows": sink.rows, "unistream/commits": sink.commits}
        metadata |= positions_metadata(sink.positions) | table_rows_metadata(sink)
        if sink.table_version is not None:
            metadata["unistream/table_version"] = sink.table_version
    return metadata


def table_rows_metadata(sink: SinkInfo | None) -> dict[str, Any]:
    """Rows of the whole table after the newest commit; empty: the sink does not count them."""
    return {} if sink is None or sink.table_rows is None else {ROW_COUNT: sink.table_rows}


def job_metadata(info: JobInfo) -> dict[str, Any]:
    """Metadata common to all assets of a job."""
    metadata: dict[str, Any] = {
        "unistream/job_id": str(info.job),
        "unistream/checkpoints": info.checkpoints_completed,
        "unistream/restarts": info.restarts,
    }
    if info.late_rows or not info.incomplete:
        metadata["unistream/late_rows"] = sum(info.late_rows.values())
    if info.late_rows:
        metadata["unistream/late_rows_by_operator"] = dg.MetadataValue.json(info.late_rows)
    if info.out_of_order_rows:
        metadata["unistream/out_of_order_rows"] = dg.MetadataValue.json(info.out_of_order_rows)
    if info.dead_letters:
        metadata["unistream/dead_letters"] = sum(info.dead_letters.values())
        metadata["unistream/dead_letters_by_operator"] = dg.MetadataValue.json(info.dead_letters)
    if info.skipped_rows:
        metadata["unistream/skipped_rows"] = sum(info.skipped_rows.values())
        metadata["unistream/skipped_rows_by_operator"] = dg.MetadataValue.json(info.skipped_rows)
    named = zip((SAVEPOINT_TAG, TERMINAL_SAVEPOINT), savepoints_of(info), strict=True)
    metadata |= {key: dg.MetadataValue.path(path) for key, path in named if path is not None}
    watermark_ms = info.metrics.get("watermark", MIN_WATERMARK)
    if watermark_ms not in (MIN_WATERMARK, MAX_WATERMARK) and abs(watermark_ms) < _YEAR_9999_MS:
        metadata["unistream/watermark"] = dg.MetadataValue.timestamp(watermark_ms / 1000)
    counted = user_metrics_of(info.metrics)
    if counted:
        metadata["unistream/metrics"] = dg.MetadataValue.json(counted)
    if info.records_behind is not None:
        metadata["unistream/records_behind"] = info.records_behind
    return metadata


def positions_metadata(positions: Sequence[SourcePositions]) -> dict[str, Any]:
    """Up to where the sources were read, by what is read and partition; empty: it is not known."""
    if not positions:
        return {}
    offsets: dict[str, dict[str, int]] = {}
    for one in positions:
        offsets.setdefault(one.name, {}).update(one.offsets)
    return {"unistream/offsets": dg.MetadataValue.json(offsets)}


def table_schema(schema: pa.Schema) -> dg.TableSchema:
    """Columns as Dagster shows them, with Arrow's names of types."""
    columns = [
        dg.TableColumn(field.name, str(field.type), constraints=_constraints(field)) for field in schema
    ]
    return dg.TableSchema(columns)


def _constraints(field: pa.Field[Any]) -> dg.TableColumnConstraints:
    return dg.TableColumnConstraints(nullable=field.nullable)


def data_version(spec: dg.AssetSpec, info: JobInfo) -> dict[str, str] | None:
    """The table's version as Dagster's data version, by which it knows whether an asset has changed."""
    sink = info.sinks.get(spec.metadata.get(SINK_METADATA, ""))
    if sink is None or sink.table_version is None:
        return None
    return {"dagster/data_version": str(sink.table_version)}
