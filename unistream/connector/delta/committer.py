"""Makes staged files visible: one commit to the table for each checkpoint, exactly once.

Identity: application id = ``unistream/<lineage>/<sink uid>``, version = checkpoint id, written into the table
by the same commit that adds the files. Several checkpoints of one notification are one transaction under the
newest id, so that no reader sees a part of them.

    look     newest snapshot, last version under our id; refused if it is not the table that was committed to
    done?    checkpoints <= last version  ->  already committed
    check    the schema still fits, every file exists with its size
    commit   on exactly this snapshot
    retry    after a conflict or an unknown outcome: the newest snapshot shows the result

The commit also says which job of which line of jobs made it (`line`): a table that another line writes, or
that another successor of the restored snapshot has taken over, is refused.

A rewind (a restore from a checkpoint older than the table's last) is refused, or begins a branch: the
id gets a suffix ``~1``, ``~2``, … and committing starts over under it. Checkpoint ids are used again after a
rewind, so a commit without files (``<id>/begun``, version = the restored checkpoint) records it at once. A
committer of an older branch is fenced.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, CorruptSnapshot, Fenced, OutcomeUnknown, Unreachable
from unistream.connector.common import (
    StageFiles,
    TargetMemory,
    check_staged,
    number_of,
    owner_number,
    rewound,
    uncommitted_elsewhere,
)
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
from unistream.connector.delta.part import Part, common_schema, files_of, rows_of, visible_rows
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
    Conflict,
    LakeTable,
    Removed,
    TableCommit,
    Unknown,
)
from unistream.connector.delta.upsert import rows_to_merge
from unistream.port.group import TableVersion
from unistream.port.line import Followed
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, SinkContext

ATTEMPTS_MAX: Final = (
    20  # conflicts or unknown outcomes of one commit; each conflict is another commit's success
)
BACKOFF_MAX_S: Final = 0.5


class DeltaCommitter:
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
        stage: StageFiles,
        auto_compact_files: int | None = None,
        tables: type[LakeTable] = LakeTable,
        attempts: int = ATTEMPTS_MAX,
    ) -> None:
        self._uri = table_uri
        self._partition_by = partition_by
        self._create = create
        self._allow_rewind = allow_rewind
        self._append_to_foreign = append_to_foreign
        self._options = storage_options
        self._stage = stage
        self._tables = tables
        self._attempts = attempts
        self._compactor: Compactor | None = None
        if auto_compact_files is not None:
            self._compactor = Compactor(table_uri, storage_options, stage, auto_compact_files, tables)
        self._context: SinkContext | None = None
        self._line: DeltaLine | None = None
        self._table: LakeTable | None = None
        self._branch = 0
        self._rows = RowTotal()
        self._memory = TargetMemory(DeltaTarget, "Delta", table_uri)
        self._jitter = random.Random(os.urandom(8))  # noqa: S311 - spreads retries, guards nothing

    @property
    def connector(self) -> str:
        return "delta"

    @property
    def is_sole(self) -> bool:
        """The table knows one version for each checkpoint."""
        return True

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

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """One transaction, with the newest checkpoint as its version."""
        context = self._opened()
        permit.require(context.lineage, max(request.checkpoint_id for request in requests))
        parts: list[Part] = []
        for request in requests:
            staged = self._of_this_table(request)
            parts += [Part(request.checkpoint_id, staged)] if staged else []
        if parts:
            return self._commit(permit, parts)
        is_done = any(request.committables for request in requests)
        return CommitResult(CommitOutcome.ALREADY_COMMITTED if is_done else CommitOutcome.COMMITTED)

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

    def _commit(self, permit: CommitPermit, parts: Sequence[Part]) -> CommitResult:
        schema = common_schema(self._uri, [one for part in parts for one in part.staged])
        newest, files = max(part.checkpoint_id for part in parts), files_of(parts)
        failure: Exception | None = None  # of the last attempt, if its outcome is unknown
        attempted: list[Part] = []
        for _ in self._tries():
            try:
                table = self._look(schema, files)
            except Unreachable as error:
                if not attempted:
                    raise
                failure = error
                continue
            self._check_line(table)
            todo = self._todo(table, parts)
            if not todo:
                self._remember(table, newest, table.transaction_version(writer_id(self._opened())))
                outcome = CommitOutcome.COMMITTED if attempted else CommitOutcome.ALREADY_COMMITTED
                rows = rows_of(files) if attempted else 0
                return CommitResult(outcome, rows, table.version, visible=visible_rows(parts, attempted))
            files = files_of(todo)
            check_fits(table.shape, schema, self._partition_by)  # deltalake does not check either
            if not self._has_staged(table, files):
                continue
            attempted, failure, version = todo, None, table.version + 1
            try:
                if not self._is_first(table, permit, newest, todo):
                    continue
            except Unknown as error:
                failure = error
                self._table = None  # it may be inconsistent: load it again
                continue
            writer = number_of(self._opened_line().writer(newest))
            self._remember(table, newest, writer, version=version)
            total, visible = self._total(table, version, todo), visible_rows(parts, todo)
            self._tidy_up(todo)
            return CommitResult(CommitOutcome.COMMITTED, rows_of(files), version, total, visible=visible)
        if failure is None:  # lost every race
            return CommitResult(CommitOutcome.RETRY)
        raise OutcomeUnknown(
            f"table {self._uri}: whether checkpoint {newest} was committed is unknown "
            f"after {self._attempts} attempts: {failure}"
        ) from failure

    def _tries(self) -> Iterator[int]:
        """The numbers of attempts, each when its time has come."""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(self._jitter.uniform(0, min(BACKOFF_MAX_S, 0.01 * 2**attempt)))
            yield attempt

    def _is_first(self, table: LakeTable, permit: CommitPermit, newest: int, todo: Sequence[Part]) -> bool:
        """Commits on exactly this snapshot. False: somebody else has. Raises as `_write`."""
        files = files_of(todo)
        try:
            crash_point("delta.before_append")
            self._write(table, self._table_commit(table, permit, newest, files), todo)
            self._opened_line().committed(newest)
            crash_point("delta.appended")
        except Conflict:
            return False
        except Unreachable:
            if self._has_staged(table, files):
                raise
            return False
        return True

    def _write(self, table: LakeTable, commit: TableCommit, parts: Sequence[Part]) -> None:
        """Raises as `LakeTable.append`; Unreachable: staged rows cannot be read."""
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

    def _total(self, table: LakeTable, version: int, parts: Sequence[Part]) -> int | None:
        """Rows of the whole table. `table`: before a commit that appended (or that had nothing to replace),
        after one that replaced rows."""
        if table.version == version:
            return self._rows.replaced(table)
        appended = [one for part in parts for one in part.staged if one.upsert is None and not one.overwrite]
        return self._rows.appended(table, version, sum(rows_of(one.files) for one in appended))

    def _tidy_up(self, parts: Sequence[Part]) -> None:
        """Removes files that no version of the table has (what a crash leaves, `vacuum` removes), and lets
        small ones be compacted."""
        if self._compactor is not None:
            self._compactor.committed(len(files_of(parts)))
        for part in parts:
            for one in part.staged:
                for file in () if one.goes_in_whole else one.files:
                    self._stage.remove(file.path)

    def _look(self, schema: pa.Schema, files: Sequence[DeltaFile]) -> LakeTable:
        """The newest snapshot; creates the table for `files` if none was committed to."""
        if self._find_table() is None:
            if not self._create:
                raise ConfigError(f"table {self._uri} does not exist any more")
            self._check_staged(files)
            self._table = self._tables.create(self._uri, self._options, schema, self._partition_by)
        assert self._table is not None, "it was found or created"
        return self._table

    def _find_table(self) -> LakeTable | None:
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

    def _check_target(self, table: LakeTable | None) -> None:
        """Raises ConfigError if it is not the table that was committed to."""
        if self._memory.current is not None:
            check_target(self._memory.current, table, self._opened(), self._branch)

    def _check_line(self, table: LakeTable) -> None:
        """Raises ConfigError, Fenced: this job may not commit to it."""
        known = self._memory.current
        last = self._last(table, self._branch)
        if last is None and known is not None and known.checkpoint_id:
            last = known.checkpoint_id  # the table lets transactions expire
        self._opened_line().check_table(table, last)

    def _remember(
        self, table: LakeTable, checkpoint_id: int, writer: int | None, version: int | None = None
    ) -> None:
        """`version` None: that of the snapshot."""
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

    def _rewound(self, table: LakeTable, last: int) -> ConfigError:
        context, restored = self._opened(), self._opened().restored or 0
        at = table.version_of(context.lineage, context.sink_uid, restored) if restored else None
        back = "" if at is None else f" (version {at})"
        choices = (
            f"; or bring the table back to checkpoint {restored}{back} and set "
            "on_rewind='allow_duplicates'; or set that alone and accept duplicates"
        )
        return rewound(f"table {self._uri} (version {table.version})", context, last, choices)

    def _todo(self, table: LakeTable, parts: Sequence[Part]) -> list[Part]:
        """What is not committed yet. Raises Fenced if a newer branch has begun."""
        if self._last(table, self._branch + 1) is not None:
            raise Fenced(
                f"table {self._uri}: a job that was restored from an older checkpoint has taken over "
                f"sink {self._opened().sink_uid!r}"
            )
        last = table.transaction_version(app_id(self._opened(), self._branch))
        if last is not None:
            return [part for part in parts if part.checkpoint_id > last]
        begun = (self._last(table, self._branch) or 0) if self._branch else 0
        return [part for part in parts if part.checkpoint_id > begun or not self._is_in_former(table, part)]

    def _is_in_former(self, table: LakeTable, part: Part) -> bool:
        """What the snapshot before a rewind lists was committed before it. Files that are part of the table
        prove it; its transactions alone do not, since another job may have had a checkpoint of that number.
        Rows that were merged leave no file: staged ones are removed behind the commit, and those that are
        still there are merged once more, which changes nothing that the rewind does not."""
        paths = {file.path for file in part.files}
        if all(one.goes_in_whole for one in part.staged):
            return paths <= table.active_paths()
        context = self._opened()
        former = [table.transaction_version(app_id(context, one)) or 0 for one in range(self._branch)]
        return max(former) >= part.checkpoint_id and any(self._stage.size(path) is None for path in paths)

    def _has_staged(self, table: LakeTable, files: Sequence[DeltaFile]) -> bool:
        """All of them are there. False: a committer that has committed since the table was looked at may have
        removed them. Raises CorruptSnapshot."""
        looked_at = table.version
        try:
            self._check_staged(files)
        except CorruptSnapshot:
            now = self._find_table()
            if now is None or now.version != looked_at:
                return False
            raise
        return True

    def _check_staged(self, files: Sequence[DeltaFile]) -> None:
        hint = " (was the table vacuumed with a retention shorter than the outage?)"
        check_staged(f"table {self._uri}", files, lambda file: self._stage.size(file.path), hint)

    def _table_commit(
        self, table: LakeTable, permit: CommitPermit, checkpoint_id: int, files: Sequence[DeltaFile]
    ) -> TableCommit:
        """Without positions after a rewind: the table has rows from behind them."""
        made = {CHECKPOINT_KEY: str(checkpoint_id), "unistream.leader-epoch": str(permit.epoch)}
        if permit.snapshot:
            made[SNAPSHOT_KEY] = permit.snapshot
        context, positions = self._opened(), () if self._branch else permit.positions
        mine = owner_number(context.lineage, context.sink_uid)
        return TableCommit(
            files=files,
            app_id=app_id(context, self._branch),
            version=checkpoint_id,
            committed_ms=max(file.modification_ms for file in files),
            metadata=self._metadata() | made | positions_metadata(positions),
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

    def _last(self, table: LakeTable, branch: int) -> int | None:
        return last_of(table, self._opened(), branch)

    def _begin_branch(self, table: LakeTable, branch: int) -> None:
        """Idempotent: after a conflict or an unknown outcome the table shows the result."""
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
            except (Conflict, Unknown) as error:
                failure = error
            table.refresh()
            if self._last(table, branch) is not None:
                self._branch = branch
                return
        raise Unreachable(f"table {self._uri}: the rewind could not be recorded: {failure}") from failure

    def _of_this_table(self, request: CommitRequest) -> tuple[DeltaCommittable, ...]:
        """Without the output for a former table. Raises ConfigError if that is not committed."""
        staged = [decode_committable(content) for content in request.committables]
        for uri in {one.table_uri for one in staged} - {self._uri}:
            missing = self._not_in_former(uri, request.checkpoint_id)
            if missing is not None:
                raise uncommitted_elsewhere(self._opened(), self._uri, uri, missing)
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

    def _opened(self) -> SinkContext:
        assert self._context is not None, "the committer is not open"
        return self._context


def _followed(target: DeltaTarget | None) -> Followed[int] | None:
    return None if target is None or not target.writer else Followed(target.writer, target.until)
