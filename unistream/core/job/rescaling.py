"""Changes of a job's parallelism: a user requests one, or (adaptive) slots came or were lost. Pure.

A change begins with a checkpoint, so that little is done twice; then all tasks restart from it at the new
parallelism. `CHANGES` has the steps. A job that is to be wider keeps running until it has the slots. If the
slots allow an adaptive job no other parallelism than its own, it keeps running, too, and the requested
parallelism is its upper bound from then on. What is sure not to fit into the memory of the slots is refused,
by the state of the latest checkpoint, and again by that of the change (`room`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from typing import Final

from unistream.base.errors import ConfigError
from unistream.core import contract
from unistream.core.graph import ExecutionPlan
from unistream.core.job.parts import JobParts
from unistream.core.job.scaling import with_parallelism
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure
from unistream.model.snapshot_kind import SnapshotKind

RESCALE_SLOTS: Final = contract.Timer(contract.TimerKind.SLOT_REQUEST, -1)  # no bulk has that id


@unique
class RescaleState(Enum):
    """The state of a change of parallelism; the value describes it."""

    NONE = "no change is in progress"
    SLOTS = "it waits for slots; the job keeps running"
    CHECKPOINT = "a checkpoint is taken for it"
    DUE = "the checkpoint is durable: the tasks may end"
    ALIGNED = "another checkpoint is taken, without in-flight rows"
    ALIGNED_DUE = "that one is durable: the tasks may end"
    RESTART = "all tasks end and start again"


_GIVEN_UP: Final = {RescaleState.NONE: "it is given up"}

CHANGES: Final[Mapping[RescaleState, Mapping[RescaleState, str]]] = {
    RescaleState.NONE: {
        RescaleState.SLOTS: "a user requests what the slots do not allow yet",
        RescaleState.CHECKPOINT: "a user requests it, or (adaptive) more slots came",
    },
    RescaleState.SLOTS: {
        RescaleState.CHECKPOINT: "they have come",
        RescaleState.NONE: "it is given up, or (adaptive) changes only the upper bound",
    },
    RescaleState.CHECKPOINT: {RescaleState.DUE: "it is durable", **_GIVEN_UP},
    RescaleState.DUE: {
        RescaleState.RESTART: "the new graph can start from it",
        RescaleState.ALIGNED: "its in-flight rows fit the old graph only",
        **_GIVEN_UP,
    },
    RescaleState.ALIGNED: {RescaleState.ALIGNED_DUE: "it is durable", **_GIVEN_UP},
    RescaleState.ALIGNED_DUE: {RescaleState.RESTART: "the new graph can start from it", **_GIVEN_UP},
    RescaleState.RESTART: {RescaleState.NONE: "all tasks run, or the job ends"},
}
"""State -> the states that may follow, each with what leads to it."""

_DURABLE: Final = {RescaleState.CHECKPOINT: RescaleState.DUE, RescaleState.ALIGNED: RescaleState.ALIGNED_DUE}


class Rescaling:
    """The change of parallelism that is under way, of which there is at most one at a time.

    Args:
        restart: Restarts all tasks.
    """

    def __init__(self, parts: JobParts, restart: Callable[[], None]) -> None:
        self._parts = parts
        self._restart = restart
        self._log = contract.StateLog(f"rescaling of job {parts.job}", RescaleState.NONE, CHANGES)
        self._wanted: JobGraph | None = None  # requested by a user
        self._request: str | None = None  # the id of the request that is not answered yet
        self._seen: set[str] = set()
        self._count = 0

    @property
    def state(self) -> RescaleState:
        return self._log.state

    @property
    def _graph(self) -> JobGraph:
        """What runs if there are enough slots."""
        return self._wanted or self._parts.scheduling.desired

    @property
    def _target(self) -> JobGraph:
        """What would run with the available slots."""
        return self._parts.scheduling.target(self._graph, self._parts.run.graph)

    # --- requests ---------------------------------------------------------------------------------

    def request(self, event: contract.RescaleRequested) -> TaskFailure | None:
        """Begins the requested change, waits for its slots, or refuses it."""
        if event.request in self._seen:
            return None
        self._seen.add(event.request)
        desired = self._parts.scheduling.desired
        try:
            wanted = with_parallelism(desired, event.parallelism)
        except ConfigError as error:
            self._answer(event.request, str(error))
            return None
        if self.state is not RescaleState.NONE:
            self._answer(event.request, "the job is already being rescaled")
        elif not self._parts.coordinator.is_active:
            self._answer(event.request, self._parts.coordinator.why_inactive)
        elif wanted == desired:
            self._answer(event.request, None)
        elif (why := self._parts.why_no_room(wanted)) is not None:
            self._answer(event.request, f"the job was not rescaled: {why}")
        else:
            self._request, self._wanted = event.request, wanted
            if self._parts.scheduling.may_rescale(wanted, self._parts.run.graph):
                return self._begin(RescaleState.CHECKPOINT)
            self._wait()
        return None

    def _wait(self) -> None:
        self._log.to(RescaleState.SLOTS, "requested")
        self.request_slots()
        self._parts.outbox.set_timer(RESCALE_SLOTS, self._parts.scheduling.rescale_wait_ms)

    def request_slots(self) -> None:
        """Requests the slots that the change waits for; some may have been lost with a worker."""
        if self.state is RescaleState.SLOTS:
            self._parts.slots.request(ExecutionPlan(self._graph).subtasks)

    # --- progress ---------------------------------------------------------------------------------

    def move_on(self) -> TaskFailure | None:
        """Takes the step that is possible now, if any."""
        match self.state:
            case RescaleState.SLOTS if not self._parts.slots.lack(self._graph):
                self._parts.outbox.add(contract.CancelTimer(RESCALE_SLOTS))
                return self._slots_are_there()
            case RescaleState.DUE | RescaleState.ALIGNED_DUE:
                return self._end_tasks()
            case RescaleState.NONE if self._parts.coordinator.is_active:
                if self._parts.scheduling.should_grow(self._parts.run.graph):
                    return self._begin(RescaleState.CHECKPOINT)
        return None

    def overdue(self) -> TaskFailure | None:
        """The slots did not come in time."""
        if self.state is not RescaleState.SLOTS:
            return None
        why = self._parts.scheduling.overdue(self._graph)
        if why is None:
            return self._slots_are_there()
        self.stay(why)
        return None

    def _slots_are_there(self) -> TaskFailure | None:
        """All of them, or as many as came in time. If they change nothing, the job stays as it is."""
        if self._target != self._parts.run.graph:
            return self._begin(RescaleState.CHECKPOINT)
        self._adopt()
        self._finish("only the upper bound changes", None)
        return None

    def _begin(self, change: RescaleState) -> TaskFailure | None:
        self._log.to(change, "a checkpoint first")
        self._count += 1
        request = contract.SnapshotRequest(
            id=f"rescale {self._count}",
            kind=SnapshotKind.CHECKPOINT,
            aligned=change is RescaleState.ALIGNED,
            on_done=self._checkpointed,
        )
        return self._parts.coordinator.request(request)

    def _checkpointed(self, path: str | None, error: str | None) -> None:
        due = _DURABLE.get(self.state)
        if path is None:
            self.give_up(f"the checkpoint for it failed: {error}")
        elif due is not None:
            self._log.to(due, path)

    def _end_tasks(self) -> TaskFailure | None:
        """All tasks end, unless they could not start again."""
        no_room = self._parts.why_no_room(self._target)
        why = self._parts.why_not_in(self._target)
        if no_room is not None:
            self.give_up(no_room)
        elif why is None:
            self.take()
        elif self.state is RescaleState.DUE:
            return self._begin(RescaleState.ALIGNED)
        else:
            self.give_up(why)
        return None

    def take(self) -> None:
        self._log.to(RescaleState.RESTART, "its checkpoint is durable")
        self._adopt()
        self._restart()

    def _adopt(self) -> None:
        self._parts.scheduling.desired, self._wanted = self._graph, None
        self._parts.slots.withdraw(self._graph)

    # --- end --------------------------------------------------------------------------------------

    def done(self) -> None:
        """All tasks run."""
        if self.state is RescaleState.RESTART:
            self._finish("all tasks run", None)

    def stay(self, why: str) -> None:
        """The job did not get the slots, or failed while it waited: it stays as it is."""
        if self.state is RescaleState.SLOTS:
            self.give_up(why)
            self._parts.slots.withdraw(self._graph)

    def leave(self, why: str) -> None:
        """The cluster is shut down: a request stays open, for the next leader goes on with it."""
        self._request = None
        self.give_up(why)

    def give_up(self, why: str) -> None:
        """Ends the change in progress, if any."""
        if self.state is RescaleState.SLOTS:
            self._parts.outbox.add(contract.CancelTimer(RESCALE_SLOTS))
        if self.state is not RescaleState.NONE:
            self._wanted = None
            self._parts.scheduling.cool_down()
            self._finish(why, f"the job was not rescaled: {why}")

    def _finish(self, why: str, error: str | None) -> None:
        self._log.to(RescaleState.NONE, why)
        if self._request is not None:
            self._answer(self._request, error)
            self._request = None
        self._parts.look_for_idle_slots()

    def _answer(self, request: str, error: str | None) -> None:
        path = "" if error is None else None
        self._parts.outbox.add(contract.AnswerRequest(request=request, path=path, error=error))
