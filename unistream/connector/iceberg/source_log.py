"""The snapshots of an Iceberg table: which ones follow a position, and what each one means for a stream.

    append, overwrite that removes nothing      its files are new rows
    replace                                     the same rows in other files (compaction): skipped
    delete                                      rows are deleted: refused, unless deletes are ignored
    overwrite                                   rows are rewritten (UPDATE, MERGE, DELETE, overwrite):
                                                refused, unless changes are ignored; then all its new files
    are read not behind the position                     the table was set back, or another branch took its
    place expired before it was read                  refused

A position is the id of the last snapshot that was read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from unistream.base.errors import ConfigError
from unistream.connector.common import said_time

REPLACE: Final = "replace"

START_AGAIN: Final = (
    "to read on without what is missing, start the job without the checkpoint, or give the source another "
    "uid and start with --allow-non-restored-state (allow_non_restored_state=True)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """One snapshot. `parent`: None: it is the first one. `schema_id`: None: not known."""

    id: int
    parent: int | None
    sequence: int
    at_ms: int
    operation: str
    schema_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The snapshots that a table has, and the newest one of a branch (None: it has none).

    Attributes:
        where: Table and branch, for messages.
    """

    where: str
    snapshots: Mapping[int, SnapshotFacts]
    head: int | None

    def ancestors(self) -> Iterator[SnapshotFacts]:
        """Yields the snapshots from the head back, as far as they have not expired."""
        one = self.snapshots.get(self.head) if self.head is not None else None
        while one is not None:
            yield one
            one = None if one.parent is None else self.snapshots.get(one.parent)

    def following(self, position: int | None) -> list[SnapshotFacts]:
        """The snapshots behind the position, the oldest first. `position` None: all that ever were.

        Raises:
            ConfigError: some of them have expired, or the position is not in the branch.
        """
        found: list[SnapshotFacts] = []
        parent: int | None = self.head
        for one in self.ancestors():
            if one.id == position:
                return found[::-1]
            found.append(one)
            parent = one.parent
        if parent == position:  # it may have expired itself: nothing is between
            return found[::-1]
        if position is None and found:
            raise self.first_expired()
        raise self._broken(position)

    def first_expired(self) -> ConfigError:
        """The error that not all that ever was added is still there."""
        oldest = self._oldest()
        return ConfigError(
            f"{self.where}: its first snapshots have expired, the oldest that is left is {oldest}, so what "
            "was added first is in no snapshot of its own; begin with the rows of a snapshot (the default), "
            "or with starting_snapshot at one that is left"
        )

    def _oldest(self) -> str:
        found = list(self.ancestors())
        return f"{found[-1].id} of {said_time(found[-1].at_ms)}" if found else "none"

    def _broken(self, position: int | None) -> ConfigError:
        if position in self.snapshots or self.head is None:
            return ConfigError(
                f"{self.where}: snapshot {position}, up to which the job has read, is not among those that "
                f"led to the newest one ({self.head}): the branch was set back or replaced, and what is "
                f"written now may be something else; {START_AGAIN}"
            )
        return ConfigError(
            f"{self.where}: snapshot {position}, up to which the job has read, has expired, and others "
            f"behind it may have expired before they were read, or the branch was set back; the oldest that "
            f"is left is {self._oldest()}. Keep snapshots for longer than a job may stand still "
            f"(history.expire.max-snapshot-age-ms); {START_AGAIN}"
        )

    def at(self, snapshot_id: int) -> SnapshotFacts:
        """The snapshot of this id. Raises ConfigError: the table does not have it."""
        found = self.snapshots.get(snapshot_id)
        if found is None:
            raise ConfigError(
                f"{self.where} has no snapshot {snapshot_id}: it has expired, or is of another table"
            )
        return found

    def before(self, snapshot_id: int) -> int | None:
        """The position before this snapshot. Raises ConfigError: it is not in the branch."""
        if snapshot_id not in {one.id for one in self.ancestors()}:
            self.at(snapshot_id)
            raise ConfigError(
                f"{self.where}: snapshot {snapshot_id} is not among those that led to the newest one "
                f"({self.head})"
            )
        return self.at(snapshot_id).parent

    def since(self, at_ms: int) -> int | None:
        """The position before the first snapshot that was committed then or later. Raises ConfigError: that
        one may have expired."""
        position = self.head
        for one in self.ancestors():
            if one.at_ms < at_ms:
                return one.id
            position = one.parent
        if position is not None:
            raise ConfigError(
                f"{self.where}: what was committed since {said_time(at_ms)} cannot be read any more: the "
                f"oldest snapshot that is left is {self._oldest()}"
            )
        return position


def current_at(where: str, log: Iterable[tuple[int, int]], at_ms: int) -> int:
    """Which snapshot was the newest one of the table at this time. `log`: times (ms) and ids of what the
    table's newest one was, the oldest first; a table that was set back is there twice.

    Raises:
        ConfigError: it had none, or the log does not go back so far.
    """
    entries = sorted(log, key=lambda one: one[0])
    found = [id_ for time, id_ in entries if time <= at_ms]
    if not found:
        first = f"{entries[0][1]} of {said_time(entries[0][0])}" if entries else "not there"
        raise ConfigError(
            f"{where} is not known as of {said_time(at_ms)}: the first snapshot in its log is {first}"
        )
    return found[-1]


def check_passable(
    where: str,
    snapshot: SnapshotFacts,
    *,
    adds: int,
    removes: int,
    ignore_deletes: bool,
    ignore_changes: bool,
) -> None:
    """Raises ConfigError: a stream cannot pass the snapshot; see above. `adds`, `removes`: files with new
    rows, and files that are removed or hold deletes."""
    what = f"{where}, snapshot {snapshot.id} ({snapshot.operation})"
    if removes and adds and not ignore_changes:
        raise ConfigError(
            f"{what} rewrites rows, which a stream of added rows cannot express; ignore_changes=True reads "
            "all rows of the new files, with those that were read before, or start again without the "
            "checkpoint from a newer snapshot"
        )
    if removes and not (ignore_deletes or ignore_changes):
        raise ConfigError(
            f"{what} deletes rows, which a stream of added rows cannot express; ignore_deletes=True passes "
            "such snapshots"
        )
