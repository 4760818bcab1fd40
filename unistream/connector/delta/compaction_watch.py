"""What others do to a table that this project compacts: found in its log, and set right.

A commit of deltalake that was begun before a compaction and ends after it removes the files that the
compaction has removed, and knows nothing of the one that has their rows now: OPTIMIZE puts the rows into
files of its own, so that they are there twice; an overwrite leaves them there. deltalake compares neither
(tried with 1.6.6), Spark refuses it. deltalake refuses whatever was begun before a commit with metadata,
appends too. So where one sink alone writes the table, each compaction is sealed by such a commit at once:

    version 7     we: a, b, c -> x
    version 8     we: the same metadata once more                      an OPTIMIZE of version 6 is refused

Where others append, their commits are not to be refused for it, and another may come between the two. Then
the commit can be known by what it removes: files that were removed before.

    version 8     OPTIMIZE that has read version 6: a, b -> y          a and b are twice: in x and y
    version 9     we take 7 back, as far as it is: x -> c              a and b in y, c in c

All is read from the log, so the next attempt of a job finds what an attempt that was killed did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from unistream.connector.delta.source_log import Commit, TableLog, checked_path
from unistream.connector.delta.source_split import DataFile

WATCHED: Final = 100  # versions before the first look, and after an OPTIMIZE in which nothing is compacted
MADE_MAX: Final = 10_000  # compactions that are remembered
COMPACTED: Final = "compacted"
TAKEN_BACK: Final = "taken back"
SEALED: Final = "sealed"
"""What a commit that seals the table has under `COMPACTION_KEY`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A compaction: `files` became `made`."""

    version: int
    made: DataFile
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """A commit that sets a table right: `removed` leave it, `added` come back."""

    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]


class CompactionWatch:
    """Follows the log of one table, for what others do to its compactions.

    Args:
        uri: Of the table.
        newest: The version to begin at; some before it are looked at as well.

    Attributes:
        optimized: The last version in which somebody else has compacted the table.
    """

    def __init__(self, uri: str, log: TableLog, newest: int) -> None:
        self._uri = uri
        self._log = log
        self._newest = newest
        self._seen = max(-1, newest - WATCHED)
        self._made: dict[str, Made] = {}  # by the path of what was made
        self._lost: dict[str, set[str]] = {}  # by the same: files that somebody has removed once more
        self.optimized: int | None = None
        self._writers: dict[tuple[str, str] | None, int] = {}  # the last version of each; None: not known who

    @property
    def has_one_writer(self) -> bool:
        """One sink, and nobody else, has changed rows of late."""
        late = [writer for writer, version in self._writers.items() if self._seen - version < WATCHED]
        return len(late) == 1 and None not in late

    @property
    def is_left_to_others(self) -> bool:
        """Somebody else compacts the table, and not long ago."""
        return self.optimized is not None and self._seen - self.optimized < WATCHED

    def look(self) -> None:
        """Reads the versions that are new. Raises ConfigError, Unreachable."""
        for version in count(self._seen + 1):
            commit = self._log.commit(version)
            if commit is None and version > self._newest:
                return
            if commit is not None:  # the log is cleaned up from its beginning
                self._read(commit)
            self._seen = version

    def taken_back(self) -> TakenBack | None:
        """What sets the table right; None: nothing is wrong."""
        wrong = {path for path, lost in self._lost.items() if lost}
        if not wrong:
            return None
        while more := {
            path
            for path, one in self._made.items()
            if path not in wrong and any(file.path in wrong for file in one.files)
        }:
            wrong |= more  # which have the rows of those now
        undone = [self._made[path] for path in wrong]
        inner = {file.path for one in undone for file in one.files}
        lost = set[str]().union(*(self._lost.get(path, set()) for path in wrong))
        return TakenBack(
            removed=tuple(one.made for one in undone if one.made.path not in inner),
            added=tuple(
                file
                for one in undone
                for file in one.files
                if file.path not in lost and file.path not in wrong
            ),
        )

    def forget(self, removed: Sequence[DataFile]) -> None:
        """Forgets compactions that cannot be taken back."""
        for path in {file.path for file in removed} | {path for path, lost in self._lost.items() if lost}:
            self._forget(path)

    def _read(self, commit: Commit) -> None:
        if commit.changes_rows:
            self._writers[commit.writer] = commit.version
        removed = {checked_path(self._uri, one.path): one for one in commit.removed}
        if commit.compaction == TAKEN_BACK:
            for path, lost in list(self._lost.items()):
                if lost:
                    self._forget(path)
            for path in removed:
                self._forget(path)
            return
        if commit.operation == "OPTIMIZE":
            self.optimized = commit.version
        back = {checked_path(self._uri, add.path) for add in (*commit.adds, *commit.moved)}
        for path, compacted in list(self._made.items()):
            paths = {file.path for file in compacted.files}
            if back & paths:
                self._forget(path)  # restored
            else:
                self._lost[path] |= paths & removed.keys()
        if commit.compaction == COMPACTED and len(commit.moved) == 1:
            self._remember(commit)

    def _remember(self, commit: Commit) -> None:
        [add] = commit.moved
        path = checked_path(self._uri, add.path)
        files = tuple(
            DataFile(
                path=checked_path(self._uri, one.path),
                size=one.size or 0,
                partition=one.partition_values or add.partition_values,
            )
            for one in commit.removed
        )
        file = DataFile(path=path, size=add.size, partition=add.partition_values)
        self._made[path] = Made(version=commit.version, made=file, files=files)
        self._lost[path] = set()
        if len(self._made) > MADE_MAX:
            self._forget(next(iter(self._made)))

    def _forget(self, path: str) -> None:
        self._made.pop(path, None)
        self._lost.pop(path, None)
