"""The ports of a TaskManager: clock, threads, sockets and files. The same TaskManager runs in its own process
(`services`) and in the simulation of a cluster (`unistream.testing.sim.worker`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from unistream.base.clock import Clock
from unistream.base.ids import JobId
from unistream.model.chain import JobCode
from unistream.model.deployment import TaskDeployment
from unistream.model.messages import Answer, Heartbeat, RegisterTaskManager, ToJobManager
from unistream.model.resources import MachineResources
from unistream.port.storage import StateReader, StateWriter
from unistream.port.transport import ControlClient, ControlHandler, DataClient, PartitionSource, Server
from unistream.worker.exchange import BlockingPartitions
from unistream.worker.process.ending import Exit
from unistream.worker.task import BuildTask, TaskEnded, TaskRun


class Member(Protocol):
    """A registered worker, as its lease sees it."""

    def heartbeat(self) -> Heartbeat:
        """The next heartbeat."""

    def heartbeat_answered(self, answer: Answer) -> None:
        """The master's answer; it may end the worker."""

    def check_tasks(self) -> None:
        """Raises UnistreamError if a cancelled task does not end."""


class MemberLease(Protocol):
    """Sends heartbeats, and ends the worker when its master is silent for too long or a check fails."""

    def start(self, member: Member) -> None:
        """Starts the heartbeats after the registration; the lease is fresh."""

    def keep_to(self, interval_ms: int, timeout_ms: int) -> None:
        """Uses the master's times instead of its own; before `start`."""

    def beat_soon(self) -> None:
        """Sends the next heartbeat at once."""

    def close(self) -> None: ...


class ReportChannel(Protocol):
    """Reports to the master, in order, each repeated until it is answered."""

    def start(self) -> None: ...

    def post(self, message: ToJobManager) -> None:
        """Queues a report, from any thread; never blocks."""

    def close(self, timeout_s: float) -> None:
        """Sends what was posted, for at most `timeout_s`."""


class CodeStore(Protocol):
    """The user's code of the jobs that run here."""

    def open(self, job: JobId, sha256: str) -> JobCode:
        """New objects each time.

        Raises:
            ProtocolError: the master has no such artifact, or sent another.
            UserCodeError: it cannot be opened here.
            Unreachable: the master did not answer.
        """


class StateFolder(Protocol):
    """Local folder in which operators keep state."""

    def remove_leftovers(self) -> None:
        """Removes folders of killed processes."""

    def path(self) -> Path:
        """Raises ConfigError, Transient: it cannot be written."""

    def close(self) -> None: ...


class NewTask(Protocol):
    """Creates a task that is not started."""

    def __call__(
        self,
        deployment: TaskDeployment,
        *,
        build: BuildTask,
        report: Callable[[ToJobManager], None],
        on_end: TaskEnded,
        clock: Clock,
    ) -> TaskRun: ...


Register = Callable[[RegisterTaskManager, Callable[[Answer], None]], None]
"""(first message, callback for its answer). May raise Unreachable instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterConnection:
    """The connection to the master.

    Attributes:
        clients: Used by the others; closed last.
    """

    register: Register
    reports: ReportChannel
    lease: MemberLease
    clients: tuple[ControlClient, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStores:
    """Files of this worker and of snapshots.

    Attributes:
        blocking: Stored results, for consumers that start later.
        state_folder: For keyed state on the local disk.
        tmp_dir: For files of operators that spill.
        state_writer, state_reader: fsspec URL of a snapshot's directory -> its files.
    """

    blocking: BlockingPartitions
    state_folder: StateFolder
    tmp_dir: str
    state_writer: Callable[[str], StateWriter]
    state_reader: Callable[[str], StateReader]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    """The ports of one TaskManager, which closes them.

    Attributes:
        host, pid, hardware: Of the machine and the process; shown to people.
        resident_bytes: Memory of the process now, None: it is not known.
        exit: Decides that the worker ends.
        server: (control handler, partitions) -> a listening server.
        may_block: Tasks of `new_task` have threads of their own, which may wait for their consumers.
        snapshots: Runs the background part of snapshots, and slow work such as deleting files.
        commits: Runs background work of operators.
        crash_point: A named place where a test may let the process die.
    """

    host: str
    pid: int
    hardware: MachineResources
    resident_bytes: Callable[[], int | None]
    clock: Clock
    exit: Exit
    server: Callable[[ControlHandler, PartitionSource], Server]
    data: DataClient
    master: MasterConnection
    stores: WorkerStores
    code: CodeStore
    new_task: NewTask
    may_block: bool
    snapshots: Executor
    commits: Executor
    crash_point: Callable[[str], None]
