"""A bounded job as an engine runs it (Spark), and what the engine reports.

An engine gets a `BoundedJob` and runs its stages, whose places are attempts of subtasks. The sinks' output is
staged; the references to it (`staged`) are returned to the master, which orders one commit of them all.
"""

from __future__ import annotations

import msgspec

from unistream.base.ids import AttemptId, JobId, LineageId, SubtaskId, VertexId
from unistream.model.graph import JobGraph
from unistream.model.messages import CommitReported, LogReported, Split, TaskFailure, TaskMetrics
from unistream.model.snapshot import TaskSnapshot
from unistream.model.stored_rows import StoredRows


class BoundedJob(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to run any place of any stage.

    Attributes:
        artifact: The operators, as packed by `worker.code`; `sha256` (hex) is checked before they are loaded.
        splits: All splits of each source, in the order in which they are to be read.
        memory_bytes: Managed memory of each subtask.
        part: Only these vertices are run, which are the bounded part of a stream; empty: all.
        stored_folder: URL of the folder for what leaves the part.
    """

    job: JobId
    lineage: LineageId
    graph: JobGraph
    artifact: bytes
    sha256: str
    splits: dict[VertexId, tuple[Split, ...]]
    memory_bytes: int
    part: tuple[VertexId, ...] = ()
    stored_folder: str = ""


class SubtaskSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one subtask at the end of a bootstrap.

    Attributes:
        newest: Greatest event time of the history that a source has read here, if its fence is found there.
    """

    subtask: SubtaskId
    snapshot: TaskSnapshot
    newest: int | None = None


class PlaceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one attempt at a place, as its process reports it.

    Attributes:
        subtask: None: the place only relays pieces.
        commits: What its committers have made visible.
        failure: Why it failed; None: it has finished.
        snapshot: Its state, if the job is a bootstrap and its input goes on after that.
        log: What its functions have logged.
    """

    subtask: SubtaskId | None
    metrics: TaskMetrics = TaskMetrics()
    commits: tuple[CommitReported, ...] = ()
    failure: TaskFailure | None = None
    snapshot: SubtaskSnapshot | None = None
    log: tuple[LogReported, ...] = ()


class AttemptState(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a subtask, as the engine sees it.

    Attributes:
        state: RUNNING, FINISHED, FAILED or CANCELED.
        executor: Where it runs, for people; empty: unknown.
    """

    attempt: AttemptId
    state: str
    executor: str = ""


class StageProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a run.

    Attributes:
        name: The operators in it.
        tasks, running, finished, failed: Numbers of places, and of their attempts in these states. A place
            may fail several times, and more finish than there are, if a slow one is run twice.
        rows_in, rows_out: Of the places that have finished.
        shuffle_bytes: Written for the next stage.
    """

    name: str
    tasks: int
    running: int = 0
    finished: int = 0
    failed: int = 0
    rows_in: int = 0
    rows_out: int = 0
    shuffle_bytes: int = 0


class AttemptsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts of run number `run` that have begun or ended since the last report."""

    run: int
    attempts: tuple[AttemptState, ...]


class StagesRan(msgspec.Struct, frozen=True, kw_only=True):
    """All stages of run number `run` have finished; `staged` is the output to be committed, opaque.
    `snapshots`: of a bootstrap, of all subtasks that have one. `stored`: what leaves a part of a job, of the
    attempts that won."""

    run: int
    staged: tuple[bytes, ...] = ()
    snapshots: tuple[SubtaskSnapshot, ...] = ()
    stored: tuple[StoredRows, ...] = ()


class CommittersStored(msgspec.Struct, frozen=True, kw_only=True):
    """The committers of a bootstrap have taken the staged output of run number `run` into their state, and
    committed nothing."""

    run: int
    snapshots: tuple[SubtaskSnapshot, ...]


class StagedCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """The staged output of run number `run` is visible."""

    run: int


class RunFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The stages or the commit of run number `run` have ended without a result; nothing of it runs any more.

    Attributes:
        attempt: Where it failed; None: not in a subtask.
    """

    run: int
    failure: TaskFailure
    attempt: AttemptId | None = None


EngineReport = AttemptsChanged | StagesRan | CommittersStored | StagedCommitted | RunFailed
