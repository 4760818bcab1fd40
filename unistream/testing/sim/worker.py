"""A worker of a simulation: the real `TaskManager` and its real tasks, without its threads.

What is replaced is what waits: the task's thread (a task is stepped by events), the pool that stores
snapshots, the sender of reports, the lease, and the sockets. All decisions are those of `unistream.worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unistream.base.config import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    PARTITION_REQUEST_TIMEOUT,
    Configuration,
)
from unistream.base.errors import UnistreamError
from unistream.base.ids import AttemptId, JobId, TaskManagerId, VertexId
from unistream.model.chain import Chain, JobCode
from unistream.model.messages import (
    Ack,
    Answer,
    Heartbeat,
    JobsOver,
    Refused,
    RegisterTaskManager,
    Request,
    TaskDeployment,
    TaskStateChanged,
)
from unistream.port.host import TaskManagerSpec
from unistream.port.transport import ControlClient
from unistream.testing.sim.network import Endpoint, Network, PatientReports, unexpected
from unistream.testing.sim.spill import SimBlockingPartitions
from unistream.testing.sim.store import Store
from unistream.testing.sim.streams import SimDataClient, Streams
from unistream.testing.sim.world import Process, VirtualClock, World
from unistream.worker.exchange import PartitionKey, PartitionRegistry
from unistream.worker.process import Ending, Services, TaskControl, TaskManager
from unistream.worker.task import (
    Done,
    Mail,
    Mailbox,
    StreamTask,
    TaskState,
    TaskThread,
    Waiting,
    task_failure,
)

STEPS_PER_TURN = 4  # at most, before others have theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all workers of a run share.

    Attributes:
        chains: Of every job: vertex -> new operators.
        on_task: (worker, attempt, it begins or has ended); raises `Violation`.
        on_exit: (worker, reason): its process has ended.
    """

    world: World
    network: Network
    streams: Streams
    store: Store
    chains: Mapping[JobId, Mapping[VertexId, Callable[[], Chain]]]
    on_task: Callable[[TaskManagerId, AttemptId, str], None]
    on_exit: Callable[[TaskManagerId, str], None]


class SimMailbox(Mailbox):
    """Wakes its task by an event of the world."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake

    def post(self, mail: Mail) -> None:
        super().post(mail)
        self._wake()

    def cancel(self) -> None:
        super().cancel()
        self._wake()

    def wake(self) -> None:
        self._wake()


class SimTask(TaskThread):
    """`TaskThread` in turns of a few steps."""

    def __init__(self, worker: SimWorker, deployment: TaskDeployment, **arguments: Any) -> None:
        super().__init__(deployment, **arguments)
        self.mailbox = SimMailbox(self._schedule)
        self._worker = worker
        self._world = worker.around.world
        self._scheduled = False
        self._ended = False
        self._alarm_ms: float | None = None

    def start(self) -> None:
        self._world.at(self._world.between(0.5, 20), self._begin, self._worker.process)

    def join(self, timeout_s: float) -> bool:
        return self._ended

    def _begin(self) -> None:
        if self.mailbox.is_cancelled:
            self._report(TaskStateChanged(attempt=self.attempt, state=TaskState.CANCELED.value))
            self._end(TaskState.CANCELED)
            return
        self._worker.told(self.attempt, "begins")
        try:
            self._task = self._build(self.deployment, self.mailbox)
        except Exception as error:
            failure = task_failure(error)
            self._report(
                TaskStateChanged(attempt=self.attempt, state=TaskState.FAILED.value, failure=failure)
            )
            self._end(TaskState.FAILED)
            return
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._ended and self._task is not None:
            self._scheduled = True
            self._world.at(self._world.between(0.01, 1), self._turn, self._worker.process)

    def _turn(self) -> None:
        self._scheduled = False
        task = self._task
        assert task is not None, "a turn is scheduled only when there is a task"
        for _ in range(1 + self._world.random.randrange(STEPS_PER_TURN)):
            result = task.step()
            if isinstance(result, Done):
                self._end(task.state)
                return
            if isinstance(result, Waiting):
                self._sleep(result.deadline_ms)
                return
        self._schedule()

    def _sleep(self, deadline_ms: int | None) -> None:
        if deadline_ms is None or (self._alarm_ms is not None and self._alarm_ms <= deadline_ms):
            return
        self._alarm_ms = deadline_ms
        self._world.at(max(0.0, deadline_ms - self._world.now), self._alarm, self._worker.process)

    def _alarm(self) -> None:
        self._alarm_ms = None
        self._schedule()

    def _end(self, state: TaskState) -> None:
        self._ended = True
        self._worker.told(self.attempt, state.value)
        self._on_end(self, state)


class SimExecutor(Executor):
    """Background work of one process: a few milliseconds later."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._world.at(self._world.between(0.5, 40), lambda: fn(*args, **kwargs), self._process)
        return Future()


class SimWorker(TaskManager):
    """One worker process."""

    def __init__(self, spec: TaskManagerSpec, around: Surroundings) -> None:
        config = Configuration(spec.config)
        self.around = around
        self.process = Process(spec.id)
        self._address = f"sim://{spec.id}"
        super().__init__(
            spec,
            Services(
                server=_no_server,
                control_client=_NoClient,
                data_client=lambda _config: SimDataClient(
                    around.streams, self.process, config.get(PARTITION_REQUEST_TIMEOUT)
                ),
                state_writer=around.store.writer,
                state_reader=around.store.reader,
                clock=VirtualClock(around.world),
            ),
        )
        self._pool = SimExecutor(around.world, self.process)  # type: ignore[assignment]
        self._commits = SimExecutor(around.world, self.process)  # type: ignore[assignment]
        self._blocking = SimBlockingPartitions(around.world, Path(around.world.scratch, spec.id))
        self._partitions = PartitionRegistry(self._blocking)
        self._control = TaskControl(
            self._new_task,
            tasks=self._tasks,
            slots=self._slots,
            partitions=self._partitions,
            blocking=self._blocking,
            background=self._pool,
            clock=self._clock,
        )
        self._artifacts = _Code(around)  # type: ignore[assignment]
        if around.world.scratch:
            self._local = _Local(Path(around.world.scratch, spec.id, "state"))  # type: ignore[assignment]
        self._outgoing = PatientReports(
            around.world,
            around.network,
            self.process,
            spec.master,
            patience_ms=config.get(HEARTBEAT_TIMEOUT),
            on_answer=self._renew,
            on_give_up=self._exit,
        )
        self._reports = self._outgoing  # type: ignore[assignment]
        self._interval_ms = config.get(HEARTBEAT_INTERVAL)
        self._heard_ms = around.world.now
        self._leaving = False
        self.is_registered = False

    @property
    def address(self) -> str:
        return self._address

    @property
    def partitions(self) -> PartitionRegistry:
        return self._partitions

    @property
    def stored(self) -> tuple[PartitionKey, ...]:
        """Results that it holds for consumers that come later."""
        return self._blocking.held

    def start(self) -> None:
        """Listens and registers; the rest comes when the master has answered."""
        around = self.around
        around.network.endpoints[self._address] = Endpoint(self.process, self.handle)
        message = RegisterTaskManager(
            task_manager=self.id, address=self._address, slots=self._spec.slots, pid=1, host="sim"
        )
        self._outgoing.ask(message, self._registered)

    def _registered(self, answer: Answer | None) -> None:
        if isinstance(answer, Refused):
            self.around.world.sometimes("a registration was refused")
            self._exit(f"the master refused the registration: {answer.reason}")
            return
        self.is_registered = True
        self._renew()
        self._beat_soon()

    def told(self, attempt: AttemptId, what: str) -> None:
        """A task begins or has ended here."""
        self.around.world.tell(f"{self.id}: task {attempt} {what}")
        self.around.on_task(self.id, attempt, what)

    def _new_task(self, deployment: TaskDeployment) -> TaskThread:
        return SimTask(
            self,
            deployment,
            build=self._build,
            report=self._reports.post,
            on_end=self._on_end,
            clock=self._clock,
        )

    # --- lease ------------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._heard_ms = self.around.world.now

    def _beat_soon(self) -> None:
        self.around.world.at(self._interval_ms, self._beat_now, self.process)

    def _beat_now(self) -> None:
        if self._leaving:
            return
        try:
            self._check_cancellations()
        except UnistreamError as error:
            self.around.world.sometimes("a cancelled task held on")
            self._exit(str(error))
            return
        message = Heartbeat(task_manager=self.id, stored=self._blocking.jobs)
        self.around.network.call(self.process, self._spec.master, message, self._beat_answered)
        self._beat_soon()

    def _beat_answered(self, answer: Answer | None) -> None:
        """One that stood still asks first: the master's word weighs more than its own suspicion."""
        silent_ms = self.around.world.now - self._heard_ms
        if isinstance(answer, Refused):
            self.around.world.sometimes("a heartbeat was refused")
            self._exit(f"the master refused the heartbeat: {answer.reason}")
        elif answer is not None:
            self._renew()
            if isinstance(answer, JobsOver):
                self.around.world.sometimes("a worker was told that a job is over")
                self._control.jobs_are_over(answer.jobs)
        elif silent_ms > self._patience_ms:
            self.around.world.sometimes("a worker lost its lease")
            self._exit(f"the master was silent for {silent_ms:.0f} ms")

    # --- the end ----------------------------------------------------------------------------------

    def _exit(self, reason: str, ending: Ending = Ending.BROKEN) -> None:
        super()._exit(reason, ending)
        if self._leaving:
            return
        self._leaving = True
        world = self.around.world
        world.tell(f"{self.id} ends: {reason}")
        for task in self._tasks.all_running():
            task.cancel()
        world.at(world.between(20, 300), lambda: self.die(reason), self.process)

    def die(self, reason: str) -> None:
        """Its process ends, with whatever it is doing."""
        if not self.process.is_alive:
            return
        self.process.is_alive = False
        self.process.deferred.clear()
        self.around.network.endpoints.pop(self._address, None)
        self.around.streams.process_died(self.process)
        self.around.on_exit(self.id, reason)

    def pause(self, for_ms: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        if self.process.is_alive and not self.process.is_paused:
            self.process.is_paused = True
            self.around.world.at(for_ms, self.go_on)

    def go_on(self) -> None:
        if self.process.is_alive and self.process.is_paused:
            self.around.world.tell(f"{self.id} goes on")
            self.around.world.resume(self.process)


class _Code:
    """`worker.artifact_cache.ArtifactCache` without the packing."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def open(self, job: JobId, sha256: str) -> JobCode:
        return JobCode(chains=_Chains(self._around.chains[job]))


class _Local:
    """`worker.local_folder.LocalFolder` that goes with all that a run has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder


class _Chains(Mapping[VertexId, Chain]):
    """Makes the operators of a vertex when they are asked for."""

    def __init__(self, makers: Mapping[VertexId, Callable[[], Chain]]) -> None:
        self._makers = makers

    def __getitem__(self, vertex: VertexId) -> Chain:
        return self._makers[vertex]()

    def __iter__(self) -> Iterator[VertexId]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class _NoClient:
    """`port.transport.ControlClient` that nobody may use: a simulated call does not wait."""

    def __init__(self, address: str) -> None:
        self._where = address

    def call(self, message: Request) -> Answer:
        return unexpected(message)

    def close(self) -> None:
        """Nothing is open."""


def _no_server(*_arguments: object) -> Any:
    raise AssertionError("a simulated worker listens in its network")


__all__ = ["Ack", "ControlClient", "SimWorker", "StreamTask", "Surroundings"]
