"""A bounded job in one process of an engine, which runs some of its places."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from unistream.base.errors import UserCodeError
from unistream.base.ids import AttemptId, LeaderEpoch, SubtaskId
from unistream.core.graph import ExecutionPlan, Relay, StagePlan
from unistream.model.bounded import BoundedJob, PlaceReport
from unistream.model.deployment import TaskDeployment
from unistream.model.messages import LogReported, Split, TaskFailure
from unistream.worker.bounded.arrivals import Arrivals
from unistream.worker.bounded.pieces import FAILED, Piece
from unistream.worker.bounded.savepoint import EndOfHistory
from unistream.worker.bounded.subtask import BoundedSubtask, SubtaskFailed
from unistream.worker.code import load
from unistream.worker.task import task_failure

STAGED: Final = -1
"""The place of the pieces that committers read."""
FAILED_BEFORE: Final = TaskFailure(kind="InputFailed", message="a task that it reads from has failed")
ARRIVALS_MEMORY_SHARE: Final = 4  # of a subtask's memory: the rest is for sorting and for operators


class BoundedRun:
    """Runs places of a job in this process.

    Attributes:
        plan: The stages of the job.
    """

    def __init__(self, job: BoundedJob) -> None:
        self._job = job
        self._execution = ExecutionPlan(job.graph)
        self.plan = StagePlan(job.graph, job.part)
        self._end = EndOfHistory.of(job.graph)

    def place(self, stage: int, place: int, *, attempt: int, folder: Path) -> PlaceAttempt:
        """One attempt at a place.

        Args:
            stage: Number of the stage.
            place: Number of the place in it.
            attempt: Another number for each time that this place is run.
            folder: Local, for what does not fit into memory.
        """
        runs = self.plan.stages[stage].places[place]
        arrivals = Arrivals(folder, self._job.memory_bytes // ARRIVALS_MEMORY_SHARE)
        if isinstance(runs, Relay):
            return PlaceAttempt(self, stage + 1, arrivals, subtask=None, create=None)
        create = partial(self._subtask, runs, attempt, folder, self._end)
        return PlaceAttempt(self, stage + 1, arrivals, subtask=runs, create=create)

    def to(self, stage: int, piece: Piece) -> int:
        """The place of a stage to which the piece goes; `STAGED` behind the last one."""
        place = self.plan.place(stage, piece.edge, piece.consumer)
        return STAGED if place is None else place

    def everywhere(self, stage: int) -> range:
        """All places of a stage; behind the last one, `STAGED` alone."""
        return range(len(self.plan.stages[stage].places)) if stage < len(self.plan.stages) else range(-1, 0)

    def store_committers(
        self, staged: Sequence[Piece], *, attempt: int, folder: Path
    ) -> Iterator[PlaceReport]:
        """Has each committer of a bootstrap store what the stages have staged; it commits nothing.

        Returns:
            As `commit`.
        """
        return self._run_committers(staged, attempt, folder, self._end)

    def commit(self, staged: Sequence[Piece], *, attempt: int, folder: Path) -> Iterator[PlaceReport]:
        """Runs each committer once, over what the stages have staged; safe to repeat.

        Returns:
            The reports of the committers' subtasks. One with a failure is the last.
        """
        return self._run_committers(staged, attempt, folder, None)

    def _run_committers(
        self, staged: Sequence[Piece], attempt: int, folder: Path, end: EndOfHistory | None
    ) -> Iterator[PlaceReport]:
        known = list(staged)
        for vertex in self.plan.committers:
            edges = {edge.id for edge in self._job.graph.edges if edge.target == vertex}
            for index in range(self._job.graph.vertex(vertex).parallelism):
                one = SubtaskId(vertex, index)
                try:
                    subtask = self._subtask(one, attempt, folder, end)
                    known += subtask.run(
                        _in_order(p for p in known if p.edge in edges and p.consumer == index)
                    )
                except SubtaskFailed as error:
                    yield PlaceReport(subtask=one, failure=error.failure, log=error.log)
                    return
                except Exception as error:
                    yield PlaceReport(subtask=one, failure=task_failure(error))
                    return
                yield subtask.report()

    def _subtask(
        self, subtask: SubtaskId, attempt: int, folder: Path, end: EndOfHistory | None
    ) -> BoundedSubtask:
        job, vertex = self._job, self._job.graph.vertex(subtask.vertex)
        attempts = {one: AttemptId(job.job, one.vertex, one.index, 0) for one in self._execution.subtasks}
        return BoundedSubtask(
            TaskDeployment(
                attempt=AttemptId(job.job, subtask.vertex, subtask.index, attempt),
                job_name=job.graph.name,
                lineage=job.lineage,
                epoch=LeaderEpoch(0),
                vertex=vertex,
                artifact=job.sha256,
                gates=self._execution.gates(subtask, attempts, {}),
                partitions=self._execution.partitions(subtask),
                checkpoint_root="",
                checkpointing=False,
                config=job.graph.config,
            ),
            load(job.artifact, job.sha256).chains[subtask.vertex],  # operators of its own
            splits=share(job.splits.get(subtask.vertex, ()), subtask.index, vertex.parallelism),
            memory_bytes=job.memory_bytes,
            folder=folder,
            end=end,
            stored=self.plan.stored,
            stored_folder=job.stored_folder,
        )


class PlaceAttempt:
    """One attempt at a place of a stage.

    Args:
        create: Makes the attempt of its subtask; None: the place relays pieces.
        subtask: Which one that is.

    Attributes:
        report: Its end; None before.
    """

    def __init__(
        self,
        run: BoundedRun,
        next_stage: int,
        arrivals: Arrivals,
        *,
        subtask: SubtaskId | None,
        create: Callable[[], BoundedSubtask] | None,
    ) -> None:
        self._run = run
        self._next_stage = next_stage
        self._subtask = subtask
        self._create = create
        self._arrivals = arrivals
        self.report: PlaceReport | None = None

    def run(self, pieces: Iterable[Piece], *, is_last: bool = True) -> Iterator[tuple[int, Piece]]:
        """The pieces that it makes, each with the place of the next stage to which it goes (`STAGED`). After
        a failure, its own or one before it, every place of the next stage gets a piece that says so.

        Args:
            pieces: All that go to this place, in any order.
            is_last: False: the engine makes another attempt if this one raises.

        Raises:
            SubtaskFailed: it has failed, and another attempt may not.
        """
        with self._arrivals as arrivals:
            for piece in pieces:
                if piece.edge == FAILED:
                    yield from self._fail(FAILED_BEFORE)
                    return
                arrivals.add(piece)
            try:
                with closing(self._made(arrivals)) as made:
                    for piece in made:
                        yield self._run.to(self._next_stage, piece), piece
            except SubtaskFailed as error:
                if not is_last and may_help(error.failure):
                    raise
                yield from self._fail(error.failure, error.log)

    def _made(self, arrivals: Arrivals) -> Generator[Piece]:
        if self._create is None:
            yield from arrivals.take()
            self.report = PlaceReport(subtask=None)
            return
        try:
            subtask = self._create()
        except Exception as error:
            raise SubtaskFailed(task_failure(error)) from error
        with closing(subtask.run(arrivals.take())) as made:
            yield from made
        self.report = subtask.report()

    def _fail(self, failure: TaskFailure, log: tuple[LogReported, ...] = ()) -> Iterator[tuple[int, Piece]]:
        self.report = PlaceReport(subtask=self._subtask, failure=failure, log=log)
        for place in self._run.everywhere(self._next_stage):
            yield place, Piece(FAILED, 0, 0, 0, b"")


def may_help(failure: TaskFailure) -> bool:
    """Whether the same task may succeed when it is run again: not after an error of a user's function."""
    return failure.recoverable and failure.kind != UserCodeError.__name__


def _in_order(pieces: Iterable[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda piece: (piece.edge, piece.producer, piece.number))


def share(splits: Sequence[Split], index: int, parallelism: int) -> tuple[Split, ...]:
    """The splits that subtask `index` reads, in their order: each subtask has about the same number of them,
    and of their bytes, as far as those are known.

    >>> splits = [Split(id=name, data=b"", size=size) for name, size in (("a", 9), ("b", 4), ("c", 4))]
    >>> [[split.id for split in share(splits, index, 2)] for index in (0, 1)]
    [['a'], ['b', 'c']]
    """
    loads = [(0, 0, number) for number in range(parallelism)]  # a heap: bytes, splits, subtask
    mine: list[int] = []
    for place in sorted(range(len(splits)), key=lambda place: (-splits[place].size, place)):
        size, count, number = loads[0]
        heapq.heapreplace(loads, (size + splits[place].size, count + 1, number))
        if number == index:
            mine.append(place)
    return tuple(splits[place] for place in sorted(mine))
