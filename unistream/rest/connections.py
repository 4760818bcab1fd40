"""Connections of the REST API that end if their client does not go on, and that make room for new ones.

Any user of the machine can connect, so what a connection that is not served may cost has limits, as in nginx
(`client_header_timeout`) and Apache (`mod_reqtimeout`):

    head        complete within `head_s` from its first byte on, or from the connection on
    body        `body_s`, and a second more for each `body_rate` bytes that have come
    response    read on within `unread_s`
    idle        uvicorn's own `timeout_keep_alive`

Of more than `connections_max` connections the oldest one that is not served is closed: first those that
wait for a head, then idle ones, then those that wait for a body or whose response is not read. So half-
written requests shut nobody out, however many there are; a limit for each peer could not tell one user of
this machine from another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """See the module; `check_s`: how often each connection is looked at."""

    head_s: float = 10.0  # a client sends it at once; a busy machine delays it by less
    body_s: float = 20.0
    body_rate: float = (
        64 * 1024
    )  # bytes in a second, over loopback: a fraction of what the slowest client sends
    unread_s: float = 30.0
    connections_max: int = 200
    check_s: float = 1.0


class ConnectionPhase(IntEnum):
    """What a connection waits for, in the order in which connections are given up for new ones."""

    HEAD = 0
    IDLE = 1
    BODY = 2
    UNREAD = 3  # the client does not read its response
    SERVED = 4


@dataclass(slots=True)
class ConnectionProgress:
    """How far one connection is: its phase, since when, and what has come of a body since."""

    phase: ConnectionPhase
    since_s: float
    received: int = 0

    def turn_to(self, phase: ConnectionPhase, now_s: float) -> None:
        if phase is not self.phase:
            self.phase, self.since_s, self.received = phase, now_s, 0

    def is_late(self, limits: ConnectionLimits, now_s: float) -> bool:
        """It is to be closed. Idle connections have a limit of their own, served ones none."""
        waited_s = now_s - self.since_s
        match self.phase:
            case ConnectionPhase.HEAD:
                return waited_s > limits.head_s
            case ConnectionPhase.BODY:
                return waited_s > limits.body_s + self.received / limits.body_rate
            case ConnectionPhase.UNREAD:
                return waited_s > limits.unread_s
        return False


def in_the_way(connections: Sequence[ConnectionProgress], connections_max: int) -> ConnectionProgress | None:
    """The one to close, for the last of them to stay; None: there is room, or all others are served."""
    if len(connections) <= connections_max:
        return None
    others = [one for one in connections[:-1] if one.phase is not ConnectionPhase.SERVED]
    return min(others, key=lambda one: (one.phase, one.since_s), default=None)


class GuardedConnection(H11Protocol):
    """One connection; `limits` of all of a server are in a subclass of its own (`guarded`)."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.progress = ConnectionProgress(ConnectionPhase.HEAD, self.loop.time())
        self._timer = self.loop.call_later(self.limits.check_s, self._check)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._phase() is ConnectionPhase.IDLE:
            self.progress.turn_to(ConnectionPhase.HEAD, self.loop.time())
        super().data_received(data)
        self._turn()
        self.progress.received += len(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._turn()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._turn()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._turn()

    def _phase(self) -> ConnectionPhase:
        """The phase that follows from what is known now; a head of which something has come stays one until
        it is complete."""
        if (
            self.flow.write_paused
        ):  # also of a response that is complete for uvicorn, which keeps it in memory
            return ConnectionPhase.UNREAD
        if self.cycle is None or self.cycle.response_complete:
            began = self.cycle is None or bool(self.conn.trailing_data[0])
            return ConnectionPhase.HEAD if began else ConnectionPhase.IDLE
        waits = self.cycle.more_body and not self.flow.read_paused
        return ConnectionPhase.BODY if waits else ConnectionPhase.SERVED

    def _turn(self) -> None:
        self.progress.turn_to(self._phase(), self.loop.time())

    def _check(self) -> None:
        self._timer = self.loop.call_later(self.limits.check_s, self._check)
        self._turn()
        if self.progress.is_late(self.limits, self.loop.time()):
            self._give_up()

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, GuardedConnection) and one is not self]
        closed = in_the_way([*(one.progress for one in others), self.progress], self.limits.connections_max)
        for other in others:
            if other.progress is closed:
                other._give_up()

    def _give_up(self) -> None:
        self.connections.discard(self)  # it counts no more, though its end is noticed later
        self.transport.abort()


def guarded(limits: ConnectionLimits) -> type[Any]:
    """The connections of a server with these limits."""
    return type("GuardedConnection", (GuardedConnection,), {"limits": limits})
