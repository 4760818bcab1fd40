"""Connections of kafka-python, and how a request is made on them: to whom, how often, and what an error is
for a job. Like `private` it uses names that are not public; `wire` has the requests.

pyproject requires kafka-python >=3.0.6,<4; `tests/contract/test_contract_kafka_wire.py` uses every name here:

    KafkaAdminClient._manager.send, .run, .call_soon, .wait_for, ._net.sleep
    KafkaAdminClient._manager._conns, of each ._throttle_time; .least_loaded_node
    KafkaAdminClient._find_coordinator_id, ._manager.cluster._coordinators, .brokers
    KafkaAdminClient._net (to stop one whose constructor failed)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.protocol.metadata import CoordinatorType

from unistream.base.errors import ConfigError, Fenced, UnistreamError, Unreachable
from unistream.connector.kafka.broker.client import await_listener
from unistream.connector.kafka.broker.config import Properties, admin_settings
from unistream.connector.kafka.broker.private import REFUSED, saying_why

T = TypeVar("T")

REQUEST_TIMEOUT_MS: Final = 10_000  # of one request
ANSWER_WITHIN_S: Final = 60.0  # of one call, with its repetitions: a broker may restart within this time
RETRY_S: Final = 0.05
RETRY_MAX_S: Final = 1.0


class BrokerConnections:
    """The connections of one sink to the brokers. Thread-safe; the caller closes it.

    Raises:
        Unreachable: no broker answered.
        ConfigError: the broker refuses the credentials, or a property is wrong.
    """

    def __init__(self, servers: str, properties: Properties) -> None:
        self.servers = servers
        settings = admin_settings(servers, properties)
        if not (settings.get("proxy_url") or settings.get("socks5_proxy")):
            await_listener(settings["bootstrap_servers"], settings["bootstrap_timeout_ms"] / 1000)
        self.admin = KafkaAdminClient.__new__(KafkaAdminClient)
        try:
            with self.our_errors("connecting"), saying_why(settings):
                self.admin.__init__(**settings)
        except BaseException:
            if hasattr(self.admin, "_net"):
                self.admin._net.close()
            raise
        self._manager: Any = self.admin._manager
        self._let_through_s = time.monotonic()

    def close(self) -> None:
        self.admin.close()

    def start(self, coroutine: Callable[[], Awaitable[object]]) -> None:
        """Runs on the thread of the connections from now on. It handles its own errors."""
        self._manager.call_soon(coroutine)

    async def sleep(self, seconds: float) -> None:
        """Sleeps in a coroutine on that thread."""
        await self._manager._net.sleep(seconds)

    # --- quotas -----------------------------------------------------------------------------------------

    @property
    def free_s(self) -> float:
        """The time from which on a broker takes requests, `time.monotonic()`; it may have been so for
        long. One whose quota was exceeded says how long to wait (KIP-219): that is no broker that does not
        answer."""
        return max(self._let_through_s, time.monotonic() + self._held_back_s(None))

    def _held_back_s(self, node: int | None) -> float:
        """How long from now on that node takes no request of ours; None: none of them does."""
        now, connections = time.monotonic(), self._manager._conns
        nodes = [one.node_id for one in self._manager.cluster.brokers()] if node is None else [node]
        held = [found for one in nodes if (found := connections.get(one)) is not None]
        if len(held) < len(nodes):  # one that is not connected to
            return 0.0
        waits = [connection._throttle_time - now for connection in held]
        return max(0.0, min(waits, default=0.0))

    async def _let_through(self, node: int | None) -> None:
        """Waits until that node, or one of them, takes requests. On a connection that is held back they would
        wait, too, until the client closes it as one that does not answer."""
        while (wait_s := self._held_back_s(node)) > 0:
            await self.sleep(min(wait_s + RETRY_S, RETRY_MAX_S))
            self._let_through_s = time.monotonic()

    # --- one request ----------------------------------------------------------------------------------

    def answered(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks again while that may help. Raises Unreachable, ConfigError, Fenced."""
        with self.our_errors(what):
            return self.run(ask)

    def run(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks as `persistent`, from another thread."""
        found: T = self._manager.run(lambda: self.persistent(ask))
        return found

    async def persistent(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks in a coroutine, again while that may help, `ANSWER_WITHIN_S` at most. Raises the last error of
        kafka-python."""
        again = _Again()
        while True:
            try:
                return await ask()
            except kafka_errors.KafkaError as error:
                wait_s = again.wait_s(error, self.free_s)
                if is_unanswered(error):
                    self._forget_coordinators()
            await self.sleep(wait_s)

    def asked(self, what: str, ask: Callable[[KafkaAdminClient], T]) -> T:
        """Asks as `answered`, by a public method of the client, which does not ask again itself: a
        coordinator that loads its transactions, as each does when its broker has started, refuses to list
        them. Raises as that."""
        again = _Again()
        with self.our_errors(what):
            while True:
                try:
                    return ask(self.admin)
                except kafka_errors.KafkaError as error:
                    wait_s = again.wait_s(error, self.free_s)
                    if is_unanswered(error) or isinstance(error, _MOVED):
                        self._forget_coordinators()
                time.sleep(wait_s)

    def _forget_coordinators(self) -> None:
        """Has coordinators asked for again. The client remembers them for good, also those whose broker is
        gone, which says of no other one."""
        self._manager.cluster._coordinators.clear()

    async def coordinated(self, request: Any, transactional_id: str | None) -> Any:
        """The answer of the coordinator of that id; None: of any broker."""
        node = None if transactional_id is None else await self.coordinator(transactional_id)
        answer = await self.sent(request, node)
        self.check(answer.error_code, transactional_id)
        return answer

    async def coordinator(self, key: str, kind: CoordinatorType = CoordinatorType.TRANSACTION) -> int:
        """The node of a transactional id, or of a group."""
        await self._let_through(None)
        found: int = await self.admin._find_coordinator_id(key, kind)
        return found

    def check(self, code: int, key: str | None, kind: CoordinatorType = CoordinatorType.TRANSACTION) -> None:
        """Raises the error of kafka-python that a code stands for. `key`: whose coordinator has answered."""
        if not code:
            return
        error = kafka_errors.for_code(code)
        if error in _MOVED and key is not None:  # asked for again
            self._manager.cluster._coordinators.pop((kind, key), None)
        raise error(key or "")

    def any_broker(self) -> str:
        """The id of one of them."""
        return str(next(iter(self._manager.cluster.brokers())).node_id)

    async def sent(self, request: Any, node: int | None) -> Any:
        """The answer of that node; None: of any one."""
        await self._let_through(node)
        manager = self._manager
        return await manager.wait_for(manager.send(request, node), REQUEST_TIMEOUT_MS)

    @contextlib.contextmanager
    def our_errors(self, doing: str) -> Iterator[None]:
        """Raises our errors instead of kafka-python's. `doing`: what is being done, for the sentence."""
        try:
            yield
        except kafka_errors.KafkaError as error:
            raise our_error(error, self.servers, doing) from error


class _Again:
    """When a request that failed is made again: after growing waits, for `ANSWER_WITHIN_S` from now on, or
    from when a broker has let requests through."""

    def __init__(self) -> None:
        self._until = time.monotonic() + ANSWER_WITHIN_S
        self._wait_s = RETRY_S

    def wait_s(self, error: kafka_errors.KafkaError, free_s: float) -> float:
        """How long to wait first. `free_s`: see `BrokerConnections`. Raises the error if asking again will
        not help, or has not."""
        if not is_retriable(error) or time.monotonic() > max(self._until, free_s + ANSWER_WITHIN_S):
            raise error
        wait_s, self._wait_s = self._wait_s, min(2 * self._wait_s, RETRY_MAX_S)
        return wait_s


def is_retriable(error: kafka_errors.KafkaError) -> bool:
    """Whether the same request may succeed later."""
    return bool(error.retriable) or isinstance(error, kafka_errors.UnknownBrokerIdError)


def is_unanswered(error: kafka_errors.KafkaError) -> bool:
    """The broker that was asked is gone, or paused: another one may have its place by now."""
    return isinstance(error, _UNANSWERED)


def our_error(error: kafka_errors.KafkaError, servers: str, doing: str) -> UnistreamError:
    """What it means for a job."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, _FENCING):
        return Fenced(f"Kafka at {servers} refused {doing}: another writer has taken over ({text})")
    if isinstance(error, _WRONG):
        return ConfigError(f"Kafka at {servers} refused {doing}: {text}")
    return Unreachable(f"Kafka at {servers} did not answer while {doing} ({text})")


_MOVED: Final = (kafka_errors.NotCoordinatorError, kafka_errors.CoordinatorNotAvailableError)
_UNANSWERED: Final = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.UnknownBrokerIdError,
)
_FENCING: Final = (
    kafka_errors.ProducerFencedError,
    kafka_errors.InvalidProducerEpochError,
    kafka_errors.InvalidTxnStateError,
    kafka_errors.InvalidProducerIdMappingError,
    kafka_errors.UnknownProducerIdError,
    kafka_errors.OutOfOrderSequenceNumberError,
    kafka_errors.TransactionAbortableError,
)
_WRONG: Final = (
    *REFUSED,
    kafka_errors.InvalidTransactionTimeoutError,
    kafka_errors.MessageSizeTooLargeError,
)
