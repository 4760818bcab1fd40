"""What a JobMaster is given: the machine that decides, who the job is, and what it works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from unistream.base.clock import Clock
from unistream.base.ids import JobId, LineageId
from unistream.core import contract
from unistream.core.contract import JobView
from unistream.core.resource import SlotsReturned, SlotsWanted
from unistream.master.loop import CreateLoop
from unistream.master.ordered import WorkPool
from unistream.master.ports import Messages, OnDefect, survived
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.graph import JobGraph, SourceInfo
from unistream.port.source import SplitDiscovery
from unistream.port.storage import CheckpointStorage


class Machine(Protocol):
    """`unistream.core.job.machine.JobMachine`, as the shell sees it."""

    def handle(self, event: contract.Event, now_ms: int) -> Sequence[contract.Command]: ...

    def validate(self) -> None:
        """Raises when an invariant does not hold."""

    def view(self) -> JobView: ...

    def checkpoints(self, now_ms: int, wall_ms: int) -> CheckpointsInfo: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """What never changes about a job. `graph`: as it was submitted; see `JobMaster.graph`."""

    job: JobId
    lineage: LineageId
    target: str
    graph: JobGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServices:
    """What a JobMaster works with; owned by the dispatcher.

    Attributes:
        io: For storage and discovery.
        create_loop: Makes the loop of the job.
        savepoint_dir: Where savepoints go whose request names no directory.
        resources: Takes slot requests of any job.
        on_ended: Called last, from the job's thread.
        on_defect: See `MasterPorts`.
    """

    clock: Clock
    io: WorkPool
    senders: Messages
    storage: CheckpointStorage
    savepoint_dir: str
    discover: Callable[[SourceInfo], SplitDiscovery]
    resources: Callable[[SlotsWanted | SlotsReturned], None]
    on_ended: Callable[[JobId], None]
    create_loop: CreateLoop
    on_defect: OnDefect = survived
