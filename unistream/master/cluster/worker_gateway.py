"""Decodes control messages of workers, forwards them to the ResourceManager or a JobMaster, answers at once.
Reports of tasks also come in bundles; each has its own answer."""

from __future__ import annotations

import logging
from collections.abc import Callable

from unistream.base.crash_points import crash_point
from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId, JobId
from unistream.base.releases import Release, own_release, refusal
from unistream.master.job import JobMaster
from unistream.master.service import ResourceManager
from unistream.model import messages as msg
from unistream.model.bundle import answer_each
from unistream.model.codec import decode_for_job_manager, decode_task_report, encode
from unistream.model.credentials import is_named, name_at, shown_address

_log = logging.getLogger(__name__)


class WorkerGateway:
    """A `port.transport.ControlHandler`. Thread-safe: it only posts to mailboxes.

    Args:
        find_job: Job id -> its master, or None.
        get_artifact: Its name in the store -> the code.
        release: What is installed here.
    """

    def __init__(
        self,
        resources: ResourceManager,
        find_job: Callable[[JobId], JobMaster | None],
        get_artifact: Callable[[str], bytes],
        release: Release | None = None,
    ) -> None:
        self._resources = resources
        self._find_job = find_job
        self._get_artifact = get_artifact
        self._release = release or own_release()

    def handle(self, request: bytes, caller: str = "", /) -> bytes:
        """Encoded request -> encoded answer; never raises for bad input. `caller`: see `ControlHandler`."""
        try:
            message = decode_for_job_manager(request)
        except ProtocolError as error:
            return encode(msg.Refused(reason=str(error)))
        if isinstance(message, msg.Bundle):
            return encode(answer_each(message, lambda one: self._report(decode_task_report(one), caller)))
        return encode(self._route(message, caller))

    def _route(self, message: msg.ToJobManager, caller: str) -> msg.Answer:
        match message:
            case msg.RegisterTaskManager() | msg.Heartbeat() if not is_named(message.task_manager, caller):
                return msg.Refused(
                    reason=f"the certificate of {caller} is not that of {message.task_manager}"
                )
            case msg.RegisterTaskManager() if caller and name_at(message.address) != caller:
                where = shown_address(message.address)
                return msg.Refused(reason=f"{message.task_manager} registers {where}, which is not {caller}")
            case msg.RegisterTaskManager():
                return self._register(message)
            case msg.Heartbeat():
                return self._heartbeat(message, caller)
            case msg.FetchArtifact():
                return self._artifact(message, caller)
            case _:
                return self._report(message, caller)

    def _register(self, message: msg.RegisterTaskManager) -> msg.Answer:
        """A worker of another series is refused before anything is known of it."""
        why = refusal(
            Release(message.version, message.python),
            self._release,
            who=f"worker {message.task_manager} on host {message.host}",
            whom="this cluster",
        )
        if why is None:
            return self._resources.register(message)
        _log.warning("event=worker_refused task_manager=%s reason=%r", message.task_manager, why)
        return msg.Refused(reason=why)

    def _report(self, message: msg.TaskReport, caller: str) -> msg.Answer:
        master = self._find_job(message.attempt.job)
        if master is None:
            return msg.Refused(reason=f"there is no job {message.attempt.job} here")
        if not _is_given(master, message.attempt, caller):
            return msg.Refused(reason=f"{message.attempt} was not given to {caller}")
        if isinstance(message, msg.CheckpointAcked):
            crash_point("ack.received")
        if isinstance(message, msg.CommitReported):
            master.journal.commit(message)
        elif isinstance(message, msg.LogReported):
            master.journal.logged(message)
        else:
            if isinstance(message, msg.TaskStateChanged) and message.metrics is not None:
                master.journal.metrics(message.attempt, message.metrics, final=True)
            master.post(message)
        return msg.Ack()

    def _heartbeat(self, message: msg.Heartbeat, caller: str) -> msg.Answer:
        answer = self._resources.heartbeat(message)
        if isinstance(answer, msg.Ack):
            for attempt, metrics in message.metrics:
                master = self._find_job(attempt.job)
                if master is not None and _is_given(master, attempt, caller):
                    master.journal.metrics(attempt, metrics)
            over = tuple(job for job in message.stored if self._is_over(job))
            return msg.JobsOver(jobs=over) if over else answer
        return answer

    def _is_over(self, job: JobId) -> bool:
        master = self._find_job(job)
        return master is None or master.wait(0)

    def _artifact(self, message: msg.FetchArtifact, caller: str) -> msg.Answer:
        master = self._find_job(message.job)
        if master is not None and caller and not any(is_named(one, caller) for one in master.workers):
            return msg.Refused(reason=f"{caller} has no task of job {message.job}")
        if master is None or master.setup.artifact != message.sha256:
            return msg.Refused(reason=f"job {message.job} has no artifact {message.sha256[:64]}")
        try:
            return msg.Artifact(content=self._get_artifact(master.setup.start.artifact))
        except (ProtocolError, OSError) as error:
            return msg.Refused(reason=f"the artifact of job {message.job} cannot be read: {error}")


def _is_given(master: JobMaster, attempt: AttemptId, caller: str) -> bool:
    """Whether the caller was given the attempt, so that it may report of it."""
    worker = master.worker_of(attempt) if caller else None
    return not caller or (worker is not None and is_named(worker, caller))
