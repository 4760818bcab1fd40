"""What is reported to Dagster about a job: metadata, observations, run tags.

Dagster's database may be unavailable for a moment. That must not end a stream, so nothing in `RunReport`
raises; a report that fails is logged by the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg
import msgspec

from unistream.base.clock import SystemClock
from unistream.base.errors import UnistreamError
from unistream.client.remote.job_client import JobClient
from unistream.dagster.run.attached import stopped_by
from unistream.dagster.run.metadata import (
    COLUMN_SCHEMA,
    JOB,
    NO_SAVEPOINT,
    ROW_COUNT,
    SAVEPOINT_TAG,
    SINK_METADATA,
    asset_metadata,
    table_schema,
)
from unistream.dagster.run.policy_tag import POLICY_TAG
from unistream.dagster.run.savepoints import Savepoints, savepoints_of, was_stopped
from unistream.model.job_info import JobInfo
from unistream.port.sink import DescribesTable, Sink

logger = logging.getLogger(__name__)


class RunReport:
    """Reports a job to the run of `context`; see `unistream.dagster.run.attached.StepListener`.

    `retention`: value of `execution.checkpointing.externalized-checkpoint-retention`.
    """

    def __init__(self, context: dg.AssetExecutionContext, *, target: str, retention: str) -> None:
        self._context = context
        self._target = target
        self._retention = retention
        self._page: str | None = None
        self.outcome = ""
        """The last sentence."""
        self.ended: JobInfo | None = None
        """The job, if this run was interrupted and has ended it as it was to."""
        self._failed: bool | None = None

    def started(self, client: JobClient) -> None:
        self._page = page_of(client)
        shown = "" if self._page is None else f"; its page is {self._page}"
        self.note(f"job {client.job_id} runs {_where(self._target)}{shown}", is_error=False)
        copied = {SAVEPOINT_TAG: NO_SAVEPOINT} if SAVEPOINT_TAG in self._context.run.tags else {}
        self.tag({JOB: str(client.job_id), **copied})

    def policy(self, text: str) -> None:
        """Notes and tags the choices by which the run goes; see `unistream.dagster.run.policy_tag`."""
        self.note(f"this run: {text}", is_error=False)
        self.tag({POLICY_TAG: text})

    def progress(self, info: JobInfo) -> None:
        self._observe(info)

    def detached(self, info: JobInfo) -> None:
        """A checkpoint is complete, and the run ends."""
        text = f"job {info.job} goes on in its cluster: this run has seen its checkpoint, and ends"
        self.note(f"{text}; {stopped_by(info.job)}", is_error=False)

    def interrupted(self) -> None:
        self._failed = False
        self._reported(self._mark_as_canceling)

    def finished(self, info: JobInfo) -> None:
        """The job has ended by itself, or was stopped from outside: then the run says what it has left."""
        if was_stopped(info):
            self._note_stop(info, savepoints_of(info))

    def stopped(self, info: JobInfo, savepoint: str, *, resumable: bool) -> None:
        drained = Savepoints(info.resumable_savepoint, savepoint)
        self._note_stop(info, Savepoints(savepoint, None) if resumable else drained)
        self._observe(info)
        self.ended = None if self._failed else info

    def _note_stop(self, info: JobInfo, left: Savepoints) -> None:
        """Notes with which savepoints the job was stopped, and tags the run with what the next one goes on
        from."""
        then = "so no run can resume from it" if left.resumable is None else self._resume_from(left.resumable)
        if left.terminal is not None:
            then = f"it was drained: its windows have fired{', ' if left.resumable is None else '; '}{then}"
        savepoint = left.terminal or left.resumable
        self.note(f"job {info.job} was stopped with savepoint {savepoint}; {then}", is_error=False)

    def cancelled(self, info: JobInfo) -> None:
        self.note(f"job {info.job} was cancelled, without a savepoint; {self.left(info)}", is_error=False)
        self._observe(info)
        self.ended = None if self._failed else info

    def left(self, info: JobInfo) -> str:
        """Says how to resume a job that was cancelled or has failed, and tags the run with the snapshot."""
        snapshot = retained(info, self._retention)
        return "it has left no checkpoint" if snapshot is None else self._resume_from(snapshot)

    def note(self, text: str, *, is_error: bool) -> None:
        self.outcome, log = text, self._context.log
        if self._failed is not None:  # what the job has survived before is no failure of its end
            self._failed |= is_error
        self._reported(lambda: log.error("%s", text) if is_error else log.info("%s", text))

    def forward(self, text: str, *, level: str) -> None:
        number = logging.getLevelNamesMapping().get(level, logging.INFO)
        self._reported(lambda: self._context.log.log(number, "%s", text))

    def _resume_from(self, snapshot: str) -> str:
        self.tag({SAVEPOINT_TAG: snapshot})
        return f"the next run goes on from {snapshot}"

    def _observe(self, info: JobInfo) -> None:
        now_ms = SystemClock().wall_ms()
        for spec in specs_of(self._context):
            metadata = asset_metadata(spec, info, now_ms, self._page)
            observation = dg.AssetObservation(asset_key=spec.key, metadata=metadata)
            self._reported(partial(self._context.log_event, observation))

    @property
    def page(self) -> str | None:
        """Where the web UI shows the job; None: its cluster has none."""
        return self._page

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
        """Reports a termination by signal as a request of Dagster's. Without one in its database a signal
        makes the run fail, and a run that Dagster retries would start from nothing instead of from the
        savepoint."""
        run = self._context.instance.get_run_by_id(self._context.run.run_id)
        if run is not None and run.status == dg.DagsterRunStatus.STARTED:
            text = "The process of the run was terminated by a signal."
            self._context.instance.report_run_canceling(run, message=text)

    def _reported(self, report: Callable[[], object]) -> None:
        try:
            report()
        except Exception:  # an unavailable database of Dagster must not end the stream
            logger.exception("event=dagster_not_notified run=%s", self._context.run.run_id)


def _where(target: str) -> str:
    """Where the job runs, in words for people."""
    return {
        "remote": "in its session cluster",
        "spark": "on Spark, as long as this run",
        "local": "in child processes, as long as this run",
    }.get(target, f"on {target}")


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
    """The specs of all assets that the step writes."""
    return list(context.assets_def.specs)


def assets_text(specs: Sequence[dg.AssetSpec]) -> str:
    """The keys of assets as the option `dagster.assets` has them: so the page of the job links them."""
    return msgspec.json.encode([spec.key.path for spec in specs]).decode()
