"""The private names of kafka-python that `connector.kafka.broker.calls` uses, touched on a real broker."""

from __future__ import annotations

import inspect
import threading
import time
import uuid
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient
from kafka.errors import (
    CoordinatorLoadInProgressError,
    KafkaConnectionError,
    KafkaError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    TransactionalIdAuthorizationFailedError,
)
from kafka.net.manager import KafkaConnectionManager

from unistream.base.errors import ConfigError, Unreachable
from unistream.connector.kafka.broker.wire import Producing, TransactionEnd
from unistream.connector.kafka.record.transactions import ProducerId
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = pytest.mark.kafka


def test_names_that_are_looked_up() -> None:
    made = inspect.getsource(KafkaAdminClient.__init__)
    assert "self._manager = " in made
    assert "self._net = " in made
    assert made.index("self._net = ") < made.index(".bootstrap("), "to be stopped if that fails"
    for name in ("send", "run", "call_soon", "wait_for"):
        assert callable(getattr(KafkaConnectionManager, name))
    assert callable(KafkaAdminClient._find_coordinator_id)


def test_a_transaction_from_its_begin_to_its_end(kafka: str) -> None:
    topic, name = f"wire-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    create_topic(kafka, topic, partitions=2)
    producing = Producing(kafka, {})
    try:
        state = producing.topic(topic)
        assert state.id
        assert sorted(state.leaders) == [0, 1]
        assert int(producing.setting("broker", "", "transaction.max.timeout.ms") or 0) == 900_000
        assert producing.recorded(name, topic) is None
        first = producing.begin(name, 60_000)
        producing.record(name, first, name, topic, 7)
        assert producing.open_ids(name) == [name]
        assert producing.recorded(name, topic) is None, "not before it is committed"
        assert producing.committed([name, "never used"]) == {}
        assert [producing.end(name, first, commit=True) for _ in range(2)] == [TransactionEnd.DONE] * 2
        assert producing.end(name, first, commit=False) is TransactionEnd.OTHERWISE
        assert producing.recorded(name, topic) == 7
        assert producing.committed([name]) == {name: first}
        second = producing.begin(name, 60_000)
        assert (second.id, second.epoch) == (first.id, first.epoch + 1)
        assert producing.end(name, first, commit=True) is TransactionEnd.OTHERWISE
        assert producing.end("never used", ProducerId(5, 0), commit=True) is TransactionEnd.FORGOTTEN
        with pytest.raises(ConfigError, match=f"topic '{name}' does not exist"):
            producing.topic(name)
    finally:
        producing.close()


@pytest.mark.parametrize(
    "error",
    [CoordinatorLoadInProgressError, NotCoordinatorError, NotLeaderForPartitionError, KafkaConnectionError],
)
def test_what_a_broker_that_has_just_started_refuses_is_asked_again(
    kafka: str, error: type[KafkaError]
) -> None:
    name = uuid.uuid4().hex
    refused = iter([error("not yet"), error("not yet")])
    producing = Producing(kafka, {})

    def ask(admin: KafkaAdminClient) -> list[str]:
        for one in refused:
            raise one
        return sorted(admin.describe_transactions([name]))

    try:
        producing.begin(name, 60_000)
        assert producing.asked("asking", ask) == [name]
        assert next(refused, None) is None
    finally:
        producing.close()


def test_a_broker_that_holds_back_is_waited_for(kafka: str) -> None:
    """As behind an answer that names a quota: the client pauses the connection, so nobody is left to ask."""
    producing, held_s = Producing(kafka, {}), 1.5
    try:
        assert producing.recorded("nobody", "nothing") is None
        assert producing.free_s <= time.monotonic()
        answer = SimpleNamespace(throttle_time_ms=1_000 * held_s)

        async def hold() -> None:
            for connection in producing._manager._conns.values():
                connection._maybe_throttle(answer)

        began_s = time.monotonic()
        producing.run(hold)
        held_until_s = producing.free_s
        assert began_s + held_s <= held_until_s <= time.monotonic() + held_s
        assert producing.recorded("nobody", "nothing") is None
        assert held_until_s <= producing.free_s <= time.monotonic(), "patience begins then"
    finally:
        producing.close()


def test_what_a_broker_refuses_for_good_is_asked_once(kafka: str) -> None:
    asked = []

    def ask(admin: KafkaAdminClient) -> None:
        asked.append(admin)
        raise TransactionalIdAuthorizationFailedError("no")

    producing = Producing(kafka, {})
    try:
        with pytest.raises(ConfigError, match=r"refused asking: .*no"):
            producing.asked("asking", ask)
        assert len(asked) == 1
    finally:
        producing.close()


def test_no_thread_is_left_of_a_broker_that_does_not_answer() -> None:
    before = set(threading.enumerate())
    with pytest.raises(Unreachable):
        Producing("127.0.0.1:1", {"bootstrap.timeout.ms": "300"})
    assert set(threading.enumerate()) <= before
