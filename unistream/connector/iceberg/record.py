"""What a table knows of the sinks that write it: the last checkpoint of each, and the job that committed it.

    property  unistream.commit.<lineage>/<sink uid>    set by the same commit that adds the files
    summary   unistream.checkpoint-id, …               of the snapshot that has them
    property  unistream.positions.<connector>/…        which sink records positions of a source; 0: several

The property stays when snapshots expire; the summary stays when somebody removes properties. Both are looked
at, the summaries of all ancestors of the branch's head, and the newer one counts. Properties alone are never
changed by a sink: only a commit with a snapshot is compared with the head that was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyiceberg.table.snapshots import Operation

from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.connector.common import RecordedCommit, kept_snapshot, owners
from unistream.model.positions import SourcePositions
from unistream.port.line import LineCommit, foreign_line

BRANCH: Final = "main"
PROPERTY: Final = "unistream.commit."
LINEAGE_KEY: Final = "unistream.lineage"
SINK_KEY: Final = "unistream.sink-uid"
JOB_KEY: Final = "unistream.job-id"
CHECKPOINT_KEY: Final = "unistream.checkpoint-id"
SNAPSHOT_KEY: Final = "unistream.snapshot"
REWINDS_KEY: Final = "unistream.rewinds"
BEGUN_KEY: Final = "unistream.begun"
NUMBER_KEY: Final = "unistream.commit-number"
EPOCH_KEY: Final = "unistream.leader-epoch"
POSITIONS_KEY: Final = "unistream.source-positions"
OWNER: Final = "unistream.positions."
_CHANGES: Final = frozenset({"added-data-files", "deleted-data-files", "added-delete-files"})  # of a summary
RECORDS_MAX: Final = 1_000  # sinks of one table; one that appends a line of jobs each day needs some 3 years


class IcebergCommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last commit of one sink.

    Attributes:
        job: That took the checkpoint.
        rewinds: That were allowed before it.
        begun: It has no rows: what follows the checkpoint begins again after a rewind.
        snapshot: Directory from which a job can go on behind it.
        number: Of all commits by sinks to this table.
        version: The table's snapshot.
    """

    lineage: str
    sink_uid: str
    job: str
    checkpoint: int
    rewinds: int = 0
    begun: bool = False
    snapshot: str = ""
    number: int = 0
    version: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Where the commit stands in the order of its sink's commits: rewinds, checkpoint."""
        return self.rewinds, self.checkpoint

    @property
    def property_name(self) -> str:
        return f"{PROPERTY}{self.lineage}/{self.sink_uid}"

    def properties(self) -> dict[str, str]:
        """The property by which the table has this record."""
        return {self.property_name: msgspec.json.encode(self).decode()}

    def summary(self) -> dict[str, str]:
        """The entries by which the summary of the snapshot has this record."""
        made = {
            LINEAGE_KEY: self.lineage,
            SINK_KEY: self.sink_uid,
            JOB_KEY: self.job,
            CHECKPOINT_KEY: str(self.checkpoint),
            NUMBER_KEY: str(self.number),
            SNAPSHOT_KEY: self.snapshot,
            REWINDS_KEY: str(self.rewinds) if self.rewinds else "",
            BEGUN_KEY: "true" if self.begun else "",
        }
        return {name: value for name, value in made.items() if value}


_DECODER: Final = msgspec.json.Decoder(IcebergCommitRecord)
Records = Mapping[tuple[str, str], IcebergCommitRecord]
"""The last commit of each sink, by its lineage and uid."""


def records(where: str, metadata: Any) -> dict[tuple[str, str], IcebergCommitRecord]:
    """The last commit of each sink, of a `TableMetadata`. Raises ConfigError: a property is damaged."""
    found: dict[tuple[str, str], IcebergCommitRecord] = {}
    for one in (*_of_properties(where, metadata.properties), *_of_summaries(metadata)):
        key = one.lineage, one.sink_uid
        if key not in found or found[key].place < one.place:
            found[key] = one
    return found


def _of_properties(where: str, properties: Mapping[str, str]) -> Iterator[IcebergCommitRecord]:
    for name, text in properties.items():
        if name.startswith(PROPERTY):
            try:
                yield _DECODER.decode(text)
            except UNDECODABLE as error:
                raise ConfigError(
                    f"table {where}: property {name!r}, in which a sink keeps what it has committed, is "
                    f"unreadable ({error}); remove it, if the snapshots of its last commits are still there"
                ) from error


def _of_summaries(metadata: Any) -> Iterator[IcebergCommitRecord]:
    for snapshot in ancestors(metadata):
        if snapshot.summary is None:
            continue
        summary = snapshot.summary.additional_properties
        if LINEAGE_KEY in summary and SINK_KEY in summary and summary.get(CHECKPOINT_KEY, "").isdecimal():
            yield IcebergCommitRecord(
                lineage=summary[LINEAGE_KEY],
                sink_uid=summary[SINK_KEY],
                job=summary.get(JOB_KEY, ""),
                checkpoint=int(summary[CHECKPOINT_KEY]),
                rewinds=int(summary.get(REWINDS_KEY, "0")),
                begun=BEGUN_KEY in summary,
                snapshot=summary.get(SNAPSHOT_KEY, ""),
                number=int(summary.get(NUMBER_KEY, "0")),
                version=int(snapshot.snapshot_id),
            )


def ancestors(metadata: Any) -> Iterator[Any]:
    """Snapshots of the branch that have not expired, from its head on."""
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    head = metadata.snapshot_by_name(BRANCH)
    while head is not None:
        yield head
        head = by_id.get(head.parent_snapshot_id)


def owner_name(positions: SourcePositions) -> str:
    """The property that says which sink records these positions."""
    return f"{OWNER}{positions.connector}/{positions.name}/{positions.origin}"


def owner_in(properties: Mapping[str, str], name: str) -> int | None:
    """The number of the sink that owns a property; None: the table does not say."""
    found = properties.get(name, "")
    return int(found) if found.isdecimal() else None


def owner_properties(
    properties: Mapping[str, str], positions: Sequence[SourcePositions], mine: int
) -> dict[str, str]:
    """What a commit with these positions sets. `properties`: of the table."""
    found = owners(positions, owner_name, mine, lambda name: owner_in(properties, name))
    return {name: str(owner) for name, owner in found.items()}


def recorded_commits(metadata: Any, head: int) -> Iterator[RecordedCommit | None]:
    """A snapshot and those before it, see `unistream.connector.common.recorded_positions`."""
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    at: int | None = head
    while at is not None:
        snapshot = by_id.get(at)
        if snapshot is None:
            yield None
            return
        yield _commit_of(snapshot)
        at = snapshot.parent_snapshot_id
        if at is None and snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE:
            yield None  # it had rows to compact, and pyiceberg forgets a snapshot that has expired


def _commit_of(snapshot: Any) -> RecordedCommit:
    summary = snapshot.summary
    found = {} if summary is None else summary.additional_properties
    operation = "a snapshot" if summary is None else str(summary.operation.value)
    is_ours = LINEAGE_KEY in found and SINK_KEY in found
    changes = operation != Operation.REPLACE.value and not (is_ours and not _CHANGES & set(found))
    return RecordedCommit(
        name=f"snapshot {snapshot.snapshot_id}",
        argument=f"snapshot_id={snapshot.snapshot_id}",
        operation=operation,
        positions=found.get(POSITIONS_KEY),
        writer=(found[LINEAGE_KEY], found[SINK_KEY]) if is_ours else None,
        changes_rows=changes,
    )


def next_number(found: Records) -> int:
    return 1 + max((one.number for one in found.values()), default=0)


def outdated(found: Records, mine: IcebergCommitRecord) -> list[str]:
    """Properties to be removed by the commit of `mine`: of the sinks that have not committed for longest."""
    others = sorted(
        (one for key, one in found.items() if key != (mine.lineage, mine.sink_uid)),
        key=lambda one: one.number,
    )
    return [one.property_name for one in others[: max(0, len(others) + 1 - RECORDS_MAX)]]


def last_commit(found: Records, sink_uid: str) -> LineCommit | None:
    """See `unistream.port.line.KeepsLine`."""
    own = [one for one in found.values() if one.sink_uid == sink_uid]
    last = max(own, key=lambda one: one.number, default=None)
    if last is None:
        return None
    return LineCommit(lineage=last.lineage, job=last.job, checkpoint=last.checkpoint, snapshot=last.snapshot)


def check_no_other(where: str, found: Records, lineage: str) -> None:
    """Raises ConfigError if another line than `lineage` ("": any) writes the table."""
    others = [one for one in found.values() if one.lineage != lineage]
    last = max(others, key=lambda one: one.number, default=None)
    if last is not None:
        snapshot = kept_snapshot(last.snapshot)
        raise foreign_line(where, writer=last.job, checkpoint=str(last.checkpoint), snapshot=snapshot)
