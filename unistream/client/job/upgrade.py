"""An upgrade: a running job is replaced by another version of it, or goes on as it was.

    check the new version against the newest snapshot   it cannot start from that: nothing is touched; of a
                                                        job without one a checkpoint is taken before
    keep the old version beyond its end
    stop the old job with a savepoint
    check the new version against the savepoint, start it from there
    wait for its first checkpoint                       none in time, or it fails: it is cancelled, and the
                                                        old version starts from the same savepoint
    release the old version; the cluster keeps it for a while, in case somebody wants it back (`KeptVersion`)

What comes next follows from what the cluster knows (`next_step`), under names that are derived from the
request id. So a client that was killed anywhere is followed by one with the same id, which goes on there.

A client that is to end meanwhile gives the upgrade up: it returns at the next step, with the job that is
there then, instead of waiting for a first checkpoint. How that job ends is not decided here.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from unistream.base.errors import AlreadyEnded, ConfigError, CorruptSnapshot, NotFound, UnistreamError
from unistream.base.ids import JobId, job_of_request
from unistream.client.remote.kept_jobs import KeptJobsClient, restart_name
from unistream.client.remote.policy import CallKind
from unistream.client.remote.procedures import ProcedureReporter
from unistream.client.remote.rest_client import Poll, RestClient, RestJobClient
from unistream.model.job_info import JobInfo
from unistream.model.procedures import ProcedureKind, ProcedureReport, ProcedureState

if TYPE_CHECKING:
    from unistream.model.submission import SubmitRequest

FIRST_CHECKPOINT_S: Final = 300.0
POLL_S: Final = 0.5
# How long all tasks of the new job run before its first checkpoint: a version that fails with its first rows
# does so before. By its interval none is taken earlier; then one is triggered, for jobs without an interval.
PROBATION_S: Final = 5.0
CANCEL_WAIT_S: Final = 60.0
REPLACED_ASKED_MAX: Final = 20  # each is a request of some ms
REQUEST_ID_CHARS_MAX: Final = 190  # the way back has a longer one


class UpgradeStep(Enum):
    """What an upgrade does next."""

    KEEP = "check the new version, and keep the old one"
    STOP = "stop the old job"
    SUBMIT = "start the new version"
    WAIT = "wait for its first checkpoint"
    GO_BACK = "start the old version again"
    WENT_BACK = "the old version runs again"
    DONE = "the new version has a checkpoint"
    LOST = "there is nothing to go on from"


STEPS: Final = (UpgradeStep.KEEP, UpgradeStep.STOP, UpgradeStep.SUBMIT, UpgradeStep.WAIT)
"""The steps of an upgrade that succeeds, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the cluster knows. None: it does not know such a job.

    Attributes:
        kept: The old version is kept.
        old, new: The jobs.
        back: The job that has gone back to the old version.
    """

    kept: bool
    old: JobInfo | None
    new: JobInfo | None
    back: JobInfo | None


def next_step(facts: Facts) -> UpgradeStep:
    """See the module."""
    if facts.back is not None:
        return UpgradeStep.WENT_BACK
    if facts.new is not None:
        if facts.new.checkpoints_completed or facts.new.state == "FINISHED":
            return UpgradeStep.DONE
        return UpgradeStep.GO_BACK if facts.new.is_terminal else UpgradeStep.WAIT
    if facts.old is None:
        return UpgradeStep.LOST
    if not facts.old.is_terminal:
        return UpgradeStep.STOP if facts.kept else UpgradeStep.KEEP
    return UpgradeStep.LOST if left_by(facts.old) is None else UpgradeStep.SUBMIT


def left_by(old: JobInfo) -> str | None:
    """The snapshot from which a job goes on where it has ended."""
    return old.resumable_savepoint or old.latest_checkpoint


class IncompatibleSnapshot(ConfigError):
    """The new version cannot start from a snapshot of the old one."""


class WentBack(UnistreamError):
    """The new version did not come up, so the old one runs again. `job`: its job."""

    def __init__(self, job: JobId, why: str, savepoint: str) -> None:
        super().__init__(
            f"the new version did not come up: {why}; the old one goes on from {savepoint} as job {job}"
        )
        self.job = job


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersion:
    """An earlier version that the cluster keeps, which is to be started instead of a new one.

    Attributes:
        job: The one that ran it.
        request_id: Of the job that is to run it.
    """

    job: JobId
    request_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivingUp:
    """How an upgrade is given up.

    Attributes:
        requested: Once it is set, `Upgrade.run` returns as soon as it can, with the job that is there.
        leaves_running: That is to be a running one: if the old job has been stopped by then, the new version
            is started first, and not waited for.
        awaits_stop: A stop of the old job that is under way is waited for. False: the client requests the
            same stop again, or cancels the job.
    """

    requested: threading.Event = field(default_factory=threading.Event)
    leaves_running: bool = False
    awaits_stop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """See the module.

    Attributes:
        cluster: That runs the old job.
        old: The job that runs, or one that a client with the same request id has stopped.
        request: The new version, without a savepoint, or an earlier one; its request id has up to 190
            characters.
        check: Whether the new version can start from the snapshot in a directory; raises IncompatibleSnapshot
            if not, ConfigError or CorruptSnapshot if the snapshot cannot be read.
        savepoint_dir: Where the savepoint of the old job goes; None: as its configuration says.
        first_checkpoint_s: How long the new version may take to its first checkpoint, besides its probation.
        probation_s: How long all tasks of the new version run before that; None: a few seconds.
        note: Is given a sentence about each step.
        giving_up: How a client ends that is to end meanwhile.
        subject, goes_on: For people who look at the cluster: what the new version is, and the command that
            goes on with an upgrade that was cut off; "": there is none.
    """

    cluster: RestClient
    old: JobId
    request: SubmitRequest | KeptVersion
    check: Callable[[str], None]
    savepoint_dir: str | None = None
    first_checkpoint_s: float = FIRST_CHECKPOINT_S
    probation_s: float | None = None
    note: Callable[[str], None] = lambda _text: None
    giving_up: GivingUp = field(default_factory=GivingUp)
    subject: str = ""
    goes_on: str = ""

    def run(self) -> JobId:
        """The new job, once it has a checkpoint; or, if it is given up, the job that is there: the old one,
        which may be ending, or have ended, with a savepoint; the new one; or the one that has gone back.

        Raises:
            ConfigError: the new version cannot start from what the old one has; that goes on. Or the old
                job was lost meanwhile.
            WentBack: it did not come up.
            Unreachable, OutcomeUnknown: the cluster does not answer; the same again goes on there.
        """
        name = self.request.request_id
        if name is None or not 0 < len(name) <= REQUEST_ID_CHARS_MAX:
            raise ConfigError(f"an upgrade needs a request id of 1 to {REQUEST_ID_CHARS_MAX} characters")
        return _Run(self, name).run()


class _GivenUp(Exception):
    """The stop is not waited for any more."""


class _Run:
    """One client's part of an upgrade."""

    def __init__(self, upgrade: Upgrade, name: str) -> None:
        self._upgrade = upgrade
        self._cluster = upgrade.cluster
        self._kept = KeptJobsClient(upgrade.cluster)
        self._name = name
        self._old = self._kept.kept(name) or upgrade.old
        self._new = job_of_request(name)
        self._deadline: float | None = None  # of the first checkpoint
        self._up: tuple[int, float] | None = None  # restarts of the new job since it is up, time of a probe
        self._why = ""
        given_s = upgrade.probation_s
        self._probation_s = min(PROBATION_S, upgrade.first_checkpoint_s / 2) if given_s is None else given_s

    def run(self) -> JobId:
        facts = self._facts()
        with self._reports(facts) as reports:
            return self._to_end(facts, reports)

    def _reports(self, facts: Facts) -> ProcedureReporter:
        old = facts.old or facts.new or facts.back
        report = ProcedureReport(
            id=self._name,
            kind=ProcedureKind.UPGRADE,
            job_name="" if old is None else old.name,
            job=self._old,
            subject=self._upgrade.subject,
            steps=tuple(step.value for step in STEPS),
            done=0,
            state=ProcedureState.RUNS,
            goes_on=self._upgrade.goes_on,
        )
        cluster = self._cluster
        return ProcedureReporter(lambda: RestClient(cluster.url), report, refusals=(ConfigError, WentBack))

    def _to_end(self, facts: Facts, reports: ProcedureReporter) -> JobId:
        while True:
            step = next_step(facts)
            job = self._outcome_at(step)
            if job is not None:
                if step is UpgradeStep.DONE:
                    reports.ended(ProcedureState.DONE, f"job {job} runs it")
                return job
            if step in STEPS:
                reports.done(STEPS.index(step))
            self._take(step, facts)
            facts = self._facts()

    def _take(self, step: UpgradeStep, facts: Facts) -> None:
        """Raises: there is no other way."""
        match step:
            case UpgradeStep.KEEP:
                self._check_and_keep(facts)
            case UpgradeStep.STOP:
                self._stop()
            case UpgradeStep.SUBMIT:
                self._submit(self._snapshot(facts))
            case UpgradeStep.WAIT:
                self._wait(facts)
            case UpgradeStep.GO_BACK:
                self._go_back(self._snapshot(facts), self._why or _why_ended(facts))
            case UpgradeStep.WENT_BACK:
                self._kept.release(self._name)
                raise WentBack(_back_of(self._name), self._why or "see its job", self._snapshot(facts))
            case UpgradeStep.LOST:
                raise ConfigError(
                    f"job {self._old}, which is to be upgraded, has ended and left no snapshot: start "
                    "the new version without one"
                )

    def _outcome_at(self, step: UpgradeStep) -> JobId | None:
        """The job that is there, if the upgrade is done or given up at this step; None: the step is taken.
        The old version stays kept where the same upgrade again goes on."""
        if step is UpgradeStep.DONE:
            self._kept.release(self._name)
            return self._new
        if not self._upgrade.giving_up.requested.is_set():
            return None
        goes_on = self._upgrade.giving_up.leaves_running
        match step:
            case UpgradeStep.KEEP:
                return self._old
            case UpgradeStep.SUBMIT:
                return None if goes_on else self._old
            case UpgradeStep.WAIT if goes_on:
                return self._new
            case UpgradeStep.STOP | UpgradeStep.WAIT | UpgradeStep.WENT_BACK:
                self._kept.release(self._name)
                return {UpgradeStep.STOP: self._old, UpgradeStep.WAIT: self._new}.get(
                    step, _back_of(self._name)
                )
            case _:
                return None

    def _facts(self) -> Facts:
        return Facts(
            kept=self._kept.kept(self._name) is not None,
            old=self._info(self._old),
            new=self._info(self._new),
            back=self._info(_back_of(self._name)),
        )

    def _info(self, job: JobId) -> JobInfo | None:
        try:
            return self._cluster.info(job)
        except NotFound:
            return None

    def _snapshot(self, facts: Facts) -> str:
        found = None if facts.old is None else left_by(facts.old)
        return found or "where it was"

    # --- steps ------------------------------------------------------------------------------------

    def _check_and_keep(self, facts: Facts) -> None:
        assert facts.old is not None
        newest = facts.old.latest_checkpoint
        if newest is None:
            self._take_first()
            return
        try:
            self._upgrade.check(newest)
        except IncompatibleSnapshot:
            raise
        except (ConfigError, CorruptSnapshot):
            now = self._info(self._old)
            if now is None or now.latest_checkpoint == newest:
                raise
            return  # a newer one has replaced it while it was read
        with contextlib.suppress(NotFound):  # it has just ended
            self._kept.keep(restart_name(self._old), self._old, for_restart=True)
            self._kept.keep(self._name, self._old)

    def _take_first(self) -> None:
        """A checkpoint of a job that has none: the new version is checked before the old one is stopped."""
        client = RestJobClient(self._cluster, self._old, accepted=True)
        poll = Poll(self._upgrade.first_checkpoint_s)
        while poll.next():
            info = client.status()
            if self._upgrade.giving_up.requested.is_set() or info.is_terminal or info.latest_checkpoint:
                return
            if info.all_tasks_run:
                with contextlib.suppress(AlreadyEnded):
                    client.checkpoint()
                return
        raise ConfigError(
            f"job {self._old} has no checkpoint against which the new version can be checked, and took none "
            f"within {self._upgrade.first_checkpoint_s:.0f} s, because not all its tasks run; it goes on as "
            "it is"
        )

    def _stop(self) -> None:
        """Stops the old job with a savepoint, as soon as all its tasks run: none can be taken while it starts
        or restarts."""
        self._upgrade.note(f"job {self._old} is stopped with a savepoint, to be replaced by a new version")
        client = RestJobClient(self._cluster, self._old, accepted=True)
        poll = Poll(self._upgrade.first_checkpoint_s)
        while poll.next():
            try:
                savepoint = self._stopped(client)
            except AlreadyEnded:
                return
            except ConfigError:
                if client.status().all_tasks_run:
                    raise
            else:
                if savepoint is not None:
                    self._upgrade.note(f"job {self._old} has ended with savepoint {savepoint}")
                return
            if self._upgrade.giving_up.requested.is_set():
                return
        raise ConfigError(
            f"job {self._old} could not be stopped with a savepoint within "
            f"{self._upgrade.first_checkpoint_s:.0f} s, because not all its tasks run; it goes on as it is"
        )

    def _stopped(self, client: RestJobClient) -> str | None:
        """The savepoint; None: the upgrade is given up, and the stop is under way. Raises as
        `RestJobClient.stop`."""
        giving_up = self._upgrade.giving_up

        def check(_info: JobInfo) -> None:
            if giving_up.requested.is_set() and not giving_up.awaits_stop:
                raise _GivenUp

        try:
            return client.stopped(target=self._upgrade.savepoint_dir, on_progress=check)[0]
        except _GivenUp:
            return None

    def _submit(self, savepoint: str) -> None:
        try:
            self._upgrade.check(savepoint)
            self._start(savepoint)
        except (ConfigError, CorruptSnapshot) as refused:
            self._go_back(savepoint, str(refused))
        else:
            self._upgrade.note(f"job {self._new} starts the new version from {savepoint}")

    def _start(self, savepoint: str) -> None:
        request, pause_ms = self._upgrade.request, int(self._probation_s * 1000)
        if isinstance(request, KeptVersion):
            self._kept.start(restart_name(request.job), savepoint, self._name)
            return
        self._cluster.submit(
            structs.replace(request, savepoint=savepoint, first_checkpoint_pause_ms=pause_ms)
        )

    def _wait(self, facts: Facts) -> None:
        new, now = facts.new, time.monotonic()
        assert new is not None
        limit_s = self._upgrade.first_checkpoint_s + (self._upgrade.probation_s or 0.0)
        self._deadline = now + limit_s if self._deadline is None else self._deadline
        if now >= self._deadline:
            failure = new.exceptions[-1].message if new.exceptions else f"it is {new.state}"
            self._why = f"it had no checkpoint within {limit_s:.0f} s ({failure})"
            self._give_up()
            return
        self._probe(new, now)
        time.sleep(POLL_S)

    def _probe(self, new: JobInfo, now: float) -> None:
        """Triggers a checkpoint, once for each time that the new job has come up."""
        if not new.all_tasks_run:
            self._up = None
        elif self._up is None or self._up[0] != new.restarts:
            self._up = new.restarts, now + self._probation_s
        elif now >= self._up[1]:
            self._up = new.restarts, math.inf
            self._trigger()

    def _trigger(self) -> None:
        """A checkpoint, without waiting for it."""
        body = msgspec.json.encode({"checkpointType": "CONFIGURED", "triggerId": uuid.uuid4().hex})
        path = f"/jobs/{self._new}/checkpoints"
        with contextlib.suppress(ConfigError, AlreadyEnded):  # it takes none now
            self._cluster.request("POST", path, call=CallKind.TRIGGER, content=body)

    def _give_up(self) -> None:
        """Raises ConfigError: it got its checkpoint at this moment, so what it wrote may be visible."""
        client = RestJobClient(self._cluster, self._new)
        with contextlib.suppress(AlreadyEnded):
            client.cancel()
        try:
            client.wait(CANCEL_WAIT_S)
        except TimeoutError as error:
            raise UnistreamError(
                f"job {self._new}, the new version, does not end within {CANCEL_WAIT_S:.0f} s; it was "
                f"cancelled, since {self._why}; the same upgrade again goes on here"
            ) from error
        info = client.status()
        if info.checkpoints_completed:
            raise ConfigError(
                f"job {self._new} completed its first checkpoint while it was cancelled, since "
                f"{self._why}: start the new version again from {info.latest_checkpoint}"
            )

    def _go_back(self, savepoint: str, why: str) -> None:
        self._upgrade.note(f"the new version did not come up: {why}; the old one is started again")
        self._why = why
        self._kept.start(self._name, savepoint, f"{self._name} back")


def replaced_by(cluster: RestClient, running: JobInfo) -> JobInfo:
    """The job that an upgrade has replaced by this one, of those that its cluster still keeps.

    Raises:
        ConfigError: there is none.
    """
    kept = KeptJobsClient(cluster)
    ended = [job for job in cluster.jobs() if job.ended_ms is not None and job.name == running.name]
    before = [job for job in ended if job.submitted_ms < running.submitted_ms][:REPLACED_ASKED_MAX]
    for job in before:
        if kept.kept(restart_name(job.job)) is None:
            continue
        info = cluster.info(job.job)
        if info.lineage == running.lineage:
            return info
    raise ConfigError(
        f"there is no earlier version of job {running.job} that its cluster could start again: it keeps what "
        "'unistream upgrade' has replaced, for the newest jobs"
    )


def _why_ended(facts: Facts) -> str:
    """The new version."""
    assert facts.new is not None
    failure = facts.new.failure
    return f"it is {facts.new.state}" if failure is None else failure.message


def _back_of(name: str) -> JobId:
    return job_of_request(f"{name} back")
