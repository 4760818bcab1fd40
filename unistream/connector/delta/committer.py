"""Makes staged files visible: one commit to the table for each checkpoint, exactly once.

Identity: application id = ``unistream/<lineage>/<sink uid>``, version = checkpoint id, written into the table
by the same commit that adds the files. Several checkpoints of one notification are one transaction under the
newest id, so that no reader sees a part of them.

    look     newest snapshot, last version under our id; refused if it is not the table that was committed to
    check    the schema still fits, every file exists with its size
    commit   on exactly this snapshot

`unistream.connector.common.target_committer` tries until the table shows the result.

The commit also says which job of which line of jobs made it (`line`): a table that another line writes, or
that another successor of the restored snapshot has taken over, is refused.

A rewind (a restore from a checkpoint older than the table's last) is refused, or begins a branch: the
id gets a suffix ``~1``, ``~2``, … and committing starts over under it. Checkpoint ids are used again after a
rewind, so a commit without files (``<id>/begun``, version = the restored checkpoint) records it at once. A
committer of an older branch is fenced.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, Fenced, OutcomeUnknown, Unreachable
from unistream.connector import common
from unistream.connector.delta.branch import (
    DeltaTarget,
    app_id,
    begun_id,
    check_target,
    last_of,
    newest_branch,
    writer_id,
)
from unistream.connector.delta.compaction import Compactor
from unistream.connector.delta.line import DeltaLine
from unistream.connector.delta.overwrite import condition, partitions_of, staged_rows
from unistream.connector.delta.part import common_schema, files_of
from unistream.connector.delta.positions import owners, positions_metadata
from unistream.connector.delta.row_total import RowTotal
from unistream.connector.delta.schema import check_fits
from unistream.connector.delta.stage import (
    DeltaCommittable,
    DeltaFile,
    decode_committable,
)
from unistream.connector.delta.table import (
    CHECKPOINT_KEY,
    JOB_KEY,
    LINEAGE_KEY,
    SINK_KEY,
    SNAPSHOT_KEY,
    DeltaSinkTable,
    Removed,
    TableCommit,
)
from unistream.connector.delta.upsert import rows_to_merge
from unistream.port.group import TableVersion
from unistream.port.line import Followed
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, SinkContext

Parts = Sequence[common.CheckpointCommittables[DeltaCommittable]]


class DeltaCommitter(common.TargetCommitter[DeltaSinkTable, DeltaCommittable]):
    """The one committer of a table sink.

    Args:
        create: Create a missing table at the first commit.
        allow_rewind: Begin a branch after a rewind, instead of refusing.
        append_to_foreign: Append to a table that another line of jobs writes, instead of refusing.
        storage_options: Options of deltalake.
        stage: The staged files.
        auto_compact_files: See `DeltaSink`.
        tables: Opens and creates the table.
        attempts: Attempts of one commit, after which its outcome is unknown.
    """

    def __init__(
        self,
        *,
        table_uri: str,
        partition_by: tuple[str, ...],
        create: bool,
        allow_rewind: bool,
        append_to_foreign: bool,
        storage_options: Mapping[str, str],
        stage: common.StageFiles,
        auto_compact_files: int | None = None,
        tables: type[DeltaSinkTable] = DeltaSinkTable,
        attempts: int = common.ATTEMPTS_MAX,
    ) -> None:
        super().__init__(f"table {table_uri}", attempts=attempts)
        self._uri = table_uri
        self._partition_by = partition_by
        self._create = create
        self._allow_rewind = allow_rewind
        self._append_to_foreign = append_to_foreign
        self._options = storage_options
        self._stage = stage
        self._tables = tables
        self._compactor: Compactor | None = None
        if auto_compact_files is not None:
            self._compactor = Compactor(table_uri, storage_options, stage, auto_compact_files, tables)
        self._line: DeltaLine | None = None
        self._table: DeltaSinkTable | None = None
        self._branch = 0
        self._rows = RowTotal()
        self._memory = common.TargetMemory(DeltaTarget, "Delta", table_uri)

    @property
    def connector(self) -> str:
        return "delta"

    def restore_state(self, items: Sequence[bytes]) -> None:
        self._memory.restore(items)

    def snapshot_state(self) -> Sequence[bytes]:
        return self._memory.snapshot()

    def open(self, context: SinkContext) -> None:
        """Raises ConfigError for a rewind, for a missing table that must not be created, for a table that is
        not the one that was committed to, and for one that others write; Fenced if another job has taken
        over; Unreachable if an allowed rewind could not be recorded."""
        self._context = context
        followed = _followed(self._memory.current)
        self._line = DeltaLine(f"table {self._uri}", context, followed, appends=self._append_to_foreign)
        self._table = self._tables.open(self._uri, self._options)
        if self._table is None:
            self._check_target(None)
            if not self._create:
                raise ConfigError(f"there is no table at {self._uri}, and the sink has create=False")
            return
        self._branch = newest_branch(self._table, context, self._uri)
        self._check_target(self._table)
        last = self._last(self._table, self._branch)
        if last is not None and last > context.committed_max:
            if not self._allow_rewind:
                raise self._rewound(self._table, last)
            self._begin_branch(self._table, self._branch + 1)
        else:
            self._check_line(self._table)
        writer = self._table.transaction_version(writer_id(context))
        if self._memory.current is None or writer is not None:
            self._remember(self._table, self._last(self._table, self._branch) or 0, writer)

    def close(self) -> None:
        self._table = None
        if self._compactor is not None:
            self._compactor.close()

    def table_version(self) -> TableVersion | None:
        """See `unistream.port.group.JoinsGroup`."""
        table = self._table
        return None if table is None else TableVersion(kind="delta", address=self._uri, version=table.version)

    def newest_version(self) -> TableVersion | None:
        """See `unistream.port.group.JoinsGroup`."""
        self._find_table()
        return self.table_version()

    # --- a commit -----------------------------------------------------------------------------------

    def _look(self, parts: Parts) -> DeltaSinkTable:
        """The newest snapshot; creates the table if none was committed to."""
        if self._find_table() is None:
            if not self._create:
                raise ConfigError(f"table {self._uri} does not exist any more")
            self._check_staged(files_of(parts))
            schema = common_schema(self._uri, [one for part in parts for one in part.staged])
            self._table = self._tables.create(self._uri, self._options, schema, self._partition_by)
        assert self._table is not None, "it was found or created"
        self._check_line(self._table)
        return self._table

    def _check(self, seen: DeltaSinkTable, todo: Parts) -> None:
        staged = [one for part in todo for one in part.staged]
        schema = common_schema(self._uri, staged)
        replaces = any(not one.goes_in_whole for one in staged)
        check_fits(seen.shape, schema, self._partition_by, replaces_rows=replaces)  # deltalake does not check
        self._check_staged(files_of(todo))

    def _has_moved(self, seen: DeltaSinkTable) -> bool:
        looked_at = seen.version
        now = self._find_table()
        return now is None or now.version != looked_at

    def _commit(
        self, seen: DeltaSinkTable, permit: CommitPermit, newest: int, todo: Parts
    ) -> common.CommittedVersion:
        version = seen.version + 1
        try:
            crash_point("delta.before_append")
            self._write(seen, self._table_commit(seen, permit, newest, files_of(todo)), todo)
        except (common.Unknown, OutcomeUnknown):
            self._table = None  # it may be inconsistent: load it again
            raise
        except Unreachable as error:
            if not self._is_staged(seen, todo):
                raise common.Conflict(str(error)) from error
            raise
        self._opened_line().committed(newest)
        crash_point("delta.appended")
        writer = common.number_of(self._opened_line().writer(newest))
        self._remember(seen, newest, writer, version=version)
        total = self._total(seen, version, todo)
        self._tidy_up(todo)
        return common.CommittedVersion(version, total)

    def _found(self, seen: DeltaSinkTable, newest: int, attempted: Parts) -> int | None:
        self._remember(seen, newest, seen.transaction_version(writer_id(self._opened())))
        return seen.version

    def _write(self, table: DeltaSinkTable, commit: TableCommit, parts: Parts) -> None:
        """Raises as `DeltaSinkTable.append`; Unreachable: staged rows cannot be read."""
        staged = [one for part in parts for one in part.staged]
        ((upsert, overwrites),) = {(one.upsert, one.overwrite) for one in staged}
        if upsert is not None:
            table.merge(commit, rows_to_merge(self._stage, commit.files, upsert), upsert)
        elif overwrites:
            within = None  # a table without partitions is replaced as a whole
            if self._partition_by:
                within = condition(partitions_of(self._stage, commit.files, self._partition_by))
            table.overwrite(commit, staged_rows(self._stage, commit.files, table.shape), within)
        else:
            table.append(commit)

    def _total(self, table: DeltaSinkTable, version: int, parts: Parts) -> int | None:
        """Rows of the whole table. `table`: before a commit that appended (or that had nothing to replace),
        after one that replaced rows."""
        if table.version == version:
            return self._rows.replaced(table)
        appended = [one for part in parts for one in part.staged if one.upsert is None and not one.overwrite]
        return self._rows.appended(table, version, sum(file.rows for one in appended for file in one.files))

    def _tidy_up(self, parts: Parts) -> None:
        """Removes files that no version of the table has (what a crash leaves, `vacuum` removes), and lets
        small ones be compacted."""
        if self._compactor is not None:
            self._compactor.committed(len(files_of(parts)))
        for part in parts:
            for one in part.staged:
                for file in () if one.goes_in_whole else one.files:
                    self._stage.remove(file.path)

    def _find_table(self) -> DeltaSinkTable | None:
        """The newest snapshot, checked; None: there is no table."""
        try:
            if self._table is not None:
                self._table.refresh()
            else:
                self._table = self._tables.open(self._uri, self._options)
        except Removed:
            self._table = None
        self._check_target(self._table)
        return self._table

    def _check_target(self, table: DeltaSinkTable | None) -> None:
        """Raises ConfigError if it is not the table that was committed to."""
        if self._memory.current is not None:
            check_target(self._memory.current, table, self._opened(), self._branch)

    def _check_line(self, table: DeltaSinkTable) -> None:
        """Raises ConfigError, Fenced: this job may not commit to it."""
        known = self._memory.current
        last = self._last(table, self._branch)
        if last is None and known is not None and known.checkpoint_id:
            last = known.checkpoint_id  # the table lets transactions expire
        self._opened_line().check_table(table, last)

    def _remember(
        self, table: DeltaSinkTable, checkpoint_id: int, writer: int | None, version: int | None = None
    ) -> None:
        """Remembers what is committed. `version` None: that of the snapshot."""
        until = 0 if writer is None else self._opened_line().remembered(writer, checkpoint_id).until
        self._memory.remember(
            DeltaTarget(
                address=self._uri,
                table_id=table.table_id,
                version=table.version if version is None else version,
                checkpoint_id=checkpoint_id,
                writer=writer or 0,
                until=until,
            )
        )

    def _rewound(self, table: DeltaSinkTable, last: int) -> ConfigError:
        context, restored = self._opened(), self._opened().restored or 0
        at = table.version_of(context.lineage, context.sink_uid, restored) if restored else None
        back = "" if at is None else f" (version {at})"
        choices = (
            f"; or bring the table back to checkpoint {restored}{back} and set "
            "on_rewind='allow_duplicates'; or set that alone and accept duplicates"
        )
        return common.rewound(f"table {self._uri} (version {table.version})", context, last, choices)

    def _todo(
        self, seen: DeltaSinkTable, parts: Parts
    ) -> list[common.CheckpointCommittables[DeltaCommittable]]:
        """Raises Fenced if a newer branch has begun."""
        if self._last(seen, self._branch + 1) is not None:
            raise Fenced(
                f"table {self._uri}: a job that was restored from an older checkpoint has taken over "
                f"sink {self._opened().sink_uid!r}"
            )
        last = seen.transaction_version(app_id(self._opened(), self._branch))
        if last is not None:
            return [part for part in parts if part.checkpoint_id > last]
        begun = (self._last(seen, self._branch) or 0) if self._branch else 0
        return [part for part in parts if part.checkpoint_id > begun or not self._is_in_former(seen, part)]

    def _is_in_former(
        self, table: DeltaSinkTable, part: common.CheckpointCommittables[DeltaCommittable]
    ) -> bool:
        """What the snapshot before a rewind lists was committed before it. Files that are part of the table
        prove it; its transactions alone do not, since another job may have had a checkpoint of that number.
        Rows that were merged leave no file: staged ones are removed behind the commit, and those that are
        still there are merged once more, which changes nothing that the rewind does not."""
        paths = {file.path for file in files_of([part])}
        if all(one.goes_in_whole for one in part.staged):
            return paths <= table.active_paths()
        context = self._opened()
        former = [table.transaction_version(app_id(context, one)) or 0 for one in range(self._branch)]
        return max(former) >= part.checkpoint_id and any(self._stage.size(path) is None for path in paths)

    def _check_staged(self, files: Sequence[DeltaFile]) -> None:
        hint = " (was the table vacuumed with a retention shorter than the outage?)"
        common.check_staged(f"table {self._uri}", files, lambda file: self._stage.size(file.path), hint)

    def _table_commit(
        self, table: DeltaSinkTable, permit: CommitPermit, checkpoint_id: int, files: Sequence[DeltaFile]
    ) -> TableCommit:
        """The commit of a checkpoint's files. It has no positions after a rewind: the table has rows from
        behind them."""
        metadata = {CHECKPOINT_KEY: str(checkpoint_id), "unistream.leader-epoch": str(permit.epoch)}
        if permit.snapshot:
            metadata[SNAPSHOT_KEY] = permit.snapshot
        context, positions = self._opened(), () if self._branch else permit.positions
        mine = common.owner_number(context.lineage, context.sink_uid)
        return TableCommit(
            files=files,
            app_id=app_id(context, self._branch),
            version=checkpoint_id,
            committed_ms=max(file.modification_ms for file in files),
            metadata=self._metadata() | metadata | positions_metadata(positions),
            owners=owners(positions, mine, table.transaction_version)
            | self._opened_line().transactions(table, checkpoint_id),
        )

    def _metadata(self) -> dict[str, str]:
        context = self._opened()
        return {
            JOB_KEY: str(context.job),
            LINEAGE_KEY: str(context.lineage),
            SINK_KEY: str(context.sink_uid),
        }

    def _last(self, table: DeltaSinkTable, branch: int) -> int | None:
        return last_of(table, self._opened(), branch)

    def _begin_branch(self, table: DeltaSinkTable, branch: int) -> None:
        """Records in the table that a branch begins. Idempotent: after a conflict or an unknown outcome the
        table shows the result."""
        restored = self._opened().restored or 0
        note = TableCommit(
            files=(),
            app_id=begun_id(self._opened(), branch),
            version=restored,
            committed_ms=time.time_ns() // 1_000_000,
            metadata=self._metadata(),
            owners=self._opened_line().transactions(table, restored + 1),
        )
        failure: Exception | None = None
        for _ in range(self._attempts):
            try:
                table.append(note)
            except (common.Conflict, common.Unknown) as error:
                failure = error
            table.refresh()
            if self._last(table, branch) is not None:
                self._branch = branch
                return
        raise Unreachable(f"table {self._uri}: the rewind could not be recorded: {failure}") from failure

    def _staged_here(self, request: CommitRequest) -> tuple[DeltaCommittable, ...]:
        """The output that was staged for this table. Raises ConfigError if that for a former table is not
        committed."""
        staged = [decode_committable(content) for content in request.committables]
        for uri in {one.table_uri for one in staged} - {self._uri}:
            missing = self._not_in_former(uri, request.checkpoint_id)
            if missing is not None:
                raise common.uncommitted_elsewhere(self._opened(), self._uri, uri, missing)
        return tuple(one for one in staged if one.table_uri == self._uri)

    def _not_in_former(self, uri: str, checkpoint_id: int) -> str | None:
        """Why a checkpoint is not known to be committed; None: it is, there or (if the table was moved)
        here."""
        context = self._opened()
        if self._table is not None and (self._last(self._table, self._branch) or 0) >= checkpoint_id:
            return None
        try:
            former = self._tables.open(uri, self._options)
        except (ConfigError, Unreachable) as error:
            return str(error)
        if former is None:
            return "there is no table"
        last = last_of(former, context, newest_branch(former, context, uri)) or 0
        return None if last >= checkpoint_id else f"it has this sink's output up to checkpoint {last} only"

    def _opened_line(self) -> DeltaLine:
        assert self._line is not None, "the committer is not open"
        return self._line


def _followed(target: DeltaTarget | None) -> Followed[int] | None:
    return None if target is None or not target.writer else Followed(target.writer, target.until)
