"""Splits of all sources of a job, and the gate that holds assignments back while a snapshot is triggered.

A snapshot is consistent only when each split is either in the coordinator's state or in a reader's: so it
starts when all earlier `AssignSplits` were acknowledged, and none is sent until all triggers were
(FLINK-21996).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from unistream.base.ids import CheckpointId, SubtaskId, VertexId
from unistream.core.checkpoint.phased_assignment import PhasedAssigner
from unistream.core.checkpoint.split_assignment import SplitAssigner
from unistream.core.checkpoint.split_discovery import SplitDiscoveries
from unistream.core.contract import CommandOutbox, DiscoveryFailed, SplitsDiscovered
from unistream.core.execution import Executions
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import HISTORY, JobGraph, JobType, SourceInfo
from unistream.model.messages import AssignSplits, TaskFailure
from unistream.model.splits import FoundSplits, Unread


class Sources:
    """The split assigner of every source vertex, and what is on its way to the readers."""

    def __init__(
        self,
        graph: JobGraph,
        executions: Executions,
        outbox: CommandOutbox,
        former: Sources | None = None,
        *,
        separated: bool = False,
        without: Collection[VertexId] = (),
    ) -> None:
        """`former`: of the same job at another parallelism; what it found stays found. `separated`: as for
        `PhasedAssigner`. `without`: vertices whose splits an engine gets."""
        self._infos: dict[VertexId, tuple[SourceInfo, int]] = {
            vertex.id: (vertex.source, vertex.parallelism)
            for vertex in graph.vertices
            if vertex.source is not None and vertex.id not in without
        }
        self._executions = executions
        self._outbox = outbox
        self._is_batch = graph.job_type is JobType.BATCH
        self._separated = separated
        self._assigners: dict[VertexId, SplitAssigner | PhasedAssigner] = {}
        self._found: dict[VertexId, FoundSplits] = {} if former is None else former._found
        self._discoveries: SplitDiscoveries = SplitDiscoveries(
            {vertex: info for vertex, (info, _) in self._infos.items()},
            outbox,
            None if former is None else former._discoveries,
        )
        self._undelivered: dict[int, SubtaskId] = {}  # by token
        self._held = False
        self._stopped = False

    def reset(self, states: Mapping[VertexId, bytes | None] | None, *, assign: bool) -> None:
        """Makes the assigners as they were in the checkpoint, before a start of all tasks.

        `states`: of each source vertex of the snapshot (None: it had fully finished, nothing to give out);
        None: no snapshot, then splits found by this job before keep their first positions.
        `assign` False: nothing is given out, the job only has to come up once more.
        """
        self._undelivered.clear()
        self._held = False
        self._stopped = not assign
        self._discoveries.stop()
        self._assigners = {}
        for vertex, (info, parallelism) in self._infos.items():
            state = states.get(vertex) if states is not None else None
            if states is not None and vertex in states and state is None:
                continue
            self._assigners[vertex] = self._assigner(info, parallelism, state)
            found = self._found.get(vertex)
            if state is None and found is not None:
                self._assigners[vertex].discovered(found.splits, found.origin, found.position, found.origins)
        if assign:
            self._discover()

    def _assigner(
        self, info: SourceInfo, parallelism: int, state: bytes | None
    ) -> SplitAssigner | PhasedAssigner:
        batch, separated = self._is_batch, self._separated
        if info.phases and state is not None:
            return PhasedAssigner.restore(info, parallelism, state, batch=batch, separated=separated)
        if info.phases:
            return PhasedAssigner(info, parallelism, batch=batch, separated=separated)
        if state is not None:
            return SplitAssigner.restore(info, parallelism, state)
        return SplitAssigner(info, parallelism)

    @property
    def unread(self) -> dict[VertexId, Unread]:
        """What no reader was given yet."""
        return {vertex: assigner.unread for vertex, assigner in self._assigners.items()}

    @property
    def reads_backlog(self) -> bool:
        """A source reads its history, whose rows are not new (FLIP-309)."""
        return any(not assigner.is_read for assigner in self._phased)

    @property
    def awaits_checkpoint(self) -> bool:
        """A source continues with its live phase when an aligned checkpoint is complete."""
        return any(assigner.is_read and not assigner.is_live for assigner in self._phased)

    @property
    def _phased(self) -> list[PhasedAssigner]:
        return [one for one in self._assigners.values() if isinstance(one, PhasedAssigner)]

    def reset_readers(self, subtasks: Iterable[SubtaskId]) -> None:
        """Some tasks restart from the last completed checkpoint: splits assigned since are free again."""
        again = frozenset(subtasks)
        self._undelivered = {token: s for token, s in self._undelivered.items() if s not in again}
        for subtask in sorted(again):
            assigner = self._assigners.get(subtask.vertex)
            if assigner is not None:
                assigner.reader_reset(subtask.index)
        for vertex in sorted({subtask.vertex for subtask in again} & set(self._assigners)):
            if self._assigners[vertex].needs_discovery and not self._stopped:
                self._discoveries.ask_soon(vertex, self._assigners[vertex].found)

    def completed(self, checkpoint_id: CheckpointId) -> None:
        """A restart begins at this snapshot from now on."""
        for assigner in self._assigners.values():
            assigner.completed(checkpoint_id)
        self._pump()

    def _discover(self) -> None:
        for vertex, assigner in self._assigners.items():
            if assigner.needs_discovery:
                self._discoveries.ask(vertex, assigner.found)

    def discovered(self, event: SplitsDiscovered) -> None:
        """Splits were found; an answer to a request that does not count any more is ignored."""
        vertex = event.vertex
        if self._discoveries.is_current(vertex, event.number):
            self._discoveries.found(vertex)
            self._remember(event)
            self._assigners[vertex].discovered(event.splits, event.origin, event.position, event.origins)
            self._pump()

    def _remember(self, event: SplitsDiscovered) -> None:
        """Remembers splits for a restart without a snapshot: each keeps the position that it was first found
        at. What follows the position of the first discovery is found again."""
        before = self._found.get(event.vertex, FoundSplits(splits=()))
        if before.position:
            return
        ids = {split.id for split in before.splits}
        self._found[event.vertex] = FoundSplits(
            splits=(*before.splits, *(split for split in event.splits if split.id not in ids)),
            origin=before.origin or event.origin,
            position=event.position,
            origins={**event.origins, **before.origins},
        )

    def discovery_failed(self, event: DiscoveryFailed) -> TaskFailure | None:
        """The failure of the job; None: it goes on with the splits it has, and discovery is repeated."""
        if not self._discoveries.is_current(event.vertex, event.number):
            return None
        found_before = self._assigners[event.vertex].found is not None
        return self._discoveries.failed(event.vertex, event.failure, found_before=found_before)

    def discovery_due(self, number: int) -> None:
        """The interval of a source is over."""
        vertex = self._discoveries.due(number)
        if vertex is not None:
            self._discoveries.ask(vertex, self._assigners[vertex].found)

    def ready(self, subtask: SubtaskId) -> None:
        """A task runs; if it is a source's, it can take splits. Not if its data had ended in the snapshot
        that it starts from: then it ends by itself, perhaps before a message would reach it."""
        assigner = self._assigners.get(subtask.vertex)
        if assigner is None:
            return
        execution = self._executions[subtask]
        if not (execution.restored_finished or execution.restored_ended):
            assigner.ready(subtask.index)
        elif isinstance(assigner, PhasedAssigner):
            assigner.finished(subtask.index)
        self._pump()

    def requested(self, subtask: SubtaskId, phase: int = HISTORY, newest: int | None = None) -> None:
        """See `SplitRequested`; a source that is not phased has one phase."""
        match self._assigners.get(subtask.vertex):
            case None:
                return
            case PhasedAssigner() as phased:
                phased.request(subtask.index, phase, newest)
            case assigner:
                assigner.request(subtask.index)
        self._pump()

    def delivered(self, token: int) -> None:
        """An `AssignSplits` was acknowledged."""
        self._undelivered.pop(token, None)

    def hold(self) -> None:
        """Gives out nothing from now on; `quiet` says when nothing is on its way any more."""
        self._held = True

    def stop(self) -> None:
        """Nothing more is given out until `reset`: the tasks are going to end."""
        self._stopped = True
        self._discoveries.stop()

    @property
    def quiet(self) -> bool:
        return self._held and not self._undelivered

    def release(self) -> None:
        """The snapshot is triggered everywhere (or given up)."""
        self._held = False
        self._pump()

    def snapshot(self, checkpoint_id: CheckpointId, *, aligned: bool = True) -> dict[VertexId, bytes]:
        """State of every assigner; only while `quiet`. `aligned`: no barrier overtakes rows."""
        assert self.quiet, "a split may be on its way"
        return {
            vertex: assigner.snapshot(checkpoint_id, aligned=aligned)
            if isinstance(assigner, PhasedAssigner)
            else assigner.snapshot(checkpoint_id)
            for vertex, assigner in self._assigners.items()
        }

    def _pump(self) -> None:
        if self._held or self._stopped:
            return
        for vertex, assigner in self._assigners.items():
            for assignment in assigner.take():
                subtask = SubtaskId(vertex, assignment.index)
                execution = self._executions[subtask]
                if execution.place is None or execution.state is not ExecutionState.RUNNING:
                    continue  # it is being cancelled: its restart gives the splits back
                message = AssignSplits(
                    attempt=execution.attempt,
                    splits=assignment.splits,
                    no_more=assignment.no_more,
                    watermark_limit=assignment.watermark_limit,
                    phase=assignment.phase,
                    newest=assignment.newest,
                )
                token = self._outbox.send_tracked(execution.place.task_manager, message)
                self._undelivered[token] = subtask
