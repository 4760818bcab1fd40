"""When the splits of the sources are listed: at every start of the job, and then by interval. Pure.

    RESTING ── start ──► REQUESTED ── found ──► RESTING  (no interval), or
                           │ ▲                WAITING ── timer ──► REQUESTED
                           │ └── timer ──────────┘
                           └── failed, and it was found before ──► WAITING (it is repeated soon)

Each request has a number, and only the answer to the latest one counts: an answer from before a restart may
give the positions of a first start to splits that are new by now. A system that does not answer fails the job
only when nothing was found yet, since then there is nothing to read; later on the readers know best whether
it is there. What no repetition can mend (the topic is deleted) always fails it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from unistream.base.ids import VertexId
from unistream.core.contract import CancelTimer, CommandOutbox, DiscoverSplits, SetTimer, Timer, TimerKind
from unistream.model.graph import SourceInfo
from unistream.model.messages import TaskFailure
from unistream.model.splits import KnownSplits

RETRY_MS: Final = 10_000  # after a discovery that found nothing out; an interval that is shorter wins


class DiscoveryState(Enum):
    """The state of one source's discovery."""

    RESTING = "resting"
    REQUESTED = "requested"
    WAITING = "waiting"  # for its timer


TRANSITIONS: Final = {
    DiscoveryState.RESTING: frozenset({DiscoveryState.REQUESTED}),
    DiscoveryState.REQUESTED: frozenset(DiscoveryState),
    DiscoveryState.WAITING: frozenset({DiscoveryState.REQUESTED, DiscoveryState.RESTING}),
}


class SplitDiscoveries:
    """The discoveries of all sources of a job.

    Args:
        sources: In the order of the graph's vertices.
        former: Of the same job at another parallelism; its requests are void.
    """

    def __init__(
        self,
        sources: dict[VertexId, SourceInfo],
        outbox: CommandOutbox,
        former: SplitDiscoveries | None = None,
    ) -> None:
        self._sources = sources
        self._outbox = outbox
        self._order = list(sources)
        self._states = dict.fromkeys(sources, DiscoveryState.RESTING)
        self._numbers: dict[VertexId, int] = {}
        self._last: int = 0 if former is None else former._last

    def state(self, vertex: VertexId) -> DiscoveryState:
        return self._states[vertex]

    def ask(self, vertex: VertexId, known: KnownSplits | None) -> None:
        """Lists the splits now; a request that is under way does not count any more. `known` None: this is
        the first time."""
        if self._states[vertex] is DiscoveryState.WAITING:
            self._outbox.add(CancelTimer(self._timer(vertex)))
        self._last += 1
        self._numbers[vertex] = self._last
        self._move(vertex, DiscoveryState.REQUESTED)
        self._outbox.add(
            DiscoverSplits(
                vertex=vertex, source=self._sources[vertex], known=known, number=self._numbers[vertex]
            )
        )

    def ask_soon(self, vertex: VertexId, known: KnownSplits | None) -> None:
        """Lists the splits as `ask`, unless a request is under way."""
        if self._states[vertex] is not DiscoveryState.REQUESTED:
            self.ask(vertex, known)

    def is_current(self, vertex: VertexId, number: int) -> bool:
        """Whether this is the answer that is waited for."""
        return self._states.get(vertex) is DiscoveryState.REQUESTED and self._numbers.get(vertex) == number

    def found(self, vertex: VertexId) -> None:
        """The current request was answered."""
        source = self._sources[vertex]
        if source.bounded or source.discovery_interval_ms <= 0:
            self._move(vertex, DiscoveryState.RESTING)
        else:
            self._wait(vertex, source.discovery_interval_ms)

    def failed(self, vertex: VertexId, failure: TaskFailure, *, found_before: bool) -> TaskFailure | None:
        """The current request failed; what the job fails by, if it does."""
        if not (failure.recoverable and found_before):
            self._move(vertex, DiscoveryState.RESTING)
            return failure
        interval_ms = self._sources[vertex].discovery_interval_ms
        self._wait(vertex, min(interval_ms, RETRY_MS) if interval_ms > 0 else RETRY_MS)
        return None

    def due(self, number: int) -> VertexId | None:
        """The timer `number` fired: the source to ask for, None if that was called off meanwhile."""
        vertex = self._order[number] if number < len(self._order) else None
        waits = vertex is not None and self._states[vertex] is DiscoveryState.WAITING
        return vertex if waits else None

    def stop(self) -> None:
        """Nothing is requested until `ask`, and no answer counts."""
        for vertex, state in self._states.items():
            if state is DiscoveryState.WAITING:
                self._outbox.add(CancelTimer(self._timer(vertex)))
            if state is not DiscoveryState.RESTING:
                self._move(vertex, DiscoveryState.RESTING)

    def _wait(self, vertex: VertexId, delay_ms: int) -> None:
        self._move(vertex, DiscoveryState.WAITING)
        self._outbox.add(SetTimer(timer=self._timer(vertex), delay_ms=delay_ms))

    def _timer(self, vertex: VertexId) -> Timer:
        return Timer(TimerKind.SPLIT_DISCOVERY, self._order.index(vertex))

    def _move(self, vertex: VertexId, state: DiscoveryState) -> None:
        before = self._states[vertex]
        assert state in TRANSITIONS[before], f"{vertex}: {before} -> {state}"
        self._states[vertex] = state
