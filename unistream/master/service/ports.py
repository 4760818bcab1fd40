"""The ports of a master besides its adapters (`cluster_services`): everything that waits or has a thread.

`cluster_services.master_ports` makes the real ones, `unistream.testing.sim` those of a simulated cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from unistream.base.ids import ClusterId, JobId, TaskManagerId
from unistream.core import contract
from unistream.master.loop import CreateLoop, WorkPool
from unistream.master.service.senders import OnOutcome, OutgoingMessage
from unistream.master.store import JobStore, Leadership
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo
from unistream.model.job_info import MetadataHealth
from unistream.model.messages import ToTaskManager
from unistream.model.stored_job import Sealed, StoredResult
from unistream.port import metadata as meta


class JobDecisions(Protocol):
    """Decides for one job: `unistream.core.job.machine.JobMachine`."""

    def handle(self, event: contract.Event, now_ms: int) -> Sequence[contract.Command]: ...

    def validate(self) -> None:
        """Raises when an invariant does not hold."""

    def view(self) -> contract.JobView: ...

    def sealed(self) -> Sealed:
        """What a BATCH job commits, as far as it is fixed."""

    def checkpoints(self, now_ms: int, wall_ms: int) -> CheckpointsInfo: ...


class Messages(Protocol):
    """Messages to workers, in order for each of them; `master.senders.Senders`. `send` never blocks."""

    def send(
        self,
        task_manager: TaskManagerId,
        address: str,
        message: ToTaskManager,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        """Queues `message` behind those already queued for this worker."""

    def send_all(
        self, task_manager: TaskManagerId, address: str, messages: Sequence[OutgoingMessage]
    ) -> None:
        """Queues these; they are sent in order, together as far as one request can hold them."""

    def forget(self, task_manager: TaskManagerId, reason: str) -> None:
        """The worker is lost: messages still queued for it fail with `reason`."""

    def close(self) -> None: ...


class Records(Protocol):
    """History for people, written in order; `catalogue.Catalogue`. Failures are only logged."""

    @property
    def cluster(self) -> ClusterId:
        """Whose jobs these are."""

    def add_job(self, record: meta.JobRecord) -> None:
        """A new job, or one of an earlier leader, whose row is taken over."""

    def settle(self, results: Sequence[StoredResult], unfinished: Collection[JobId] | None = None) -> None:
        """Rows of the cluster's jobs that no JobMaster has: of ended ones, and of `unfinished` ones, which
        are to be started again. Where that is given, all others have ended as SUSPENDED."""

    def update_job(
        self,
        job: JobId,
        *,
        state: str,
        restarts: int,
        changed_ms: int | None = None,
        ended_ms: int | None = None,
    ) -> threading.Event:
        """The event is set after the write was tried. `changed_ms`: when it came into this state; None: at
        its end, or now."""

    def update_graph(self, job: JobId, graph_json: str) -> None: ...

    def record_attempt(self, change: meta.AttemptChange) -> None: ...

    def record_checkpoint(self, job: JobId, record: CheckpointFigures) -> None: ...

    def record_exception(self, record: meta.ExceptionRecord) -> None: ...

    def record_event(self, record: meta.EventRecord) -> None: ...

    def record_commit(self, record: meta.CommitRecord) -> None: ...

    def record_artifact(self, job: JobId, record: meta.ArtifactRecord) -> None:
        """`job` refers to this artifact."""

    def archive(self, record: meta.ArchiveRecord) -> None:
        """What the pages of a job show from its end on."""

    def health(self) -> MetadataHealth: ...

    def close(self, timeout_s: float) -> None: ...


OnDefect = Callable[[Exception], None]


def survived(_defect: Exception) -> None:
    """The job ends as FAILED, or the event is lost; the cluster goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterPorts:
    """The ports of one dispatcher, which closes them.

    Attributes:
        leadership: Whether it may decide.
        jobs: What the next leader finds, written with the epoch of this one.
        io: Runs storage access and discovery.
        stopping: Stops workers on their hosts, which may be slow.
        create_loop: Makes the loop of the ResourceManager and of each JobMaster.
        on_defect: Called with an exception that is a bug in unistream, before it is logged and handled. An
            exception that it raises ends the loop.
    """

    leadership: Leadership
    jobs: JobStore
    catalogue: Records
    senders: Messages
    io: WorkPool
    stopping: WorkPool
    create_loop: CreateLoop
    on_defect: OnDefect = survived
