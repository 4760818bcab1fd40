"""How a job that is attached to a step ends: by itself, by policy, and when it is interrupted again."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import dagster as dg
import pytest

from tests.eventually import WAIT_S
from unistream.base.errors import (
    AlreadyEnded,
    ConfigError,
    NotFound,
    OutcomeUnknown,
    ProtocolError,
    UnistreamError,
    Unreachable,
)
from unistream.base.ids import JobId, LineageId
from unistream.client.remote.job_client import JobClient, JobResult, result_of
from unistream.dagster.run.attached import (
    POLL_S,
    EndPolicy,
    OnTerminate,
    ReportPace,
    SavepointFormat,
    run_step,
)
from unistream.model.job_info import ExceptionInfo, JobInfo
from unistream.model.job_log_line import JobLogLine

URL = "http://127.0.0.1:8081"
JOB = JobId("0123456789abcdef0123456789abcdef")
SAVEPOINT = "/savepoints/1"


class FakeJob:
    """A job that runs until it is requested to end. `while_waiting` runs once, when the step waits for it."""

    def __init__(self, while_waiting: Callable[[FakeJob], None] = lambda _job: None) -> None:
        self.calls: list[str] = []
        self.stop_fails: Exception | None = None
        self.cancel_fails: Exception | None = None
        self.on_stop: Callable[[], object] = lambda: None
        self.checkpoints = 0
        self.restarting = 0  # pictures of the job in which not all tasks run
        self.job_type = "STREAMING"
        self.exceptions: tuple[ExceptionInfo, ...] = ()
        self.lines: list[JobLogLine] = []
        self.log_fails: Exception | None = None
        self.status_fails: list[UnistreamError] = []  # the next answers
        self._while_waiting = while_waiting
        self._state = "RUNNING"
        self._savepoint: str | None = None
        self._ended = threading.Event()

    def end(self, state: str) -> None:
        self._state = state
        self._ended.set()

    @property
    def job_id(self) -> JobId:
        return JOB

    @property
    def rest_url(self) -> str:
        return URL

    def log(self, after: int = 0) -> list[JobLogLine]:
        if self.log_fails is not None:
            raise self.log_fails
        return [line for line in self.lines if line.seq > after]

    def status(self) -> JobInfo:
        if self.status_fails:
            raise self.status_fails.pop(0)
        return self._info()

    def _info(self) -> JobInfo:
        self.restarting -= 1
        return JobInfo(
            job=JOB,
            name="fake",
            lineage=LineageId("l"),
            state="RESTARTING" if self.restarting >= 0 else self._state,
            target="fake",
            submitted_ms=0,
            job_type=self.job_type,
            checkpoints_completed=self.checkpoints,
            savepoint=self._savepoint,
            exceptions=self.exceptions,
        )

    def wait(self, timeout_s: float | None = None) -> JobResult:
        while_waiting, self._while_waiting = self._while_waiting, lambda _job: None
        while_waiting(self)
        if not self._ended.wait(0 if timeout_s == POLL_S else timeout_s):
            raise TimeoutError("it still runs")
        return result_of(self._info())

    def result(self, timeout_s: float | None = None) -> JobResult:
        return self.wait(timeout_s)

    def cancel(self) -> None:
        self.calls.append("cancel")
        if self.cancel_fails is not None:
            raise self.cancel_fails
        self.end("CANCELED")

    def savepoint(self, target: str | None = None, *, format: str = "canonical") -> str:
        raise ConfigError("the step takes no savepoint of its own")

    def stop(self, *, drain: bool = False, target: str | None = None, format: str = "canonical") -> str:
        of_format = "" if format == "canonical" else f" format={format}"
        self.calls.append(f"stop drain={drain} target={target}{of_format}")
        self.on_stop()
        if self.stop_fails is not None:
            raise self.stop_fails
        self._savepoint = SAVEPOINT
        self.end("FINISHED")
        return SAVEPOINT

    def close(self) -> None:
        self.calls.append("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass
class Story:
    """What was reported to the step, in order."""

    reported: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def started(self, client: JobClient) -> None:
        self.reported.append("started")

    def progress(self, info: JobInfo) -> None:
        self.reported.append(f"checkpoint {info.checkpoints_completed}")

    def interrupted(self) -> None:
        self.reported.append("interrupted")

    def stopped(self, info: JobInfo, savepoint: str, *, resumable: bool) -> None:
        self.reported.append(f"stopped {info.state} {savepoint} resumable={resumable}")

    def finished(self, info: JobInfo) -> None:
        self.reported.append(f"finished {info.state}")

    def cancelled(self, info: JobInfo) -> None:
        self.reported.append(f"cancelled {info.state}")

    def note(self, text: str, *, is_error: bool) -> None:
        self.notes.append(text)

    def forward(self, text: str, *, level: str) -> None:
        self.notes.append(f"{level} {text}")


def policy(
    on_terminate: OnTerminate = "stop_with_savepoint",
    *,
    savepoint_dir: str | None = None,
    timeout_s: float = 20,
    form: SavepointFormat = "canonical",
) -> EndPolicy:
    return EndPolicy(
        on_terminate=on_terminate, savepoint_dir=savepoint_dir, timeout_s=timeout_s, savepoint_format=form
    )


def interrupt(_job: FakeJob) -> None:
    raise dg.DagsterExecutionInterruptedError


def interrupted_run(job: FakeJob, end: EndPolicy | None = None) -> Story:
    story = Story()
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        run_step(lambda: job, end or policy(), story)
    return story


def test_a_job_that_ends_by_itself_is_only_closed() -> None:
    job, story = FakeJob(lambda job: job.end("FINISHED")), Story()
    assert run_step(lambda: job, policy(), story).state == "FINISHED"
    assert job.calls == ["close"]
    assert story.reported == ["started"]


def test_what_functions_log_is_forwarded_with_its_level_also_the_last_lines() -> None:
    def ends(job: FakeJob) -> None:
        job.lines.append(
            JobLogLine(seq=1, at_ms=0, level="ERROR", logger="orders", task="map (1/1)", message="no number")
        )
        job.end("FINISHED")

    story = Story()
    assert run_step(lambda: FakeJob(ends), policy(), story).state == "FINISHED"
    assert story.notes == ["ERROR map (1/1), orders: no number"]


def test_a_cluster_without_a_log_ends_no_run() -> None:
    job, story = FakeJob(lambda job: job.end("FINISHED")), Story()
    job.log_fails = NotFound("there is no such page")
    assert run_step(lambda: job, policy(), story).state == "FINISHED"
    assert story.notes == []


def test_a_completed_checkpoint_is_told_once() -> None:
    def checkpoint(job: FakeJob) -> None:
        job.checkpoints = 3
        job._while_waiting = lambda job: job.end("FINISHED")

    story = Story()
    run_step(lambda: FakeJob(checkpoint), policy(), story)
    assert story.reported == ["started", "checkpoint 3"]


@pytest.mark.parametrize(
    ("end", "calls", "reported"),
    [
        pytest.param(
            policy(savepoint_dir="memory://there"),
            ["stop drain=False target=memory://there", "close"],
            f"stopped FINISHED {SAVEPOINT} resumable=True",
            id="a savepoint is taken where the resource says",
        ),
        pytest.param(
            policy(form="native"),
            ["stop drain=False target=None format=native", "close"],
            f"stopped FINISHED {SAVEPOINT} resumable=True",
            id="in the format that the resource says",
        ),
        pytest.param(
            policy("drain"),
            ["stop drain=True target=None", "close"],
            f"stopped FINISHED {SAVEPOINT} resumable=False",
            id="what was drained is not resumed",
        ),
    ],
)
def test_a_termination_stops_the_job_first(end: EndPolicy, calls: list[str], reported: str) -> None:
    job = FakeJob(interrupt)
    assert interrupted_run(job, end).reported == ["started", "interrupted", reported]
    assert job.calls == calls


class Interrupts:
    """Its end is interrupted, where Python ignores every exception."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_termination_that_python_ignores_stops_the_job_too() -> None:
    def ignored(_: FakeJob) -> None:
        Interrupts()
        gc.collect()

    job = FakeJob(ignored)
    with dg.raise_execution_interrupts():
        before = signal.getsignal(signal.SIGTERM)
        assert interrupted_run(job, policy()).reported[:2] == ["started", "interrupted"]
        assert signal.getsignal(signal.SIGTERM) == before
    assert job.calls == ["stop drain=False target=None", "close"]


def test_a_termination_cancels_if_that_is_the_policy() -> None:
    job = FakeJob(interrupt)
    story = interrupted_run(job, policy("cancel"))
    assert job.calls == ["cancel", "close"]
    assert story.reported[-1] == "cancelled CANCELED"


def test_a_batch_job_is_cancelled_at_once_whatever_the_policy() -> None:
    """It never has a savepoint, and there may be no time when all its tasks run."""
    job = FakeJob(interrupt)
    job.job_type = "BATCH"
    story = interrupted_run(job, policy("stop_with_savepoint"))
    assert job.calls == ["cancel", "close"]
    assert story.reported[-1] == "cancelled CANCELED"


@pytest.mark.parametrize("failure", [ConfigError("no room"), Unreachable("no answer")])
def test_a_job_that_cannot_be_stopped_is_cancelled(failure: UnistreamError) -> None:
    job = FakeJob(interrupt)
    job.stop_fails = failure
    story = interrupted_run(job)
    assert job.calls == ["stop drain=False target=None", "cancel", "close"]
    assert str(failure) in story.notes[0]


def test_a_job_that_restarts_is_stopped_once_its_tasks_run() -> None:
    job = FakeJob(interrupt)
    job.restarting = 1
    assert interrupted_run(job).reported[-1] == f"stopped FINISHED {SAVEPOINT} resumable=True"
    assert job.calls == ["stop drain=False target=None", "close"]


def test_a_job_that_does_not_run_in_time_is_cancelled() -> None:
    job = FakeJob(interrupt)
    job.restarting = 1_000
    interrupted_run(job, policy(timeout_s=0.05))
    assert job.calls == ["cancel", "close"]


def test_a_stop_that_takes_too_long_is_given_up() -> None:
    job = FakeJob(interrupt)
    given_up = threading.Event()
    job.on_stop = lambda: given_up.wait(WAIT_S)
    story = interrupted_run(job, policy(timeout_s=0.05))
    given_up.set()
    assert job.calls == ["stop drain=False target=None", "cancel", "close"]
    assert "longer than" in story.notes[0]


def test_a_job_that_has_just_ended_is_left_as_it_is() -> None:
    job = FakeJob(interrupt)
    job.stop_fails = AlreadyEnded("job has already ended as FINISHED")
    story = interrupted_run(job)
    assert job.calls == ["stop drain=False target=None", "close"]
    assert story.notes == ["job has already ended as FINISHED"]
    assert story.reported == ["started", "interrupted", "finished RUNNING"]


def test_a_job_that_can_neither_be_stopped_nor_cancelled_is_named() -> None:
    job = FakeJob(interrupt)
    job.stop_fails = job.cancel_fails = Unreachable("no answer")
    story = interrupted_run(job)
    assert job.calls[-1] == "close"
    assert story.notes[-1] == (
        f"job {JOB} could not be cancelled: no answer; it may run on in the cluster at {URL}: 'unistream "
        f"list' shows whether it does, 'unistream cancel {JOB}' ends it, and the next run attaches to it"
    )


def test_a_second_signal_cancels_while_the_first_still_stops() -> None:
    """Real signals, through Dagster's own handlers."""
    job = FakeJob(lambda _job: os.kill(os.getpid(), signal.SIGINT))
    cancelled = threading.Event()
    job.on_stop = lambda: (os.kill(os.getpid(), signal.SIGINT), cancelled.wait(WAIT_S))
    story = Story()
    with dg.raise_execution_interrupts(), pytest.raises(dg.DagsterExecutionInterruptedError):
        run_step(lambda: job, policy(), story)
    cancelled.set()
    assert job.calls == ["stop drain=False target=None", "cancel", "close"]
    assert story.notes[0] == f"interrupted again: cancelling job {JOB}"


def test_a_signal_while_the_job_starts_does_not_tear_the_start_apart() -> None:
    job = FakeJob()

    def start() -> FakeJob:
        os.kill(os.getpid(), signal.SIGTERM)
        return job

    with dg.raise_execution_interrupts(), pytest.raises(dg.DagsterExecutionInterruptedError):
        run_step(start, policy(), Story())
    assert job.calls == ["stop drain=False target=None", "close"]


def test_a_start_that_takes_its_time_is_requested_to_give_up() -> None:
    """As an upgrade does, which waits for minutes; the job that is there then is ended by the policy."""
    job, requested = FakeJob(), threading.Event()

    def start() -> FakeJob:
        os.kill(os.getpid(), signal.SIGTERM)
        assert requested.wait(WAIT_S), "nobody requests it"
        return job

    with dg.raise_execution_interrupts(), pytest.raises(dg.DagsterExecutionInterruptedError):
        run_step(start, policy(), Story(), give_up=requested.set)
    assert job.calls == ["stop drain=False target=None", "close"]


def test_an_interruption_behind_anothers_handler_counts_too() -> None:
    def other(_job: FakeJob) -> None:
        raise KeyboardInterrupt

    job, story = FakeJob(other), Story()
    with pytest.raises(KeyboardInterrupt):
        run_step(lambda: job, policy(), story)
    assert story.reported[1:] == ["interrupted", f"stopped FINISHED {SAVEPOINT} resumable=True"]


@pytest.mark.parametrize("error", [Unreachable("no answer"), OutcomeUnknown("no answer")])
def test_who_loses_a_job_leaves_it(error: Exception) -> None:
    def lost(_job: FakeJob) -> None:
        raise error

    job, story = FakeJob(lost), Story()
    with pytest.raises(type(error)):
        run_step(lambda: job, policy(), story)
    assert (job.status().state, job.calls) == ("RUNNING", ["close"])
    assert "the next run attaches to it" in story.notes[-1]


@pytest.mark.parametrize(
    "error", [ProtocolError("status 500"), ConfigError("forbidden"), NotFound("no such page")], ids=repr
)
def test_who_cannot_ask_for_a_job_leaves_it_and_says_so(error: UnistreamError) -> None:
    """What refuses to say how the job goes on says nothing of the job."""

    def refused(_job: FakeJob) -> None:
        raise error

    job, story = FakeJob(refused), Story()
    with pytest.raises(OutcomeUnknown, match=f"how job {JOB} goes on is not known: {error}"):
        run_step(lambda: job, policy(), story)
    assert (job.status().state, job.calls) == ("RUNNING", ["close"])
    assert "the next run attaches to it" in story.notes[-1]


def test_a_status_that_is_refused_ends_no_run() -> None:
    job, story = FakeJob(), Story()
    job.status_fails = [ProtocolError("status 500"), ConfigError("forbidden")]
    clock = threading.Timer(2 * POLL_S, job.end, ["FINISHED"])
    clock.start()
    assert run_step(lambda: job, policy(), story).state == "FINISHED"
    assert (job.status_fails, job.calls) == ([], ["close"])


def test_the_last_status_of_a_job_is_asked_for_again_but_not_for_ever() -> None:
    job, story = FakeJob(lambda job: job.end("FINISHED")), Story()
    job.status_fails = [ProtocolError("status 500")] * 2
    assert run_step(lambda: job, policy(), story).state == "FINISHED"
    job = FakeJob(lambda job: job.end("FINISHED"))
    job.status_fails = [ProtocolError("status 500")] * 1_000
    with pytest.raises(OutcomeUnknown, match="status 500"):
        run_step(lambda: job, policy(), story, patience_s=0.2)
    assert job.calls == ["close"]


def test_an_error_of_the_step_stops_the_job_too_but_is_no_cancellation() -> None:
    def defect(_job: FakeJob) -> None:
        raise ZeroDivisionError

    job, story = FakeJob(defect), Story()
    with pytest.raises(ZeroDivisionError):
        run_step(lambda: job, policy(), story)
    assert story.reported == ["started", f"stopped FINISHED {SAVEPOINT} resumable=True"]
    assert job.calls[-1] == "close"


def test_a_detached_step_ends_with_the_next_checkpoint_and_the_job_goes_on() -> None:
    def checkpointed(job: FakeJob) -> None:
        job.checkpoints = 3

    job, story = FakeJob(), Story()
    job.checkpoints, job.log_fails = (
        2,
        NotFound("of an earlier version: it has no log, which holds nothing up"),
    )
    clock = threading.Timer(2 * POLL_S, checkpointed, [job])
    clock.start()
    assert run_step(lambda: job, policy(), story, detaches=True).checkpoints_completed == 3
    assert (job.status().state, job.calls) == ("RUNNING", ["close"])


@pytest.mark.parametrize("state", ["FINISHED", "FAILED"])
def test_a_detached_step_ends_with_a_job_that_ends_before(state: str) -> None:
    job, story = FakeJob(lambda job: job.end(state)), Story()
    assert run_step(lambda: job, policy(), story, detaches=True).state == state


@pytest.mark.parametrize("detaches", [True, False])
def test_a_terminated_run_may_leave_its_job(detaches: bool) -> None:
    job, story = FakeJob(interrupt), Story()
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        run_step(lambda: job, policy("detach"), story, detaches=detaches)
    assert (job.status().state, job.calls) == ("RUNNING", ["close"])
    assert f"job {JOB} goes on" in story.notes[-1]


def test_a_job_that_does_not_start_has_nothing_to_end() -> None:
    def start() -> FakeJob:
        raise ConfigError("no such savepoint")

    story = Story()
    with pytest.raises(ConfigError, match="no such savepoint"):
        run_step(start, policy(), story)
    assert story.reported == []


def test_checkpoints_are_told_with_ten_seconds_between_them() -> None:
    pace = ReportPace(every_s=10, most_s=15)
    reported = [
        (n, at)
        for n, at in [
            (0, 0),
            (1, 5),
            (2, 14),
            (2, 15),
            (9, 29),
            (9, 30),
            (9, 90),
            (10, 91),
            (11, 105),
            (11, 106),
        ]
    ]
    assert [pace.reports(n, now_s=at) for n, at in reported] == [
        *(False, True, False, True, False, True, False, True, False, True)
    ]


def test_failures_that_the_job_survives_are_in_the_log() -> None:
    def survives_one(job: FakeJob) -> None:
        job.exceptions = (ExceptionInfo(at_ms=5, kind="OSError", message="no space", task_name="map (1/2)"),)
        job.end("FINISHED")

    def begins(job: FakeJob) -> None:
        job._while_waiting = survives_one

    story = Story()
    run_step(lambda: FakeJob(begins), policy(), story)
    assert story.notes == ["the job has recovered from OSError in map (1/2): no space"]
