"""What a client of the simulated ZooKeeper sends, and what its servers know of a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.masters.tree import Operation, Tree
from unistream.base.ids import LeaderEpoch

Watch = Callable[[], None]


@dataclass(slots=True, eq=False)
class Request:
    """`read`: of one that changes nothing, by tree and point of history; `epoch`: of the leader that
    writes."""

    path: str = ""
    operations: Sequence[Operation] = ()
    synced: bool = False
    watch: Watch | None = None
    read: Callable[[Tree, int], Any] = lambda _tree, _zxid: None
    single: bool = False
    epoch: LeaderEpoch | None = None
    is_done: bool = False
    result: Any = None
    error: Exception | None = None

    @property
    def writes(self) -> bool:
        return bool(self.operations)

    def settle(self, result: Any) -> None:
        if not self.is_done:
            self.is_done, self.result = True, result

    def fail(self, error: Exception) -> None:
        if not self.is_done:
            self.is_done, self.error = True, error


class Client(Protocol):
    """The client of a connection. `session`: 0: it has none yet."""

    session: int
    timeout_ms: int

    def break_off(self, number: int) -> None:
        """The server closes connection `number`, or it breaks; the client notices if it can be reached."""

    def notified(self, number: int, watch: Watch) -> None:
        """A watch has fired."""
