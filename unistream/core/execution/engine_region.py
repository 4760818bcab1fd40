"""The bounded part of a stream as one region that an engine runs (Spark): it has no slots. Pure.

    SCHEDULED ─ splits of all sources are known ─► RunStages ─► RUNNING … FINISHED ─► StagesRan: it is stored
        │                                              └────── RunFailed ─► FAILED, CANCELED
        └─ it had finished in the snapshot ─► FINISHED: nothing runs, its rows are in the state of the stream

What leaves it counts as stored on a TaskManager that is never lost, `ENGINE`. A region that reads it has the
files in its `ChannelDescriptor`s. The engine repeats its tasks by itself, so a subtask has one attempt in a
run, which runs until one of the engine's has finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from unistream.base import config as options
from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, EdgeId, PartitionId, SubtaskId, TaskManagerId, VertexId
from unistream.core.contract import (
    CancelRun,
    CommandOutbox,
    DiscoverSplits,
    KeepStored,
    RunStages,
    SplitsDiscovered,
)
from unistream.core.execution.executions import Execution
from unistream.core.execution.job_run import JobRun
from unistream.model.bounded import AttemptState
from unistream.model.execution_state import ExecutionState
from unistream.model.messages import Split, TaskFailure
from unistream.model.snapshot import TaskRestore
from unistream.model.stored_rows import StoredRows

ENGINE: Final = TaskManagerId("engine")

_E: Final = ExecutionState


class EngineRegion:
    """Empty if the job has no bounded part, or workers run it.

    Args:
        former: Of the same job at another parallelism.

    Attributes:
        runs: The engine runs something, perhaps what was cancelled.
        number: Of its latest run.
        cancelled: That run is to end, and nothing of it is used.
    """

    def __init__(self, run: JobRun, outbox: CommandOutbox, former: EngineRegion | None = None) -> None:
        self._run = run
        self._outbox = outbox
        self._sources = {
            v.id: v.source for v in run.graph.vertices if v.source is not None and v.id in run.offloaded
        }
        self.runs: bool = former is not None and former.runs
        self.number: int = 0 if former is None else former.number
        self._splits: dict[VertexId, tuple[Split, ...]] = {} if former is None else former._splits
        self.cancelled: bool = self.runs
        self._waits = False  # to run

    def __contains__(self, subtask: SubtaskId) -> bool:
        return subtask.vertex in self._run.offloaded

    @property
    def executions(self) -> list[Execution]:
        return [execution for execution in self._run.executions if execution.attempt.subtask in self]

    @property
    def is_active(self) -> bool:
        """It runs or is about to, and the regions that read it do not."""
        return self._waits or (self.runs and not self.cancelled)

    # --- starting ---------------------------------------------------------------------------------

    def check(self, restores: Mapping[SubtaskId, TaskRestore]) -> None:
        """Raises ConfigError if a part of it had finished in the snapshot, and the rest is new."""
        self._had_finished(restores)

    def _had_finished(self, restores: Mapping[SubtaskId, TaskRestore]) -> bool:
        found = {s.vertex: r.finished for s, r in restores.items() if s in self}
        finished = {vertex for vertex, is_finished in found.items() if is_finished}
        if finished and finished != self._run.offloaded:
            new = next(v.name for v in self._run.graph.vertices if v.id in self._run.offloaded - finished)
            raise ConfigError(
                f"the bounded part of the job has {new!r}, which the snapshot does not have, while others "
                "had finished there: an engine runs all of it or nothing; set "
                f"{options.BATCH_ENGINE.key}=native"
            )
        return bool(finished)

    def begin(self, restores: Mapping[SubtaskId, TaskRestore]) -> bool:
        """All its executions are SCHEDULED. True: they had finished in the snapshot, and do so now."""
        if self._had_finished(restores):
            self._outbox.add(KeepStored(()))  # an earlier leader may have left its files
            for execution in self.executions:
                execution.restored_finished = True
                self._finish(execution, "it had finished in the snapshot")
            return True
        self._waits = True
        for number, (vertex, source) in enumerate(self._sources.items()):
            if vertex not in self._splits:
                self._outbox.add(DiscoverSplits(vertex=vertex, source=source, known=None, number=number))
        self._run_if_possible()
        return False

    def discovered(self, event: SplitsDiscovered) -> None:
        """Splits are found once, so that each run reads the same."""
        self._splits.setdefault(event.vertex, event.splits)
        self._run_if_possible()

    def _run_if_possible(self) -> None:
        if not self._waits or self.runs or self._sources.keys() - self._splits.keys():
            return
        numbers = {execution.attempt.attempt for execution in self.executions}
        assert len(numbers) == 1, f"all of it starts together, but its attempts are {numbers}"
        self._waits, self.cancelled, self.runs = False, False, True
        self.number += 1
        self._outbox.add(
            RunStages(
                run=self.number,
                first_attempt=numbers.pop(),
                splits={vertex: self._splits[vertex] for vertex in self._sources},
                graph=self._run.graph,
            )
        )

    # --- what the engine reports ------------------------------------------------------------------

    def is_current(self, run: int) -> bool:
        """A report of that run is not outdated."""
        return self.runs and run == self.number

    def changed(self, attempts: Iterable[AttemptState]) -> None:
        """Some have begun or ended. One that has failed is repeated by the engine."""
        for one in attempts:
            execution = self._run.executions[one.attempt.subtask]
            if execution.state not in (_E.SCHEDULED, _E.RUNNING) or one.state not in ("RUNNING", "FINISHED"):
                continue
            if execution.state is _E.SCHEDULED:
                self._move(execution, _E.DEPLOYING, "the engine runs it")
                self._move(execution, _E.RUNNING, "the engine runs it")
            if one.state == "FINISHED":
                self._move(execution, _E.FINISHED, "the engine has run it")

    def ran(self, stored: Iterable[StoredRows]) -> tuple[TaskFailure, Execution] | None:
        """All its stages have finished: what leaves it can be read. The failure of a run that has not stored
        all of it, as `ended`."""
        rows = {one.partition: one for one in stored}
        missing = self._leaving() - rows.keys()
        if missing:
            text = f"the engine has not stored {min(missing)} of the bounded part"
            return self.ended(TaskFailure(kind="ProtocolError", message=text))
        self.runs = False
        self._run.stored_rows.update(rows)
        self._outbox.add(KeepStored(tuple(self._run.stored_rows.values())))
        for execution in self.executions:
            self._finish(execution, "the engine has run it")
        return None

    def _leaving(self) -> frozenset[PartitionId]:
        run = self._run
        return frozenset(
            PartitionId(subtask, link.reads)
            for vertex in run.offloaded
            for link in run.topology.outputs[vertex]
            if link.target not in run.offloaded
            for subtask in run.topology.subtasks(vertex)
        )

    def ended(
        self, failure: TaskFailure | None, failed: SubtaskId | None = None
    ) -> tuple[TaskFailure, Execution] | None:
        """It does not run any more, and has stored nothing. Returns the failure with the execution to blame,
        unless it was cancelled."""
        cancelled, self.runs, self.cancelled = self.cancelled, False, False
        self._outbox.add(KeepStored(()))
        if cancelled or failure is None:
            for execution in self.executions:
                if execution.state is _E.CANCELING:
                    self._move(execution, _E.CANCELED, "the engine has ended it")
            self._run_if_possible()
            return None
        return failure, self.fail(failure, failed)

    def fail(self, failure: TaskFailure, failed: SubtaskId | None = None) -> Execution:
        """One of its executions fails, `failed` if it can, and the others end."""
        self._waits = False
        alive = [execution for execution in self.executions if not execution.state.is_terminal]
        to_blame = next((e for e in alive if e.attempt.subtask == failed), (alive or self.executions)[0])
        for execution in alive:
            if execution is to_blame:
                self._move(execution, _E.FAILED, failure.message)
            else:
                self._cancel(execution, failure.message)
                if execution.state is _E.CANCELING:
                    self._move(execution, _E.CANCELED, failure.message)
        return to_blame

    # --- ending -----------------------------------------------------------------------------------

    def cancel(self, why: str) -> None:
        """Ends it; the engine reports when it has ended."""
        self._waits = False
        for execution in self.executions:
            if not execution.state.is_terminal and execution.state is not _E.CREATED:
                self._cancel(execution, why)
        if self.runs and not self.cancelled:
            self.cancelled = True
            self._outbox.add(CancelRun())

    def _cancel(self, execution: Execution, why: str) -> None:
        if execution.state is _E.SCHEDULED and not self.runs:
            self._move(execution, _E.CANCELED, why)
            return
        if execution.state is _E.SCHEDULED:
            self._move(execution, _E.DEPLOYING, "the engine is about to run it")
        if execution.state is not _E.CANCELING:
            self._move(execution, _E.CANCELING, why)

    def step_down(self) -> None:
        """The engine belongs to this leader."""
        if self.runs:
            self.runs = False
            self._outbox.add(CancelRun())

    def released(self, partitions: Iterable[tuple[AttemptId, EdgeId]]) -> None:
        """They are not read any more."""
        rows = self._run.stored_rows
        gone = [rows.pop(PartitionId(attempt.subtask, edge), None) for attempt, edge in partitions]
        if any(one is not None for one in gone):
            self._outbox.add(KeepStored(tuple(rows.values())))

    # --- steps ------------------------------------------------------------------------------------

    def _finish(self, execution: Execution, why: str) -> None:
        if execution.state is _E.SCHEDULED:
            self._move(execution, _E.DEPLOYING, why)
        if execution.state is not _E.FINISHED:
            self._move(execution, _E.FINISHED, why)

    def _move(self, execution: Execution, state: ExecutionState, why: str) -> None:
        self._run.executions.move(execution, state, why)
