"""Makes staged files visible: one snapshot for each checkpoint, exactly once.

    look     the table as the catalogue has it, and what it knows of this sink (`record`); refused if it is
             not the table that was committed to, or if another job writes it
    check    every file exists with its size
    rewrite  rows that replace others by key: into new files instead of those that have the keys (`upsert`)
    commit   files and record in one step, if the head is still the one that was looked at

`unistream.connector.common.target_committer` tries until the table shows the result.

After a commit the table is known, and the next one begins with "check": if anybody has moved the head since,
the catalogue refuses it. pyiceberg's own retry is not used: it commits on a head that nobody has looked at.

A rewind (a restore from a checkpoint older than the table's last) is refused, or begins again: the record
counts it, and a snapshot without files notes it at once, since ids of checkpoints are used again. A committer
from before a rewind is fenced.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, Fenced, Unreachable
from unistream.connector import common
from unistream.connector.iceberg.catalog import TableAddress, answering
from unistream.connector.iceberg.former import not_in_former
from unistream.connector.iceberg.line import IcebergLine, IcebergTarget, check_target
from unistream.connector.iceberg.part import files_of, in_turns, selected
from unistream.connector.iceberg.record import (
    EPOCH_KEY,
    POSITIONS_KEY,
    IcebergCommitRecord,
    Records,
    next_number,
    outdated,
    owner_properties,
    records,
)
from unistream.connector.iceberg.snapshot import (
    PreparedSnapshot,
    check_known,
    live_paths,
    new_snapshot_id,
    prepare,
    unknown_to,
)
from unistream.connector.iceberg.stage import (
    TARGET_FILE_BYTES,
    IcebergCommittable,
    StagedDataFile,
    decode_committable,
)
from unistream.connector.iceberg.table import IcebergSinkTable
from unistream.connector.iceberg.upsert import UpsertRows
from unistream.model.positions import encode_positions
from unistream.port.group import TableVersion
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, SinkContext

LOOKUPS_MAX: Final = 16  # of staged files at a time; an object store answers each in some 20 ms


Parts = Sequence[common.CheckpointCommittables[IcebergCommittable]]


class IcebergCommitter(common.TargetCommitter[tuple[Any, Records], IcebergCommittable]):
    """The one committer of a table sink.

    Args:
        address: Of the table.
        allow_rewind: Begin again after a rewind, instead of refusing.
        append_to_foreign: Append to a table that another line of jobs writes, instead of refusing.
        target_file_bytes: Of files that are written again; see `IcebergSink`.
        tables: Opens the table.
        attempts: Attempts of one commit, after which its outcome is unknown.
    """

    def __init__(
        self,
        address: TableAddress,
        *,
        allow_rewind: bool,
        append_to_foreign: bool,
        target_file_bytes: int = TARGET_FILE_BYTES,
        tables: type[IcebergSinkTable] = IcebergSinkTable,
        attempts: int = common.ATTEMPTS_MAX,
    ) -> None:
        super().__init__(f"table {address.table}", attempts=attempts)
        self._address = address
        self._allow_rewind = allow_rewind
        self._append_to_foreign = append_to_foreign
        self._target_file_bytes = target_file_bytes
        self._tables = tables
        self._line: IcebergLine | None = None
        self._lake: IcebergSinkTable | None = None
        self._is_current = False  # nobody has changed the table since it was looked at, as far as is known
        self._rewinds = 0
        self._refused: PreparedSnapshot | None = None  # whose commit met a conflict
        self._keyed: UpsertRows | None = None  # of the commit that is being made
        self._memory: common.TargetMemory[IcebergTarget] | None = None

    @property
    def connector(self) -> str:
        return "iceberg"

    def restore_state(self, items: Sequence[bytes]) -> None:
        self._remembered.restore(items)

    def snapshot_state(self) -> Sequence[bytes]:
        return self._remembered.snapshot()

    def open(self, context: SinkContext) -> None:
        """Raises ConfigError for a rewind, for a table that is not the one that was committed to, and for one
        that others write; Fenced if another job has taken over; Unreachable: the catalogue does not answer,
        or an allowed rewind could not be recorded."""
        self._context = context
        target = self._remembered.current
        self._line = IcebergLine(self._where, context, target, appends=self._append_to_foreign)
        self._lake = self._tables(self._address)
        table = self._lake.load()
        if table is None:
            self._check_target(None, {})
            return  # the first row creates it
        self._is_current = True
        commit_records = self._records(table)
        last = self._own(commit_records)
        self._check_target(table, commit_records)
        self._rewinds = 0 if last is None else last.rewinds
        if last is not None and last.checkpoint > context.committed_max:
            if not self._allow_rewind:
                raise self._rewound(last)
            self._begin_again(last)
        else:
            self._line.check_records(commit_records)
        last = self._own(self._records(self._lake.table))
        if self._remembered.current is None or last is not None:
            self._remember(last)

    def close(self) -> None:
        self._give_up_keyed()
        lake, self._lake = self._lake, None
        if lake is not None:
            lake.close()

    def table_version(self) -> TableVersion | None:
        """See `unistream.port.group.JoinsGroup`."""
        lake = self._lake
        head = lake.table.metadata.current_snapshot_id if lake is not None and lake.has_table else None
        return (
            None if head is None else TableVersion(kind="iceberg", address=self._address.text, version=head)
        )

    def newest_version(self) -> TableVersion | None:
        """See `unistream.port.group.JoinsGroup`."""
        assert self._lake is not None, "the committer is open"
        self._is_current = False
        table = self._lake.load()
        self._is_current = table is not None
        self._remove_refused()
        self._check_target(table, {} if table is None else self._records(table))
        return self.table_version()

    # --- a commit -----------------------------------------------------------------------------------

    def _turns(self, parts: Parts) -> list[Parts]:
        return in_turns(parts)

    def _check(self, seen: tuple[Any, Records], todo: Parts) -> None:
        self._check_staged(seen[0], files_of(todo))

    def _commit(
        self, seen: tuple[Any, Records], permit: CommitPermit, newest: int, todo: Parts
    ) -> common.CommittedVersion:
        table, found = seen
        recorded = self._recorded(found, permit.snapshot, newest)
        self._append(table, found, recorded, todo, permit)
        self._opened_line().committed(newest)
        self._remember(recorded)
        self._tidy_up(todo)
        return common.CommittedVersion(recorded.version, self._total())

    def _found(self, seen: tuple[Any, Records], newest: int, attempted: Parts) -> int | None:
        _, found = seen
        self._remember(self._own(found))
        self._give_up_keyed()
        self._tidy_up(attempted)
        return self._version(found)

    def _total(self) -> int | None:
        """Rows of the whole table."""
        assert self._lake is not None, "the committer is open"
        return self._lake.row_count()

    def _append(
        self,
        table: Any,
        found: Records,
        recorded: IcebergCommitRecord,
        parts: Parts,
        permit: CommitPermit | None,
    ) -> None:
        """Commits the parts on the loaded head. `permit` None: they are of no checkpoint. Raises Conflict,
        Unknown, Unreachable (not committed), ConfigError."""
        staged: Sequence[IcebergCommittable] = [one for part in parts for one in part.staged]
        summary, owned = ({}, {}) if permit is None else self._said(table, recorded, permit)
        self._is_current = False
        crash_point("iceberg.before_commit")
        staged, removed = self._rewritten(table, found, staged)
        with answering(self._where, "writing the manifests of a snapshot"):
            snapshot = prepare(
                table,
                recorded.version,
                staged,
                summary={**recorded.summary(), **summary},
                properties={**recorded.properties(), **owned},
                removed_properties=outdated(found, recorded),
                removed=removed,
            )
        crash_point("iceberg.manifests_written")
        assert self._lake is not None, "the committer is open"
        try:
            self._lake.commit(snapshot.updates, snapshot.requirements)
        except common.Conflict:
            self._refused = snapshot
            raise
        except common.Unknown:
            if self._keyed is not None:
                self._keyed.keep()
            raise
        self._is_current, self._keyed = True, None
        crash_point("iceberg.committed")

    def _rewritten(
        self, table: Any, known: Records, staged: Sequence[IcebergCommittable]
    ) -> tuple[Sequence[IcebergCommittable], Mapping[str, frozenset[str]]]:
        """What becomes part of the table, and what is part of it no more. Raises as `UpsertRows.on`."""
        if not staged or staged[0].upsert is None:
            return staged, {}
        ordered = sorted(staged, key=lambda one: (one.checkpoint_id, one.subtask))
        keyed = UpsertRows(
            self._address, ordered, target_bytes=self._target_file_bytes, file_name=self._file_name
        )
        if self._keyed is None or self._keyed.paths != keyed.paths:
            self._give_up_keyed()
            self._keyed = keyed
        try:
            upserted = self._keyed.on(table)
        except ConfigError as error:
            if self._has_moved((table, known)):  # files of the former head may be gone
                raise common.Conflict(str(error)) from error
            raise
        crash_point("iceberg.rewritten")
        return [upserted.instead_of(ordered)], upserted.removed

    def _has_moved(self, seen: tuple[Any, Records]) -> bool:
        assert self._lake is not None, "the committer is open"
        self._is_current = False
        now = self._lake.load()
        return now is None or now.metadata.current_snapshot_id != seen[0].metadata.current_snapshot_id

    def _give_up_keyed(self) -> None:
        """What was written for a commit that was not made is removed."""
        keyed, self._keyed = self._keyed, None
        if keyed is not None:
            keyed.discard()

    def _file_name(self) -> str:
        """The name of a file that is written again; unique among all attempts."""
        uid = re.sub(r"[^A-Za-z0-9-]", "-", self._opened().sink_uid)[:64]
        return f"{uid}-keyed-{uuid.uuid4().hex}.parquet"

    def _tidy_up(self, parts: Parts) -> None:
        """Removes files that no snapshot will name (what a crash leaves, `remove_orphan_files` removes)."""
        assert self._lake is not None, "the committer is open"
        for one in (one for part in parts for one in part.staged if one.upsert is not None):
            for file in one.files:
                self._lake.remove(file.path)

    def _look(self, parts: Parts) -> tuple[Any, Records]:
        """The table and what it knows, checked. It is asked for again, unless nobody can have changed it."""
        assert self._lake is not None, "the committer is open"
        staged = [one for part in parts for one in part.staged]
        if self._is_current and any(unknown_to(self._lake.table, one) for one in staged):
            self._is_current = False  # the writers have added columns since: the head is the same
        if not self._is_current:
            self._is_current = self._lake.load() is not None
            self._remove_refused()
        commit_records = self._records(self._lake.table) if self._lake.has_table else {}
        table = self._lake.table if self._lake.has_table else None
        self._check_target(table, commit_records)
        if table is None or any(one.table_id != str(table.metadata.table_uuid) for one in staged):
            raise self._another(table, staged)
        self._opened_line().check_records(commit_records)
        check_known(self._where, table, staged)
        return table, commit_records

    def _remove_refused(self) -> None:
        """The manifests of a commit that met a conflict, once the table shows that it does not have it."""
        made, self._refused = self._refused, None
        lake = self._lake
        if made is None or lake is None or not lake.has_table:
            return
        if lake.table.metadata.snapshot_by_id(made.snapshot_id) is None:
            for path in made.written:
                lake.remove(path)

    def _todo(
        self, seen: tuple[Any, Records], parts: Parts
    ) -> list[common.CheckpointCommittables[IcebergCommittable]]:
        """Raises Fenced if a rewind has been made since this committer opened."""
        table, commit_records = seen
        last = self._own(commit_records)
        if last is not None and last.rewinds > self._rewinds:
            raise Fenced(
                f"{self._where}: a job that was restored from an older checkpoint has taken over sink "
                f"{self._opened().sink_uid!r}"
            )
        if last is not None and not last.begun:
            return selected(parts, lambda one: one.checkpoint_id > last.checkpoint)
        restored = self._opened().restored or 0
        if not self._rewinds or min(part.checkpoint_id for part in parts) > restored:
            return list(parts)
        # ids from before the rewind prove nothing here, but files do
        with answering(self._where, "listing its files"):
            live = live_paths(table)
        return selected(
            parts,
            lambda one: one.checkpoint_id > restored or not self._is_in_former(table, last, one, live),
        )

    def _is_in_former(
        self, table: Any, begun: IcebergCommitRecord | None, one: IcebergCommittable, live: frozenset[str]
    ) -> bool:
        """What the snapshot before a rewind lists was committed before it. Files that are part of the table
        prove it. Of rows that replaced others the staged files were removed behind the commit; those that are
        still there replace them once more, which changes nothing that the rewind does not."""
        if one.upsert is None:
            return {file.path for file in one.files} <= live
        if begun is not None and one.checkpoint_id > begun.checkpoint:
            return False
        with answering(self._where, "looking for staged files"):
            return not all(table.io.new_input(file.path).exists() for file in one.files)

    def _check_staged(self, table: Any, files: Sequence[StagedDataFile]) -> None:
        hint = " (were orphan files removed that are younger than the outage?)"

        def size_of(file: StagedDataFile) -> int | None:
            try:
                return len(table.io.new_input(file.path))
            except FileNotFoundError:
                return None

        with answering(self._where, "looking for staged files"), ThreadPoolExecutor(LOOKUPS_MAX) as pool:
            sizes = dict(zip((file.path for file in files), pool.map(size_of, files), strict=True))
            common.check_staged(self._where, files, lambda file: sizes[file.path], hint)

    def _recorded(
        self, found: Records, snapshot: str, checkpoint_id: int, *, begun: bool = False
    ) -> IcebergCommitRecord:
        context = self._opened()
        last = self._own(found)
        return IcebergCommitRecord(
            lineage=context.lineage,
            sink_uid=context.sink_uid,
            job=context.job if begun else self._opened_line().writer(checkpoint_id),
            checkpoint=checkpoint_id,
            rewinds=self._rewinds,
            begun=begun,
            snapshot=snapshot,
            number=next_number(found),
            version=new_snapshot_id(0 if last is None else last.version),
        )

    def _said(
        self, table: Any, recorded: IcebergCommitRecord, permit: CommitPermit
    ) -> tuple[dict[str, str], dict[str, str]]:
        """What a commit says in its summary, and in properties of the table. It has no positions after a
        rewind: the table has rows from behind them."""
        summary = {EPOCH_KEY: str(permit.epoch)}
        positions = () if self._rewinds else permit.positions
        if positions:
            summary[POSITIONS_KEY] = encode_positions(positions)
        mine = common.owner_number(recorded.lineage, recorded.sink_uid)
        return summary, owner_properties(table.properties, positions, mine)

    # --- rewinds ------------------------------------------------------------------------------------

    def _rewound(self, last: IcebergCommitRecord) -> ConfigError:
        restored = self._opened().restored or 0
        assert self._lake is not None, "the committer is open"
        at = (
            self._lake.snapshot_of(self._opened().lineage, self._opened().sink_uid, restored)
            if restored
            else None
        )
        back = "" if at is None else f" (snapshot {at})"
        choices = (
            f"; or roll the table back to checkpoint {restored}{back} and set on_rewind='allow_duplicates'; "
            "or set that alone and accept duplicates"
        )
        return common.rewound(
            f"{self._where} (snapshot {last.version})", self._opened(), last.checkpoint, choices
        )

    def _begin_again(self, last: IcebergCommitRecord) -> None:
        """Records in the table that the sink begins again behind a rewind. Idempotent: after a conflict or an
        unknown outcome the table shows the result."""
        assert self._lake is not None, "the committer is open"
        restored, failure = self._opened().restored or 0, "lost every race"
        self._rewinds = last.rewinds + 1
        for attempt in range(self._attempts):
            if attempt:
                self._lake.load()
            commit_records = self._records(self._lake.table)
            current = self._own(commit_records)
            if current is not None and current.rewinds >= self._rewinds:
                return
            try:
                self._append(
                    self._lake.table,
                    commit_records,
                    self._recorded(commit_records, "", restored, begun=True),
                    (),
                    None,
                )
            except (common.Conflict, common.Unknown) as error:
                failure = str(error)
            else:
                return
        raise Unreachable(f"{self._where}: the rewind could not be recorded: {failure}")

    # --- the target ---------------------------------------------------------------------------------

    def _check_target(self, table: Any, found: Records) -> None:
        """Raises ConfigError if it is not the table that was committed to."""
        known = self._remembered.current
        if known is not None:
            table_id = None if table is None else str(table.metadata.table_uuid)
            check_target(known, table_id, self._own(found), self._opened())

    def _another(self, table: Any, staged: Sequence[IcebergCommittable]) -> ConfigError:
        now = "there is none now" if table is None else f"the one there has id {table.metadata.table_uuid}"
        return ConfigError(
            f"{self._where}: checkpoint {staged[0].checkpoint_id} has files for the table with id "
            f"{staged[0].table_id}, but {now}: it was dropped; nothing was written. Bring it back; or, to "
            "continue without these rows, give the sink another uid and allow non-restored state"
        )

    def _remember(self, last: IcebergCommitRecord | None) -> None:
        assert self._lake is not None, "the committer is open"
        followed = None if last is None else self._opened_line().remembered(last.job, last.checkpoint)
        self._remembered.remember(
            IcebergTarget(
                address=self._address.text,
                table_id=str(self._lake.table.metadata.table_uuid),
                checkpoint_id=0 if last is None else last.checkpoint,
                rewinds=self._rewinds,
                job="" if followed is None else followed.job,
                until=0 if followed is None else followed.until,
            )
        )

    @property
    def _remembered(self) -> common.TargetMemory[IcebergTarget]:
        if self._memory is None:  # the address may refer to a variable of the worker
            self._memory = common.TargetMemory(IcebergTarget, "Iceberg", self._address.text)
        return self._memory

    def _staged_here(self, request: CommitRequest) -> tuple[IcebergCommittable, ...]:
        """The output that was staged for this table. A table that was renamed, or whose catalog has moved, is
        the same one. Raises ConfigError if a former table does not have what was staged for it."""
        context = self._opened()
        staged = [decode_committable(content) for content in request.committables]
        if context.finalizing:
            return tuple(staged)
        lake = self._lake
        table_id = str(lake.table.metadata.table_uuid) if lake is not None and lake.has_table else ""
        own = [one for one in staged if one.address == self._address.text or one.table_id == table_id]
        for one in {one.address: one for one in staged if one not in own}.values():
            missing = not_in_former(self._tables, one, self._address, context, request.checkpoint_id)
            if missing is not None:
                raise common.uncommitted_elsewhere(context, self._address.text, one.address, missing)
        return tuple(own)

    # --- small parts --------------------------------------------------------------------------------

    def _records(self, table: Any) -> Records:
        return records(self._address.table, table.metadata)

    def _own(self, found: Records) -> IcebergCommitRecord | None:
        context = self._opened()
        return found.get((context.lineage, context.sink_uid))

    def _version(self, found: Records) -> int | None:
        last = self._own(found)
        return None if last is None else last.version

    def _opened_line(self) -> IcebergLine:
        assert self._line is not None, "the committer is not open"
        return self._line
