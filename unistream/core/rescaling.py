"""Changes of a job's parallelism: a user asks for one, or (adaptive) slots came or went. Pure.

A change begins with a checkpoint, so that little is done twice; then all tasks end and start again from it at
the new parallelism. The order of it:

    wanted ── checkpoint is durable ──► due ── all tasks end ──► the new graph starts ──► RUNNING
"""

from __future__ import annotations

from collections.abc import Mapping

from unistream.base.errors import ConfigError
from unistream.core.adaptive import Adaptive
from unistream.core.checkpoint import CheckpointCoordinator
from unistream.core.checkpoint_pending import Request
from unistream.core.job_messages import AnswerRequest, RescaleRequested
from unistream.core.outbox import Outbox
from unistream.core.scaling import with_parallelism
from unistream.model.elements import SnapshotKind
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure

NOT_RUNNING = "not all tasks are running; try again when it is RUNNING"


class Rescaling:
    """At most one change at a time.

    Attributes:
        adaptive: None: the parallelism changes only when a user says so.
        graph: To be started next time that everything starts; None: the one that ran.
        is_due: The checkpoint is there, the tasks may end.
    """

    def __init__(self, adaptive: Adaptive | None, coordinator: CheckpointCoordinator, outbox: Outbox) -> None:
        self.adaptive = adaptive
        self.graph: JobGraph | None = None
        self.is_due = False
        self._coordinator = coordinator
        self._outbox = outbox
        self._count = 0
        self._under_way = False
        self._asked: str | None = None  # by a user who waits for the answer
        self._seen: set[str] = set()

    def request(self, event: RescaleRequested, current: JobGraph) -> TaskFailure | None:
        """A user wants another parallelism."""
        if event.request in self._seen:
            return None
        self._seen.add(event.request)
        widest = self.adaptive.desired if self.adaptive is not None else current
        try:
            wanted = with_parallelism(widest, event.parallelism)
        except ConfigError as error:
            self._answer(event.request, str(error))
            return None
        if self._under_way:
            self._answer(event.request, "the job is being rescaled already")
        elif not self._coordinator.is_active:
            self._answer(event.request, NOT_RUNNING)
        elif wanted == widest:
            self._answer(event.request, None)
        else:
            self._asked, self.graph = event.request, wanted
            return self._begin()
        return None

    def grow(self, current: JobGraph, slots: Mapping[str, int]) -> TaskFailure | None:
        """Something about the slots has changed; maybe an adaptive job can be wider."""
        if self.adaptive is None or self._under_way or not self._coordinator.is_active:
            return None
        return self._begin() if self.adaptive.should_grow(current, slots) else None

    def _begin(self) -> TaskFailure | None:
        self._under_way = True
        self._count += 1
        request = Request(
            id=f"rescale {self._count}",
            kind=SnapshotKind.CHECKPOINT,
            target=None,
            on_done=self._checkpointed,
        )
        return self._coordinator.want(request)

    def _checkpointed(self, path: str | None, error: str | None) -> None:
        if path is not None:
            self.is_due = True
        else:
            self.given_up(f"the checkpoint before it failed: {error}")

    def take(self) -> None:
        """The job ends its tasks for it."""
        self.is_due = False
        if self.adaptive is not None and self.graph is not None:
            self.adaptive.desired, self.graph = self.graph, None

    def done(self) -> None:
        """The job runs (again)."""
        if self._under_way and not self.is_due:
            self._under_way = False
            if self._asked is not None:
                self._answer(self._asked, None)

    def given_up(self, why: str) -> None:
        """It will not happen."""
        self._under_way = self.is_due = False
        self.graph = None
        if self.adaptive is not None:
            self.adaptive.cool_down()
        if self._asked is not None:
            self._answer(self._asked, f"the job was not rescaled: {why}")

    def _answer(self, request: str, error: str | None) -> None:
        if request == self._asked:
            self._asked = None
        path = "" if error is None else None
        self._outbox.add(AnswerRequest(request=request, path=path, error=error))
