"""The nodes of a simulated ZooKeeper, at each point of their history, and its transactions.

A server that lags behind answers reads from its own point of the history (`Tree.at`), so all of it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from unistream.ha.zookeeper.client import NoNodeError, RolledBackError, RuntimeInconsistency
from unistream.ha.zookeeper.fence import BadVersionError, NodeExistsError, NotEmptyError, ZnodeStat

ANY_VERSION: Final = -1


@dataclass(frozen=True, slots=True)
class Node:
    """`owner`: the session that it goes with; 0: none."""

    data: bytes
    czxid: int
    mzxid: int
    version: int
    owner: int


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


Operation = Check | Create | SetData | Delete


class Tree:
    """All that was ever committed.

    Attributes:
        zxid: Of the last transaction.
        changed: Paths that each transaction has changed.
    """

    def __init__(self) -> None:
        self.zxid = 0
        self.changed: dict[int, tuple[str, ...]] = {}
        self._history: dict[str, list[tuple[int, Node | None]]] = {}
        self._names: dict[str, dict[str, None]] = {}  # parent -> names that it has ever had
        self._numbers: dict[str, int] = {}

    # --- reading ----------------------------------------------------------------------------------

    def at(self, path: str, zxid: int) -> Node | None:
        """The node as it was after transaction `zxid`."""
        for number, node in reversed(self._history.get(path, ())):
            if number <= zxid:
                return node
        return None

    def now(self, path: str) -> Node | None:
        return self.at(path, self.zxid)

    def children(self, path: str, zxid: int) -> list[str]:
        """Names directly below `path` after transaction `zxid`."""
        return [name for name in self._names.get(path, ()) if self.at(f"{path}/{name}", zxid) is not None]

    def stat(self, path: str, zxid: int) -> ZnodeStat | None:
        """As kazoo has it; times are left out."""
        node = self.at(path, zxid)
        if node is None:
            return None
        return ZnodeStat(
            czxid=node.czxid,
            mzxid=node.mzxid,
            ctime=0,
            mtime=0,
            version=node.version,
            cversion=0,
            aversion=0,
            ephemeralOwner=node.owner,
            dataLength=len(node.data),
            numChildren=len(self.children(path, zxid)),
            pzxid=0,
        )

    # --- writing ----------------------------------------------------------------------------------

    def commit(self, operations: Sequence[Operation], session: int) -> list[Any]:
        """All or nothing. Returns results of the operations, with kazoo's errors if one cannot be done."""
        trial = _Trial(self, session)
        results: list[Any] = []
        for operation in operations:
            try:
                results.append(trial.perform(operation))
            except (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError) as error:
                undone = [RolledBackError() for _ in results]
                rest = [RuntimeInconsistency() for _ in operations[len(results) + 1 :]]
                return [*undone, error, *rest]
        self._keep(trial.nodes)
        return [trial.stat(path) if path is not None else result for path, result in results]

    def end_session(self, session: int) -> tuple[str, ...]:
        """Removes its nodes, in one transaction."""
        mine = {path: None for path in self.paths() if (node := self.now(path)) and node.owner == session}
        self._keep(dict(mine))
        return tuple(mine)

    def paths(self) -> Iterator[str]:
        """Of all nodes that there are."""
        return (path for path in self._history if self.now(path) is not None)

    def begin_session(self) -> int:
        """A transaction, too; its number is the id."""
        self._keep({})
        return self.zxid

    def next_number(self, parent: str) -> int:
        number = self._numbers.get(parent, 0)
        self._numbers[parent] = number + 1
        return number

    def _keep(self, nodes: dict[str, Node | None]) -> None:
        self.zxid += 1
        self.changed[self.zxid] = tuple(nodes)
        for path, node in nodes.items():
            self._history.setdefault(path, []).append((self.zxid, node))
            parent, _, name = path.rpartition("/")
            self._names.setdefault(parent, {})[name] = None


class _Trial:
    """A transaction that may still fail. `nodes`: what it changes."""

    def __init__(self, tree: Tree, session: int) -> None:
        self._tree = tree
        self._session = session
        self._zxid = tree.zxid + 1
        self.nodes: dict[str, Node | None] = {}

    def perform(self, operation: Operation) -> tuple[str | None, Any]:
        """(path of the node whose stat is the result, or None; else the result)."""
        match operation:
            case Check(path, version):
                self._existing(path, version)
                return None, True
            case Create():
                return None, self._create(operation)
            case SetData(path, data, version):
                node = self._existing(path, version)
                changed = replace(node, data=data, mzxid=self._zxid, version=node.version + 1)
                self.nodes[path] = changed
                return path, None
            case Delete(path, version):
                self._existing(path, version)
                if self._children(path):
                    raise NotEmptyError
                self.nodes[path] = None
                return None, True

    def stat(self, path: str) -> ZnodeStat | None:
        return self._tree.stat(path, self._tree.zxid)

    def _create(self, operation: Create) -> str:
        parent = operation.path.rpartition("/")[0]
        if parent and self._node(parent) is None:
            raise NoNodeError
        path = operation.path
        if operation.sequence:
            path = f"{path}{self._tree.next_number(parent):010d}"
        if self._node(path) is not None:
            raise NodeExistsError
        owner = self._session if operation.ephemeral else 0
        self.nodes[path] = Node(operation.data, self._zxid, self._zxid, 0, owner)
        return path

    def _node(self, path: str) -> Node | None:
        return self.nodes[path] if path in self.nodes else self._tree.now(path)

    def _existing(self, path: str, version: int) -> Node:
        node = self._node(path)
        if node is None:
            raise NoNodeError
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError
        return node

    def _children(self, path: str) -> bool:
        names = {*self._tree.children(path, self._tree.zxid)}
        prefix = f"{path}/"
        names |= {key.removeprefix(prefix) for key in self.nodes if key.startswith(prefix)}
        return any(self._node(prefix + name) is not None for name in sorted(names) if "/" not in name)
