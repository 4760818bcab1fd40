"""The pointers of a cluster as nodes below its folder.

A node with a value begins with HEADER; one that only has nodes below it is empty. Nodes that hold up a name
are created with it and removed with the last name below them, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kazoo.client import TransactionRequest
from kazoo.protocol.states import ZnodeStat

from unistream.base.errors import CorruptSnapshot, Fenced, OutcomeUnknown, Unreachable
from unistream.base.ids import LeaderEpoch
from unistream.ha.names import RESERVED, check_value, components
from unistream.ha.zookeeper.fence import Clash, Fence, UnconfirmedWrite
from unistream.ha.zookeeper.settings import ZnodePaths
from unistream.port.ha import HaEntry
from unistream.port.storage import Created

HEADER: Final = b"unistream 1\n"
_PRODUCT: Final = b"unistream "
REMOVED_AT_ONCE: Final = 200  # nodes in one transaction: their paths, of 1,500 characters, fit into a request


class ZooKeeperStore:
    """Implements `port.ha.HaStore`. The version of an entry is the transaction that wrote it, so it grows
    also when a name is removed and created again."""

    def __init__(self, fence: Fence, layout: ZnodePaths) -> None:
        self._fence = fence
        self._client = fence.client
        self._layout = layout

    @property
    def epoch(self) -> LeaderEpoch:
        return self._fence.epoch

    def leads(self) -> bool:
        return self._fence.leads()

    def read(self, name: str) -> HaEntry | None:
        return self._entry(name, self._client.value(self._path(components(name))))

    def children(self, name: str) -> Sequence[str]:
        if name:
            return tuple(sorted(self._client.children(self._path(components(name))) or ()))
        return tuple(sorted({*(self._client.children(self._layout.folder) or ())} - RESERVED))

    def create(self, name: str, value: bytes) -> Created:
        parts = components(name)
        check_value(name, value)
        return self._fence.repeat(lambda: self._create(name, parts, value))

    def replace(self, name: str, value: bytes, version: int) -> int:
        parts = components(name)
        check_value(name, value)
        return self._fence.repeat(lambda: self._replace(name, self._path(parts), value, version))

    def remove(self, name: str) -> None:
        parts = components(name)
        while self._fence.repeat(lambda: self._remove(name, parts)):
            pass  # there was more than fits into a transaction

    def check(self) -> None:
        self._fence.check()

    # --- one attempt of each ----------------------------------------------------------------------

    def _create(self, name: str, parts: tuple[str, ...], value: bytes) -> Created:
        paths = [self._path(parts[: n + 1]) for n in range(len(parts))]
        stored = self._client.value(paths[-1])
        entry = self._entry(name, stored)
        if entry is not None:
            self._fence.check()
            return _same(name, entry, value)
        stats = self._client.stats(paths)

        def build(transaction: TransactionRequest) -> None:
            for path, stat in zip(paths[:-1], stats[:-1], strict=True):
                if stat is None:
                    transaction.create(path, b"")
            if stored is not None:  # it holds up others, and gets a value of its own
                transaction.set_data(paths[-1], HEADER + value, stored[1].version)
            else:
                transaction.create(paths[-1], HEADER + value)

        def read_back(found: UnconfirmedWrite) -> Created:
            entry = self._entry(name, found.value)
            if not found.leads:
                raise _unknown(name)
            if entry is None:
                raise _unchanged(name)
            _same(name, entry, value)
            return Created.NEW

        return self._fence.commit(paths[-1], build, lambda _: Created.NEW, read_back)

    def _replace(self, name: str, path: str, value: bytes, version: int) -> int:
        stored = self._client.value(path)
        entry = self._entry(name, stored)
        if stored is None or entry is None or entry.version != version:
            self._fence.check()
            there = "nothing is stored" if entry is None else f"version {entry.version} is stored"
            raise Fenced(f"{there} for {name!r}, not version {version}; nothing was changed")
        before = stored[1]

        def read_back(found: UnconfirmedWrite) -> int:
            after = found.value[1] if found.value else None
            if after is not None and after.mzxid == before.mzxid:
                raise _unchanged(name) if found.leads else Fenced(f"{name!r} was not replaced: another leads")
            ours = after is not None and (after.czxid, after.version) == (before.czxid, before.version + 1)
            if after is None or not (found.leads and ours and found.value == (HEADER + value, after)):
                raise _unknown(name)
            return int(after.mzxid)

        return self._fence.commit(
            path,
            lambda transaction: transaction.set_data(path, HEADER + value, before.version),
            lambda results: int(results[-1].mzxid),
            read_back,
        )

    def _remove(self, name: str, parts: tuple[str, ...]) -> bool:
        """Whether something is left."""
        path = self._path(parts)
        below = list(self._below(path))
        if not below:
            self._fence.check()
            return False
        gone = below[:REMOVED_AT_ONCE]
        holders = self._holders(parts) if len(gone) == len(below) else []

        def build(transaction: TransactionRequest) -> None:
            for node in gone:
                transaction.delete(node)
            for node, stat in holders:
                transaction.delete(node, stat.version)

        def read_back(found: UnconfirmedWrite) -> bool:
            if not found.leads:
                raise _unknown(name)
            if found.value is not None:
                raise _unchanged(name)
            return False

        return self._fence.commit(path, build, lambda _: len(gone) < len(below), read_back)

    def _below(self, path: str) -> Iterator[str]:
        """Itself and all below it, the deepest first."""
        names = self._client.children(path)
        if names is None:
            return
        for name in sorted(names):
            yield from self._below(f"{path}/{name}")
        yield path

    def _holders(self, parts: tuple[str, ...]) -> list[tuple[str, ZnodeStat]]:
        """The nodes above that hold up nothing else, from below."""
        paths = [self._path(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
        found = []
        for path, stat in zip(paths, self._client.stats(paths) if paths else [], strict=True):
            if stat is None:
                raise Clash
            if stat.dataLength > 0 or stat.numChildren > 1:
                break
            found.append((path, stat))
        return found

    # --- names and values -------------------------------------------------------------------------

    def _path(self, parts: tuple[str, ...]) -> str:
        return "/".join((self._layout.folder, *parts))

    def _entry(self, name: str, stored: tuple[bytes, ZnodeStat] | None) -> HaEntry | None:
        if stored is None or not stored[0]:
            return None
        data, stat = stored
        if data.startswith(HEADER):
            return HaEntry(data[len(HEADER) :], stat.mzxid)
        by = "a newer version of unistream" if data.startswith(_PRODUCT) else "another program"
        raise CorruptSnapshot(f"{self._client}: {self._layout.folder}/{name} was written by {by}")


def _same(name: str, entry: HaEntry, value: bytes) -> Created:
    if entry.value != value:
        raise Fenced(f"another value is stored for {name!r}; nothing was changed")
    return Created.EXISTS


def _unchanged(name: str) -> Unreachable:
    return Unreachable(
        f"the connection to ZooKeeper was lost while {name!r} was written; nothing was changed"
    )


def _unknown(name: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"the connection to ZooKeeper was lost while {name!r} was written; another leads")
