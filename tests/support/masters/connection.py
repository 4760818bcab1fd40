"""A client of the simulated ZooKeeper, as kazoo is one: `Connection` is its thread, `SimZooKeeper` what the
election, the fence and the store call, in place of `ha.zookeeper.client.ZooKeeperClient`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.masters.machine import Machine, Thread
from tests.support.masters.request import Request, Watch
from tests.support.masters.tree import ANY_VERSION, Check, Create, Delete, Operation, SetData, Tree
from tests.support.masters.zookeeper import Ensemble, Server
from unistream.base.errors import Unreachable
from unistream.base.secrets import Secret
from unistream.base.servers import ZooKeeperServers
from unistream.core.leadership import ConnectionState
from unistream.ha.zookeeper.client import (
    NO_ANSWER,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
)
from unistream.ha.zookeeper.fence import ZnodeStat
from unistream.ha.zookeeper.ports import OnLink
from unistream.ha.zookeeper.settings import ZnodePaths, ZooKeeperSettings

REQUEST_MS: Final = 1_500  # longest wait for an answer
PING_SHARE: Final = 3  # pings in a session timeout, as kazoo and ZooKeeper have it
SETTINGS: Final = ZooKeeperSettings(
    servers=ZooKeeperServers(("zookeeper:2181",)),
    root="/unistream",
    cluster_id="cluster",
    session_s=2.0,  # a run draws its own
    request_s=REQUEST_MS / 1000,
    retry_wait_s=5.0,
    retries=2,
    scheme="",
    credentials=Secret(""),
    is_private=False,
)
LAYOUT: Final[ZnodePaths] = SETTINGS.layout


class Connection:
    """One session after the other.

    Attributes:
        on_link: Called on the thread of this.
        is_cut: No message reaches a server, or comes from one.
    """

    def __init__(self, ensemble: Ensemble, machine: Machine, timeout_ms: int) -> None:
        self._ensemble = ensemble
        self._world = ensemble.world
        self._thread = machine.threads["kazoo"]
        self.on_link: OnLink = lambda _: None
        self.timeout_ms = timeout_ms
        self.session = 0
        self.connected = False
        self.is_cut = False
        self._server: Server | None = None
        self._number = 0
        self._heard_ms = 0.0
        self._free_ms = 0.0  # requests of a connection arrive in their order
        self._answers_ms = 0.0
        self._pending: deque[Request] = deque()
        self._waiting: deque[Request] = deque()
        self._is_closed = False

    def start(self) -> None:
        self._world.at(self._world.between(0.5, 5), self._dial, self._thread)

    def break_link(self) -> None:
        """Its process is gone, and nobody says so."""
        self._is_closed = True
        self.connected = False
        if self._server is not None:
            self._ensemble.leave(self._server, self._number)

    def close(self) -> None:
        """Ends the session."""
        self._is_closed = True
        self.connected = False
        server, id_ = self._server, self.session
        self._fail_all(ConnectionLoss())
        if server is not None and not self.is_cut:
            self._world.at(self._world.between(0.5, 3), lambda: self._ensemble.close_session(id_))
            self._ensemble.leave(server, self._number)

    # --- its life ---------------------------------------------------------------------------------

    def _dial(self) -> None:
        if self._is_closed:
            return
        server = self._world.random.choice(self._ensemble.servers)
        if self.is_cut or not self._ensemble.serves(server):
            self._world.at(self._world.between(20, self.timeout_ms / 8), self._dial, self._thread)
            return
        session = self._ensemble.open(server, self)
        if session is None:
            self._world.sometimes("a client came back after its session was over")
            self.session = 0
            self._fail_waiting(SessionExpiredError())
            self.on_link(ConnectionState.LOST)
            self._world.at(self._world.between(0.5, 5), self._dial, self._thread)
            return
        if self.session == session.id:
            self._world.sometimes("a client came back in the same session")
        self.session, self._number, self._server = session.id, session.connection, server
        self.connected, self._heard_ms = True, self._world.now
        self._free_ms = self._answers_ms = self._world.now
        self.on_link(ConnectionState.CONNECTED)
        self._ping_later(self._number)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._transmit(request)

    def _ping_later(self, number: int) -> None:
        self._world.at(self.timeout_ms / PING_SHARE, lambda: self._ping(number), self._thread)

    def _ping(self, number: int) -> None:
        server = self._server
        if number != self._number or server is None or not self.connected:
            return
        if not self.is_cut and not self._ensemble.ping(server, self.session, number):
            self._disconnected()
            return
        if not self.is_cut:
            self._heard_ms = self._world.now
        if self._world.now - self._heard_ms > self.timeout_ms * 2 / 3 - 1:
            self._disconnected()
        else:
            self._ping_later(number)

    def break_off(self, number: int) -> None:
        """The server closes the connection, or it breaks; the client notices if it can be reached."""
        if self._server is not None:
            self._ensemble.leave(self._server, number)
        if not self.is_cut:
            self._world.at(self._world.between(0.2, 15), lambda: self._broken(number), self._thread)

    def drop(self) -> None:
        """It breaks now."""
        if self.connected:
            self.break_off(self._number)

    def _broken(self, number: int) -> None:
        if number == self._number and self.connected:
            self._disconnected()

    def _disconnected(self) -> None:
        self.connected = False
        if self._server is not None and not self.is_cut:  # else it does not know
            self._ensemble.leave(self._server, self._number)
        self._server = None
        self._fail_all(ConnectionLoss())
        self.on_link(ConnectionState.SUSPENDED)
        self._world.at(self._world.between(1, 30), self._dial, self._thread)

    def _fail_all(self, error: Exception) -> None:
        pending, self._pending = self._pending, deque()
        for request in pending:
            request.fail(error)

    def _fail_waiting(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.fail(error)

    # --- requests ---------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Kept until there is a connection."""
        if self.connected:
            self._transmit(request)
        else:
            self._world.sometimes("a request waited for a connection to ZooKeeper")
            self._waiting.append(request)

    def _transmit(self, request: Request) -> None:
        server, number, world = self._server, self._number, self._world
        assert server is not None, "it is connected"
        self._pending.append(request)
        self._free_ms = max(self._free_ms, world.now + world.between(0.1, 1.0))
        if not self.is_cut:
            world.at(
                self._free_ms - world.now,
                lambda: self._ensemble.arrive(
                    server, number, request, lambda result: self._answer(number, request, result)
                ),
            )

    def _answer(self, number: int, request: Request, result: Any) -> None:
        if not self.is_cut:
            world, delay_ms = self._world, self._world.between(0.1, 1.0)
            if world.chance(self._ensemble.late):
                world.sometimes("an answer of ZooKeeper was late")
                delay_ms = world.between(0.1, 1.0) * self.timeout_ms
            self._answers_ms = max(self._answers_ms, world.now + delay_ms)  # they come in their order
            world.at(
                self._answers_ms - world.now, lambda: self._answered(number, request, result), self._thread
            )

    def _answered(self, number: int, request: Request, result: Any) -> None:
        if number != self._number:
            return
        self._heard_ms = self._world.now
        if request in self._pending:
            self._pending.remove(request)
            request.settle(result)

    def notified(self, number: int, watch: Watch) -> None:
        """A watch has fired."""
        if self.is_cut:
            self._world.sometimes("a watch was lost with its connection")
            return

        def call() -> None:
            if number == self._number and self.connected:
                watch()

        self._world.at(self._world.between(0.1, 2.0), call, self._thread)


class SimZooKeeper:
    """Implements `ha.zookeeper.ports.ZooKeeper`: a call waits on the thread that acts. Deadlines of the real
    clock mean nothing here.

    Args:
        stall: Called before a request is sent; may take long.
    """

    def __init__(self, connection: Connection, machine: Machine, stall: Callable[[Thread], None]) -> None:
        self._connection = connection
        self._machine = machine
        self._stall = stall
        self.is_dead = False

    def __str__(self) -> str:
        return "ZooKeeper"

    @property
    def connected(self) -> bool:
        return self._connection.connected

    @property
    def session(self) -> int:
        return self._connection.session

    @property
    def timeout_ms(self) -> int:
        return self._connection.timeout_ms

    def open(self) -> None:
        self._connection.start()
        self._wait_connected(REQUEST_MS)

    def revive(self) -> None:
        raise AssertionError("it never gives up")

    def close(self) -> None:
        self._connection.close()

    def once(
        self, ask: Callable[[Any], Any], deadline_s: float | None = None, wait_ms: float = REQUEST_MS
    ) -> Any:
        thread = self._machine.current
        request: Request = ask(_KAZOO)
        request.epoch = thread.epoch
        self._stall(thread)
        self._connection.send(request)
        if not thread.block(lambda: request.is_done, wait_ms):
            raise OperationTimeoutError
        if request.error is not None:
            raise request.error
        if not request.single:
            return request.result
        [result] = request.result
        if isinstance(result, Exception):
            raise result
        return result

    def read(self, ask: Callable[[Any], Any], deadline_s: float | None = None) -> Any:
        thread = self._machine.current
        until_ms = thread.now + REQUEST_MS
        for attempt in range(SETTINGS.retries + 1):
            self._wait_connected(until_ms - thread.now)
            try:
                return self.once(ask, wait_ms=until_ms - thread.now)
            except NO_ANSWER as error:
                if attempt == SETTINGS.retries or thread.now >= until_ms:
                    raise Unreachable("ZooKeeper did not answer") from error
                thread.sleep(20)
        raise AssertionError("the last attempt returns or raises")

    def _wait_connected(self, wait_ms: float) -> None:
        if not self._machine.current.block(lambda: self.connected, wait_ms):
            raise Unreachable("ZooKeeper does not answer")

    def value(self, path: str, deadline_s: float | None = None) -> tuple[bytes, ZnodeStat] | None:
        def read(tree: Tree, zxid: int) -> Any:
            node, stat = tree.at(path, zxid), tree.stat(path, zxid)
            return None if node is None else (node.data, stat)

        found: tuple[bytes, ZnodeStat] | None = self.read(lambda _: Request(path, synced=True, read=read))
        return found

    def children(self, path: str) -> list[str] | None:
        def read(tree: Tree, zxid: int) -> Any:
            return None if tree.at(path, zxid) is None else tree.children(path, zxid)

        found: list[str] | None = self.read(lambda _: Request(path, synced=True, read=read))
        return found

    def stats(self, paths: list[str]) -> list[ZnodeStat | None]:
        def read(tree: Tree, zxid: int) -> Any:
            return [tree.stat(path, zxid) for path in paths]

        found: list[ZnodeStat | None] = self.read(lambda _: Request(paths[0], synced=True, read=read))
        return found

    def transaction(self) -> Transaction:
        return Transaction()

    def translated(self, error: Exception) -> Unreachable:
        return Unreachable(f"ZooKeeper refused a request: {error!r}; nothing was changed")


@dataclass(slots=True)
class Transaction:
    """As kazoo's `TransactionRequest`."""

    operations: list[Operation] = field(default_factory=list)

    def check(self, path: str, version: int) -> None:
        self.operations.append(Check(path, version))

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        self.operations.append(Create(path, data, ephemeral))

    def set_data(self, path: str, data: bytes, version: int = ANY_VERSION) -> None:
        self.operations.append(SetData(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self.operations.append(Delete(path, version))

    def commit_async(self) -> Request:
        return Request(operations=tuple(self.operations))


class _Kazoo:
    """The ``*_async`` methods of kazoo that are called from elsewhere than its client."""

    def create_async(self, path: str, data: bytes, *, ephemeral: bool, sequence: bool) -> Request:
        return Request(operations=(Create(path, data, ephemeral, sequence),), single=True)

    def delete_async(self, path: str) -> Request:
        return Request(operations=(Delete(path),), single=True)

    def get_acls_async(self, path: str) -> Request:
        return Request(path, read=lambda tree, zxid: ([], tree.stat(path, zxid)))

    def exists_async(self, path: str, watch: Callable[[object], None]) -> Request:
        return Request(path, watch=lambda: watch(None), read=lambda tree, zxid: tree.stat(path, zxid))


_KAZOO: Final = _Kazoo()
