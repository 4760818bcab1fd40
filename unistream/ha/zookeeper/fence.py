"""Fenced writes: one transaction that checks the leader's node and changes others.

The node of a leader is created with its epoch and never changed, so its version is 0 for as long as it leads.
Once it is gone, it never comes back: its name is that of its sequence number, and so are those of no others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kazoo.client import TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.protocol.states import ZnodeStat

from unistream.base.errors import Fenced, OutcomeUnknown, UnistreamError, Unreachable
from unistream.base.ids import LeaderEpoch
from unistream.ha.zookeeper.client import FOLLOWS, NO_ANSWER
from unistream.ha.zookeeper.ports import ZooKeeper

_T = TypeVar("_T")

ATTEMPTS_MAX: Final = 50  # of one write among other threads of the same leader; each time one of them gets on
_CLASHES: Final = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)


class Clash(Exception):
    """Nothing was written: the nodes are not as they were when they were read."""


@dataclass(frozen=True, slots=True)
class UnconfirmedWrite:
    """What a node holds after a write that was not confirmed; `leads`: nobody else can have written it."""

    value: tuple[bytes, ZnodeStat] | None
    leads: bool


class Fence:
    """The right of one leader to write. Thread-safe.

    Args:
        client: Of the leader's session.
        node: Its node in the election.
        epoch: The transaction that created `node`.
        request_s: Longest time for a write.
        lease_is_over: Whether this process has to assume that another one leads.
        may_decide: Whether it leads and is in touch with the service.
    """

    def __init__(
        self,
        client: ZooKeeper,
        node: str,
        epoch: LeaderEpoch,
        *,
        request_s: float,
        lease_is_over: Callable[[], bool],
        may_decide: Callable[[], bool],
    ) -> None:
        self.client = client
        self.epoch = epoch
        self._node = node
        self._request_s = request_s
        self._lease_is_over = lease_is_over
        self._may_decide = may_decide
        self._revoked: str | None = None

    def revoke(self, reason: str) -> None:
        """Refuses every write from now on, without a question to the server."""
        self._revoked = self._revoked or reason

    def leads(self) -> bool:
        """Whether this leader leads, as `HaStore.leads` says it."""
        return self._revoked is None and self._may_decide()

    def repeat(self, attempt: Callable[[], _T]) -> _T:
        """What `attempt` returns, which reads and commits; repeated as long as it clashes."""
        for _ in range(ATTEMPTS_MAX):
            self._check_lease()
            self._check_connection()
            try:
                return attempt()
            except Clash:
                continue
        raise Unreachable(
            f"{self.client}: other threads were faster {ATTEMPTS_MAX} times; nothing was changed"
        )

    def check(self) -> None:
        """Asks the server whether this leader leads, as `HaStore.check` says it."""
        self._check_lease()
        self._check_connection()
        transaction = self._begin()
        try:
            self._judge(self.client.once(lambda _: transaction.commit_async()))
        except (*NO_ANSWER, KazooException) as error:
            raise Unreachable(f"{self.client} did not say whether this process leads") from error

    def commit(
        self,
        path: str,
        build: Callable[[TransactionRequest], object],
        done: Callable[[list[Any]], _T],
        read_back: Callable[[UnconfirmedWrite], _T],
    ) -> _T:
        """Carries out what `build` adds, if this is the leader.

        Args:
            path: The node by which it is seen whether it was done.
            build: Adds operations.
            done: What to return, from the results of the operations.
            read_back: The same if the connection was lost, from what is found at `path`; or raises.

        Raises:
            Clash, Fenced, Unreachable, OutcomeUnknown
        """
        transaction = self._begin()
        build(transaction)
        try:
            return done(self._judge(self.client.once(lambda _: transaction.commit_async())))
        except ConnectionClosedError as error:
            raise OutcomeUnknown(f"{self.client}: the connection was closed during a write") from error
        except SessionExpiredError as error:  # it was waiting to be sent, and never was
            raise self._fenced("the session is over") from error
        except NO_ANSWER as error:
            return read_back(self._found(path, error))
        except KazooException as error:
            raise OutcomeUnknown(f"{self.client} did not confirm a write of {path}: {error!r}") from error

    def _found(self, path: str, error: Exception) -> UnconfirmedWrite:
        """Once the session is connected again, nothing that was sent before can still be carried out: the
        servers answer a session in its order, and a server that it has left is not heard any more."""
        deadline_s = time.monotonic() + self._request_s
        try:
            value = self.client.value(path, deadline_s)
            [leader] = self.client.stats([self._node])
        except UnistreamError:
            raise OutcomeUnknown(
                f"{self.client} did not confirm a write of {path}; it may or may not have been done"
            ) from error
        return UnconfirmedWrite(value, leader is not None)

    def _begin(self) -> TransactionRequest:
        transaction = self.client.transaction()
        transaction.check(self._node, 0)
        return transaction

    def _judge(self, results: list[Any]) -> list[Any]:
        """Every element counts: a transaction that failed raises nothing by itself."""
        if results and isinstance(results[0], NoNodeError | BadVersionError):
            raise self._fenced("its node in the election is gone")
        for result in results:
            if isinstance(result, _CLASHES):
                raise Clash
            if isinstance(result, KazooException) and not isinstance(result, FOLLOWS):
                raise self.client.translated(result) from result
        failed = [result for result in results if isinstance(result, Exception)]
        assert not failed, f"one of them was the cause: {results}"
        return results

    def _check_connection(self) -> None:
        """A request would be kept, and sent by the next connection."""
        if not self.client.connected:
            raise Unreachable(f"{self.client} is not connected; nothing was changed")

    def _check_lease(self) -> None:
        if self._revoked is None and self._lease_is_over():
            self.revoke("it has had no contact to ZooKeeper for too long")
        if self._revoked is not None:
            raise self._fenced(self._revoked)

    def _fenced(self, why: str) -> Fenced:
        return Fenced(
            f"this process is no longer the leader of epoch {self.epoch}: {why}; nothing was changed"
        )
