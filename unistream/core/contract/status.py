"""The life of a job: its states, and the one table of what leads from each to which.

A `JobState` is where the job's machine is; people see less of it, a `JobStatus` (names as Flink's). All else
about states is derived from `JOB_LIFE`: which of them are ends, what may follow what (`JOB_TRANSITIONS`), the
exhaustive tests, and `docs/reference/life-cycle.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from typing import Final, TypeVar

from unistream.base.ids import JobId
from unistream.core.contract.story import IllegalTransition, StateLog


class JobStatus(Enum):
    """What people see of a job's state."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def is_globally_terminal(self) -> bool:
        """It never runs again, under no leader (SUSPENDED may)."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)


@unique
class JobState(Enum):
    """Where a job is in its life; the value says what that means."""

    INITIAL = "accepted; its master is not up yet"
    CREATED = "waits until there are slots to start in; nothing has run yet"
    STARTING = "its first tasks get their slots and come up"
    RUNNING = "tasks run; some may wait for their inputs, some may have finished"
    RESTARTING = "tasks end, wait for their restart, or come up again; others may run"
    RESCALING = "all tasks end, to start again at another parallelism"
    WAITING = "all tasks have ended; waits until there are slots to start again in"
    RECONCILING = "a new leader asks the workers what still runs"
    FINISHING = "its work is done; what is left of it ends, and the last snapshot is stored"
    CANCELLING = "its tasks are being ended because a user wants it"
    FAILING = "its tasks are being ended because something failed for good"
    SUSPENDING = "its tasks are being ended because its cluster is shut down"
    FINISHED = "the end: its work is done"
    CANCELED = "the end: a user wanted it"
    FAILED = "the end: something failed for good"
    SUSPENDED = "the end under this leader; all that it can go on from is kept"

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
        """When all tasks have ended, the job has."""
        return (after := JOB_LIFE[self].get(JobCause.ENDED)) is not None and not JOB_LIFE[after]


@unique
class JobCause(Enum):
    """What moves a job from one state to another; the value is the text in the diagram."""

    START = "its master is up"
    RECONCILE = "an earlier leader has left tasks running"
    SLOTS = "there are slots to start in"
    UP = "all tasks run that can"
    FAILURE = "something failed, and is tried again"
    RESCALE = "its parallelism changes"
    DONE = "all tasks have finished, or a stop is committed"
    CANCEL = "a user cancels it"
    FATAL = "something failed for good"
    ENDED = "all tasks have ended"
    SUSPEND = "its cluster is shut down"
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
    _S.RUNNING: {_C.DONE: _S.FINISHING, _C.RESCALE: _S.RESCALING, **_FAILS},
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
"""State -> what may happen to it -> the state that follows; what nothing can happen to is an end."""

_SHOWN_AS: Final[Mapping[JobState, JobStatus]] = {
    **{state: JobStatus[state.name] for state in JobState if state.name in JobStatus.__members__},
    _S.INITIAL: JobStatus.INITIALIZING,
    _S.STARTING: JobStatus.CREATED,
    _S.RESCALING: JobStatus.RESTARTING,
    _S.WAITING: JobStatus.RESTARTING,
    _S.FINISHING: JobStatus.RUNNING,
    _S.SUSPENDING: JobStatus.RUNNING,  # a leader that dies now leaves a job that goes on
}


S = TypeVar("S", bound=Enum)


def job_steps(shown_as: Callable[[JobState], S]) -> dict[S, dict[S, str]]:
    """`JOB_LIFE` as it is seen from somewhere: what follows what, each with all that leads to it."""
    steps: dict[S, dict[S, dict[str, None]]] = {shown_as(state): {} for state in JOB_LIFE}
    for state, row in JOB_LIFE.items():
        for cause, after in row.items():
            if shown_as(after) is not shown_as(state):
                steps[shown_as(state)].setdefault(shown_as(after), {})[cause.value] = None
    return {a: {b: ", or ".join(causes) for b, causes in found.items()} for a, found in steps.items()}


JOB_TRANSITIONS: Final[Mapping[JobStatus, Mapping[JobStatus, str]]] = job_steps(lambda state: state.status)
"""What people see: status -> the statuses that may follow, each with what leads to it."""


class JobLog(StateLog[JobState]):
    """A job's state, which moves along `JOB_LIFE` only."""

    __slots__ = ()

    def __init__(self, job: JobId) -> None:
        super().__init__(
            f"job {job}", JobState.INITIAL, {s: set(row.values()) for s, row in JOB_LIFE.items()}
        )

    def allows(self, cause: JobCause) -> bool:
        """That can happen to it now."""
        return cause in JOB_LIFE[self.state]

    def on(self, cause: JobCause, why: str) -> None:
        """It happens. `why`: the case at hand, for the story.

        Raises:
            IllegalTransition: that cannot happen in its state.
        """
        after = JOB_LIFE[self.state].get(cause)
        if after is None:
            raise IllegalTransition(
                subject=self._subject, state=self.state, wanted=cause, why=why, story=self.story
            )
        self.to(after, why)
