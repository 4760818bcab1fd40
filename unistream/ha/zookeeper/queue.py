"""The queue of contenders: one ephemeral, sequential node for each, the first of which leads.

As Curator's LeaderLatch: each watches the node before its own, and its own, so that nobody wakes all. The
name begins with an id of the contender: a node whose creation was not confirmed is found by it, and removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from unistream.base.errors import UnistreamError
from unistream.base.ids import LeaderEpoch
from unistream.core.leadership import LookFailed, NodeBehind, NodeFirst, NodeGone
from unistream.ha.zookeeper.client import KAZOO_ERRORS
from unistream.ha.zookeeper.ports import ZooKeeper
from unistream.ha.zookeeper.settings import ZnodePaths
from unistream.port.ha import ContenderInfo

_SEQUENCE: Final = re.compile(r"-(-?[0-9]{10,})$")  # a counter of 32 bits with a sign
_LOOKS_MAX: Final = 5  # the one before it may go while it is looked at

Seen = NodeFirst | NodeBehind | NodeGone | LookFailed


class ElectionQueue:
    """The place of one contender. For one thread.

    Args:
        client: Its session owns the node.
        layout: Of the cluster.
        contender: Unique among all contenders of all times.
        on_change: Called by kazoo when the own node or the one before it has changed.
        said: What others read of the contender, see `said_of`.
    """

    def __init__(
        self,
        client: ZooKeeper,
        layout: ZnodePaths,
        contender: str,
        on_change: Callable[[], None],
        said: Callable[[], str] = lambda: "",
    ) -> None:
        self._client = client
        self._layout = layout
        self._prefix = f"{contender}-"
        self._on_change = on_change
        self._said = said
        self._first: str | None = None  # the last own node that was first in the queue
        self.node: str | None = None

    def join(self, look: int) -> Seen:
        """Removes own nodes of before, creates one, and looks at it."""
        try:
            self._remove_own()
            prefix, said = f"{self._layout.election}/{self._prefix}", self._said().encode()
            self.node = self._client.once(
                lambda kazoo: kazoo.create_async(prefix, said, ephemeral=True, sequence=True)
            )
            return self._look(look)
        except (*KAZOO_ERRORS, UnistreamError):
            return LookFailed(look)

    def check(self, look: int) -> Seen:
        """Looks at the own node, and has changes reported."""
        try:
            return self._look(look)
        except (*KAZOO_ERRORS, UnistreamError):
            return LookFailed(look)

    def contenders(self) -> list[str]:
        """What all contenders say, the first in the queue first; from any thread. Raises as `read` of the
        client."""
        names = sorted(self._client.children(self._layout.election) or [], key=_sequence)
        found = [self._client.value(f"{self._layout.election}/{name}") for name in names]
        return [one[0].decode("utf-8", "replace") for one in found if one is not None]

    def leave(self) -> None:
        """Removes the own nodes, and where this leader is reached. Raises what kazoo raises."""
        self.node = None
        self._remove_own()

    def _remove_own(self) -> None:
        names = self._client.children(self._layout.election) or []
        for name in names:
            if name.startswith(self._prefix):
                path = f"{self._layout.election}/{name}"
                if path != self._first or not self._leads_no_more(path):
                    self._delete(path)

    def _leads_no_more(self, path: str) -> bool:
        """Removes the node by which it has led together with where this leader is reached: as long as the one
        is there, the other one is of nobody else. False: nothing was removed."""
        [stat] = self._client.stats([self._layout.leader])
        if stat is None or stat.ephemeralOwner != self._client.session:
            return False
        transaction = self._client.transaction()
        transaction.delete(path)
        transaction.delete(self._layout.leader)
        results = self._client.once(lambda _: transaction.commit_async())
        return not any(isinstance(result, Exception) for result in results)

    def _delete(self, path: str) -> None:
        try:
            self._client.once(lambda kazoo: kazoo.delete_async(path))
        except NoNodeError:
            return  # its session was over

    def _look(self, look: int) -> Seen:
        for _ in range(_LOOKS_MAX):
            seen = self._look_once(look)
            if seen is not None:
                return seen
        return LookFailed(look)

    def _look_once(self, look: int) -> Seen | None:
        """None: the one before it has gone meanwhile."""
        stat = self._watched(self.node) if self.node is not None else None
        # a node of a session that is over may be there for a moment, and counts no more (CURATOR-696)
        if self.node is None or stat is None or stat.ephemeralOwner != self._client.session:
            return NodeGone(look)
        mine = _sequence(self.node)
        names = self._client.children(self._layout.election) or []
        if self.node.rpartition("/")[2] not in names:
            return NodeGone(look)
        before = [name for name in names if _sequence(name) < mine]
        if not before:
            self._first = self.node
            return NodeFirst(look, LeaderEpoch(stat.czxid))
        nearest = max(before, key=_sequence)
        found = self._watched(f"{self._layout.election}/{nearest}")
        return NodeBehind(look) if found is not None else None

    def _watched(self, path: str) -> Any:
        return self._client.read(lambda kazoo: kazoo.exists_async(path, watch=self._changed))

    def _changed(self, _: object) -> None:
        self._on_change()


def said_of(process: str, rest_url: str | None) -> str:
    """What a contender says of itself in its node."""
    return process if rest_url is None else f"{process} {rest_url}"


def contender_of(said: str, *, leads: bool) -> ContenderInfo:
    """The contender whose node has this.

    >>> contender_of(said_of("host-12", "http://127.0.0.1:8081"), leads=False)
    ContenderInfo(process='host-12', leads=False, rest_url='http://127.0.0.1:8081')
    >>> contender_of("host-12", leads=True).rest_url is None  # of an older version, or it has no REST API
    True
    """
    process, _, rest_url = said.partition(" ")
    return ContenderInfo(process=process, leads=leads, rest_url=rest_url or None)


def _sequence(name: str) -> int:
    """Its number.

    >>> _sequence("3f2a-0000000012")
    12
    """
    found = _SEQUENCE.search(name)
    return int(found[1]) if found else 2**31  # made by somebody else; never before a contender
