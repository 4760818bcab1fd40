"""The key groups of a subtask in several databases, each with its own files: shards.

    (restored) ── adopt ──► open ─┐
    fill ──► closed ── first row ─┴► open ── close ──► closed
    one row ── key group ──► shard ──► column family
    all rows of a state ── shard after shard, which is the order of the key groups

A database is opened with all of its files, each of which spans all its key groups. With a database for each
of a few equal ranges of key groups, a restore reads only the shards it needs
(docs/decision/rocksdb-shards.md).

n shards are the ranges that n times as many subtasks would have: with four of them, two or four times the
parallelism gives every subtask whole shards. All shards of a backend share one `Memory`. A shard without rows
is not opened and costs nothing.
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unistream.model.key_groups import intersect, key_group_range
from unistream.state.rocksdb.api import Family, Memory, RocksDb, rows_from
from unistream.state.rocksdb.keys import group_prefix, groups_of

Groups = tuple[int, int]
"""First and last key group."""


@dataclass(slots=True)
class Shard:
    """The database of a range of key groups. `folder`: made when it is opened; `opened` None: no rows."""

    groups: Groups
    folder: Path
    memory: Memory
    read_only: bool
    opened: RocksDb | None = None

    @property
    def label(self) -> str:
        return label_of(self.groups)

    def open(self) -> RocksDb:
        """Raises CorruptSnapshot if the files in its folder cannot be opened."""
        if self.opened is None:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.opened = RocksDb(self.folder, self.memory, read_only=self.read_only)
        return self.opened

    def close(self) -> None:
        """Twice is fine."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None


class Shards:
    """Shards that do not overlap, in the order of their key groups. Owns the folders in `folder`."""

    def __init__(self, folder: Path, memory: Memory, *, read_only: bool = False) -> None:
        self.folder = folder
        self._memory = memory
        self._read_only = read_only
        self._shards: list[Shard] = []
        self._firsts: list[int] = []

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards)

    def add(self, groups: Groups) -> Shard:
        """A shard for key groups that no other one has; the files in its folder are its rows."""
        shard = Shard(groups, self.folder / label_of(groups), self._memory, self._read_only)
        place = bisect_right(self._firsts, groups[0])
        assert all(intersect(other.groups, groups) is None for other in self._shards), "shards never overlap"
        self._shards.insert(place, shard)
        self._firsts.insert(place, groups[0])
        return shard

    def adopt(self, folder: Path, groups: Groups, *, cut: bool) -> None:
        """Moves a database here as the shard of these key groups; `cut`: deletes its rows of others."""
        shard = self.add(groups)
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, self.folder / shard.label)
        database = shard.open()
        if cut:
            database.clip(group_prefix(groups[0]), group_prefix(groups[1] + 1))

    def fill(self, wanted: Iterable[Groups]) -> None:
        """Adds shards for the key groups of these ranges that no shard has."""
        for groups in wanted:
            for free in _without(groups, [shard.groups for shard in self._shards]):
                self.add(free)

    def of_group(self, group: int) -> Shard:
        """The shard with the rows of a key group."""
        shard = self._shards[bisect_right(self._firsts, group) - 1]
        assert shard.groups[0] <= group <= shard.groups[1], f"key group {group} belongs to another subtask"
        return shard

    def places(self, groups: Any) -> Any:
        """The number of the shard of each key group."""
        return np.searchsorted(self._firsts, groups, side="right") - 1

    def __getitem__(self, place: int) -> Shard:
        return self._shards[place]

    def opened(self) -> list[tuple[Shard, RocksDb]]:
        return [(shard, shard.opened) for shard in self._shards if shard.opened is not None]

    def has(self, family: str) -> bool:
        return any(database.has(family) for _, database in self.opened())

    def drop(self, family: str) -> None:
        for _, database in self.opened():
            if database.has(family):
                database.drop(family)

    def close(self) -> None:
        """Files stay. Twice is fine."""
        for shard in self._shards:
            shard.close()


class Families(dict[bytes, Family]):
    """The rows of one state, in the column family of that name of every shard.

    As a dict: the first bytes of a key (its key group) -> the column family with its rows, which is made at
    the first lookup if it is absent.
    """

    __slots__ = ("_name", "_shards")

    def __init__(self, shards: Shards, name: str) -> None:
        super().__init__()
        self._shards = shards
        self._name = name

    def __missing__(self, prefix: bytes) -> Family:
        database = self._shards.of_group(int.from_bytes(prefix, "big")).open()
        family = self[prefix] = database.family(self._name)
        return family

    def rows(self, groups: Groups) -> Iterator[tuple[bytes, bytes]]:
        """Rows of key groups first to last, in order, as of the start of the iteration."""
        parts = []
        for shard, database in self._shards.opened():
            common = intersect(shard.groups, groups)
            if common is not None and database.has(self._name):
                first, stop = group_prefix(common[0]), group_prefix(common[1] + 1)
                parts.append(rows_from(database.family(self._name), first, stop))
        for part in parts:
            yield from part

    def get_many(self, keys: Sequence[Any]) -> list[bytes | None]:
        """The cells of many keys; None where there is none."""
        column, found = _column(keys), _column([None] * len(keys))
        for place, at in self._by_shard(keys):
            family = self._shards[place].open().family(self._name)
            found[at] = _column(family.get(column[at].tolist()))
        cells: list[bytes | None] = found.tolist()
        return cells

    def write(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Puts (None: deletes) many rows at once; of two rows with one key the last one wins."""
        given = list(rows)
        keys, cells = _column([key for key, _ in given]), _column([cell for _, cell in given])
        for place, at in self._by_shard(keys):
            pairs = zip(keys[at].tolist(), cells[at].tolist(), strict=True)
            self._shards[place].open().write(self._name, pairs)

    def _by_shard(self, keys: Sequence[bytes]) -> Iterator[tuple[int, Any]]:
        """(number of a shard, places of its keys in their order)."""
        if len(keys) == 0:
            return
        places = self._shards.places(groups_of(keys))
        order = np.argsort(places, kind="stable")
        used, starts = np.unique(places[order], return_index=True)
        yield from zip(used.tolist(), np.split(order, starts[1:]), strict=True)


def _column(values: Sequence[Any]) -> Any:
    """Python objects as they are (numpy would cut trailing zeros off bytes)."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def shard_ranges(
    key_groups: Groups, max_parallelism: int, shards: int, parallelism: int | None = None
) -> list[Groups]:
    """The key groups of each shard: those that `shards` times as many subtasks would have.

    `parallelism` None: the least one with a subtask that has these key groups.

    >>> shard_ranges((0, 63), 128, 4)
    [(0, 15), (16, 31), (32, 47), (48, 63)]
    >>> shard_ranges((4, 6), 128, 4)
    [(4, 4), (5, 5), (6, 6)]
    """
    first, last = key_groups
    width = last - first + 1
    if width <= shards:
        return [(group, group) for group in range(first, last + 1)]
    at_least, at_most = max_parallelism // (width + 1), max_parallelism // max(1, width - 1)
    possible = range(max(1, at_least), min(max_parallelism, at_most + 1) + 1)
    for number in possible if parallelism is None else [parallelism]:
        index = first * number // max_parallelism
        if key_group_range(max_parallelism, number, index) == key_groups:
            start = index * shards
            return [key_group_range(max_parallelism, number * shards, start + n) for n in range(shards)]
    edges = [first + width * n // shards for n in range(shards + 1)]
    return [(start, stop - 1) for start, stop in pairwise(edges)]


def label_of(groups: Groups) -> str:
    """Name of a shard's folder, and prefix of its files' names."""
    return f"{groups[0]:05d}-{groups[1]:05d}"


def _without(groups: Groups, taken: list[Groups]) -> Iterator[Groups]:
    """The ranges of `groups` that are not taken."""
    first, last = groups
    for start, stop in sorted(taken):
        if stop < first or start > last:
            continue
        if first < start:
            yield first, start - 1
        first = stop + 1
    if first <= last:
        yield first, last
