"""What ZooKeeper has written, from the logs of its servers: who changed which node, in which order.

The log of a server is a file ``log.<zxid>`` of checksum, length, header and record of each transaction
(`org.apache.zookeeper.server.persistence.FileTxnLog`), padded with zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CREATES: Final = frozenset({1, 15, 19, 21})  # plain, with the stat, container, with a time to live
_DELETES: Final = frozenset({2, 20})
_SET_DATA: Final = 5
_CHECK: Final = 13
_MULTI: Final = 14
_CLOSE_SESSION: Final = -11
_HEAD_BYTES: Final = 16  # magic, version, id of the database


@dataclass(frozen=True, slots=True)
class Change:
    """One operation. `kind`: create, delete, set, check or close (of the session)."""

    zxid: int
    session: int
    kind: str
    path: str
    value: bytes = b""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def whole(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def bytes_(self) -> bytes:
        size = self.whole("i")
        if size <= 0:
            return b""
        self._at += size
        return self._data[self._at - size : self._at]


def changes(*folders: Path) -> list[Change]:
    """All that the servers with their data in these folders have written, each transaction once."""
    found: dict[int, tuple[Change, ...]] = {}
    for folder in folders:
        for file in sorted(folder.rglob("log.*")):
            for zxid, parts in _transactions(file.read_bytes()):
                found[zxid] = parts
    return [change for zxid in sorted(found) for change in found[zxid]]


def _transactions(data: bytes) -> Iterator[tuple[int, tuple[Change, ...]]]:
    assert data[:4] == b"ZKLG", "not a log of ZooKeeper"
    at = _HEAD_BYTES
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">i", data, at + 8)
        if size <= 0 or at + 12 + size > len(data):
            return  # padding, or being written
        reader = _Reader(data[at + 12 : at + 12 + size])
        session, _, zxid, _, kind = (reader.whole(form) for form in "qiqqi")
        yield zxid, tuple(_parts(reader, kind, zxid, session))
        at += 12 + size + 1  # and the mark of its end


def _parts(reader: _Reader, kind: int, zxid: int, session: int) -> Iterator[Change]:
    if kind == _MULTI:
        for _ in range(reader.whole("i")):
            part, record = reader.whole("i"), reader.bytes_()
            yield from _parts(_Reader(record), part, zxid, session)
    elif kind in _CREATES:
        path = reader.bytes_().decode()
        yield Change(zxid, session, "create", path, reader.bytes_())
    elif kind in _DELETES:
        yield Change(zxid, session, "delete", reader.bytes_().decode())
    elif kind == _SET_DATA:
        path = reader.bytes_().decode()
        yield Change(zxid, session, "set", path, reader.bytes_())
    elif kind == _CHECK:
        yield Change(zxid, session, "check", reader.bytes_().decode())
    elif kind == _CLOSE_SESSION:
        yield Change(zxid, session, "close", "")


@dataclass(frozen=True, slots=True)
class Written:
    """A durable write of a master. `epoch`: the transaction that created its node in the election."""

    zxid: int
    epoch: int
    kind: str
    path: str


def durable_writes(found: list[Change], folder: str) -> list[Written]:
    """Those below the folder of a cluster, each proved to be its leader's.

    Raises:
        AssertionError: one was not in a transaction with a check of the writer's node, or that node was not
            the first of all contenders at that moment.
    """
    election = f"{folder}/election/"
    nodes: dict[str, tuple[int, int]] = {}  # contender -> (epoch, session), of those that live
    checked: dict[int, str] = {}  # transaction -> the node that it checks
    written: list[Written] = []
    for change in found:
        if change.kind == "close":
            nodes = {path: node for path, node in nodes.items() if node[1] != change.session}
        elif change.kind == "check":
            checked[change.zxid] = change.path
        elif change.path.startswith(election):
            if change.kind == "create":
                nodes[change.path] = (change.zxid, change.session)
            else:
                nodes.pop(change.path, None)
        elif change.path.startswith(f"{folder}/") and not _is_made_at_the_start(change.path, folder):
            written += _proved(change, nodes, checked.get(change.zxid), folder)
    return written


def _is_made_at_the_start(path: str, folder: str) -> bool:
    return path in {f"{folder}/cluster", f"{folder}/election"}


def _proved(
    change: Change, nodes: dict[str, tuple[int, int]], checked: str | None, folder: str
) -> Iterator[Written]:
    if change.path == f"{folder}/leader" and change.kind == "delete" and checked is None:
        return  # its owner takes it back, or the next one removes it
    assert checked is not None, f"not fenced: {change}"
    first = min(nodes, key=lambda path: path.rpartition("-")[2])
    assert checked == first, f"{change} by {checked}, while {first} led"
    epoch, session = nodes[first]
    assert session == change.session, f"{change} by another session than the leader's"
    yield Written(change.zxid, epoch, change.kind, change.path)
