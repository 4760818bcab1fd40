"""Performs the commands of `core.backfill`, and records each step in the journal.

Every command may find itself done: by a former process of the same backfill, or by the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, assert_never

from unistream.api.environment import Environment
from unistream.backfill.jobs import (
    StartInBackground,
    own_cluster,
    resumed_job,
    still_runs,
    stopped_savepoint,
)
from unistream.backfill.journal import BackfillJournal, BackfillOrder
from unistream.backfill.pipeline import OUTSIDE, Recomputation, batch_config, batch_job
from unistream.backfill.staging import Staging
from unistream.base.config import Configuration
from unistream.base.crash_points import crash_point
from unistream.base.errors import (
    ConfigError,
    NotFound,
    NothingListens,
    OutcomeUnknown,
    UnistreamError,
    Unreachable,
)
from unistream.base.limits import MAX_WATERMARK
from unistream.client.job.submission import submit, to_stderr
from unistream.client.remote.job_client import JobClient, checked
from unistream.core import backfill
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest
from unistream.model.time_range import TimeRange, time_text
from unistream.port.replacement import RangeTarget, TargetState
from unistream.savepoint import Savepoint, read_savepoint
from unistream.savepoint.finalize import finalize
from unistream.worker.code import pack

POLL_S: Final = 0.5

OnStep = Callable[[backfill.BackfillProgress], None]
OnJob = Callable[[JobInfo], None]


@dataclass(slots=True, kw_only=True)
class BackfillRun:
    """One process that works on a backfill.

    Attributes:
        environment: With the pipeline and the configuration of the job.
        target: Where the range is computed.
        start_in_background: See `jobs`.
        on_step: Called with each new progress.
        on_job: Called now and then with the job that computes.
    """

    journal: BackfillJournal
    environment: Environment
    found: Recomputation
    target: str
    start_in_background: StartInBackground
    on_step: OnStep = lambda _: None
    on_job: OnJob = lambda _: None
    _attempted: bool = field(default=False, init=False)

    def to_end(self, *, abort: bool = False) -> backfill.BackfillProgress:
        """Goes on where the journal says.

        Raises:
            Unreachable, OutcomeUnknown, ConfigError: it cannot go on now; calling it again does.
        """
        while True:
            command = backfill.next_command(self.journal.progress, abort=abort, attempted=self._attempted)
            if command is backfill.Command.END:
                self._clean_up()
                return self.journal.progress
            event = self._perform(command, abort=abort)
            crash_point("backfill.done")
            self.journal.record(backfill.applied(self.journal.progress, event))
            crash_point("backfill.recorded")
            self._attempted = self._attempted or isinstance(event, backfill.Attempted)
            self.on_step(self.journal.progress)

    def _perform(self, command: backfill.Command, *, abort: bool) -> backfill.Event:
        """Performs a command once, or finds it done."""
        match command:
            case backfill.Command.STOP_JOB:
                return self._stop_or_leave() if abort else self._stop()
            case backfill.Command.FENCE:
                return self._or_refused(self._fence)
            case backfill.Command.ATTEMPT:
                return backfill.Attempted()
            case backfill.Command.COMPUTE:
                return self._or_refused(self._compute)
            case backfill.Command.REPLACE:
                return self._or_refused(self._replace)
            case backfill.Command.CHECK:
                done = self._table.find(self._order.id)
                return self._aborted() if done is None else backfill.Replaced(version=done.version)
            case backfill.Command.ABANDON:
                return self._aborted()
            case backfill.Command.RESUME:
                return self._resume()
            case backfill.Command.END:
                raise AssertionError("there is nothing to do")
        assert_never(command)

    @staticmethod
    def _or_refused(act: Callable[[], backfill.Event]) -> backfill.Event:
        """What cannot succeed later gives the backfill up, so that the job does not stay stopped."""
        try:
            return act()
        except (Unreachable, OutcomeUnknown):
            raise
        except UnistreamError as error:
            return backfill.Abandoned(verdict=backfill.Verdict.REFUSED, reason=str(error))

    @staticmethod
    def _aborted() -> backfill.Event:
        return backfill.Abandoned(verdict=backfill.Verdict.ABORTED, reason="it was given up (--abort)")

    # --- the job ----------------------------------------------------------------------------------

    def _stop(self) -> backfill.Event:
        return backfill.Stopped(savepoint=stopped_savepoint(self._order))

    def _stop_or_leave(self) -> backfill.Event:
        order = self._order
        try:
            runs = still_runs(order)
        except NothingListens:
            return backfill.BackfillEnded(
                reason=f"it was given up (--abort); the session cluster of job {order.job_name!r} "
                f"({order.job}) does not run: if the job was stopped, its savepoint is in "
                f"{order.savepoint_root}, else it goes on when the cluster is started again"
            )
        if runs:
            return backfill.BackfillEnded(reason="it was given up (--abort); the job was not stopped")
        try:
            return self._stop()
        except ConfigError as error:
            return backfill.BackfillEnded(reason=f"it was given up (--abort); {error}")

    def _resume(self) -> backfill.Event:
        savepoint = self.journal.progress.savepoint
        if savepoint is None:
            return backfill.Resumed(job=None)
        graph, code = self.environment.job_graph(self._order.job_name)
        request = SubmitRequest(
            graph=graph,
            artifact=pack(code, with_modules=True),
            config=self.environment.travelling(),
            savepoint=savepoint,
            pipeline=self.environment.packed_pipeline(self._order.job_name),
        )
        job = resumed_job(
            self._order,
            request,
            self.environment.config,
            self.environment.options.own_cluster(),
            self.start_in_background,
        )
        return backfill.Resumed(job=job)

    # --- the range --------------------------------------------------------------------------------

    def _fence(self) -> backfill.Event:
        path = self.journal.progress.savepoint
        watermark_ms: int | None = None
        if path is None:
            check_quiet(self._table, self.found.reach, self._order.range)
        else:
            savepoint = read_savepoint(path)
            self._commit_pending(savepoint)
            watermark_ms = watermark_of(savepoint)
            check_finished(self.found.reach, watermark_ms, self._order.range, self._table.newest_ms)
        state = self._table.look()
        rows = self._table.count(self._order.range)
        return backfill.TableFenced(
            table_id=state.id, version=state.version, rows=rows, watermark_ms=watermark_ms
        )

    def _commit_pending(self, savepoint: Savepoint) -> None:
        """Nothing, unless the cluster of the job died between the savepoint and its commit. Otherwise the
        resumed job would add these rows to a range that was replaced."""
        _, code = self.environment.job_graph(self._order.job_name)
        done = finalize(savepoint, self.environment.config, code)
        if not done.is_complete:
            reasons = "; ".join(f"{one.sink}: {one.outcome.value} {one.reason}" for one in done.commits)
            raise ConfigError(f"output of the savepoint {savepoint.path} could not be committed: {reasons}")

    def _compute(self) -> backfill.Event:
        staging = self._staging(self.journal.progress.attempt)
        graph, code = batch_job(
            self.environment,
            self.found,
            self._order.range,
            staging.folder,
            f"backfill of {self._order.job_name}"[:200],
        )
        config = batch_config(self.environment.config)
        travelling = batch_config(Configuration(self.environment.travelling())).to_dict()
        request = SubmitRequest(graph=graph, artifact=pack(code, with_modules=True), config=travelling)
        options = config if self.target == "remote" else own_cluster(config)
        with submit(request, target=self.target, config=options, show=to_stderr) as job:
            try:
                outside = self._await(job)
            except BaseException:
                with suppress(UnistreamError):  # on a cluster of our own it ends with the cluster
                    job.cancel()
                raise
        return backfill.Staged(files=staging.files(), rows_outside=outside)

    def _await(self, job: JobClient) -> int:
        """Rows outside of the range that the finished job has computed."""
        while True:
            try:
                result = checked(job.wait(POLL_S))
            except TimeoutError:
                with suppress(NotFound, Unreachable):  # `wait` knows how long this may last
                    self.on_job(job.status())
            else:
                return result.metrics.get(OUTSIDE, 0)

    def _replace(self) -> backfill.Event:
        progress = self.journal.progress
        assert progress.table_id is not None
        assert progress.fence_version is not None
        rows = None
        if self._table.find(self._order.id) is None and progress.staged:
            rows = self._staging(progress.attempt).new_rows(progress.staged)
        since = TargetState(id=progress.table_id, version=progress.fence_version)
        done = self._table.replace(self._order.id, self._order.range, since, rows)
        return backfill.Replaced(version=done.version)

    # --- parts ------------------------------------------------------------------------------------

    @property
    def _order(self) -> BackfillOrder:
        return self.journal.order

    @property
    def _table(self) -> RangeTarget:
        return self.found.target

    def _staging(self, attempt: int) -> Staging:
        folder = f"{self._table.folder}/{self._order.id}-{attempt}"
        return Staging(folder, self._table.filesystem_options)

    def _clean_up(self) -> None:
        """Removes what all attempts have staged; a process of a killed one that still writes may leave hidden
        files."""
        for attempt in range(1, self.journal.progress.attempt + 1):
            self._staging(attempt).remove()


def watermark_of(savepoint: Savepoint) -> int | None:
    """The time up to which every operator has everything; None: some have no watermark yet."""
    spans = [operator.watermark for operator in savepoint.operators if operator.watermark is not None]
    least = [span.least_ms for span in spans]
    known = [one for one in least if one is not None]
    return min(known) if known and len(known) == len(least) else None


def check_finished(
    reach: backfill.Reach, watermark_ms: int | None, range_: TimeRange, newest_ms: Callable[[], int | None]
) -> None:
    """Raises ConfigError unless the stream has finished all results of the range.

    By its watermark; or by the newest result in the table: a job that has just been resumed has no watermark,
    since that is not in a savepoint.
    """
    if watermark_ms == MAX_WATERMARK:
        return
    allowed = None if watermark_ms is None else reach.finished_until(watermark_ms)
    if allowed is not None and range_.end_ms <= allowed:
        return
    newest = newest_ms() if reach.in_order else None
    if newest is not None:
        allowed = max(reach.behind(newest), reach.behind(newest) if allowed is None else allowed)
    if allowed is None:
        raise ConfigError("the job has no watermark yet, so it has finished no results; begin later")
    if range_.end_ms > allowed:
        now = "" if watermark_ms is None else f" (its watermark is {time_text(watermark_ms)})"
        raise ConfigError(
            f"the stream has finished its results only before {time_text(allowed)}{now}, and would add later "
            f"ones again: --to must be at most {time_text(allowed)}, not {time_text(range_.end_ms)}"
        )


def check_quiet(table: RangeTarget, reach: backfill.Reach, range_: TimeRange) -> None:
    """Checks the range of a job that does not run. Raises ConfigError if it ends behind the newest result."""
    newest = table.newest_ms()
    if newest is None:
        return
    allowed = reach.behind(newest)
    if range_.end_ms > allowed:
        raise ConfigError(
            f"the newest result in {table.address} is of {time_text(newest)}, and the job may add later ones "
            f"when it runs again: --to must be at most {time_text(allowed)}, not {time_text(range_.end_ms)}"
        )
