"""What a master stands on besides its adapters (`cluster_services`): whatever waits or has a thread. The real
ones are made by `cluster_services.master_ports`, those of a simulated cluster by `unistream.testing.sim`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from unistream.base.ids import JobId, LeaderEpoch, TaskManagerId
from unistream.master.loop import CreateLoop
from unistream.master.ordered import WorkPool
from unistream.master.senders import Fate, Letter
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.model.messages import ToTaskManager
from unistream.port.metadata import AttemptChange, CommitRecord, ExceptionRecord, JobRecord


class Messages(Protocol):
    """Messages to workers, in order for each of them; `master.senders.Senders`. `send` never blocks."""

    def send(
        self, task_manager: TaskManagerId, address: str, message: ToTaskManager, fate: Fate | None = None
    ) -> None:
        """Queues `message` behind those already queued for this worker."""

    def send_all(self, task_manager: TaskManagerId, address: str, letters: Sequence[Letter]) -> None:
        """Queues these; they travel together, in their order, as far as one request can hold them."""

    def forget(self, task_manager: TaskManagerId, reason: str) -> None:
        """The worker is gone: what is still queued for it fails with `reason`."""

    def close(self) -> None: ...


class Records(Protocol):
    """History for people, written in order; `master.catalogue.Catalogue`. A failure stops nothing."""

    def add_job(self, record: JobRecord) -> None: ...

    def update_job(
        self, job: JobId, *, state: str, restarts: int, ended_ms: int | None = None
    ) -> threading.Event:
        """The event is set when it was tried."""

    def update_graph(self, job: JobId, graph_json: str) -> None: ...

    def record_attempt(self, change: AttemptChange) -> None: ...

    def record_checkpoint(self, job: JobId, record: CheckpointFigures) -> None: ...

    def record_exception(self, record: ExceptionRecord) -> None: ...

    def record_commit(self, record: CommitRecord) -> None: ...

    def close(self, timeout_s: float) -> None: ...


OnDefect = Callable[[Exception], None]


def survived(_defect: Exception) -> None:
    """The job ends as FAILED, or the event is lost; the cluster goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterPorts:
    """The ports of one dispatcher, which closes them.

    Attributes:
        epoch: Under which this master leads.
        io: For storage and discovery.
        stopping: For hosts that take their time to end a worker.
        create_loop: For the ResourceManager and each JobMaster.
        on_defect: Called with an exception that is a defect of ours, before it is logged and dealt with; what
            it raises ends the loop.
    """

    epoch: LeaderEpoch
    catalogue: Records
    senders: Messages
    io: WorkPool
    stopping: WorkPool
    create_loop: CreateLoop
    on_defect: OnDefect = survived
