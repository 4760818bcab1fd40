"""The life of a job: its states, and the one table of its transitions.

A `JobState` is the state of the job's machine; people see the coarser `JobStatus` (Flink's names). Everything
else about states is derived from `JOB_LIFE`: which are terminal, what may follow what (`JOB_TRANSITIONS`),
the exhaustive tests, and `docs/reference/life-cycle.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Final, TypeVar

from unistream.base.ids import AllocationId, AttemptId, JobId, TaskManagerId, VertexId
from unistream.core.contract.story import IllegalTransition, StateLog
from unistream.model.graph import JobGraph
from unistream.model.job_status import JobStatus
from unistream.model.messages import TaskFailure
from unistream.model.splits import Unread


@unique
class JobState(Enum):
    """The state of a job; the value describes it."""

    INITIAL = "accepted; its master has not started yet"
    CREATED = "waits for slots; nothing has run yet"
    STARTING = "its first tasks get their slots and start"
    RUNNING = "tasks run; some may wait for their inputs, some may have finished"
    RESTARTING = "tasks end, wait for their restart, or start again; others may run"
    RESCALING = "all tasks end, to start again at another parallelism"
    WAITING = "all tasks have ended; waits for slots to start again"
    RECONCILING = "a new leader finds out from the workers which tasks still run"
    FINISHING = "its work is done; the remaining tasks end, and the last snapshot is stored"
    CANCELLING = "its tasks are being ended because a user canceled it"
    FAILING = "its tasks are being ended because of a fatal failure"
    SUSPENDING = "its tasks are being ended because its cluster shuts down"
    FINISHED = "terminal: its work is done"
    CANCELED = "terminal: a user canceled it"
    FAILED = "terminal: a fatal failure"
    SUSPENDED = "terminal under this leader; everything that it can resume from is kept"

    @property
    def status(self) -> JobStatus:
        """What people see."""
        return _SHOWN_AS[self]

    @property
    def is_active(self) -> bool:
        """Tasks run or will run again: a failure restarts them."""
        return JobCause.FAILURE in JOB_LIFE[self]

    @property
    def is_waiting(self) -> bool:
        """Nothing runs; when there are slots to start in, everything starts."""
        return JobCause.SLOTS in JOB_LIFE[self]

    @property
    def is_ending(self) -> bool:
        """The job ends when all its tasks have ended."""
        return (after := JOB_LIFE[self].get(JobCause.ENDED)) is not None and not JOB_LIFE[after]


@unique
class JobCause(Enum):
    """What moves a job from one state to another; the value is the text in the diagram."""

    START = "its master has started"
    RECONCILE = "an earlier leader has left tasks running"
    SLOTS = "it has slots to start in"
    UP = "all tasks run that can"
    FAILURE = "a failure with a restart"
    RESCALE = "its parallelism changes"
    MOVE = "tasks move from a worker that is drained"
    DONE = "all tasks have finished, or a stop is committed"
    CANCEL = "a user cancels it"
    FATAL = "a fatal failure"
    ENDED = "all tasks have ended"
    SUSPEND = "its cluster shuts down"
    STEP_DOWN = "its leader steps down"


_S, _C = JobState, JobCause
_LEFT: Final = {_C.STEP_DOWN: _S.SUSPENDED}
_GIVEN_UP: Final = {
    _C.CANCEL: _S.CANCELLING,
    _C.FATAL: _S.FAILING,
    **_LEFT,
}
_FAILS: Final = {_C.FAILURE: _S.RESTARTING, _C.SUSPEND: _S.SUSPENDING, **_GIVEN_UP}

JOB_LIFE: Final[Mapping[JobState, Mapping[JobCause, JobState]]] = {
    _S.INITIAL: {_C.START: _S.CREATED, _C.RECONCILE: _S.RECONCILING, **_GIVEN_UP},
    _S.CREATED: {_C.SLOTS: _S.STARTING, **_FAILS},
    _S.STARTING: {_C.UP: _S.RUNNING, **_FAILS},
    _S.RUNNING: {
        _C.DONE: _S.FINISHING,
        _C.RESCALE: _S.RESCALING,
        _C.MOVE: _S.RESTARTING,
        **_FAILS,
    },
    _S.RESTARTING: {_C.UP: _S.RUNNING, _C.RESCALE: _S.RESCALING, _C.ENDED: _S.WAITING, **_FAILS},
    _S.RESCALING: {_C.ENDED: _S.WAITING, **_FAILS},
    _S.WAITING: {_C.SLOTS: _S.RESTARTING, **_FAILS},
    _S.RECONCILING: {_C.UP: _S.RUNNING, **_FAILS},
    _S.FINISHING: {_C.ENDED: _S.FINISHED, **_LEFT},
    _S.CANCELLING: {_C.ENDED: _S.CANCELED, **_LEFT},
    _S.FAILING: {_C.ENDED: _S.FAILED, **_LEFT},
    _S.SUSPENDING: {_C.ENDED: _S.SUSPENDED, **_LEFT},
    _S.FINISHED: {},
    _S.CANCELED: {},
    _S.FAILED: {},
    _S.SUSPENDED: {},
}
"""State -> cause -> the state that follows; a state without causes is terminal."""

_SHOWN_AS: Final[Mapping[JobState, JobStatus]] = {
    **{state: JobStatus[state.name] for state in JobState if state.name in JobStatus.__members__},
    _S.INITIAL: JobStatus.INITIALIZING,
    _S.STARTING: JobStatus.CREATED,
    _S.RESCALING: JobStatus.RESTARTING,
    _S.WAITING: JobStatus.RESTARTING,
    _S.FINISHING: JobStatus.RUNNING,
    _S.SUSPENDING: JobStatus.RUNNING,  # if its leader dies now, the job continues
}


S = TypeVar("S", bound=Enum)


def job_steps(shown_as: Callable[[JobState], S]) -> dict[S, dict[S, str]]:
    """`JOB_LIFE` with the states as `shown_as`: what follows what, each with all its causes."""
    steps: dict[S, dict[S, dict[str, None]]] = {shown_as(state): {} for state in JOB_LIFE}
    for state, row in JOB_LIFE.items():
        for cause, after in row.items():
            if shown_as(after) is not shown_as(state):
                steps[shown_as(state)].setdefault(shown_as(after), {})[cause.value] = None
    return {a: {b: ", or ".join(causes) for b, causes in found.items()} for a, found in steps.items()}


JOB_TRANSITIONS: Final[Mapping[JobStatus, Mapping[JobStatus, str]]] = job_steps(lambda state: state.status)
"""Status -> the statuses that may follow, each with its causes."""


class JobLog(StateLog[JobState]):
    """The state of a job, which moves along `JOB_LIFE` only."""

    __slots__ = ()

    def __init__(self, job: JobId) -> None:
        super().__init__(
            f"job {job}", JobState.INITIAL, {s: set(row.values()) for s, row in JOB_LIFE.items()}
        )

    def allows(self, cause: JobCause) -> bool:
        return cause in JOB_LIFE[self.state]

    def on(self, cause: JobCause, why: str) -> None:
        """Moves to the state that follows. `why`: the case at hand, for the story."""
        after = JOB_LIFE[self.state].get(cause)
        if after is None:
            raise IllegalTransition(
                subject=self._subject, state=self.state, wanted=cause, why=why, story=self.story
            )
        self.to(after, why)


# --- views, for people and REST -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """`allocation`: the slot that it was deployed into; None: none yet, or it is not in a worker of ours."""

    attempt: AttemptId
    state: str
    task_manager: TaskManagerId | None
    allocation: AllocationId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """`graph`: at its current parallelism; `wanted`: at the parallelism that it would have with enough
    slots. `next_restart_ms`: when a wait before a restart is over, by the machine's clock; None: nothing
    waits. `unread`: of each source, in splits that no reader was given yet."""

    graph: JobGraph
    state: str
    restarts: int
    attempts: tuple[AttemptView, ...] = ()
    checkpoints_completed: int = 0
    checkpoints_failed: int = 0
    checkpoints_restored: int = 0
    failure: TaskFailure | None = None
    wanted: JobGraph | None = None
    next_restart_ms: int | None = None
    unread: Mapping[VertexId, Unread] = field(default_factory=dict)
