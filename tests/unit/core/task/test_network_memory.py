"""The network memory's books: I13 (what waits was granted, sums are conserved, nothing deadlocks)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from unistream.base.errors import Transient
from unistream.base.limits import KIB, MIB
from unistream.core.task import Account, GateCredits, NetworkLedger
from unistream.core.task.network_memory import CHANNEL_BYTES_MIN


def test_sizes_are_what_is_asked_for_while_there_is_enough() -> None:
    ledger = NetworkLedger(64 * MIB)
    account = ledger.open("out", 2, 12 * MIB)
    assert account.size == 12 * MIB
    assert ledger.open("in", 1, 10 * MIB).size == 10 * MIB


def test_a_scarce_pool_is_shared_in_proportion_and_anew_when_one_closes() -> None:
    ledger = NetworkLedger(10 * MIB)
    small, large = ledger.open("small", 1, 10 * MIB), ledger.open("large", 1, 30 * MIB)
    assert small.size + large.size <= 10 * MIB
    assert large.size > 2.9 * small.size
    large.close()
    assert small.size == 10 * MIB


def test_a_pool_without_the_least_says_what_to_raise() -> None:
    ledger = NetworkLedger(10 * CHANNEL_BYTES_MIN)
    ledger.open("the output of a", 8, MIB)
    with pytest.raises(
        Transient, match=r"the output of b has 3 channels.*64 kb.*taskmanager.memory.network.min"
    ):
        ledger.open("the output of b", 3, MIB)


def test_an_empty_account_takes_anything_and_a_full_one_nothing() -> None:
    account = NetworkLedger(MIB).open("out", 1, MIB)
    assert account.has_room
    account.charge(5 * MIB)
    assert not account.has_room
    assert account.overdraft == 4 * MIB
    account.discharge(5 * MIB)
    assert account.has_room


def test_a_closed_account_counts_nothing() -> None:
    ledger = NetworkLedger(MIB)
    account = ledger.open("out", 1, MIB)
    account.charge(100)
    account.close()
    account.close()
    account.charge(100)
    account.discharge(200)
    assert ledger.used == 0
    ledger.open("another", MIB // CHANNEL_BYTES_MIN, MIB)  # all of it is there again


def _gate(channels: int, *, most: int = 6 * MIB, total: int = 64 * MIB) -> GateCredits:
    account = NetworkLedger(total).open("in", channels, most)
    return GateCredits(account, channels, exclusive=2 * MIB, step=MIB)


def test_a_channel_grows_from_the_floating_share_as_long_as_there_is_some() -> None:
    gate = _gate(2)
    assert [gate.open(0), gate.open(1)] == [2 * MIB, 2 * MIB]
    assert gate.need(0, 2 * MIB + 10) == [(0, MIB)]
    gate.received(0, 2 * MIB + 10)
    assert gate.need(0, 2 * MIB) == []  # what is left is less


def test_what_a_channel_holds_of_the_floating_share_goes_to_one_that_waits() -> None:
    gate = _gate(2)
    gate.open(0), gate.open(1)
    gate.need(0, 4 * MIB)
    gate.received(0, 4 * MIB)
    gate.received(1, MIB)
    assert gate.need(1, 3 * MIB) == []
    assert gate.consumed(0, 4 * MIB) == [(0, 2 * MIB), (1, 2 * MIB)]


def test_one_batch_above_every_limit_passes_when_the_channel_is_empty() -> None:
    gate = _gate(1, most=MIB)
    assert gate.open(0) == MIB
    gate.received(0, MIB)
    assert gate.need(0, 16 * MIB) == []
    assert gate.consumed(0, MIB) == [(0, MIB), (0, 15 * MIB)]
    gate.received(0, 16 * MIB)
    assert gate.account.overdraft == 15 * MIB
    assert gate.consumed(0, 16 * MIB) == [(0, MIB)]
    assert gate.account.overdraft == 0


SIZES = st.integers(1, 3 * MIB)


class _Producer:
    """The other end of one channel, as `net` behaves."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.queue: list[int] = []
        self.wire: list[int] = []  # sizes of batches on their way; negative: a need
        self.asked = False

    def pump(self) -> None:
        while self.queue and self.queue[0] <= self.credit:
            self.credit -= self.queue[0]
            self.wire.append(self.queue.pop(0))
            self.asked = False
        if self.queue and not self.asked:
            self.asked = True
            self.wire.append(-self.queue[0])


class Exchange(RuleBasedStateMachine):
    """Several gates in one small pool; batches of all sizes; arrivals and consumption in any order."""

    @initialize(
        total=st.integers(200 * KIB, 8 * MIB), channels=st.lists(st.integers(1, 3), min_size=1, max_size=2)
    )
    def begin(self, total: int, channels: list[int]) -> None:
        self.ledger = NetworkLedger(total)
        self.gates: list[GateCredits] = []
        self.producers: list[list[_Producer]] = []
        self.here: list[list[list[int]]] = []
        self.outputs: list[Account] = []
        for number, count in enumerate(channels):
            account = self.ledger.open(f"gate {number}", count, count * MIB + 2 * MIB)
            gate = GateCredits(account, count, exclusive=MIB, step=256 * KIB)
            self.gates.append(gate)
            self.producers.append([_Producer(gate.open(n)) for n in range(count)])
            self.here.append([[] for _ in range(count)])

    def _pick(self, data: st.DataObject) -> tuple[int, int]:
        gate = data.draw(st.integers(0, len(self.gates) - 1))
        return gate, data.draw(st.integers(0, len(self.producers[gate]) - 1))

    @rule(data=st.data(), size=SIZES)
    def produce(self, data: st.DataObject, size: int) -> None:
        gate, number = self._pick(data)
        self.producers[gate][number].queue.append(size)
        self.producers[gate][number].pump()

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        gate, number = self._pick(data)
        self._arrive(gate, number)

    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        gate, number = self._pick(data)
        self._consume(gate, number)

    @rule()
    def another_task_comes_and_goes(self) -> None:
        if self.outputs:
            self.outputs.pop().close()
        elif sum(a.least for a in self.ledger._accounts) + CHANNEL_BYTES_MIN <= self.ledger.total:
            self.outputs.append(self.ledger.open("out", 1, 4 * MIB))

    def _arrive(self, gate: int, number: int) -> bool:
        producer = self.producers[gate][number]
        if not producer.wire:
            return False
        size = producer.wire.pop(0)
        if size < 0:
            self._grant(gate, self.gates[gate].need(number, -size))
        else:
            self.gates[gate].received(number, size)
            self.here[gate][number].append(size)
        return True

    def _consume(self, gate: int, number: int) -> bool:
        if not self.here[gate][number]:
            return False
        self._grant(gate, self.gates[gate].consumed(number, self.here[gate][number].pop(0)))
        return True

    def _grant(self, gate: int, grants: list[tuple[int, int]]) -> None:
        for number, size in grants:
            assert size > 0
            self.producers[gate][number].credit += size
            self.producers[gate][number].pump()

    @invariant()
    def the_books_are_right(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.ledger.validate()
        for gate, producers, here in zip(self.gates, self.producers, self.here, strict=True):
            gate.validate()
            for number, producer in enumerate(producers):
                on_their_way = sum(size for size in producer.wire if size > 0)
                window = producer.credit + on_their_way + sum(here[number])
                assert window == gate.window(number), "credit is neither lost nor made"

    def teardown(self) -> None:
        """Nothing deadlocks: if everybody goes on, all is delivered."""
        if not hasattr(self, "ledger"):
            return
        while any(
            [
                self._arrive(g, n) or self._consume(g, n)
                for g, ps in enumerate(self.producers)
                for n in range(len(ps))
            ]
        ):
            self.the_books_are_right()
        assert not any(p.queue or p.wire for producers in self.producers for p in producers)
        for gate, producers in zip(self.gates, self.producers, strict=True):
            for number in range(len(producers)):
                gate.close(number)
            gate.account.close()
        for account in self.outputs:
            account.close()
        assert self.ledger.used == 0


TestExchange = Exchange.TestCase
TestExchange.settings = settings(max_examples=500, stateful_step_count=50, deadline=None)
