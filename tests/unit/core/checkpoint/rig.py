"""A checkpoint coordinator with a job that runs: events in, the kinds of commands out."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.core.cluster import EVERY_2_S, job_graph, settings
from unistream.base.ids import CheckpointId, VertexId
from unistream.core import contract
from unistream.core.checkpoint import CheckpointCoordinator, CompletedSnapshots, Sources
from unistream.core.contract import CommandOutbox, RestorePoint
from unistream.core.execution import JobRun
from unistream.model import messages as msg
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.execution_state import ExecutionState
from unistream.model.plan import TaskManagerLocation
from unistream.model.snapshot import TaskSnapshot
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind

INTERVAL = contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL, 0)


UP = (
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


PAUSE = contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL, 1)


class Rig:
    """A coordinator over five running tasks on one worker; every handler answers with its commands."""

    def __init__(
        self,
        config: dict[str, str] | None = None,
        restore: RestorePoint | None = None,
        schedule: dict[str, str] = EVERY_2_S,
    ) -> None:
        graph = job_graph(bounded=False)
        self.settings = settings(schedule | (config or {}))
        self.outbox = CommandOutbox()
        self.run = JobRun(graph, self.settings, self.outbox)
        self.executions = self.run.executions
        self.come_up()
        self.sources = Sources(graph, self.executions, self.outbox)
        self.sources.reset(None, assign=True)
        self.coordinator = CheckpointCoordinator(
            settings=self.settings,
            run=self.run,
            sources=self.sources,
            completed=CompletedSnapshots(self.settings.checkpoints_retained, restore),
            outbox=self.outbox,
        )
        self.outbox.take()
        self.failures: list[msg.TaskFailure] = []
        self.all: list[contract.Command] = []

    def find_splits(self, source: VertexId, *ids: str) -> None:
        """Answers the first discovery."""
        splits = tuple(msg.Split(id=name, data=b"") for name in ids)
        self.sources.discovered(contract.SplitsDiscovered(vertex=source, splits=splits, number=1))

    def come_up(self) -> None:
        """All tasks of the current attempt start to run."""
        for execution in self.executions:
            execution.place = TaskManagerLocation("tm", "unix:tm")  # type: ignore[arg-type]
            for state in UP:
                self.executions.move(execution, state, "test")

    def do(self, action: Callable[[CheckpointCoordinator], msg.TaskFailure | None]) -> list[contract.Command]:
        failure = action(self.coordinator)
        self.coordinator.validate()
        if failure is not None:
            self.failures.append(failure)
        commands = self.outbox.take()
        self.all += commands
        return commands

    def recorded(self) -> list[tuple[CheckpointId, SnapshotStatus]]:
        records = [c.record for c in self.all if isinstance(c, contract.RecordCheckpoint)]
        return [(record.checkpoint_id, record.status) for record in records]

    @property
    def failed(self) -> list[CheckpointId]:
        return [n for n, status in self.recorded() if status is SnapshotStatus.FAILED]

    @property
    def attempts(self) -> list[msg.AttemptId]:
        return [execution.attempt for execution in self.executions]

    def ready(self, n: int) -> list[contract.Command]:
        event = contract.DirectoryReady(checkpoint_id=CheckpointId(n), directory=f"chk-{n}", timestamp_ms=0)
        return self.do(lambda c: c.directory_ready(event))

    def ack(self, n: int, *which: int) -> list[contract.Command]:
        commands = []
        for place in which or range(5):
            ack = msg.CheckpointAcked(
                attempt=self.attempts[place], checkpoint_id=CheckpointId(n), snapshot=TaskSnapshot()
            )
            commands += self.do(lambda c, ack=ack: c.acked(ack))
        return commands

    def settle_triggers(self) -> None:
        for command in list(self.all):
            if isinstance(command, contract.Send) and isinstance(command.message, msg.TriggerCheckpoint):
                token = command.token or 0
                self.do(lambda c, token=token: c.trigger_settled(token, None))

    def decline(self, n: int, reason: str = "disk full") -> list[contract.Command]:
        message = msg.CheckpointDeclined(
            attempt=self.attempts[0], checkpoint_id=CheckpointId(n), reason=reason
        )
        return self.do(lambda c: c.declined(message))

    def durable(self, n: int) -> list[contract.Command]:
        return self.do(lambda c: c.manifest_durable(CheckpointId(n)))

    def fail_manifest(self, n: int, **how: bool) -> list[contract.Command]:
        event = contract.ManifestFailed(checkpoint_id=CheckpointId(n), reason="oops", **how)
        return self.do(lambda c: c.manifest_failed(event))

    def fire(self, timer: contract.Timer) -> list[contract.Command]:
        return self.do(lambda c: c.interval_elapsed(timer))

    def expire(self, n: int) -> list[contract.Command]:
        return self.do(lambda c: c.expired(CheckpointId(n)))

    def ask(
        self,
        kind: SnapshotKind,
        request: str = "r",
        form: SavepointFormat = SavepointFormat.CANONICAL,
    ) -> list[contract.Command]:
        event = contract.SnapshotRequest(id=request, kind=kind, format=form)
        return self.do(lambda c: c.request(event))

    def start(self) -> list[contract.Command]:
        return self.do(lambda c: c.activate())

    def complete(self, n: int) -> list[contract.Command]:
        self.ready(n)
        self.ack(n)
        self.settle_triggers()
        return self.durable(n)

    def suspend(self) -> None:
        self.coordinator.suspend("test")
        self.all += self.outbox.take()


def kinds(commands: list[contract.Command]) -> list[str]:
    """Commands in short, without what is only for people."""
    names = []
    for command in commands:
        match command:
            case contract.Send(message=message):
                names.append(type(message).__name__)
            case contract.RecordCheckpoint():
                continue
            case _:
                names.append(type(command).__name__)
    return names
