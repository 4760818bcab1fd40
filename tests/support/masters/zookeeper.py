"""An ensemble of ZooKeeper servers: sessions, a quorum that can be lost, servers that lag, slow writes.

What is as in ZooKeeper, and what the election and the fence rely on:

- A transaction is done as a whole or not at all; all servers see them in one order, some later.
- Reads are answered by the server that the client is connected to, so they may be old; a request with `sync`
  waits until its server has all that was committed.
- The leader ends a session from which no server has heard for its timeout, at its next tick. Without a quorum
  no session ends, and each has its whole timeout again under the next leader.
- What a client has sent to a server that it has left since is never carried out.
- A watch fires once, when the server of the connection has the change; it is lost with the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.masters.request import Client, Request, Watch
from tests.support.masters.tree import Create, Delete, Operation, Tree
from unistream.base.ids import LeaderEpoch
from unistream.testing.sim.world import World

SERVERS: Final = 3
QUORUM: Final = 2
TICK_MS: Final = 100  # how exactly sessions end
PATIENCE_MS: Final = 600  # a server without the others closes its connections after so long

OnCommit = Callable[[tuple[str, ...], LeaderEpoch | None], None]
"""(changed paths, the epoch for which they were written), when they are durable."""


@dataclass(slots=True)
class Session:
    """`connection`: the one that counts; `heard_ms`: when it was last heard of; `free_ms`: when all that it
    has sent is carried out, since a server answers a session in its order."""

    id: int
    timeout_ms: int
    heard_ms: float
    connection: int
    free_ms: float = 0.0


@dataclass(slots=True, eq=False)
class Server:
    """`applied`: the last transaction that it has; `is_alone`: cut off from the others."""

    number: int
    is_up: bool = True
    is_alone: bool = False
    applied: int = 0
    clients: dict[int, Client] = field(default_factory=dict)  # by number of the connection
    watches: list[tuple[int, str, Watch]] = field(default_factory=list)


class Ensemble:
    """See the module.

    Attributes:
        slow_ms: Mean time of a write.
        read_ms: Mean time of a read.
        lag_ms: Mean time by which servers are behind.
        lost: Probability that a connection breaks with a write: before it, or before its answer.
        late: Probability that an answer is late, by up to a session timeout.
        on_commit: Called with each transaction.
    """

    def __init__(self, world: World, on_commit: OnCommit) -> None:
        self.world = world
        self.tree = Tree()
        self.sessions: dict[int, Session] = {}
        self.servers = [Server(number) for number in range(SERVERS)]
        self.slow_ms = 0.0
        self.read_ms = 0.0
        self.lag_ms = 0.0
        self.lost = 0.0
        self.late = 0.0
        self.is_serving = True  # there is a leader, with a quorum
        self._leader = 0
        self._on_commit = on_commit
        self._connections = 0
        self._elections = 0
        world.at(TICK_MS, self._tick)

    def make(self, paths: Sequence[str]) -> None:
        """Folders that are there from the beginning."""
        for path in paths:
            self.tree.commit([Create(path, b"")], 0)
        for server in self.servers:
            server.applied = self.tree.zxid

    def remove(self, path: str) -> None:
        """By hand, which takes so long that all servers know."""
        self._commit([Delete(path)], 0)
        for server in self.servers:
            if self.serves(server):
                self._apply(server, self.tree.zxid)

    # --- connections ------------------------------------------------------------------------------

    def serves(self, server: Server) -> bool:
        return self.is_serving and server.is_up and not server.is_alone

    def open(self, server: Server, client: Client) -> Session | None:
        """A connection of the client's session, or of a new one; None: its session is over."""
        self._connections += 1
        if client.session == 0:
            id_ = self.tree.begin_session()
            self._spread()
            session = Session(id_, client.timeout_ms, self.world.now, self._connections)
            self.sessions[id_] = session
        else:
            found = self.sessions.get(client.session)
            if found is None:
                return None
            session = found
        session.connection, session.heard_ms = self._connections, self.world.now
        server.clients[self._connections] = client
        return session

    def leave(self, server: Server, connection: int) -> None:
        """The connection is closed; its watches are gone."""
        server.clients.pop(connection, None)
        server.watches = [watch for watch in server.watches if watch[0] != connection]

    def ping(self, server: Server, id_: int, connection: int) -> bool:
        """Whether it is answered. A server that has lost the others answers, and nobody hears of it."""
        session = self.sessions.get(id_)
        if not server.is_up or connection not in server.clients or session is None:
            return False
        if session.connection == connection and self.serves(server):
            session.heard_ms = self.world.now
        return True

    def close_session(self, id_: int) -> None:
        """Its client has ended it."""
        if self.is_serving and self.sessions.pop(id_, None) is not None:
            self._ended(id_)

    # --- requests ---------------------------------------------------------------------------------

    def arrive(
        self, server: Server, connection: int, request: Request, answer: Callable[[Any], None]
    ) -> None:
        """A request of a connection; `answer` gets its result, if there is one."""
        session = self._session_of(server, connection)
        if session is None:
            return
        delay_ms = 0.0
        if request.writes:
            delay_ms = self.world.between(0.2, 1.5)
            if self.slow_ms:
                delay_ms += self.world.random.expovariate(1 / self.slow_ms)
        elif self.read_ms:
            delay_ms = self.world.random.expovariate(1 / self.read_ms)
        session.free_ms = max(self.world.now, session.free_ms) + delay_ms
        handle = self._write if request.writes else self._read
        self.world.at(session.free_ms - self.world.now, lambda: handle(server, connection, request, answer))

    def _session_of(self, server: Server, connection: int) -> Session | None:
        """None: the server does not hear this connection any more, or the session has another one."""
        client = server.clients.get(connection) if server.is_up else None
        session = None if client is None else self.sessions.get(client.session)
        return session if session is not None and session.connection == connection else None

    def _read(self, server: Server, connection: int, request: Request, answer: Callable[[Any], None]) -> None:
        session = self._session_of(server, connection)
        if session is None:
            return
        if self.serves(server):
            session.heard_ms = self.world.now
        if request.synced:
            if not self.serves(server):
                return  # it waits for the leader
            self._apply(server, self.tree.zxid)
        elif server.applied < self.tree.zxid:
            self.world.sometimes("a read was answered with an old state")
        if request.watch is not None:
            server.watches.append((connection, request.path, request.watch))
        answer(request.read(self.tree, server.applied))

    def _write(
        self, server: Server, connection: int, request: Request, answer: Callable[[Any], None]
    ) -> None:
        session = self._session_of(server, connection)
        if session is None or not self.serves(server):
            return
        client = server.clients[connection]
        session.heard_ms = self.world.now
        broken = self.world.chance(self.lost)
        if broken and self.world.chance(0.5):
            self.world.sometimes("a connection to ZooKeeper broke, and a write was not done")
            client.break_off(connection)
            return
        results = self._commit(request.operations, session.id, request.epoch)
        self._apply(server, self.tree.zxid)
        if broken:
            self.world.sometimes("a connection to ZooKeeper broke, and a write was done")
            client.break_off(connection)
            return
        answer(results)

    def _commit(
        self, operations: Sequence[Operation], session: int, epoch: LeaderEpoch | None = None
    ) -> list[Any]:
        before = self.tree.zxid
        results = self.tree.commit(operations, session)
        if self.tree.zxid != before:
            self._spread()
            self._on_commit(self.tree.changed[self.tree.zxid], epoch)
        return results

    def _spread(self) -> None:
        """The servers have a new transaction, sooner or later."""
        zxid = self.tree.zxid
        for server in self.servers:
            delay_ms = self.world.between(0.1, 1.0)
            if self.lag_ms and server.number != self._leader:
                delay_ms += self.world.random.expovariate(1 / self.lag_ms)
            self.world.at(delay_ms, lambda server=server: self._reaches(server, zxid))  # type: ignore[misc]

    def _reaches(self, server: Server, zxid: int) -> None:
        if self.serves(server):
            self._apply(server, zxid)

    def _apply(self, server: Server, zxid: int) -> None:
        """Transactions up to `zxid` are visible here; watches of what they change fire."""
        changed: set[str] = set()
        for number in range(server.applied + 1, zxid + 1):
            changed.update(self.tree.changed[number])
        server.applied = max(server.applied, zxid)
        if changed:
            fired = [watch for watch in server.watches if watch[1] in changed]
            server.watches = [watch for watch in server.watches if watch[1] not in changed]
            for connection, _, watch in fired:
                client = server.clients.get(connection)
                if client is not None:
                    client.notified(connection, watch)

    # --- sessions ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.world.at(TICK_MS, self._tick)
        if not self.is_serving:
            return
        for session in list(self.sessions.values()):
            if self.world.now - session.heard_ms > session.timeout_ms:
                del self.sessions[session.id]
                self.world.log(f"ZooKeeper: session {session.id} is over")
                self._ended(session.id)

    def _ended(self, id_: int) -> None:
        self.tree.end_session(id_)
        self._spread()
        self._on_commit(self.tree.changed[self.tree.zxid], None)
        for server in self.servers:
            for number, client in list(server.clients.items()):
                if client.session == id_ and server.is_up and not server.is_alone:
                    client.break_off(number)

    # --- faults -----------------------------------------------------------------------------------

    def crash(self, server: Server) -> None:
        self.world.log(f"FAULT ZooKeeper server {server.number} is down")
        server.is_up = False
        self._close_clients(server)
        self._changed(server)

    def start(self, server: Server) -> None:
        server.is_up = True
        self._changed(server)

    def isolate(self, server: Server) -> None:
        """Cut off from the other servers: it still answers, for a moment."""
        self.world.log(f"FAULT ZooKeeper server {server.number} is cut off from the others")
        server.is_alone = True
        self._changed(server)
        self.world.at(PATIENCE_MS, lambda: self._close_clients(server) if server.is_alone else None)

    def join(self, server: Server) -> None:
        server.is_alone = False
        self._changed(server)

    def _close_clients(self, server: Server) -> None:
        for number, client in list(server.clients.items()):
            client.break_off(number)

    def _changed(self, server: Server) -> None:
        """The servers that see each other are others: they may need another leader."""
        members = [one for one in self.servers if one.is_up and not one.is_alone]
        if len(members) < QUORUM:
            if self.is_serving:
                self.world.sometimes("ZooKeeper lost its quorum")
                self.world.log("ZooKeeper has no quorum")
            self.is_serving = False
            for one in members:
                self._close_clients(one)
        elif self.is_serving and self.servers[self._leader] in members:
            if server in members:
                self._apply(server, self.tree.zxid)
        else:
            self.is_serving = False
            for one in members:
                self._close_clients(one)
            self._elections += 1
            number = self._elections
            self.world.at(self.world.between(100, 500), lambda: self._elected(number))

    def _elected(self, number: int) -> None:
        members = [one for one in self.servers if one.is_up and not one.is_alone]
        if number != self._elections or len(members) < QUORUM:
            return
        self._leader = self.world.random.choice(members).number
        self.is_serving = True
        self.world.log(f"ZooKeeper: server {self._leader} leads")
        for session in self.sessions.values():
            session.heard_ms = self.world.now
        for server in members:
            self._apply(server, self.tree.zxid)
