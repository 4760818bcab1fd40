"""A pretended cluster around one JobMachine: workers, slots, storage and splits, without time or threads.

Everything that is under way waits in a list until `enabled()` actions are taken, one by one, in any order
that the real system allows. Readers carry their splits through snapshots, so that a split that is lost or
doubled shows in the manifest. Consumers carry the names of the stored partitions that they have read, so that
one that is read twice, or not at all, shows too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import structs

from tests.unit.core.graphs import job_of
from tests.unit.core.shared import LocalFiles, SharedFolder, shared_files
from tests.unit.core.split_check import check_splits
from unistream.base.config import Configuration
from unistream.base.ids import AllocationId, AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, SubtaskId
from unistream.core import contract
from unistream.core.contract.settings import JobSettings, RestorePoint
from unistream.core.job import JobMachine, job_settings
from unistream.model import messages as msg
from unistream.model.deployment import ChannelDescriptor, TaskDeployment
from unistream.model.graph import JobGraph, JobType, Ship, SourceInfo
from unistream.model.partition_type import PartitionType
from unistream.model.snapshot import (
    ListHandle,
    ListMode,
    Manifest,
    OperatorStateHandle,
    TaskRestore,
    TaskSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

Action = tuple[str, Callable[[], None]]
SPLITS = ("s-0", "s-1", "s-2")
EVERY_2_S = {"execution.checkpointing.interval": "2 s"}


def job_graph(
    *, bounded: bool = True, pull: bool = False, parallelism: int = 2, interval_ms: int = 0
) -> JobGraph:
    """source (parallelism) -> hash -> count (parallelism) -> global -> sink (1)."""
    info = SourceInfo(
        connector="static", options={}, bounded=bounded, pull=pull, discovery_interval_ms=interval_ms
    )
    graph = StreamGraph(
        name="count",
        nodes=[
            StreamNode(id=0, name="source", operator=None, uid="source", source=info),
            StreamNode(id=1, name="count", operator=None, uid="count", stateful=True),
            StreamNode(id=2, name="sink", operator=None, uid="sink", stateful=True, parallelism=1),
        ],
        edges=[
            StreamEdge(source=0, target=1, ship=Ship.HASH, key_columns=("k",)),
            StreamEdge(source=1, target=2, ship=Ship.GLOBAL),
        ],
    )
    return job_of(graph, parallelism=parallelism)


def pipelines(
    count: int = 2,
    *,
    bounded: bool = False,
    partition: PartitionType | None = None,
    pull: bool = False,
    interval_ms: int = 0,
) -> JobGraph:
    """`count` times source -> map -> sink, not connected with each other, each subtask by itself."""
    info = SourceInfo(
        connector="static", options={}, bounded=bounded, pull=pull, discovery_interval_ms=interval_ms
    )
    nodes, edges = [], []
    for number in range(count):
        first = len(nodes)
        for place, kind in enumerate(("source", "map", "sink")):
            name = f"{kind}{number}"
            source = info if kind == "source" else None
            nodes.append(StreamNode(id=first + place, name=name, operator=None, uid=name, source=source))
        for place in (0, 1):
            edges.append(
                StreamEdge(
                    source=first + place, target=first + place + 1, ship=Ship.FORWARD, partition=partition
                )
            )
    graph = StreamGraph(name="pipelines", nodes=nodes, edges=edges)
    return job_of(graph, chaining=False)


def grouped(graph: JobGraph, **groups: str) -> JobGraph:
    """Vertices, by name, in other slot sharing groups than ``default``."""
    vertices = tuple(
        structs.replace(v, slot_sharing_group=groups.get(v.name, "default")) for v in graph.vertices
    )
    return structs.replace(graph, vertices=vertices)


def stages(*, pull: bool = False, parallelism: int = 2, job_type: JobType = JobType.BATCH) -> JobGraph:
    """source -> blocking hash -> count -> blocking global -> sink: three regions, one after the other."""
    graph = job_graph(pull=pull, parallelism=parallelism)
    edges = tuple(structs.replace(edge, partition=PartitionType.BLOCKING) for edge in graph.edges)
    return structs.replace(graph, edges=edges, job_type=job_type)


def enriched(*, bounded: bool = False, parallelism: int = 2) -> JobGraph:
    """(table -> stored hash) and (facts -> hash) -> join -> global -> sink, STREAMING; `bounded`: facts."""
    table = SourceInfo(connector="static", options={}, bounded=True, pull=False)
    facts = SourceInfo(connector="static", options={}, bounded=bounded, pull=False)
    stored = PartitionType.BLOCKING
    graph = StreamGraph(
        name="enriched",
        nodes=[
            StreamNode(id=0, name="table", operator=None, uid="table", source=table),
            StreamNode(id=1, name="facts", operator=None, uid="facts", source=facts),
            StreamNode(id=2, name="join", operator=None, uid="join", stateful=True, inputs=2),
            StreamNode(id=3, name="sink", operator=None, uid="sink", stateful=True, parallelism=1),
        ],
        edges=[
            StreamEdge(source=0, target=2, ship=Ship.HASH, key_columns=("k",), partition=stored),
            StreamEdge(source=1, target=2, input_index=1, ship=Ship.HASH, key_columns=("k",)),
            StreamEdge(source=2, target=3, ship=Ship.GLOBAL),
        ],
    )
    return job_of(graph, parallelism=parallelism)


def committing(*, spread: bool = True, parallelism: int = 3, levels: int = 1) -> JobGraph:
    """source -> committer (-> committer behind it …), BATCH; a committer for each source task, or one for
    all. Splits go to the tasks that ask first."""
    info = SourceInfo(connector="static", options={}, bounded=True, pull=True)
    one = None if spread else 1
    nodes = [StreamNode(id=0, name="source", operator=None, uid="source", source=info)]
    edges = []
    for n in range(levels):
        name = f"committer{n}"
        nodes.append(StreamNode(id=n + 1, name=name, operator=None, uid=name, stateful=True, parallelism=one))
        ship = Ship.FORWARD if spread or n else Ship.GLOBAL
        edges.append(StreamEdge(source=n, target=n + 1, ship=ship, committables=True))
    graph = StreamGraph(name="committing", nodes=nodes, edges=edges)
    return job_of(graph, parallelism=parallelism, config={"execution.runtime-mode": "BATCH"})


def settings(config: dict[str, str] | None = None, **fields: object) -> JobSettings:
    return job_settings(
        Configuration(EVERY_2_S if config is None else config),
        job=JobId("job"),
        lineage=LineageId("line"),
        epoch=LeaderEpoch(1),
        artifact="sha",
        checkpoint_root="memory://chk",
        draw=lambda: 0.5,
        **fields,  # type: ignore[arg-type]
    )


@dataclass
class Task:
    """What a worker has of one attempt."""

    deployment: TaskDeployment
    state: str = "DEPLOYED"
    splits: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    no_more: bool = False
    asked: bool = False
    end_of_data: bool = False
    ended_before: int | None = None  # no checkpoint below this id lets it finish
    to_ack: dict[int, TaskSnapshot] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    read: list[str] = field(default_factory=list)  # stored partitions whose rows are in its state
    told_read: bool = False  # that it has read all its stored inputs
    local: LocalFiles | None = None  # of its keyed state

    @property
    def stored(self) -> list[ChannelDescriptor]:
        return [c for gate in self.deployment.gates for c in gate.channels if c.stored]

    @property
    def committables(self) -> list[str]:
        """What it commits; of all that came with its deployment."""
        contents = [c.content for gate in self.deployment.gates for c in gate.channels if c.content]
        return sorted(name for content in contents for name in content.decode().split())

    @property
    def attempt(self) -> AttemptId:
        return self.deployment.attempt

    @property
    def is_finished_before(self) -> bool:
        """It had finished in the snapshot that it starts from."""
        return self.deployment.restore is not None and self.deployment.restore.finished

    @property
    def reads_nothing(self) -> bool:
        """Its data had ended in the snapshot that it starts from."""
        restore = self.deployment.restore
        return restore is not None and (restore.finished or restore.data_ended)

    @property
    def is_source(self) -> bool:
        return self.deployment.vertex.source is not None


class Cluster:
    def __init__(
        self,
        graph: JobGraph | None = None,
        job_settings: JobSettings | None = None,
        restore: RestorePoint | None = None,
    ) -> None:
        self.graph = graph or job_graph()
        self.settings = job_settings or settings()
        self.machine = JobMachine(self.graph, self.settings, restore)
        self.commands: list[contract.Command] = []
        self.wanted: dict[str, contract.SlotRequest] = {}
        self.mail: dict[str, deque[contract.Send]] = {}  # by live worker
        self.fates: dict[str, contract.Send] = {}  # delivered, not yet answered
        self.tasks: dict[AttemptId, Task] = {}
        self.where: dict[AttemptId, str] = {}
        self.finished: set[AttemptId] = set()
        self.empty: set[AttemptId] = set()  # FINISHED as restored: what they stored has no rows
        self.read_by_ended: set[str] = set()  # splits and stored partitions read by tasks that FINISHED
        self.jobs: list[contract.Command] = []  # PrepareDirectory, WriteManifest, DiscoverSplits under way
        self.timers: dict[contract.Timer, int] = {}
        self.stored: dict[str, Manifest] = {}
        self.shared = SharedFolder()
        self.in_doubt = False  # it is unknown whether some manifest exists
        self.discarded: list[str] = []
        self.answers: dict[str, contract.AnswerRequest] = {}
        self.ended: contract.JobEnded | None = None
        self.kinds: dict[int, SnapshotKind] = {}
        self.released: list[str] = []
        self.leased: dict[str, str] = {}  # request -> its worker
        self.draining: set[str] = set()  # workers that end when their lease is returned
        self.partitions: dict[str, set[tuple[AttemptId, str]]] = {}  # stored ones, by live worker
        self.committed: dict[SubtaskId, list[str]] = {}
        self.now_ms = 0
        self.splits = SPLITS  # those that exist; more may come
        self._next_worker = 0

    # --- events and commands ----------------------------------------------------------------------

    def handle(self, event: contract.Event) -> list[contract.Command]:
        commands = self.machine.handle(event, self.now_ms)
        self.machine.validate()
        assert not (self.ended and any(isinstance(c, contract.Send) for c in commands)), (
            "a command after the end"
        )
        self.commands += commands
        for command in commands:
            self._perform(command)
        return commands

    def _perform(self, command: contract.Command) -> None:  # noqa: C901
        match command:
            case contract.RequestSlots(requests=requests):
                self.wanted |= {request.key: request for request in requests}
            case contract.ReleaseSlots(requests=keys):
                self.wanted = {key: r for key, r in self.wanted.items() if keys and key not in keys}
                self.released += keys
                for worker in {self.leased[key] for key in keys if self.leased.get(key) in self.draining}:
                    assert worker not in {self.where[attempt] for attempt in self.tasks}, (
                        f"{worker} has tasks"
                    )
                    self._forget(worker)
            case contract.Send(task_manager=worker, message=message):
                if isinstance(message, msg.DeployTask):
                    assert worker not in self.draining, f"{message.deployment.attempt} starts on {worker}"
                if worker in self.mail:
                    self.mail[worker].append(command)
                elif command.token is not None:
                    self.jobs.append(command)
            case contract.PrepareDirectory() | contract.WriteManifest() | contract.DiscoverSplits():
                self.jobs.append(command)
            case contract.SetTimer(timer=timer, delay_ms=delay_ms):
                self.timers[timer] = delay_ms
            case contract.CancelTimer(timer):
                self.timers.pop(timer, None)
            case contract.DiscardSnapshot(directory):
                if directory:
                    self.discarded.append(directory)
                self.shared.perform(command, self.kept)
            case contract.AnswerRequest(request=request):
                assert request not in self.answers, "answered twice"
                self.answers[request] = command
            case contract.JobEnded():
                assert self.ended is None, "ended twice"
                self.ended = command

    @property
    def state(self) -> str:
        return self.machine.view().state

    # --- what may happen next ---------------------------------------------------------------------

    def enabled(self) -> list[Action]:
        """All that goes well, in a fixed order."""
        actions: list[Action] = []
        if self.wanted:
            actions.append(("grant", self.grant))
        for job in self.jobs:
            actions.append((f"io {type(job).__name__}", lambda job=job: self.io(job)))
        for worker in self.mail:
            if worker in self.fates:
                actions.append((f"answer {worker}", lambda worker=worker: self.answer(worker)))
            elif self.mail[worker]:
                actions.append((f"deliver {worker}", lambda worker=worker: self.deliver(worker)))
        for task in list(self.tasks.values()):
            actions += self._task_actions(task)
        return actions

    def _task_actions(self, task: Task) -> list[Action]:
        name = f"{task.deployment.vertex.name}/{task.attempt.index}"
        if task.state in ("DEPLOYED", "INITIALIZING"):
            return [(f"progress {name}", lambda: self.progress(task))]
        if task.state == "CANCELING":
            return [(f"cancelled {name}", lambda: self.report(task, "CANCELED"))]
        if task.stored and not task.told_read:
            return [(f"read stored {name}", lambda: self.read_stored(task))]
        actions: list[Action] = []
        if task.splits and not task.end_of_data:
            actions.append((f"read {name}", lambda: task.done.append(task.splits.pop(0))))
        if self._pulls(task):
            actions.append((f"ask {name}", lambda: self.ask(task)))
        if self._may_end_data(task):
            actions.append((f"end of data {name}", lambda: self.end_data(task)))
        for checkpoint_id in [*task.to_ack, *self._barriers(task)]:
            actions.append((f"ack {checkpoint_id} {name}", lambda n=checkpoint_id: self.ack(task, n)))
        if task.end_of_data and not task.deployment.checkpointing and task.ended_before is None:
            actions.append((f"finish {name}", lambda: self.report(task, "FINISHED")))
        return actions

    def _pulls(self, task: Task) -> bool:
        source = task.deployment.vertex.source
        asks = not (task.no_more or task.reads_nothing or task.asked)
        return bool(source and source.pull and asks and not task.splits)

    def _may_end_data(self, task: Task) -> bool:
        if task.end_of_data:
            return False
        if task.is_source:
            return (task.no_more or task.reads_nothing) and not task.splits
        return all(
            producer in self.finished or (producer in self.tasks and self.tasks[producer].end_of_data)
            for producer in self._producers(task)
        )

    def _upstream(self, task: Task) -> list[Task]:
        return [self.tasks[p] for p in self._producers(task) if p in self.tasks]

    def _producers(self, task: Task) -> list[AttemptId]:
        return [c.producer for gate in task.deployment.gates for c in gate.channels]

    def _barriers(self, task: Task) -> list[int]:
        """Checkpoints whose barrier has come on every input that still runs."""
        upstream = self._upstream(task)
        if task.is_source or not upstream:
            return []
        common = set.intersection(*(up.acked for up in upstream))
        return sorted(n for n in common if n not in task.acked and n not in task.to_ack)

    # --- actions ----------------------------------------------------------------------------------

    def grant(self) -> None:
        """A new worker for the oldest request that is open."""
        key = next(iter(self.wanted))
        profile = self.wanted.pop(key).profile
        worker = f"tm{self._next_worker}"
        self._next_worker += 1
        self.add_worker(worker)
        lease = contract.SlotLease(
            request=key,
            allocation=AllocationId(f"a-{worker}"),
            task_manager=worker,
            address=f"unix:{worker}",
            profile=profile,
        )
        self.leased[key] = worker
        self.handle(contract.SlotsGranted(leases=(lease,)))

    def add_worker(self, worker: str) -> None:
        self.mail[worker] = deque()
        self.partitions[worker] = set()

    def io(self, job: contract.Command) -> None:
        self.jobs.remove(job)
        match job:
            case contract.PrepareDirectory(checkpoint_id=n, kind=kind):
                self.kinds[n] = kind
                directory = f"chk-{n}" if kind is SnapshotKind.CHECKPOINT else f"savepoint-{n}"
                self.handle(contract.DirectoryReady(checkpoint_id=n, directory=directory, timestamp_ms=n))
            case contract.WriteManifest(directory=directory, manifest=manifest):
                self.store(directory, manifest)
                self.handle(contract.ManifestDurable(checkpoint_id=manifest.checkpoint_id))
            case contract.DiscoverSplits(vertex=vertex, number=number):
                several = sum(v.source is not None for v in self.graph.vertices) > 1
                of = f"{self.graph.vertex(vertex).name}-" if several else ""
                splits = tuple(msg.Split(id=f"{of}{name}", data=b"") for name in self.splits)
                self.handle(contract.SplitsDiscovered(vertex=vertex, splits=splits, number=number))
            case contract.Send(token=token):
                assert token is not None
                self.handle(contract.Undelivered(token=token, reason="gone"))

    def store(self, directory: str, manifest: Manifest) -> None:
        assert directory not in self.discarded, "written where it was discarded"
        assert self.stored.get(directory, manifest) == manifest, "another manifest under the same name"
        check_splits(self.graph, manifest, self.read_by_ended)
        self.stored[directory] = manifest
        assert shared_files(manifest) <= self.shared.files, f"{directory} names files that have gone"

    @property
    def kept(self) -> list[Manifest]:
        """All that lie on the storage."""
        return [manifest for directory, manifest in self.stored.items() if directory not in self.discarded]

    def deliver(self, worker: str) -> None:
        send = self.mail[worker].popleft()
        self._receive(worker, send.message)
        if send.token is not None:
            self.fates[worker] = send

    def answer(self, worker: str) -> None:
        token = self.fates.pop(worker).token
        assert token is not None
        self.handle(contract.Delivered(token=token))

    def _receive(self, worker: str, message: msg.ToTaskManager) -> None:  # noqa: C901
        if isinstance(message, msg.DeployTask):
            attempt = message.deployment.attempt
            rivals = [a for a, w in self.where.items() if w == worker and a.subtask == attempt.subtask]
            assert not rivals, f"two attempts on one lease: {attempt} and {rivals}"
            self._check_inputs(message.deployment)
            self.tasks[attempt] = restored_task(message.deployment)
            self.where[attempt] = worker
            return
        if isinstance(message, msg.ReleaseTaskManager):
            self.lose(worker)
            return
        if isinstance(message, msg.ReleasePartitions):
            self.partitions[worker] -= set(message.partitions)
            return
        task = self.tasks.get(message.attempt)
        if task is None:
            return
        match message:
            case msg.CancelTask():
                task.state = "CANCELING"
            case msg.AssignSplits(splits=splits, no_more=no_more):
                assert not (splits and task.reads_nothing), f"{task.attempt} had read all, and gets {splits}"
                task.splits += [split.id for split in splits]
                task.no_more |= no_more
                task.asked = False
            case msg.TriggerCheckpoint(checkpoint_id=n, kind=kind, before=before):
                if before is not None:
                    task.to_ack[before.checkpoint_id] = self.take(task, before.checkpoint_id)
                if kind.is_synchronous:
                    task.end_of_data = True
                task.to_ack[n] = self.take(task, n)
            case msg.CheckpointCompleted(checkpoint_id=n):
                if task.local is not None:
                    task.local.uploads.complete(n)
                if task.state == "RUNNING" and self._releases(task, n):
                    self.report(task, "FINISHED")
            case msg.CheckpointAborted(checkpoint_id=n):
                task.to_ack.pop(n, None)

    def _check_inputs(self, deployment: TaskDeployment) -> None:
        """A consumer of a blocking partition is deployed where all of it is there, or it will fail."""
        blocking = {e.id for e in self.graph.edges if e.partition.is_released_by_scheduler}
        for gate in deployment.gates:
            for channel in gate.channels:
                if channel.ended:
                    continue
                if channel.edge in blocking and channel.task_manager in self.partitions:
                    kept = self.partitions[channel.task_manager]
                    assert (channel.producer, channel.edge) in kept, "deployed before its input was complete"

    def _releases(self, task: Task, n: CheckpointId) -> bool:
        if self.kinds[n].is_synchronous:
            return True
        return task.end_of_data and task.ended_before is not None and n >= task.ended_before

    def progress(self, task: Task) -> None:
        self.report(task, "INITIALIZING" if task.state == "DEPLOYED" else "RUNNING")

    def report(self, task: Task, state: str, failure: msg.TaskFailure | None = None) -> None:
        task.state = state
        worker = ""
        if state in ("FINISHED", "CANCELED", "FAILED"):
            del self.tasks[task.attempt]
            worker = self.where.pop(task.attempt)
        if state == "FINISHED":
            self.finished.add(task.attempt)
            if task.is_finished_before:
                self.empty.add(task.attempt)
            self._keep_partitions(task, worker)
            self.read_by_ended.update(task.done, task.read)
        committables = self._committables(task) if state == "FINISHED" else ()
        self.handle(
            msg.TaskStateChanged(
                attempt=task.attempt, state=state, failure=failure, committables=committables
            )
        )

    def _committables(self, task: Task) -> tuple[msg.ReportedPartition, ...]:
        """The names of what it has read, for its first consumer."""
        content = " ".join(task.done if task.is_source else task.committables).encode()
        return tuple(
            msg.ReportedPartition(edge=p.edge, contents=(content, *[b""] * (len(p.consumers) - 1)))
            for p in task.deployment.partitions
            if p.type.is_reported
        )

    def _keep_partitions(self, task: Task, worker: str) -> None:
        blocking = [p.edge for p in task.deployment.partitions if p.type.is_released_by_scheduler]
        self.partitions[worker] |= {(task.attempt, edge) for edge in blocking}

    def read_stored(self, task: Task) -> None:
        """All of it, before anything else."""
        for channel in task.stored:
            name = f"{channel.producer.subtask}>{channel.edge}>{task.attempt.index}"
            if task.is_finished_before:
                continue  # it wants nothing any more
            if channel.ended or channel.producer in self.empty:
                known = name in task.read or name in self.read_by_ended or self.of(contract.RecordGraph)
                assert known, f"{task.attempt} has never read {name}"
            else:
                assert name not in task.read, f"{task.attempt} reads {name} a second time"
                task.read.append(name)
        task.told_read = True
        self.handle(msg.StoredInputsRead(attempt=task.attempt))

    def ask(self, task: Task) -> None:
        task.asked = True
        self.handle(msg.SplitRequested(attempt=task.attempt))

    def end_data(self, task: Task) -> None:
        task.end_of_data = True
        if any(c.content is not None for gate in task.deployment.gates for c in gate.channels):
            before = self.committed.setdefault(task.attempt.subtask, task.committables)
            assert before == task.committables, f"{task.attempt} commits {task.committables} after {before}"
        if task.deployment.checkpointing:
            task.ended_before = max([0, *self.kinds, *task.acked, *task.to_ack]) + 1
        self.handle(msg.EndOfDataReached(attempt=task.attempt))

    def ack(self, task: Task, n: int) -> None:
        snapshot = task.to_ack.pop(n, None) or self.take(task, CheckpointId(n))
        task.acked.add(n)
        if self.kinds[n].is_synchronous:
            task.end_of_data = True
        self.handle(
            msg.CheckpointAcked(
                attempt=task.attempt, checkpoint_id=CheckpointId(n), snapshot=snapshot, state_bytes=10
            )
        )

    def take(self, task: Task, n: CheckpointId) -> TaskSnapshot:
        """A snapshot of its state, with files that it has stored, or has stored before."""
        snapshot = task_snapshot(task)
        if task.local is None or self.kinds[n] is not SnapshotKind.CHECKPOINT:
            return snapshot
        uid = task.deployment.vertex.operators[0].uid
        native = task.local.snapshot(n, self.shared)
        operator = snapshot.operators.get(uid, OperatorStateHandle())
        operators = {**snapshot.operators, uid: structs.replace(operator, native=(native,))}
        return structs.replace(snapshot, operators=operators)

    def drain(self, worker: str) -> None:
        self.draining.add(worker)
        self.handle(contract.TaskManagerDraining(task_manager=worker))

    def _forget(self, worker: str) -> None:
        self.draining.discard(worker)
        del self.partitions[worker]
        for send in [*([self.fates.pop(worker)] if worker in self.fates else []), *self.mail.pop(worker)]:
            if send.token is not None:
                self.jobs.append(send)

    # --- faults -----------------------------------------------------------------------------------

    def lose(self, worker: str) -> None:
        self._forget(worker)
        for attempt in [a for a, w in self.where.items() if w == worker]:
            del self.tasks[attempt], self.where[attempt]
        self.handle(contract.TaskManagerLost(task_manager=worker, reason="killed"))

    def drop(self, worker: str) -> None:
        token = self.mail[worker].popleft().token
        if token is not None:
            self.handle(contract.Undelivered(token=token, reason="no answer"))

    def lose_answer(self, worker: str) -> None:
        token = self.fates.pop(worker).token
        assert token is not None
        self.handle(contract.Undelivered(token=token, reason="no answer"))

    def fail(self, task: Task, *, recoverable: bool = True) -> None:
        failure = msg.TaskFailure(kind="Boom", message="boom", recoverable=recoverable)
        self.report(task, "FAILED", failure)

    def fire(self, timer: contract.Timer | contract.TimerKind) -> None:
        """Lets the time of one timer (or the first one of a kind) pass; others do not fire meanwhile."""
        if isinstance(timer, contract.TimerKind):
            timer = next(t for t in self.timers if t.kind is timer)
        self.now_ms += self.timers.pop(timer)
        self.handle(contract.TimerFired(timer))

    # --- driving ----------------------------------------------------------------------------------

    def settle(self, steps: int = 2_000) -> None:
        """Lets everything happen that goes well, until nothing is left to happen but time."""
        for _ in range(steps):
            actions = self.enabled()
            if not actions:
                return
            actions[0][1]()
        raise AssertionError(f"no rest after {steps} steps: {[name for name, _ in self.enabled()][:5]}")

    def settle_without(self, prefix: str) -> None:
        """As `settle`, but what begins with `prefix` does not happen."""
        while actions := [a for a in self.enabled() if not a[0].startswith(prefix)]:
            actions[0][1]()

    def timers_of(self, kind: contract.TimerKind) -> list[contract.Timer]:
        return [timer for timer in self.timers if timer.kind is kind]

    def run_to_end(self, rounds: int = 200) -> None:
        """Settles; then the timer with the shortest delay fires; until the job has ended."""
        for _ in range(rounds):
            self.settle()
            if self.ended is not None:
                return
            assert self.timers, f"{self.state}: nothing will ever happen again"
            self.fire(min(self.timers, key=lambda timer: (self.timers[timer], timer.kind.value, timer.id)))
        raise AssertionError(f"{self.state} after {rounds} rounds")

    def task(self, vertex: str, index: int) -> Task:
        return next(
            t for t in self.tasks.values() if t.deployment.vertex.name == vertex and t.attempt.index == index
        )

    def sent(self, kind: type) -> list[msg.ToTaskManager]:
        return [
            c.message for c in self.commands if isinstance(c, contract.Send) and isinstance(c.message, kind)
        ]

    def sent_to(self, kind: type) -> list[str]:
        return [
            c.task_manager
            for c in self.commands
            if isinstance(c, contract.Send) and isinstance(c.message, kind)
        ]

    def of(self, kind: type) -> list[contract.Command]:
        return [c for c in self.commands if isinstance(c, kind)]


def task_snapshot(task: Task) -> TaskSnapshot:
    assert task.told_read or not task.stored, f"a snapshot of {task.attempt} amid its stored inputs"
    names = [*(f"todo:{s}" for s in task.splits), *(f"done:{s}" for s in task.done)]
    handles = (
        _listed("splits", ListMode.SPLIT, names),
        _listed("read", ListMode.SPLIT, [f"read:{name}" for name in task.read]),
    )
    operators = {task.deployment.vertex.operators[0].uid: OperatorStateHandle(lists=handles)}
    stateful = task.is_source or bool(task.stored)
    return TaskSnapshot(
        operators=operators if stateful else {}, finished=task.end_of_data or task.reads_nothing
    )


def _listed(name: str, mode: ListMode, items: list[str]) -> ListHandle:
    return ListHandle(name=name, mode=mode, count=len(items), inline=tuple(item.encode() for item in items))


def restored_task(deployment: TaskDeployment) -> Task:
    task = Task(deployment)
    if deployment.vertex.source is None:
        task.local = LocalFiles(str(deployment.attempt))
    for name in restored_items(deployment.restore):
        kind, _, what = name.partition(":")
        {"todo": task.splits, "done": task.done, "read": task.read}[kind].append(what)
    return task


def restored_items(restore: TaskRestore | None) -> list[str]:
    if restore is None:
        return []
    return [
        (share.handle.inline or ())[place].decode()
        for operator in restore.operators.values()
        for share in operator.lists
        for place in range(share.start, share.stop)
    ]
