"""Ports of a master that contends: loops that wait while it is suspended, and senders that are judged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, TypeVar

from tests.support.masters.checkers import Decisions
from unistream.base.ids import JobId, LeaderEpoch, TaskManagerId
from unistream.master.service.senders import OnOutcome, OutgoingMessage
from unistream.model.messages import ToTaskManager
from unistream.testing.sim.network import SimSenders
from unistream.testing.sim.shells import IO, SimLoop, SimPool
from unistream.testing.sim.store import MasterStorage, SimStore, Witness
from unistream.testing.sim.world import Process, World

E = TypeVar("E")
T = TypeVar("T")

POLL_MS: Final = 100.0  # as `Leadership` does


class GatedLoop(SimLoop[E, T], Generic[E, T]):
    """A loop whose steps begin with `Leadership.await_leading`: that must not wait in a simulation, so no
    step is taken while it would."""

    def __init__(self, world: World, process: Process, decisions: Decisions) -> None:
        super().__init__(world, process)
        self._decisions = decisions
        self._is_started = False
        self._owed = 0  # steps for what came before it began; a master that cannot begin never starts it

    def start(self, begin: Callable[[], bool], step: Callable[[], bool]) -> None:
        def first() -> bool:
            goes_on = begin()
            self._is_started = True
            for _ in range(self._owed):
                self._world.at(self._world.between(0.02, 1.5), self._one, self._process)
            return goes_on

        super().start(first, step)

    def _one(self) -> None:
        if not self._is_started:
            self._owed += 1
        elif self.is_open and self._decisions.must_wait():
            self._world.sometimes("a loop waited while its master was suspended")
            self._world.at(POLL_MS, self._one, self._process)
        else:
            with self._decisions.step():
                super()._one()


class JudgedSenders:
    """`master.ports.Messages`: each message is a decision, made when it is queued."""

    def __init__(self, senders: SimSenders, decisions: Decisions) -> None:
        self._senders = senders
        self._decisions = decisions
        self.forget = senders.forget
        self.close = senders.close

    def send(
        self,
        task_manager: TaskManagerId,
        address: str,
        message: ToTaskManager,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        self._decisions.send(message)
        self._senders.send(task_manager, address, message, on_outcome)

    def send_all(
        self, task_manager: TaskManagerId, address: str, messages: Sequence[OutgoingMessage]
    ) -> None:
        for outgoing in messages:
            self._decisions.send(outgoing.message)
        self._senders.send_all(task_manager, address, messages)


class DeferredPool(SimPool):
    """All work a while later, on the thread of the jobs: none of it happens inside of a decision.

    Args:
        busy_ms: How long it takes until something is begun.
    """

    def __init__(
        self, store: SimStore, process: Process, storage: MasterStorage, busy_ms: Callable[[], float]
    ) -> None:
        super().__init__(store, process, storage)
        self._busy_ms = busy_ms
        self._work: deque[tuple[Callable[[], None], Future[None]]] = deque()

    def submit(self, work: Callable[..., None], /, *args: Any, **kwargs: Any) -> Future[None]:
        if args and isinstance(args[0], IO):
            return self._begin(partial(super().submit, work, *args, **kwargs))
        future: Future[None] = Future()
        self._work.append((lambda: work(*args, **kwargs), future))
        self._world.at(self._world.between(0.2, 20), self._next, self._process)
        return future

    def _begin(self, submit: Callable[[], Future[None]]) -> Future[None]:
        busy_ms = self._busy_ms()
        if not busy_ms:
            return submit()

        def begin() -> None:
            submit()

        self._world.sometimes("a pool of a master was busy")
        self._world.at(busy_ms, begin, self._process)
        return Future()

    def wait(self, work: Iterable[Future[None]], timeout_s: float) -> None:
        while self._work:
            self._next()

    def _next(self) -> None:
        if self._work:
            work, future = self._work.popleft()
            work()
            future.set_result(None)

    def _perform(self, command: object, work: Callable[[], None]) -> None:
        work()


class UnfencedStorage(MasterStorage):
    """The storage of checkpoints knows no leaders: an old one can write files there, and nothing points to
    them.

    Args:
        before: Called before checkpoints are listed or removed; may take long.
    """

    def __init__(
        self, store: SimStore, epoch: LeaderEpoch, witness: Witness, before: Callable[[], None]
    ) -> None:
        super().__init__(store, epoch, witness)
        self._before = before

    def check_epoch(self) -> None:
        """No fence."""

    def directories(self, job: JobId) -> Sequence[str]:
        self._before()
        if self._epoch < self._store.epoch:
            self._store.world.sometimes("a former leader listed checkpoints")
        return super().directories(job)

    def discard(self, directory: str, shared: Sequence[str] = ()) -> None:
        self._before()
        super().discard(directory, shared)
