"""Changes of a job's parallelism: a user asks for one, or (adaptive) slots came or went. Pure.

A change begins with a checkpoint, so that little is done twice; then all tasks end and start again from it at
the new parallelism. The order of it:

    wanted ── slots are there ── checkpoint is durable ──► due ── all tasks end ──► new graph ──► RUNNING
                                        ▲                   │
                                        └─ an aligned one ──┘ rows in flight bind it to the old graph

A job that is not adaptive keeps running until it has the slots of the wider graph: without them nothing
happens to it. An adaptive one runs on what there is: where the slots allow no other parallelism than it has,
it keeps running, too, and what was asked for is its upper bound from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from unistream.base.errors import ConfigError
from unistream.core.checkpoint import CheckpointCoordinator, Request
from unistream.core.contract import AnswerRequest, Outbox, RescaleRequested
from unistream.core.job.adaptive import Adaptive
from unistream.core.job.scaling import fit, with_parallelism
from unistream.core.resource import SlotKind
from unistream.model.elements import SnapshotKind
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure


class Rescaling:
    """At most one change at a time.

    Attributes:
        adaptive: None: the parallelism changes only when a user says so.
        graph: To be started next time that everything starts; None: the one that ran.
        is_due: The checkpoint is there, the tasks may end.
        waits: The slots of `graph` are not there yet.
    """

    def __init__(self, adaptive: Adaptive | None, coordinator: CheckpointCoordinator, outbox: Outbox) -> None:
        self.adaptive = adaptive
        self.graph: JobGraph | None = None
        self.is_due = False
        self.waits = False
        self._coordinator = coordinator
        self._outbox = outbox
        self._count = 0
        self._under_way = False
        self._aligned = False
        self._asked: str | None = None  # by a user who waits for the answer
        self._seen: set[str] = set()

    def request(
        self, event: RescaleRequested, current: JobGraph, slots: Mapping[SlotKind, int]
    ) -> TaskFailure | None:
        """A user wants another parallelism."""
        if event.request in self._seen:
            return None
        self._seen.add(event.request)
        widest = self.wanted(current)
        try:
            wanted = with_parallelism(widest, event.parallelism)
        except ConfigError as error:
            self._answer(event.request, str(error))
            return None
        if self._under_way:
            self._answer(event.request, "the job is being rescaled already")
        elif not self._coordinator.is_active:
            self._answer(event.request, self._coordinator.why_inactive)
        elif wanted == widest:
            self._answer(event.request, None)
        else:
            self._asked, self.graph, self._under_way = event.request, wanted, True
            self.waits = self.adaptive is None or self.target(current, slots) == current
            return None if self.waits else self._begin()
        return None

    def go_on(self, current: JobGraph, slots: Mapping[SlotKind, int]) -> TaskFailure | None:
        """The slots of `graph` are there; an adaptive job does with those that came in time."""
        self.waits = False
        if self.adaptive is None or self.target(current, slots) != current:
            return self._begin()
        self.take()
        self.done()
        return None

    def target(self, current: JobGraph, slots: Mapping[SlotKind, int]) -> JobGraph:
        """What would run with these slots. `current`: runs now."""
        wanted = self.graph or self.wanted(current)
        return wanted if self.adaptive is None else fit(wanted, slots) or current

    def wanted(self, current: JobGraph) -> JobGraph:
        """The graph that runs when there are enough slots."""
        return self.adaptive.desired if self.adaptive is not None else current

    def grow(self, current: JobGraph, slots: Callable[[], Mapping[SlotKind, int]]) -> TaskFailure | None:
        """Something about the slots may have changed; maybe an adaptive job can be wider."""
        if self.adaptive is None or self._under_way or not self._coordinator.is_active:
            return None
        return self._begin() if self.adaptive.should_grow(current, slots()) else None

    def _begin(self, *, aligned: bool = False) -> TaskFailure | None:
        self._under_way, self._aligned = True, aligned
        self._count += 1
        request = Request(
            id=f"rescale {self._count}",
            kind=SnapshotKind.CHECKPOINT,
            target=None,
            aligned=aligned,
            on_done=self._checkpointed,
        )
        return self._coordinator.want(request)

    def _checkpointed(self, path: str | None, error: str | None) -> None:
        if path is not None:
            self.is_due = True
        else:
            self.given_up(f"the checkpoint before it failed: {error}")

    def does_not_fit(self, why: str) -> TaskFailure | None:
        """The new graph cannot start from the checkpoint: from one without rows in flight it can."""
        self.is_due = False
        if not self._aligned:
            return self._begin(aligned=True)
        self.given_up(why)
        return None

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
        """It will not happen; nothing, if nothing was to happen."""
        if not self._under_way:
            return
        self._under_way = self.is_due = self.waits = False
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
