"""Requests between processes: lost, late, repeated, reordered; and answers that are lost.

Queued messages share a request, packed by the product's own code (`model.bundle`): so a whole bundle is lost,
late or handled twice, or all its answers are lost. `Network.bundle` is the most messages of a bundle; in runs
with one each message is a request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from unistream.base.ids import TaskManagerId
from unistream.master.service import OnOutcome, OutgoingMessage, SendFailure, outcome_of, unanswered
from unistream.model import messages as msg
from unistream.model.bundle import Parcel, parcels
from unistream.model.codec import decode_answer, encode
from unistream.port.transport import ControlHandler
from unistream.testing.sim.releases import PartitionReleases
from unistream.testing.sim.world import Process, World

RPC_TIMEOUT_MS: Final = 3_000
RETRY_FIRST_MS: Final = 50
RETRY_LONGEST_MS: Final = 2_000

M = TypeVar("M", bound=msg.ToTaskManager | msg.ToJobManager)
AnyParcel = Parcel[Any]
Done = Callable[[msg.Answer | None], None]
"""Called once with the answer; None: a timeout, the outcome of the request is unknown."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A process that listens."""

    process: Process
    handle: Callable[[bytes], bytes]


class SimServer:
    """Listens at the address of its process, or of `name`."""

    def __init__(self, network: Network, process: Process, control: ControlHandler, name: str = "") -> None:
        self.address = f"sim://{name or process.name}"
        self._endpoints = network.endpoints
        self._endpoints[self.address] = Endpoint(process, control)

    def close(self) -> None:
        self._endpoints.pop(self.address, None)


class Network:
    """All addresses of a run.

    Attributes:
        bundle: How many messages one request holds at most.
        releases: Checks that a release without an answer is repeated.
    """

    def __init__(self, world: World, bundle: int) -> None:
        self.world = world
        self.bundle = bundle
        self.endpoints: dict[str, Endpoint] = {}
        self.releases = PartitionReleases(world)

    def delay_ms(self) -> float:
        """The delay of one message."""
        world = self.world
        if world.chance(world.faults.late):
            return world.between(100, 6_000)
        return world.between(0.2, 4.0)

    def first_parcel(self, messages: Iterable[M]) -> Parcel[M]:
        """The first of `messages` (at least one), as many as the next request holds."""
        return next(parcels(list(islice(messages, self.bundle))))

    def call(
        self, source: Process, address: str, message: msg.ToTaskManager | msg.ToJobManager, done: Done
    ) -> None:
        """Sends one message alone; `done` happens in `source`."""
        self.call_all(source, address, Parcel((message,), message), done)

    def call_all(self, source: Process, address: str, parcel: AnyParcel, done: Done) -> None:
        """Sends one request; `done` happens in `source`, once for all its messages."""
        world = self.world
        if len(parcel.messages) > 1:
            world.sometimes("messages shared a request")
        call = _Call(self, source, address, parcel, done)
        if world.chance(world.faults.loss):
            world.sometimes("a request was lost" if len(parcel.messages) == 1 else "a bundle was lost")
            world.log(f"lost: {call.name} to {address}", source.name, call.target, lost=True)
        else:
            world.at(self.delay_ms(), call.arrive)
        if world.chance(world.faults.duplicate):
            world.sometimes("a request came twice")
            world.at(self.delay_ms(), call.arrive)
        world.at(RPC_TIMEOUT_MS, call.time_out, source)


@dataclass(slots=True)
class _Call:
    """One request in flight."""

    network: Network
    source: Process
    address: str
    parcel: AnyParcel
    done: Done
    settled: bool = False

    @property
    def name(self) -> str:
        return ", ".join(map(described, self.parcel.messages))

    @property
    def target(self) -> str:
        """The process at the address, or the address's own name."""
        endpoint = self.network.endpoints.get(self.address)
        return self.address.partition("://")[2] if endpoint is None else endpoint.process.name

    def arrive(self) -> None:
        world = self.network.world
        endpoint = self.network.endpoints.get(self.address)
        if endpoint is None or not endpoint.process.is_alive:
            world.at(2, self.time_out, self.source)
            return
        if endpoint.process.is_paused:
            endpoint.process.deferred.append(self.arrive)
            return
        if self.settled:
            world.sometimes("a request arrived after its timeout, or again")
        answer = decode_answer(endpoint.handle(encode(self.parcel.request)))
        text = f"{self.name} -> {self.address}: {self._short(answer)}"
        world.log(text, self.source.name, endpoint.process.name)
        if world.chance(world.faults.loss):
            alone = len(self.parcel.messages) == 1
            world.sometimes("an answer was lost" if alone else "the answers to a bundle were lost")
            world.log(f"lost: the answer to {self.name}", endpoint.process.name, self.source.name, lost=True)
            return
        world.at(self.network.delay_ms(), lambda: self._settle(answer), self.source)

    def _short(self, answer: msg.Answer) -> str:
        """The answer to each message. A message that breaks its receiver is a defect, which ends the run."""
        texts = []
        for one in self.parcel.answers(answer):
            if isinstance(one, msg.Broken):
                raise self.network.world.violated(f"I16: {self.name} broke its receiver: {one.reason}")
            texts.append(f"refused ({one.reason})" if isinstance(one, msg.Refused) else type(one).__name__)
        if isinstance(answer, msg.Answers) and len(set(texts)) > 1:
            self.network.world.sometimes("one message of a bundle was refused, and another was not")
        return ", ".join(texts)

    def time_out(self) -> None:
        self._settle(None)

    def _settle(self, answer: msg.Answer | None) -> None:
        if not self.settled:
            self.settled = True
            self.done(answer)


def described(message: msg.ToTaskManager | msg.ToJobManager) -> str:
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


class SimSenders:
    """`master.senders.Senders` of one master: in order, one request at a time for each worker."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._senders: dict[TaskManagerId, _RequestQueue] = {}

    def send(
        self,
        task_manager: TaskManagerId,
        address: str,
        message: msg.ToTaskManager,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        """Queues `message` for this worker."""
        self.send_all(task_manager, address, [OutgoingMessage(message, on_outcome or (lambda _failed: None))])

    def send_all(
        self, task_manager: TaskManagerId, address: str, messages: Sequence[OutgoingMessage]
    ) -> None:
        """Queues these; they share requests, as far as bundles can hold them."""
        sender = self._senders.get(task_manager)
        if sender is None:
            sender = _RequestQueue(self._network, self._process, task_manager, address)
            self._senders[task_manager] = sender
        sender.send(messages)

    def forget(self, task_manager: TaskManagerId, reason: str) -> None:
        """The worker is lost: messages queued for it fail with `reason`."""
        sender = self._senders.pop(task_manager, None)
        if sender is not None:
            sender.give_up(reason)

    def close(self) -> None:
        """Nothing is held."""


class _RequestQueue:
    """One worker's queue: messages queued during a request share the next one."""

    def __init__(self, network: Network, process: Process, task_manager: TaskManagerId, address: str) -> None:
        self._world = network.world
        self._network = network
        self._process = process
        self._task_manager = task_manager
        self._address = address
        self._queue: deque[OutgoingMessage] = deque()
        self._busy = False
        self._given_up: str | None = None

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        self._queue.extend(messages)
        for outgoing in messages:
            if isinstance(outgoing.message, msg.ReleasePartitions):
                self._network.releases.sent(self._task_manager, outgoing.message)
        self._next()

    def give_up(self, reason: str) -> None:
        self._given_up = reason
        self._world.at(0, self._next, self._process)

    def _next(self) -> None:
        if self._busy:
            return
        while self._queue and self._given_up is not None:
            self._world.sometimes("a queued message was dropped with its worker")
            self._queue.popleft().on_outcome(SendFailure(self._given_up, refused=True))
        if not self._queue or self._busy:
            return
        parcel = self._network.first_parcel(outgoing.message for outgoing in self._queue)
        messages = [self._queue.popleft() for _ in parcel.messages]
        self._busy = True
        self._network.call_all(
            self._process,
            self._address,
            parcel,
            lambda answer: self._answered(parcel, messages, answer),
        )

    def _answered(
        self,
        parcel: Parcel[msg.ToTaskManager],
        messages: Sequence[OutgoingMessage],
        answer: msg.Answer | None,
    ) -> None:
        self._busy = False
        if answer is None:
            failed: Sequence[SendFailure | None] = unanswered(
                self._task_manager, parcel, "no answer", nobody_there=False
            )
        else:
            answers = parcel.answers(answer)
            failed = [
                outcome_of(self._task_manager, *pair) for pair in zip(parcel.messages, answers, strict=True)
            ]
        for outgoing, outcome in zip(messages, failed, strict=True):
            if answer is None:
                text = f"no answer: {described(outgoing.message)} from {self._task_manager}"
                self._world.log(text, self._process.name)
                if isinstance(outgoing.message, msg.ReleasePartitions):
                    self._network.releases.unanswered(self._process, self._task_manager, outgoing.message)
            elif outcome is not None:
                self._world.sometimes(f"{type(outgoing.message).__name__} was refused")
            elif isinstance(outgoing.message, msg.ReleasePartitions):
                self._network.releases.answered(self._task_manager, outgoing.message)
            outgoing.on_outcome(outcome)
        self._next()


class PatientReports:
    """`worker.process.ports.ReportChannel` without a thread: a request is repeated until it is answered."""

    def __init__(
        self,
        network: Network,
        process: Process,
        master: str,
        *,
        patience_ms: int,
        on_answer: Callable[[], None],
        on_give_up: Callable[[str], None],
    ) -> None:
        self._world = network.world
        self._network = network
        self._process = process
        self._master = master
        self._patience_ms = patience_ms
        self._on_answer = on_answer
        self._on_give_up = on_give_up
        self._queue: deque[msg.ToJobManager] = deque()
        self._under_way: tuple[Parcel[msg.ToJobManager], Callable[[msg.Answer], None]] | None = None
        self._began_ms = 0.0
        self._pause_ms = float(RETRY_FIRST_MS)

    def post(self, message: msg.ToJobManager) -> None:
        """Queues a report; never blocks."""
        self._queue.append(message)
        self._next()

    def start(self) -> None:
        """Nothing to start."""

    def register(self, message: msg.RegisterTaskManager, done: Callable[[msg.Answer], None]) -> None:
        """Sends it alone, before any report; `done` gets the answer."""
        assert self._under_way is None, "a worker registers first"
        self._send(Parcel((message,), message), done)

    def close(self, timeout_s: float) -> None:
        """Nothing is held."""

    def _next(self) -> None:
        if self._queue and self._under_way is None:
            parcel = self._network.first_parcel(self._queue)
            for _ in parcel.messages:
                self._queue.popleft()
            self._send(parcel, lambda _answer: None)

    def _send(self, parcel: Parcel[msg.ToJobManager], done: Callable[[msg.Answer], None]) -> None:
        self._under_way = (parcel, done)
        self._began_ms = self._world.now
        self._pause_ms = RETRY_FIRST_MS
        self._try()

    def _try(self) -> None:
        assert self._under_way is not None, "tried until it is answered"
        self._network.call_all(self._process, self._master, self._under_way[0], self._answered)

    def _answered(self, answer: msg.Answer | None) -> None:
        assert self._under_way is not None, "each request is answered once"
        if answer is None:
            self._again()
            return
        _, done = self._under_way
        self._under_way = None
        self._on_answer()
        done(answer)
        self._next()

    def _again(self) -> None:
        silent_ms = self._world.now - self._began_ms
        if silent_ms >= self._patience_ms:
            self._world.sometimes("a worker lost its master")
            self._on_give_up(f"the master did not answer for {silent_ms:.0f} ms")
            return
        self._world.sometimes("a report was repeated")
        self._world.at(self._pause_ms, self._try, self._process)
        self._pause_ms = min(2 * self._pause_ms, RETRY_LONGEST_MS)
