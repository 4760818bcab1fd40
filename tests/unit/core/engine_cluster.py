"""A pretended cluster with an engine that runs the bounded part of a stream; see `tests.unit.core.cluster`.

The engine stores files; a consumer that reads a file which is not there fails as a worker's task does.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from tests.unit.core.cluster import SPLITS, Action, Cluster, Task, settings
from tests.unit.core.graphs import job_of
from unistream.base.ids import AttemptId, PartitionId, SubtaskId
from unistream.core import contract
from unistream.core.contract.settings import JobSettings, RestorePoint
from unistream.model import messages as msg
from unistream.model.bounded import AttemptsChanged, AttemptState, RunFailed, StagesRan
from unistream.model.file_ref import FileRef
from unistream.model.graph import JobGraph, Ship, SourceInfo
from unistream.model.stored_rows import StoredRows
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode

OFFLOAD = {"execution.batch.offload-bounded-regions": "true"}
BOUNDED = SourceInfo(connector="static", options={}, bounded=True, pull=False)


def offloaded(*, bounded: bool = False, parallelism: int = 2, parts: int = 1) -> JobGraph:
    """(table -> hash -> clean -> stored hash) and (facts -> hash) -> join -> global -> sink; table and clean
    are the bounded part. `bounded`: facts end. `parts` 2: another such stream beside it, without `clean`."""
    endless = structs.replace(BOUNDED, bounded=False)
    graph = StreamGraph(
        name="offloaded",
        nodes=[
            StreamNode(id=0, name="table", operator=None, uid="table", source=BOUNDED),
            StreamNode(id=1, name="clean", operator=None, uid="clean"),
            StreamNode(id=2, name="facts", operator=None, uid="facts", source=endless),
            StreamNode(id=3, name="join", operator=None, uid="join", stateful=True, inputs=2),
            StreamNode(id=4, name="sink", operator=None, uid="sink", stateful=True, parallelism=1),
        ],
        edges=[
            StreamEdge(source=0, target=1, ship=Ship.HASH, key_columns=("k",)),
            StreamEdge(source=1, target=3, ship=Ship.HASH, key_columns=("k",)),
            StreamEdge(source=2, target=3, input_index=1, ship=Ship.HASH, key_columns=("k",)),
            StreamEdge(source=3, target=4, ship=Ship.GLOBAL),
        ],
    )
    if parts == 2:
        graph.nodes += [
            StreamNode(id=5, name="lists", operator=None, uid="lists", source=BOUNDED),
            StreamNode(id=6, name="notes", operator=None, uid="notes", source=endless),
            StreamNode(id=7, name="match", operator=None, uid="match", stateful=True, inputs=2),
        ]
        graph.edges += [
            StreamEdge(source=5, target=7, ship=Ship.HASH, key_columns=("k",)),
            StreamEdge(source=6, target=7, input_index=1, ship=Ship.HASH, key_columns=("k",)),
        ]
    job = job_of(graph, parallelism=parallelism, config=OFFLOAD)
    names = {"table", "clean"} | ({"lists"} if parts == 2 else set())
    assert {v.name for v in job.vertices if v.offloaded} == names
    ends = dict.fromkeys(("facts", "notes"), BOUNDED if bounded else endless)
    vertices = tuple(structs.replace(v, source=ends.get(v.name, v.source)) for v in job.vertices)
    return structs.replace(job, vertices=vertices)


class EngineCluster(Cluster):
    """
    Attributes:
        run: What the engine runs.
        files: Those that are there, with what is in them.
        lost_files: Removed by a fault.
    """

    def __init__(
        self,
        graph: JobGraph | None = None,
        job_settings: JobSettings | None = None,
        restore: RestorePoint | None = None,
    ) -> None:
        super().__init__(graph or offloaded(), job_settings or settings(offloads=True), restore)
        self.run: contract.RunStages | None = None
        self.cancels = False
        self.files: dict[str, StoredRows] = {}
        self.lost_files: set[str] = set()

    def _perform(self, command: contract.Command) -> None:
        match command:
            case contract.RunStages():
                assert self.run is None, "one run at a time"
                self.run, self.cancels = command, False
            case contract.CancelRun():
                assert self.run is not None, "something runs"
                self.cancels = True
            case contract.KeepStored(rows):
                assert self.run is None, "what the engine writes just now would be removed"
                assert {row.file.path for row in rows} <= self.files.keys() | self.lost_files
                self.files = {row.file.path: row for row in rows if row.file.path in self.files}
            case contract.JobEnded():
                assert self.run is None, "the job has ended, and the engine runs"
                super()._perform(command)
            case _:
                super()._perform(command)

    def enabled(self) -> list[Action]:
        actions = super().enabled()
        if self.run is None:
            return actions
        if self.cancels:
            return [*actions, ("engine ended", self.engine_failed)]
        started = [a for a in self.machine.view().attempts if a.state == "SCHEDULED" and self._in_part(a)]
        if started:
            actions.append(("engine changed", lambda: self.engine_changed("RUNNING")))
        return [*actions, ("engine ran", self.engine_ran)]

    def _in_part(self, attempt: contract.AttemptView) -> bool:
        return self.graph.vertex(attempt.attempt.vertex).offloaded

    @property
    def part(self) -> dict[str, str]:
        """States of its subtasks."""
        return {
            f"{self.graph.vertex(a.attempt.vertex).name}-{a.attempt.index}": a.state
            for a in self.machine.view().attempts
            if self._in_part(a)
        }

    # --- the engine -------------------------------------------------------------------------------

    def engine_changed(self, state: str, *names: str) -> None:
        """Those of its subtasks whose name is among these, or all."""
        assert self.run is not None
        changed = [
            AttemptState(attempt=structs.replace(a.attempt, attempt=7), state=state)
            for a in self.machine.view().attempts
            if self._in_part(a) and (not names or self.graph.vertex(a.attempt.vertex).name in names)
        ]
        self.handle(AttemptsChanged(run=self.run.run, attempts=tuple(changed)))

    def stored_by(self, run: contract.RunStages) -> tuple[StoredRows, ...]:
        assert run.graph is not None
        leaving = [
            edge
            for edge in run.graph.edges
            if run.graph.vertex(edge.source).offloaded and not run.graph.vertex(edge.target).offloaded
        ]
        return tuple(
            StoredRows(
                edge=edge.id,
                vertex=edge.source,
                producer=index,
                folder=f"run-{run.run}",
                file=FileRef(path=f"{run.run}-{edge.id}-{index}", size=1, sha256=""),
                index_bytes=1,
                index_crc=1,
            )
            for edge in leaving
            for index in range(run.graph.vertex(edge.source).parallelism)
        )

    def engine_ran(self) -> None:
        run, self.run = self.run, None
        assert run is not None
        assert {name for name in run.splits} == {
            v.id for v in self.graph.vertices if v.offloaded and v.source
        }
        stored = self.stored_by(run)
        self.files |= {row.file.path: row for row in stored}
        self.read_by_ended |= {f"{table}-{name}" for table in ("table", "lists") for name in SPLITS}
        self.handle(StagesRan(run=run.run, stored=stored))

    def engine_failed(self, failure: msg.TaskFailure | None = None, attempt: AttemptId | None = None) -> None:
        run, self.run = self.run, None
        assert run is not None
        broken = failure or msg.TaskFailure(kind="SparkJobFailed", message="an executor is gone")
        self.handle(RunFailed(run=run.run, failure=broken, attempt=attempt))

    # --- reading ----------------------------------------------------------------------------------

    def read_stored(self, task: Task) -> None:
        gone = [c for c in task.stored if not c.ended and c.rows and c.rows.file.path not in self.files]
        if not gone or task.is_finished_before:
            super().read_stored(task)
            return
        assert gone[0].rows is not None
        path = gone[0].rows.file.path
        assert path in self.lost_files or self._is_to_end(task), f"{path} was removed under its reader"
        lost = PartitionId(SubtaskId(gone[0].producer.vertex, gone[0].producer.index), gone[0].edge)
        failure = msg.TaskFailure(kind="PartitionLost", message="it is gone", lost_partition=lost)
        self.report(task, "FAILED", failure)

    def _producers(self, task: Task) -> list[AttemptId]:
        """Those on workers: all that an engine has stored is there."""
        channels = (c for gate in task.deployment.gates for c in gate.channels)
        return [c.producer for c in channels if c.rows is None and not c.ended]

    def _is_to_end(self, task: Task) -> bool:
        current: Sequence[contract.AttemptView] = self.machine.view().attempts
        return not any(a.attempt == task.attempt and a.state == "RUNNING" for a in current)

    def lose_file(self, path: str) -> None:
        del self.files[path]
        self.lost_files.add(path)

    def running(self) -> EngineCluster:
        """All splits are known, and the engine runs."""
        self.handle(contract.Started())
        self.settle_without("engine")
        assert self.run is not None
        return self
