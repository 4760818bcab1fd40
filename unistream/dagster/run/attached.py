"""A job that lives as long as one Dagster step ("attached"), and is ended in order however the step ends; or
one whose step ends when a checkpoint is complete, and that goes on ("detached").

A signal reaches Python's main thread, where Dagster runs the step, as an exception at any point. So that it
cannot interrupt a call (half a cluster started, half a savepoint taken), each call that changes something
runs on a thread of its own; the main thread only waits for it.

Each further interruption shortens the end:

    first   the job is ended by the policy, within its time; if that fails it is cancelled
    second  it is cancelled
    third   nothing is waited for: an embedded cluster is closed while the process ends

A run that is not the one that watches the job any more (`dagster.run.watching`) ends nothing. Nor does
one that cannot ask for its job: a cluster that is away, and what answers for it meanwhile, say nothing of the
job. The client bears that for `client.timeout`; then the run ends, and the job is left as it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import dagster as dg

from unistream.base.config import Configuration
from unistream.base.errors import (
    AlreadyEnded,
    ConfigError,
    OutcomeUnknown,
    UnistreamError,
    Unreachable,
)
from unistream.base.ids import JobId
from unistream.client.job.upgrade import GivingUp
from unistream.client.machine.background import in_background
from unistream.client.remote.job_client import JobClient
from unistream.client.remote.poll import Poll
from unistream.client.remote.rest_client import timeout_s
from unistream.dagster.run.interruptions import Interruptions
from unistream.dagster.run.lines import FailureLines, FunctionLines, StageLines
from unistream.dagster.run.watching import JobWatch, LeftToAnother, Lost, Unwatched
from unistream.model.graph import JobType
from unistream.model.job_info import JobInfo

POLL_S: Final = 0.5
JOB_CHARS: Final = 8  # of an id, by which commands find it
LOOK_EVERY_S: Final = 10.0
OBSERVE_EVERY_S: Final = 10.0
OBSERVE_EVERY_MAX_S: Final = 300.0  # Dagster's event log grows with each event and is never trimmed
CANCEL_WAIT_S: Final = 30.0
START_GRACE_S: Final = 60.0  # for an interrupted start: Spark takes some seconds
CLOSE_WAIT_S: Final = 60.0

INTERRUPTIONS: Final = (dg.DagsterExecutionInterruptedError, KeyboardInterrupt)
"""KeyboardInterrupt: if a library of the user has replaced Dagster's signal handler."""

LOST: Final = (Unreachable, OutcomeUnknown)
"""Contact to the job, and no job: what cannot be reached for a while is not to be stopped."""

_MAY_RUN: Final = (
    "the job may run on: 'unistream list' shows whether it does, and the next run attaches to it"
)

PATIENCE_S: Final = timeout_s(Configuration())

OnTerminate = Literal["stop_with_savepoint", "drain", "cancel", "detach"]
SavepointFormat = Literal["canonical", "native"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPolicy:
    """What happens to a job whose step is interrupted or fails. `savepoint_dir` None: the job's own."""

    on_terminate: OnTerminate
    savepoint_dir: str | None
    timeout_s: float
    savepoint_format: SavepointFormat = "canonical"

    @property
    def giving_up(self) -> GivingUp:
        """How an upgrade is given up: whether the old job goes on, and whether its stop, which may be another
        one than that of the run's end, is awaited."""
        is_same = self.on_terminate == "stop_with_savepoint" and self.savepoint_format == "canonical"
        return GivingUp(
            leaves_running=self.on_terminate == "detach",
            awaits_stop=not is_same and self.on_terminate != "cancel",
        )


class StepListener(Protocol):
    """Notified while a job runs; must not raise (see `unistream.dagster.run.report`)."""

    def started(self, client: JobClient) -> None: ...

    def progress(self, info: JobInfo) -> None:
        """A checkpoint was completed since the last call; ever more rarely, see `ReportPace`."""

    def interrupted(self) -> None:
        """The run is being terminated; the job is still running."""

    def stopped(self, info: JobInfo, savepoint: str, *, resumable: bool) -> None:
        """The job was ended with a savepoint."""

    def finished(self, info: JobInfo) -> None:
        """The job has ended before it was to be ended."""

    def cancelled(self, info: JobInfo) -> None:
        """The job was ended without one."""

    def note(self, text: str, *, is_error: bool) -> None:
        """One sentence for the run's log."""

    def forward(self, text: str, *, level: str) -> None:
        """What a function of the pipeline has logged. `level`: as Python names it."""


def run_step(
    start: Callable[[], JobClient],
    policy: EndPolicy,
    listener: StepListener,
    *,
    detaches: bool = False,
    watch: JobWatch | None = None,
    patience_s: float = PATIENCE_S,
    give_up: Callable[[], None] = lambda: None,
) -> JobInfo:
    """Starts a job and waits for its end; returns its last status. Its client is closed.

    Args:
        start: Starts it, or finds one that runs.
        policy: Of an interruption.
        listener: Is notified.
        detaches: Wait for the next complete checkpoint alone, if the job does not end before.
        watch: Says meanwhile that the step watches the job; None: nobody needs to know.
        patience_s: How long the last status of a job that has ended may be refused.
        give_up: Called if the step is interrupted in `start`, which may end early then.

    Raises:
        ConfigError: from `start`: the job cannot run.
        Unreachable, OutcomeUnknown: from `start`, or how the job goes on is not known: it was left as it is.
        LeftToAnother: the job is not this run's any more; it was left as it is.
        DagsterExecutionInterruptedError, KeyboardInterrupt: interrupted; the job was ended by `policy`.
    """
    starting: Future[JobClient] = Future()
    watch = watch or Unwatched()
    with Interruptions() as interruptions:
        try:
            client = in_background(start, "start", starting).result()
            watch.begin(client.job_id)
            listener.started(client)
            watching = _Watching(client, listener, watch, interruptions)
            return watching.result(detaches=detaches, patience_s=patience_s)
        except BaseException as error:
            interruptions.heard()
            _end(starting, error, policy, listener, watch, give_up=give_up)
            raise
        finally:
            try:
                _close(starting, listener)
            finally:
                watch.close()


class ReportPace:
    """Which checkpoints are reported: the first one that is completed `every_s` after the last report, which
    is doubled each time, up to `most_s`.

    >>> pace = ReportPace(every_s=10, most_s=20)
    >>> [pace.reports(n, now_s=s) for n, s in ((1, 0), (2, 9), (2, 10), (2, 30), (3, 29), (3, 30), (4, 50))]
    [True, False, True, False, False, True, True]
    """

    def __init__(self, every_s: float, most_s: float) -> None:
        self._every_s = every_s
        self._most_s = most_s
        self._reported = 0
        self._next_s = float("-inf")

    def is_due(self, now_s: float) -> bool:
        """The next completed checkpoint would be reported."""
        return now_s >= self._next_s

    def reports(self, checkpoints: int, *, now_s: float) -> bool:
        """Whether to report now. `checkpoints`: completed so far."""
        if checkpoints <= self._reported or not self.is_due(now_s):
            return False
        self._reported, self._next_s = checkpoints, now_s + self._every_s
        self._every_s = min(2 * self._every_s, self._most_s)
        return True


def _check(lost: Lost | None) -> None:
    """Raises LeftToAnother, or DagsterExecutionInterruptedError: the run was terminated without a signal."""
    if lost is not None:
        raise dg.DagsterExecutionInterruptedError if lost.is_to_end else LeftToAnother(lost)


@dataclass(frozen=True, slots=True)
class _Watching:
    client: JobClient
    listener: StepListener
    watch: JobWatch
    interruptions: Interruptions

    def result(self, *, detaches: bool, patience_s: float) -> JobInfo:
        """Waits as `_wait` does; what another run has made of the job is not reported a second time."""
        try:
            info = self._wait(detaches=detaches, patience_s=patience_s)
        except LOST:
            raise
        except UnistreamError as error:  # of the question, and not of the job
            raise OutcomeUnknown(f"how job {self.client.job_id} goes on is not known: {error}") from error
        _check(self.watch.ask())
        return info

    def _wait(self, *, detaches: bool, patience_s: float) -> JobInfo:
        """Waits for the end, or the next checkpoint; meanwhile reports checkpoints, stages and failures."""
        client = self.client
        pace = ReportPace(OBSERVE_EVERY_S, OBSERVE_EVERY_MAX_S)
        lines = _Lines(client, self.listener)
        before: int | None = None  # checkpoints, when the step came to the job
        next_look_s = float("-inf")
        while True:
            with contextlib.suppress(TimeoutError):  # it still runs
                client.wait(timeout_s=POLL_S)
                info = _last_status(client, patience_s)
                lines.note(info, now_s=time.monotonic())
                lines.forward(now_s=time.monotonic(), is_end=True)
                return info
            self.interruptions.check()
            _check(self.watch.lost)
            now_s = time.monotonic()
            if detaches or pace.is_due(now_s) or now_s >= next_look_s:
                next_look_s = now_s + LOOK_EVERY_S
                with contextlib.suppress(UnistreamError):  # `wait` knows how long this may last
                    info = client.status()
                    before = info.checkpoints_completed if before is None else before
                    lines.forward(now_s=now_s)
                    if detaches and info.checkpoints_completed > before:
                        return info
                    lines.note(info, now_s=now_s)
                    if pace.reports(info.checkpoints_completed, now_s=now_s):
                        self.listener.progress(info)


def _last_status(client: JobClient, patience_s: float) -> JobInfo:
    """The status of a job that has ended: what refuses to say it may be another one than has said so."""
    poll = Poll(patience_s)
    while True:
        is_last = not poll.next()
        try:
            return client.status()
        except LOST:
            raise
        except UnistreamError:
            if is_last:
                raise


class _Lines:
    """What the run's log says of the job."""

    def __init__(self, client: JobClient, listener: StepListener) -> None:
        self._listener = listener
        self._functions = FunctionLines(client.log, client.job_id)
        self._stages = StageLines()
        self._failures = FailureLines()

    def note(self, info: JobInfo, *, now_s: float) -> None:
        for text in self._stages.new_lines(info):
            self._listener.note(text, is_error=False)
        for text in self._failures.new_lines(info, now_s=now_s):
            self._listener.note(text, is_error=True)

    def forward(self, *, now_s: float, is_end: bool = False) -> None:
        """Lines are for people: a cluster that has none, such as one of an earlier version, ends no run."""
        with contextlib.suppress(UnistreamError):
            for level, text in self._functions.new_lines(now_s=now_s, is_end=is_end):
                self._listener.forward(text, level=level)


def _end(
    starting: Future[JobClient],
    error: BaseException,
    policy: EndPolicy,
    listener: StepListener,
    watch: JobWatch,
    *,
    give_up: Callable[[], None],
) -> None:
    """Ends the job, if there is one; raises further interruptions."""
    if isinstance(error, LOST) and starting.done():
        has_started = not starting.cancelled() and starting.exception() is None
        text = f"the job is left as it is; {_runs_on(starting.result())}" if has_started else _MAY_RUN
        listener.note(text, is_error=True)
        return
    client = None
    try:
        if isinstance(error, INTERRUPTIONS):
            listener.interrupted()
        client = _started(starting, listener, give_up)
        lost = watch.ask()  # a run that was paused may be interrupted before its next heartbeat
        if lost is not None and not lost.is_to_end:
            listener.note(f"{lost.reason}: this run leaves the job as it is", is_error=True)
        elif client is not None:
            _end_in_order(client, policy, listener)
    except INTERRUPTIONS:
        if client is not None and (watch.lost is None or watch.lost.is_to_end):
            listener.note(f"interrupted again: cancelling job {client.job_id}", is_error=True)
            _cancel(client, listener)
        raise


def _started(
    starting: Future[JobClient], listener: StepListener, give_up: Callable[[], None]
) -> JobClient | None:
    """None: it was not started, or the start takes too long (then `_close` closes it later)."""
    if starting.cancel():
        return None
    give_up()
    try:
        failure = starting.exception(START_GRACE_S)
    except TimeoutError:
        text = f"the job has not started within {START_GRACE_S:.0f} s, and is left as it is; {_MAY_RUN}"
        listener.note(text, is_error=True)
        return None
    return starting.result() if failure is None else None


def _end_in_order(client: JobClient, policy: EndPolicy, listener: StepListener) -> None:
    if policy.on_terminate == "detach":
        text = f"job {client.job_id} goes on: the next run attaches to it, {stopped_by(client.job_id)}"
        listener.note(text, is_error=False)
        return
    if policy.on_terminate == "cancel" or takes_no_savepoint(client):
        _cancel(client, listener)
        return
    drain = policy.on_terminate == "drain"
    given_up = threading.Event()
    stopping = in_background(lambda: stop_when_running(client, policy, given_up), "stop")
    try:
        savepoint = stopping.result(policy.timeout_s)
    except AlreadyEnded as late:
        listener.note(str(late), is_error=False)
        with contextlib.suppress(UnistreamError):
            listener.finished(client.status())
    except (UnistreamError, TimeoutError) as failure:
        why = str(failure) if stopping.done() else f"it takes longer than {policy.timeout_s:.0f} s"
        text = f"job {client.job_id} could not be stopped with a savepoint: {why}; it is cancelled instead"
        listener.note(text, is_error=True)
        _cancel(client, listener)
    else:
        listener.stopped(client.status(), savepoint, resumable=not drain)
    finally:
        given_up.set()


def takes_no_savepoint(client: JobClient) -> bool:
    """A BATCH job starts again from its inputs."""
    try:
        return client.status().job_type == JobType.BATCH.value
    except UnistreamError:
        return False


def stop_when_running(client: JobClient, policy: EndPolicy, given_up: threading.Event) -> str:
    """Stops the job as soon as all its tasks run: a savepoint cannot be taken while it starts or restarts.

    Raises:
        AlreadyEnded: it has ended meanwhile.
        UnistreamError: it could not be stopped, or the caller no longer waits.
    """
    while True:
        info = client.status()
        if info.is_terminal or info.all_tasks_run:
            try:
                return client.stop(
                    drain=policy.on_terminate == "drain",
                    target=policy.savepoint_dir,
                    format=policy.savepoint_format,
                )
            except AlreadyEnded:
                raise
            except ConfigError:
                if client.status().all_tasks_run:
                    raise
        if given_up.wait(POLL_S):
            raise UnistreamError("given up")


def _cancel(client: JobClient, listener: StepListener) -> None:
    def cancel() -> None:
        client.cancel()
        client.wait(CANCEL_WAIT_S)

    cancelling = in_background(cancel, "cancel")
    try:
        cancelling.result(CANCEL_WAIT_S + POLL_S)
        listener.cancelled(client.status())
    except AlreadyEnded as late:
        listener.note(str(late), is_error=False)
    except (UnistreamError, TimeoutError) as failure:
        why = str(failure) or f"no end within {CANCEL_WAIT_S:.0f} s"
        text = f"job {client.job_id} could not be cancelled: {why}; {_runs_on(client)}"
        listener.note(text, is_error=True)


def stopped_by(job: JobId) -> str:
    """The command that ends a job in order, in a sentence for people."""
    return f"'unistream stop {job[:JOB_CHARS]}' ends it with a savepoint"


def _runs_on(client: JobClient) -> str:
    where = "" if client.rest_url is None else f" in the cluster at {client.rest_url}"
    return (
        f"it may run on{where}: 'unistream list' shows whether it does, 'unistream cancel {client.job_id}' "
        "ends it, and the next run attaches to it"
    )


def _close(starting: Future[JobClient], listener: StepListener) -> None:
    """Closes the client, and an embedded cluster with all its processes."""
    if not starting.done():
        starting.add_done_callback(_close_late)
        return
    if starting.cancelled() or starting.exception() is not None:
        return
    closing = in_background(starting.result().close, "close")
    try:
        closing.result(CLOSE_WAIT_S)
    except TimeoutError:
        text = f"the cluster is still closing after {CLOSE_WAIT_S:.0f} s; it ends with this process"
        listener.note(text, is_error=True)


def _close_late(starting: Future[JobClient]) -> None:
    if starting.exception() is None:
        starting.result().close()
