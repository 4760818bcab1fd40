"""Requests between processes: lost, late, repeated, reordered; and answers that are lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId, EdgeId, TaskManagerId
from unistream.master.senders import Failed, Fate, Letter
from unistream.model.codec import decode_answer, encode
from unistream.model.messages import Answer, Refused, ReleasePartitions, ToJobManager, ToTaskManager
from unistream.testing.sim.world import Process, World

RPC_TIMEOUT_MS: Final = 3_000
RETRY_FIRST_MS: Final = 50
RETRY_LONGEST_MS: Final = 2_000

Done = Callable[[Answer | None], None]
"""Called once with the answer, or None: there was none in time, what became of the request is unknown."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who listens."""

    process: Process
    handle: Callable[[bytes], bytes]


class Network:
    """All addresses of a run.

    Attributes:
        not_released: Stored results that nobody may have been told to release: the request had no answer.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.endpoints: dict[str, Endpoint] = {}
        self.not_released: set[tuple[AttemptId, EdgeId]] = set()

    def delay_ms(self) -> float:
        """Of one message."""
        world = self.world
        if world.chance(world.faults.late):
            return world.between(100, 6_000)
        return world.between(0.2, 4.0)

    def call(self, source: Process, address: str, message: ToTaskManager | ToJobManager, done: Done) -> None:
        """Sends one request; `done` happens in `source`."""
        world = self.world
        call = _Call(self, source, address, message, done)
        if world.chance(world.faults.loss):
            world.sometimes("a request was lost")
            world.tell(f"lost: {call.name} to {address}")
        else:
            world.at(self.delay_ms(), call.arrive)
        if world.chance(world.faults.duplicate):
            world.sometimes("a request came twice")
            world.at(self.delay_ms(), call.arrive)
        world.at(RPC_TIMEOUT_MS, call.time_out, source)


class _Call:
    """One request under way."""

    __slots__ = (
        "_address",
        "_done",
        "_message",
        "_network",
        "_request",
        "_settled",
        "_source",
        "_world",
        "name",
    )

    def __init__(
        self,
        network: Network,
        source: Process,
        address: str,
        message: ToTaskManager | ToJobManager,
        done: Done,
    ) -> None:
        self._network = network
        self._world = network.world
        self._source = source
        self._address = address
        self._message = message
        self._request = encode(message)
        self._done = done
        self._settled = False
        self.name = described(message)

    def arrive(self) -> None:
        world = self._world
        endpoint = self._network.endpoints.get(self._address)
        if endpoint is None or not endpoint.process.is_alive:
            world.at(2, self.time_out, self._source)
            return
        if endpoint.process.is_paused:
            endpoint.process.deferred.append(self.arrive)
            return
        if self._settled:
            world.sometimes("a request arrived after its sender had given it up, or again")
        answer = endpoint.handle(self._request)
        world.tell(f"{self.name} -> {self._address}: {_short(answer)}")
        if world.chance(world.faults.loss):
            world.sometimes("an answer was lost")
            world.tell(f"lost: the answer to {self.name}")
            return
        world.at(self._network.delay_ms(), lambda: self._settle(decode_answer(answer)), self._source)

    def time_out(self) -> None:
        self._settle(None)

    def _settle(self, answer: Answer | None) -> None:
        if not self._settled:
            self._settled = True
            if answer is None and isinstance(self._message, ReleasePartitions):
                self._network.not_released.update(self._message.partitions)
            self._done(answer)


def described(message: ToTaskManager | ToJobManager) -> str:
    """A message in the story."""
    parts = [type(message).__name__]
    for name in ("attempt", "deployment", "task_manager", "checkpoint_id", "state"):
        value = getattr(message, name, None)
        if value is not None:
            parts.append(str(value.attempt) if name == "deployment" else str(value))
    failure = getattr(message, "failure", None)
    if failure is not None:
        parts.append(f"({failure.kind}: {failure.message})")
    return " ".join(parts)


def _short(answer: bytes) -> str:
    decoded = decode_answer(answer)
    return f"refused ({decoded.reason})" if isinstance(decoded, Refused) else type(decoded).__name__


class SimSenders:
    """`master.senders.Senders` of one master: in order, one request at a time for each worker."""

    def __init__(self, world: World, network: Network, process: Process) -> None:
        self._world = world
        self._network = network
        self._process = process
        self._senders: dict[TaskManagerId, _Sender] = {}

    def send(
        self, task_manager: TaskManagerId, address: str, message: ToTaskManager, fate: Fate | None = None
    ) -> None:
        """Queues `message` behind those already queued for this worker."""
        sender = self._senders.get(task_manager)
        if sender is None:
            sender = self._senders[task_manager] = _Sender(
                self._world, self._network, self._process, task_manager, address
            )
        sender.send(message, fate or (lambda _failed: None))

    def send_all(self, task_manager: TaskManagerId, address: str, letters: Sequence[Letter]) -> None:
        """As `send`, each."""
        for letter in letters:
            self.send(task_manager, address, letter.message, letter.fate)

    def forget(self, task_manager: TaskManagerId, reason: str) -> None:
        """The worker is gone: what is still queued for it fails with `reason`."""
        sender = self._senders.pop(task_manager, None)
        if sender is not None:
            sender.give_up(reason)

    def close(self) -> None:
        """Nothing is held."""


class _Sender:
    """One worker's queue."""

    def __init__(
        self, world: World, network: Network, process: Process, task_manager: TaskManagerId, address: str
    ) -> None:
        self._world = world
        self._network = network
        self._process = process
        self._task_manager = task_manager
        self._address = address
        self._queue: deque[tuple[ToTaskManager, Fate]] = deque()
        self._busy = False
        self._given_up: str | None = None

    def send(self, message: ToTaskManager, fate: Fate) -> None:
        self._queue.append((message, fate))
        self._next()

    def give_up(self, reason: str) -> None:
        self._given_up = reason
        self._world.at(0, self._next, self._process)

    def _next(self) -> None:
        if self._busy or not self._queue:
            return
        message, fate = self._queue.popleft()
        if self._given_up is not None:
            self._world.sometimes("a message was given up with its worker")
            fate(Failed(self._given_up, refused=True))
            self._next()
            return
        self._busy = True
        self._network.call(
            self._process, self._address, message, lambda answer: self._answered(message, fate, answer)
        )

    def _answered(self, message: ToTaskManager, fate: Fate, answer: Answer | None) -> None:
        self._busy = False
        name = type(message).__name__
        if answer is None:
            self._world.tell(f"no answer: {described(message)} from {self._task_manager}")
            fate(Failed(f"{self._task_manager} did not answer {name}"))
        elif isinstance(answer, Refused):
            self._world.sometimes(f"{name} was refused")
            fate(Failed(f"{self._task_manager} refused {name}: {answer.reason}", refused=True))
        else:
            fate(None)
        self._next()


class PatientReports:
    """`worker.reports.ReportSender` without its thread: each report is repeated until it is answered."""

    def __init__(
        self,
        world: World,
        network: Network,
        process: Process,
        master: str,
        *,
        patience_ms: int,
        on_answer: Callable[[], None],
        on_give_up: Callable[[str], None],
    ) -> None:
        self._world = world
        self._network = network
        self._process = process
        self._master = master
        self._patience_ms = patience_ms
        self._on_answer = on_answer
        self._on_give_up = on_give_up
        self._queue: deque[tuple[ToJobManager, Done]] = deque()
        self._busy = False
        self._began_ms = 0.0
        self._pause_ms = float(RETRY_FIRST_MS)

    def post(self, message: ToJobManager) -> None:
        """`described` by the task; never blocks."""
        self.ask(message, lambda _answer: None)

    def ask(self, message: ToJobManager, done: Done) -> None:
        """As `post`, and `done` gets the answer."""
        self._queue.append((message, done))
        if not self._busy:
            self._start()

    def close(self, timeout_s: float) -> None:
        """Nothing is held."""

    def _start(self) -> None:
        self._busy = True
        self._began_ms = self._world.now
        self._pause_ms = RETRY_FIRST_MS
        self._try()

    def _try(self) -> None:
        self._network.call(self._process, self._master, self._queue[0][0], self._answered)

    def _answered(self, answer: Answer | None) -> None:
        if answer is None:
            self._again()
            return
        _, done = self._queue.popleft()
        self._busy = False
        self._on_answer()
        done(answer)
        if self._queue and not self._busy:
            self._start()

    def _again(self) -> None:
        silent_ms = self._world.now - self._began_ms
        if silent_ms >= self._patience_ms:
            self._world.sometimes("a worker gave up its master")
            self._on_give_up(f"the master did not answer for {silent_ms:.0f} ms")
            return
        self._world.sometimes("a report was repeated")
        self._world.at(self._pause_ms, self._try, self._process)
        self._pause_ms = min(2 * self._pause_ms, RETRY_LONGEST_MS)


def unexpected(message: object) -> Answer:
    """For a client that must not be used: in a simulation nobody waits inside a call."""
    raise ProtocolError(f"a blocking call in a simulation: {message!r}")
