"""Connections and alarms that the streams of a process share."""

from __future__ import annotations

import threading

import pytest

from tests.eventually import WAIT_S
from unistream.base.clock import SystemClock
from unistream.base.errors import ConfigError
from unistream.net.peers import CONNECTIONS_MAX, Alarm, Alarms, Connections

PEER, OTHER = "grpc+tcp://127.0.0.1:1", "grpc+tcp://127.0.0.1:2"


class TestConnections:
    def test_streams_are_spread_over_a_few_for_each_peer(self) -> None:
        connections = Connections()
        taken = [connections.take(PEER) for _ in range(3 * CONNECTIONS_MAX)]
        assert {id(client): taken.count(client) for client in taken} == dict.fromkeys(
            map(id, taken[:CONNECTIONS_MAX]), 3
        )
        connections.take(OTHER)
        assert connections.count == CONNECTIONS_MAX + 1

    def test_one_without_users_is_let_go(self) -> None:
        connections = Connections()
        for client in [connections.take(PEER) for _ in range(3 * CONNECTIONS_MAX)]:
            assert connections.count
            connections.give_back(PEER, client)
        assert connections.count == 0

    def test_one_that_is_broken_is_not_given_out_again(self) -> None:
        connections = Connections()
        taken = [connections.take(PEER) for _ in range(2 * CONNECTIONS_MAX)]
        connections.give_back(PEER, taken[0], is_broken=True)
        assert connections.take(PEER) not in taken
        connections.give_back(PEER, taken[CONNECTIONS_MAX])  # the other user of the broken one
        assert connections.count == CONNECTIONS_MAX

    def test_an_address_that_is_none(self) -> None:
        connections = Connections()
        with pytest.raises(ConfigError, match="not a Flight location"):
            connections.take("nonsense")
        assert connections.count == 0


class TestAlarms:
    def test_each_is_called_in_its_time_unless_it_is_forgotten(self) -> None:
        alarms, called, done = Alarms(SystemClock()), [], threading.Event()
        alarms.set(60_000, lambda: called.append("late"))
        forgotten = alarms.set(60_000, lambda: called.append("forgotten"))
        alarms.set(20, done.set)  # before the one that it waits for
        alarms.set(10, lambda: called.append("soon"))
        alarms.forget(forgotten)
        alarms.forget(12_345)
        assert done.wait(WAIT_S)
        assert called == ["soon"]
        alarms.close()
        alarms.set(0, lambda: called.append("after the end"))
        assert called == ["soon"]

    def test_one_that_fails_keeps_no_other_from_being_called(self) -> None:
        alarms, done = Alarms(SystemClock()), threading.Event()
        nothing: list[int] = []
        alarms.set(0, lambda: nothing.remove(1))
        alarms.set(10, done.set)
        assert done.wait(WAIT_S)
        alarms.close()

    def test_one_that_is_moved_is_called_not_later_than_it_is_due(self) -> None:
        clock = SystemClock()
        alarms, called = Alarms(clock), threading.Semaphore(0)
        alarm = Alarm(alarms, clock, called.release)
        alarm.set(clock.monotonic_ms() + 60_000)
        alarm.set(clock.monotonic_ms() + 10)
        alarm.set(clock.monotonic_ms() + 60_000)  # no later than what it was set to
        assert called.acquire(timeout=WAIT_S)
        alarm.set(clock.monotonic_ms())
        assert called.acquire(timeout=WAIT_S)
        alarm.set(clock.monotonic_ms() + 60_000)
        alarm.set(None)
        alarms.close()
        assert not called.acquire(blocking=False)
