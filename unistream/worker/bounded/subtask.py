"""Runs one subtask from its first piece to its last."""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

from unistream.base.clock import SystemClock
from unistream.base.crash_points import crash_point
from unistream.base.errors import ProtocolError, UnistreamError
from unistream.base.ids import EdgeId, VertexId
from unistream.model import messages as msg
from unistream.model.bounded import PlaceReport, SubtaskSnapshot
from unistream.model.chain import Chain
from unistream.model.deployment import TaskDeployment
from unistream.model.elements import Element
from unistream.model.graph import LIVE
from unistream.model.snapshot import TaskSnapshot
from unistream.worker import task as tasks
from unistream.worker.bounded.handover import Handover
from unistream.worker.bounded.pieces import (
    END_OF_INPUT,
    Piece,
    PieceInputs,
    PieceOutput,
    PieceSink,
    StoredPieceOutput,
)
from unistream.worker.bounded.savepoint import BootstrapStateWriter, EndOfHistory
from unistream.worker.exchange import Gate, LocalInputChannel


class SubtaskFailed(UnistreamError):
    """The task has failed, as `failure` says; `log`: what its functions have logged before."""

    def __init__(self, failure: msg.TaskFailure, log: tuple[msg.LogReported, ...] = ()) -> None:
        super().__init__(f"{failure.kind}: {failure.message}")
        self.failure = failure
        self.log = log


class BoundedSubtask:
    """One attempt of one subtask of a BATCH job.

    Args:
        deployment: As a master makes it; where its producers ran has no meaning.
        chain: The operators of its vertex.
        splits: All that it reads, if its vertex is a source.
        memory_bytes: For its operators; what is more is spilled below `folder`.
        folder: A local folder of its own.
        end: Of a bootstrap; None: all of its input ends for good.
        stored: Edges whose rows are stored for a stream; of each one piece is made, which says where.
        stored_folder: URL of the folder for them.

    Raises:
        ProtocolError: the chain is not that of the vertex.
    """

    def __init__(
        self,
        deployment: TaskDeployment,
        chain: Chain,
        *,
        splits: Sequence[msg.Split] = (),
        memory_bytes: int,
        folder: Path,
        end: EndOfHistory | None = None,
        stored: Collection[EdgeId] = (),
        stored_folder: str = "",
    ) -> None:
        tasks.check_matches(deployment, chain)
        self._deployment = deployment
        self._clock = SystemClock()
        self._mailbox = tasks.Mailbox()
        self._end = end
        self._newest: int | None = None
        self._is_history_read = False
        self._stored: TaskSnapshot | None = None
        self._inputs = PieceInputs(_ends if end is None else end.behind)
        self._handover = Handover(self._mailbox.wake)
        self._failure: msg.TaskFailure | None = None
        self._commits: list[msg.CommitReported] = []
        self._log = tasks.LogTail()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="commits")
        environment = tasks.TaskEnvironment(
            clock=self._clock,
            report=self._on_report,
            executor=self._executor,
            state_writer=_no_state if end is None else self._state_writer,
            state_reader=_no_state,
            crash_point=crash_point,
            managed_memory=memory_bytes,
            tmp_dir=str(folder),
            exclusive=False,
            may_block=True,
        )
        self._task = tasks.assemble(
            deployment,
            chain,
            gates=self._gates(),
            partitions=_outputs(deployment, stored, stored_folder, self._handover),
            environment=environment,
            mailbox=self._mailbox,
        )
        if deployment.vertex.source is not None:
            self._mailbox.post(
                msg.AssignSplits(attempt=deployment.attempt, splits=tuple(splits), no_more=True)
            )

    def _gates(self) -> list[Gate]:
        return [
            Gate(gate.input_index, tuple(LocalInputChannel(one, self._inputs) for one in gate.channels))
            for gate in self._deployment.gates
        ]

    def run(self, pieces: Iterable[Piece]) -> Generator[Piece]:
        """Runs the subtask: its output, while it reads its input. To be iterated to the end, or closed.

        Args:
            pieces: Of all its producers, in any order among them, in the order of their numbers for each edge
                and producer.

        Raises:
            SubtaskFailed: a function, a connector or an operator raised.
        """
        thread = threading.Thread(
            target=self._run_to_end, args=(iter(pieces),), name="bounded-subtask", daemon=True
        )
        thread.start()
        try:
            yield from self._handover.take()
        finally:
            self._mailbox.cancel()  # of no effect, unless the reader of our output has given up
            thread.join()
            self._executor.shutdown(wait=True)
        if self._failure is not None:
            raise SubtaskFailed(self._failure, self._lines())

    def report(self) -> PlaceReport:
        """How it has ended."""
        subtask, stored = self._deployment.attempt.subtask, self._stored
        return PlaceReport(
            subtask=subtask,
            snapshot=None
            if stored is None
            else SubtaskSnapshot(subtask=subtask, snapshot=stored, newest=self._newest),
            metrics=self._task.metrics(),
            commits=tuple(self._commits),
            failure=self._failure,
            log=self._lines(),
        )

    def _lines(self) -> tuple[msg.LogReported, ...]:
        return self._log.reports(self._deployment.attempt)

    def _run_to_end(self, pieces: Iterator[Piece]) -> None:
        """Runs the task from its first piece to its last, on its own thread."""
        user_log = tasks.UserLog(self._on_report, self._clock)
        with user_log.installed():
            user_log.begin(self._deployment.attempt)
            self._run_logged(pieces)
            user_log.end(self._deployment.attempt)

    def _run_logged(self, pieces: Iterator[Piece]) -> None:
        error: BaseException | None = None
        try:
            self._task.counters.turn_to(tasks.Doing.BUSY, self._clock.monotonic_ms())
            self._steps(pieces)
        except BaseException as raised:  # of the pieces, or what fails no task; raised where ours are taken
            error = raised
        try:
            if error is not None:
                self._mailbox.cancel()
                self._task.step()
        finally:
            self._handover.end(error)

    def _steps(self, pieces: Iterator[Piece]) -> None:
        open_ended = True
        while True:
            self._mailbox.prepare_wait()
            match self._task.step():
                case tasks.Done():
                    break
                case tasks.Waiting() if self._stored is not None or self._failure is not None:
                    self._mailbox.cancel()  # its state is stored, or cannot be
                case tasks.Waiting(backpressured=True):
                    self._mailbox.wait(None)
                case tasks.Waiting() if self._is_history_read:
                    self._is_history_read = False
                    self._mailbox.post(tasks.BackgroundDone(finish=self._advance))
                case tasks.Waiting() if open_ended and self._task.state is tasks.TaskState.RUNNING:
                    piece = next(pieces, None)
                    if piece is None:
                        open_ended = False
                        self._inputs.end()
                    else:
                        self._inputs.add(piece)
                case tasks.Waiting(deadline_ms=deadline_ms):
                    left_ms = None if deadline_ms is None else deadline_ms - self._clock.monotonic_ms()
                    self._mailbox.wait(None if left_ms is None else max(0, left_ms) / 1000)
                case _:
                    pass

    def _advance(self) -> None:
        """Ends the history of a source, which was read; on the task's thread."""
        assert self._end is not None, "only the history of a bootstrap ends"
        self._task.advance_watermark(self._end.watermark(self._deployment.vertex.id))
        self._mailbox.post(self._end.trigger(self._deployment))

    def _state_writer(self, directory: str) -> BootstrapStateWriter:
        return BootstrapStateWriter(directory, self._deployment.attempt.job)

    def _on_report(self, message: msg.ToJobManager) -> None:
        match message:
            case msg.SplitRequested(phase=phase, newest=newest) if phase == LIVE and self._end is not None:
                self._is_history_read, self._newest = True, newest
            case msg.CheckpointAcked(snapshot=snapshot):
                self._stored = snapshot
            case msg.CheckpointDeclined(reason=reason):
                self._failure = msg.TaskFailure(kind="SnapshotNotStored", message=reason)
            case msg.TaskStateChanged(failure=msg.TaskFailure() as failure):
                self._failure = failure
            case msg.CommitReported():
                self._commits.append(message)
            case msg.LogReported():
                self._log.add(message)
            case _:
                pass  # progress, which only a master follows


def _outputs(
    deployment: TaskDeployment, stored: Collection[EdgeId], folder: str, out: PieceSink
) -> list[PieceOutput | StoredPieceOutput]:
    attempt = deployment.attempt
    return [
        StoredPieceOutput(one, attempt.subtask, folder, out)
        if one.edge in stored
        else PieceOutput(one, attempt.index, out)
        for one in deployment.partitions
    ]


def _ends(_producer: VertexId) -> Sequence[Element]:
    return END_OF_INPUT


def _no_state(directory: str) -> NoReturn:
    raise ProtocolError(f"state in {directory}: a bounded job has none")
