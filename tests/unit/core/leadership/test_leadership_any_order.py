"""Several contenders and one ZooKeeper; what they hear comes late, repeatedly and in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from unistream.base.ids import LeaderEpoch
from unistream.core.leadership import (
    CheckNode,
    Closed,
    Command,
    ConnectionChanged,
    ConnectionState,
    Event,
    GrantLeadership,
    JoinElection,
    LeadershipMachine,
    LeadershipTimer,
    LeadershipTimerFired,
    LeaveElection,
    LookFailed,
    NodeBehind,
    NodeFirst,
    NodeGone,
    QueueChanged,
    Resume,
    RevokeLeadership,
    SetLeadershipTimer,
    Standing,
    Suspend,
)

TIMEOUT_MS = 8_000
CONTENDERS = 3
HEALED_AFTER_MS = 12 * TIMEOUT_MS

contenders = st.integers(0, CONTENDERS - 1)
places = st.integers(0, 2**16)


@dataclass
class Node:
    """In the queue. `epoch`: the transaction that created it; the queue is ordered by it."""

    owner: int
    session: int
    epoch: LeaderEpoch


@dataclass
class Service:
    """ZooKeeper: sessions end when they were silent for too long, and their nodes with them."""

    now_ms: int = 0
    transactions: int = 0
    alive: dict[int, int] = field(default_factory=dict)  # session -> last contact
    queue: list[Node] = field(default_factory=list)

    def next(self) -> int:
        self.transactions += 1
        return self.transactions

    def expire(self) -> None:
        for session, contact_ms in list(self.alive.items()):
            if self.now_ms >= contact_ms + TIMEOUT_MS:
                self.end(session)

    def end(self, session: int) -> None:
        self.next()
        del self.alive[session]
        self.queue = [node for node in self.queue if node.session != session]


@dataclass
class Process:
    """A contender with its client: carries out the commands, and keeps what it has heard.

    `removed`: somebody else removed its node while it led, so another one may lead at the same time.
    """

    number: int
    machine: LeadershipMachine = field(default_factory=LeadershipMachine)
    session: int = 0
    linked: bool = False
    frozen: bool = False
    changes: int = 0
    heard: list[Event] = field(default_factory=list)
    kept: list[Event] = field(default_factory=list)  # delivered; may come again
    orders: list[Command] = field(default_factory=list)
    timers: dict[LeadershipTimer, int] = field(default_factory=dict)
    epoch: LeaderEpoch | None = None
    may_decide: bool = False
    removed: bool = False

    def believes(self) -> bool:
        return self.may_decide and not self.frozen


class Election(RuleBasedStateMachine):
    """Any events, in any order, any number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.service = Service()
        self.processes = [Process(number) for number in range(CONTENDERS)]
        self.granted: list[LeaderEpoch] = []
        self.written: list[LeaderEpoch] = []

    # --- what happens -----------------------------------------------------------------------------

    @rule(who=contenders)
    def connect(self, who: int) -> None:
        process = self.processes[who]
        if process.linked or process.frozen:
            return
        if process.session not in self.service.alive:
            if process.session:
                self._change(process, ConnectionState.LOST)
            process.session = self.service.next()
        process.linked = True
        self.service.alive[process.session] = self.service.now_ms
        self._change(process, ConnectionState.CONNECTED)

    @rule(who=contenders)
    def disconnect(self, who: int) -> None:
        process = self.processes[who]
        if process.linked and not process.frozen:
            process.linked = False
            self._change(process, ConnectionState.SUSPENDED)

    @rule(who=contenders)
    def cut_without_a_word(self, who: int) -> None:
        """The client has noticed nothing; it hears of it with the next `connect`."""
        self.processes[who].linked = False

    @rule(who=contenders)
    def freeze(self, who: int) -> None:
        self.processes[who].frozen = True

    @rule(who=contenders)
    def wake(self, who: int) -> None:
        process = self.processes[who]
        process.frozen = False
        self._fire_timers(process)

    @rule(step_ms=st.integers(1, TIMEOUT_MS))
    def time_passes(self, step_ms: int) -> None:
        """In steps, so that each timer of a process that runs fires when it is due."""
        end_ms = self.service.now_ms + step_ms
        while self.service.now_ms < end_ms:
            self.service.now_ms = min(end_ms, self.service.now_ms + 100)
            for process in self.processes:
                if not process.frozen:
                    self._fire_timers(process)
            self.service.expire()

    @rule(who=contenders, which=places, copies=st.integers(1, 2))
    def hear(self, who: int, which: int, copies: int) -> None:
        process = self.processes[who]
        if process.frozen or not process.heard:
            return
        event = process.heard.pop(which % len(process.heard))
        process.kept.append(event)
        for _ in range(copies):
            self._handle(process, event)

    @rule(who=contenders, which=places)
    def hear_again(self, who: int, which: int) -> None:
        process = self.processes[who]
        if process.kept and not process.frozen:
            self._handle(process, process.kept[which % len(process.kept)])

    @rule(who=contenders)
    def lose_what_was_heard(self, who: int) -> None:
        """Notifications and answers; changes of the connection are the client's own and do arrive."""
        process = self.processes[who]
        process.heard = [event for event in process.heard if isinstance(event, ConnectionChanged)]

    @rule(
        who=contenders, event=st.sampled_from([QueueChanged(), *map(LeadershipTimerFired, LeadershipTimer)])
    )
    def hear_what_was_never_said(self, who: int, event: Event) -> None:
        if not self.processes[who].frozen:
            self._handle(self.processes[who], event)

    @rule(who=contenders)
    def work(self, who: int) -> None:
        """As on a good day."""
        if not self.processes[who].frozen:
            self._settle(self.processes[who])

    @rule(who=contenders)
    def carry_out(self, who: int) -> None:
        process = self.processes[who]
        if process.orders and not process.frozen:
            self._carry_out(process, process.orders.pop(0))

    @rule(who=contenders)
    def remove_its_node(self, who: int) -> None:
        """By hand. Its leader does not know yet; from now on the fence alone protects."""
        self.service.queue = [node for node in self.service.queue if node.owner != who]
        self.processes[who].removed |= self.processes[who].epoch is not None

    @rule(who=contenders)
    def write(self, who: int) -> None:
        """A fenced write: it succeeds if the node of the grant exists."""
        process = self.processes[who]
        if process.epoch is not None and any(node.epoch == process.epoch for node in self.service.queue):
            self.written.append(process.epoch)

    def teardown(self) -> None:
        """All is repaired: soon there is exactly one leader, and it decides."""
        for process in self.processes:
            self.wake(process.number)
        end_ms = self.service.now_ms + HEALED_AFTER_MS
        while self.service.now_ms < end_ms:
            for process in self.processes:
                if process.machine.standing is not Standing.CLOSED:
                    self._settle(process)
            self.time_passes(step_ms=100)
        deciding = [process for process in self.processes if process.may_decide]
        assert len(deciding) == 1, [process.machine.standing for process in self.processes]
        assert all(
            process.machine.standing is Standing.WAITING
            for process in self.processes
            if process not in deciding
        )

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def at_most_one_believes_that_it_leads(self) -> None:
        believing = [p for p in self.processes if p.believes() and not p.removed]
        assert len(believing) <= 1, [p.epoch for p in believing]

    @invariant()
    def epochs_grow(self) -> None:
        assert self.granted == sorted(set(self.granted))
        assert self.written == sorted(self.written)

    # --- the client -------------------------------------------------------------------------------

    def _change(self, process: Process, link: ConnectionState) -> None:
        process.changes += 1
        process.heard.append(
            ConnectionChanged(
                number=process.changes, link=link, session=process.session, timeout_ms=TIMEOUT_MS
            )
        )

    def _fire_timers(self, process: Process) -> None:
        for timer, at_ms in list(process.timers.items()):
            if at_ms <= self.service.now_ms and process.timers.get(timer) == at_ms:
                del process.timers[timer]
                self._handle(process, LeadershipTimerFired(timer))

    def _handle(self, process: Process, event: Event) -> None:
        for command in process.machine.handle(event, self.service.now_ms):
            match command:
                case GrantLeadership(epoch):
                    self.granted.append(epoch)
                    process.epoch, process.may_decide, process.removed = epoch, True, False
                case Suspend():
                    assert process.may_decide
                    process.may_decide = False
                case Resume():
                    assert not process.may_decide
                    assert process.epoch is not None
                    process.may_decide = True
                case RevokeLeadership():
                    assert process.epoch is not None
                    process.epoch, process.may_decide, process.removed = None, False, False
                case SetLeadershipTimer(timer, at_ms):
                    process.timers[timer] = at_ms
                case JoinElection() | CheckNode() | LeaveElection():
                    process.orders.append(command)
                case _:
                    process.timers.pop(command.timer, None)

    def _carry_out(self, process: Process, command: Command) -> None:
        if not process.linked or process.session not in self.service.alive:
            if isinstance(command, JoinElection | CheckNode):
                process.heard.append(LookFailed(command.look))
            return
        self.service.alive[process.session] = self.service.now_ms
        match command:
            case JoinElection(look):
                self._remove(process)
                node = Node(process.number, process.session, LeaderEpoch(self.service.next()))
                self.service.queue.append(node)
                process.heard.append(self._seen(process, look))
            case CheckNode(look):
                process.heard.append(self._seen(process, look))
            case LeaveElection():
                self._remove(process)

    def _remove(self, process: Process) -> None:
        self.service.queue = [node for node in self.service.queue if node.owner != process.number]

    def _seen(self, process: Process, look: int) -> Event:
        mine = [n for n in self.service.queue if n.owner == process.number and n.session == process.session]
        if not mine:
            return NodeGone(look)
        return NodeFirst(look, mine[0].epoch) if self.service.queue[0] is mine[0] else NodeBehind(look)

    def _settle(self, process: Process) -> None:
        """Its client reconnects, what it was asked for is done, what it has heard is delivered."""
        expired = process.session not in self.service.alive
        if expired:
            process.linked = False
        self.connect(process.number)
        for _ in range(100):
            if process.orders:
                self._carry_out(process, process.orders.pop(0))
            elif process.heard:
                self._handle(process, process.heard.pop(0))
            else:
                break


class ElectionThatEnds(Election):
    """The same with contenders that close their election. Nobody has to be left to lead."""

    @rule(who=contenders)
    def close(self, who: int) -> None:
        if not self.processes[who].frozen:
            self._handle(self.processes[who], Closed())
            assert self.processes[who].machine.standing is Standing.CLOSED

    def teardown(self) -> None:
        closed = [p for p in self.processes if p.machine.standing is Standing.CLOSED]
        assert not any(process.may_decide for process in closed)


STEPS = hypothesis_settings(max_examples=100, stateful_step_count=60, deadline=None)


class TestElection(Election.TestCase):
    settings = STEPS


class TestElectionThatEnds(ElectionThatEnds.TestCase):
    settings = STEPS


@pytest.mark.parametrize("leader_is", ["frozen", "cut off"])
def test_another_one_leads_when_the_leader_is(leader_is: str) -> None:
    election = Election()
    settle(election, 100)
    [first] = [process for process in election.processes if process.may_decide]
    if leader_is == "frozen":
        first.frozen = True
    else:
        election.disconnect(first.number)
    settle(election, TIMEOUT_MS + 2_000, without=first)
    [second] = [process for process in election.processes if process.believes()]
    assert second is not first
    assert second.epoch is not None
    assert election.granted[0] < second.epoch
    election.at_most_one_believes_that_it_leads()


def settle(election: Election, for_ms: int, without: Process | None = None) -> None:
    end_ms = election.service.now_ms + for_ms
    while election.service.now_ms < end_ms:
        for process in election.processes:
            if process is not without:
                election._settle(process)
        election.time_passes(100)
        election.at_most_one_believes_that_it_leads()
