"""Makes staged files visible: one commit to the table for each checkpoint, exactly once.

Identity: application id = ``unistream/<lineage>/<sink uid>``, version = checkpoint id, written into the
table by the same commit that adds the files.

Several checkpoints of one notice go into one transaction under the newest id, so that no reader sees the
first without the rest.

    look     newest snapshot, last version under our id; refused if it is not the table that was committed to
    done?    checkpoints <= last version  ->  already committed
    check    the schema still fits, every file is there with its size
    commit   on exactly the snapshot that was looked at
    again    if someone else was faster, or the outcome is unknown: look again, it tells

A rewind (a restore from a checkpoint older than the table's last) is refused, or begins a branch: the
id gets a suffix ``~1``, ``~2``, … and committing starts over under it. A commit without files says so
at once (``<id>/begun``, version = the restored checkpoint), since checkpoint ids are given out anew: after
a crash the table must tell a commit from before the rewind from one behind it. A committer of an older
branch is fenced.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from unistream.base.crash_points import crash_point
from unistream.base.errors import (
    ConfigError,
    CorruptSnapshot,
    Fenced,
    OutcomeUnknown,
    ProtocolError,
    Unreachable,
)
from unistream.base.ids import CheckpointId
from unistream.connector.delta.branch import app_id, begun_id, last_of, newest_branch, rewind_text
from unistream.connector.delta.schema import check_fits
from unistream.connector.delta.stage import (
    DeltaCommittable,
    DeltaFile,
    Stage,
    decode_committable,
    schema_from_bytes,
)
from unistream.connector.delta.table import (
    CHECKPOINT_KEY,
    LINEAGE_KEY,
    SINK_KEY,
    Conflict,
    LakeTable,
    Removed,
    TableCommit,
    Unknown,
)
from unistream.connector.delta.target import DeltaTarget, check_target, decode_targets, encode_target
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, SinkContext, VisibleRows

ATTEMPTS_MAX: Final = 20  # conflicts or unknown outcomes of one commit; each conflict is another's success
BACKOFF_MAX_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Part:
    """What one checkpoint brings."""

    checkpoint_id: int
    staged: tuple[DeltaCommittable, ...]


class DeltaCommitter:
    """The one committer of a table sink.

    Args:
        create: Make the table at the first commit if there is none.
        allow_rewind: Begin a branch where a rewind is found, instead of refusing.
        storage_options: For deltalake.
        stage: Looks staged files up.
        tables: Opens and creates the table.
        attempts: How often one commit is tried before its outcome is given up as unknown.
    """

    def __init__(
        self,
        *,
        table_uri: str,
        partition_by: tuple[str, ...],
        create: bool,
        allow_rewind: bool,
        storage_options: Mapping[str, str],
        stage: Stage,
        tables: type[LakeTable] = LakeTable,
        attempts: int = ATTEMPTS_MAX,
    ) -> None:
        self._uri = table_uri
        self._partition_by = partition_by
        self._create = create
        self._allow_rewind = allow_rewind
        self._options = storage_options
        self._stage = stage
        self._tables = tables
        self._attempts = attempts
        self._context: SinkContext | None = None
        self._table: LakeTable | None = None
        self._branch = 0
        self._target: DeltaTarget | None = None
        self._jitter = random.Random(os.urandom(8))  # noqa: S311 - spreads retries, guards nothing

    @property
    def connector(self) -> str:
        return "delta"

    def restore_state(self, items: Sequence[bytes]) -> None:
        self._target = decode_targets(items)

    def snapshot_state(self) -> Sequence[bytes]:
        target = self._target
        return (encode_target(target),) if target is not None and target.checkpoint_id else ()

    def open(self, context: SinkContext) -> None:
        """Raises ConfigError for a rewind, for a missing table that must not be created, and for one that is
        not the table that was committed to; Unreachable when an allowed rewind could not be noted down."""
        self._context = context
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
                raise ConfigError(rewind_text(self._uri, self._table, context, last))
            self._begin_branch(self._table, self._branch + 1)
        if not self._is_target():
            self._remember(self._table.table_id, self._table.version, 0)

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """One transaction for all, with the newest checkpoint as its version."""
        context = self._opened()
        permit.require(context.lineage, max(request.checkpoint_id for request in requests))
        parts: list[_Part] = []
        for request in requests:
            staged = self._of_this_table(request)
            parts += [_Part(request.checkpoint_id, staged)] if staged else []
        if parts:
            return self._commit(permit, parts)
        is_done = any(request.committables for request in requests)
        return CommitResult(CommitOutcome.ALREADY_COMMITTED if is_done else CommitOutcome.COMMITTED)

    def close(self) -> None:
        self._table = None

    def _commit(self, permit: CommitPermit, parts: Sequence[_Part]) -> CommitResult:
        schema = _common_schema(self._uri, [one for part in parts for one in part.staged])
        newest, files = max(part.checkpoint_id for part in parts), _files(parts)
        failure: Exception | None = None  # of the last attempt, if its outcome is unknown
        attempted: list[_Part] = []
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(self._jitter.uniform(0, min(BACKOFF_MAX_S, 0.01 * 2**attempt)))
            try:
                table = self._look(schema, files)
            except Unreachable as error:
                if not attempted:
                    raise
                failure = error
                continue
            todo = self._todo(table, parts)
            if not todo:
                self._remember(table.table_id, table.version, newest)
                outcome = CommitOutcome.COMMITTED if attempted else CommitOutcome.ALREADY_COMMITTED
                rows = _rows(files) if attempted else 0
                return CommitResult(outcome, rows, table.version, visible=_visible(parts, attempted))
            files = _files(todo)
            self._check(table, schema, files)
            attempted, failure = todo, None
            try:
                crash_point("delta.before_append")
                table.append(self._table_commit(permit, newest, files))
                crash_point("delta.appended")
            except Conflict:
                continue
            except Unknown as error:
                failure = error
                self._table = None  # it may hold half of an answer: load it anew
                continue
            self._remember(table.table_id, table.version + 1, newest)
            version = self._version_after(table)
            return CommitResult(CommitOutcome.COMMITTED, _rows(files), version, visible=_visible(parts, todo))
        if failure is None:  # lost every race
            return CommitResult(CommitOutcome.RETRY)
        raise OutcomeUnknown(
            f"table {self._uri}: whether checkpoint {newest} was committed is unknown "
            f"after {self._attempts} attempts: {failure}"
        ) from failure

    def _look(self, schema: pa.Schema, files: Sequence[DeltaFile]) -> LakeTable:
        """The newest snapshot; creates the table for `files` if there never was one."""
        try:
            if self._table is not None:
                self._table.refresh()
            else:
                self._table = self._tables.open(self._uri, self._options)
        except Removed:
            self._table = None
        self._check_target(self._table)
        if self._table is None:
            if not self._create:
                raise ConfigError(f"table {self._uri} does not exist any more")
            self._check_staged(files)
            self._table = self._tables.create(self._uri, self._options, schema, self._partition_by)
        return self._table

    def _is_target(self) -> bool:
        """What is remembered is of this place; another path is another table, and meant to be."""
        return self._target is not None and self._target.table_uri == self._uri

    def _check_target(self, table: LakeTable | None) -> None:
        """Raises ConfigError if it is not what was committed to."""
        target = self._target
        if target is None or target.table_uri != self._uri:
            return
        last = None if table is None else self._last(table, self._branch)
        check_target(target, table, last, sink_uid=self._opened().sink_uid)

    def _remember(self, table_id: str, version: int, checkpoint_id: int) -> None:
        if self._target is not None and self._target.table_uri == self._uri:
            checkpoint_id = max(checkpoint_id, self._target.checkpoint_id)
        self._target = DeltaTarget(
            table_uri=self._uri, table_id=table_id, version=version, checkpoint_id=checkpoint_id
        )

    def _todo(self, table: LakeTable, parts: Sequence[_Part]) -> list[_Part]:
        """What the table does not hold yet. Raises Fenced if a newer branch has begun."""
        if self._last(table, self._branch + 1) is not None:
            raise Fenced(
                f"table {self._uri}: a job that was restored from an older checkpoint has taken over "
                f"sink {self._opened().sink_uid!r}"
            )
        last = table.transaction_version(app_id(self._opened(), self._branch))
        if last is not None:
            return [part for part in parts if part.checkpoint_id > last]
        restored = self._opened().restored or 0
        if not self._branch or min(part.checkpoint_id for part in parts) > restored:
            return list(parts)
        # what the older branch had committed already; paths, because its versions prove nothing here
        active = table.active_paths()
        return [
            part
            for part in parts
            if part.checkpoint_id > restored or not {file.path for file in _files([part])} <= active
        ]

    def _check(self, table: LakeTable, schema: pa.Schema, files: Sequence[DeltaFile]) -> None:
        """Deltalake would accept any of this; readers would not."""
        check_fits(table.shape, schema, self._partition_by)
        self._check_staged(files)

    def _check_staged(self, files: Sequence[DeltaFile]) -> None:
        for file in files:
            size = self._stage.size(file.path)
            if size != file.size:
                found = "is missing" if size is None else f"has {size} B"
                raise CorruptSnapshot(
                    f"table {self._uri}: staged file {file.path} ({file.size} B, {file.rows} rows) {found}; "
                    "was the table vacuumed with a retention shorter than the outage? "
                    "Nothing of this checkpoint was committed"
                )

    def _table_commit(
        self, permit: CommitPermit, checkpoint_id: int, files: Sequence[DeltaFile]
    ) -> TableCommit:
        metadata = {
            **self._metadata(),
            CHECKPOINT_KEY: str(checkpoint_id),
            "unistream.leader-epoch": str(permit.epoch),
        }
        return TableCommit(
            files=files,
            app_id=app_id(self._opened(), self._branch),
            version=checkpoint_id,
            committed_ms=max(file.modification_ms for file in files),
            metadata=metadata,
        )

    def _metadata(self) -> dict[str, str]:
        context = self._opened()
        return {
            "unistream.job-id": str(context.job),
            LINEAGE_KEY: str(context.lineage),
            SINK_KEY: str(context.sink_uid),
        }

    def _version_after(self, table: LakeTable) -> int | None:
        """A commit does not move the loaded snapshot. It is done, unless the table was just removed."""
        try:
            table.refresh()
        except Removed:
            self._table = None
        except Unreachable:
            self._table = None
            return None
        self._check_target(self._table)
        return table.version

    def _last(self, table: LakeTable, branch: int) -> int | None:
        return last_of(table, self._opened(), branch)

    def _begin_branch(self, table: LakeTable, branch: int) -> None:
        """Idempotent: after a conflict or an unknown outcome the table tells."""
        note = TableCommit(
            files=(),
            app_id=begun_id(self._opened(), branch),
            version=self._opened().restored or 0,
            committed_ms=time.time_ns() // 1_000_000,
            metadata=self._metadata(),
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
        raise Unreachable(f"table {self._uri}: the rewind could not be noted down: {failure}") from failure

    def _of_this_table(self, request: CommitRequest) -> tuple[DeltaCommittable, ...]:
        """Without what a former table of the sink has. Raises ConfigError if that has not taken it yet."""
        staged = [decode_committable(content) for content in request.committables]
        for uri in {one.table_uri for one in staged} - {self._uri}:
            missing = self._not_in_former(uri, request.checkpoint_id)
            if missing is not None:
                raise ConfigError(
                    f"sink {self._opened().sink_uid!r} writes to {self._uri} now, but the restored "
                    f"checkpoint holds output for {uri}: {missing}; commit it there first, with `unistream "
                    "savepoint finalize` or the former settings; or, to go on without it, give the sink "
                    "another uid and allow non-restored state"
                )
        return tuple(one for one in staged if one.table_uri == self._uri)

    def _not_in_former(self, uri: str, checkpoint_id: int) -> str | None:
        """Why a checkpoint is not known to be committed; None: it is, there or (the table was moved) here."""
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

    def _opened(self) -> SinkContext:
        assert self._context is not None, "the committer is not open"
        return self._context


def _rows(files: Sequence[DeltaFile]) -> int:
    return sum(file.rows for file in files)


def _visible(parts: Sequence[_Part], done: Collection[_Part]) -> tuple[VisibleRows, ...]:
    """`done`: by this call."""
    return tuple(
        VisibleRows(CheckpointId(part.checkpoint_id), _rows(_files([part])), already=part not in done)
        for part in parts
    )


def _files(parts: Sequence[_Part]) -> list[DeltaFile]:
    return [file for part in parts for committable in part.staged for file in committable.files]


def _common_schema(uri: str, staged: Sequence[DeltaCommittable]) -> pa.Schema:
    first = schema_from_bytes(staged[0].schema)
    if any(not schema_from_bytes(other.schema).equals(first) for other in staged[1:]):
        raise ProtocolError(f"table {uri}: writers of one checkpoint staged different schemas")
    return first
