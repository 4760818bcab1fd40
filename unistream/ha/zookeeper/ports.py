"""What the election needs of its surroundings: a client of ZooKeeper, threads, a clock and a name.

`election_ports` in `election` has them as users run them; a simulation has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import KazooException
from kazoo.protocol.states import ZnodeStat

from unistream.base.clock import Clock
from unistream.base.errors import UnistreamError
from unistream.core.leadership import ConnectionState
from unistream.port.event_loop import CreateEventLoop

OnLink = Callable[[ConnectionState], None]
"""Called with each change of the connection; must return at once."""


class ZooKeeper(Protocol):
    """A client whose every call ends; `client.ZooKeeperClient` says what each does, and what it raises."""

    @property
    def connected(self) -> bool: ...

    @property
    def session(self) -> int: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def is_dead(self) -> bool: ...

    def open(self) -> None: ...

    def revive(self) -> None: ...

    def close(self) -> None: ...

    def once(self, ask: Callable[[KazooClient], Any], deadline_s: float | None = None) -> Any: ...

    def read(self, ask: Callable[[KazooClient], Any], deadline_s: float | None = None) -> Any: ...

    def value(self, path: str, deadline_s: float | None = None) -> tuple[bytes, ZnodeStat] | None: ...

    def children(self, path: str) -> list[str] | None: ...

    def stats(self, paths: list[str]) -> list[ZnodeStat | None]: ...

    def transaction(self) -> TransactionRequest: ...

    def translated(self, error: KazooException) -> UnistreamError: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionPorts:
    """Where an election takes place.

    Attributes:
        clock: Of the lease; the service counts the sleep of this machine, too.
        create_client: Makes a client that is not open.
        create_loop: Makes a thread, by its name.
        contender: Unique among all contenders of all times.
    """

    clock: Clock
    create_client: Callable[[OnLink], ZooKeeper]
    create_loop: CreateEventLoop
    contender: str
