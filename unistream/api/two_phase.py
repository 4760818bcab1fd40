"""Sinks into systems that have transactions: one open transaction for each writer, committed by checkpoints.

    begin_transaction ─► invoke … ─► pre_commit ─► [checkpoint completes] ─► commit
            │                             │
            └─ after a failure: recover_and_abort    recover_and_commit (maybe once more)

If the system can record which jobs commit (`line_commits`, `record_lines`), two jobs never do so at once.

The transaction of checkpoint n is pre-committed at barrier n and the next one begins. After a restore, with
any parallelism, pre-committed transactions are committed and open ones aborted, maybe by another subtask than
the one that began them: a handle must contain everything that is needed for that.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import msgspec
import pyarrow as pa

from unistream.api.transaction_line import TransactionLine
from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot, ProtocolError
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch
from unistream.port.line import Followed, LineCommit, OnForeign
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    Committer,
    SinkContext,
    SinkWriter,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction in state. `begun_ms`: wall clock."""

    handle: bytes
    begun_ms: int
    v: int = 1


_HELD = msgspec.msgpack.Decoder(_Held)
_LINE_STATE = msgspec.json.Decoder(Followed[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTimeout:
    """When the external system aborts transactions by itself.

    Attributes:
        timeout_ms: Age at which it does; it must exceed the time of a checkpoint plus a restart.
        warning_ratio: A commit of a transaction older than this part of `timeout_ms` is logged; None: never.
        ignore_failures: A `recover_and_commit` that fails for an older transaction is logged, and the rows
            are lost, instead of failing every restart. Does not apply to commits of a running job.
    """

    timeout_ms: int
    warning_ratio: float | None = None
    ignore_failures: bool = False

    def __post_init__(self) -> None:
        if self.timeout_ms < 1:
            raise ConfigError(f"a transaction timeout must be above 0 ms, not {self.timeout_ms}")
        if self.warning_ratio is not None and not 0 <= self.warning_ratio <= 1:
            raise ConfigError(f"warning_ratio must be between 0 and 1, not {self.warning_ratio}")


class TwoPhaseCommitSink(Generic[T]):
    """Base class for sinks into a transactional system; `T`: the handle of a transaction.

    A handle is plain data (text, bytes, numbers, lists, dicts), or `encode` and `decode` are overridden.
    Methods run in the workers; open no connection in `__init__`, which runs where the job is built. Writer
    and committer each have a copy of the sink: commits run on another thread, while rows are written.

    >>> class Ledger(TwoPhaseCommitSink[str]):
    ...     name = "ledger"
    ...     def begin_transaction(self) -> str:
    ...         return "txn-1"
    ...     def invoke(self, transaction: str, batch: Batch) -> None: ...
    ...     def commit(self, transaction: str) -> None:
    ...         print("commit", transaction)
    ...     def abort(self, transaction: str) -> None: ...
    >>> Ledger().decode(Ledger().encode("txn-1"))
    'txn-1'
    """

    name: str = "two-phase-commit"
    global_committer: bool = False
    transaction_timeout: TransactionTimeout | None = None
    on_foreign: OnForeign = "refuse"

    def appending(self) -> Self:
        """See `unistream.port.sink.AppendsToForeign`."""
        other = copy.copy(self)
        other.on_foreign = "append"
        return other

    # --- methods that a sink must have --------------------------------------------------------------

    def begin_transaction(self) -> T:
        """A new transaction. Its identity must be unique, also among those of former attempts."""
        raise ProtocolError(f"sink {self.name!r} has no begin_transaction")

    def invoke(self, transaction: T, batch: Batch) -> None:
        """Writes rows inside the transaction."""
        raise ProtocolError(f"sink {self.name!r} has no invoke")

    def commit(self, transaction: T) -> None:
        """Makes it visible. Called again for a committed transaction, it does nothing."""
        raise ProtocolError(f"sink {self.name!r} has no commit")

    def abort(self, transaction: T) -> None:
        """Drops what was written; safe to repeat."""
        raise ProtocolError(f"sink {self.name!r} has no abort")

    # --- methods that it may have -------------------------------------------------------------------

    def open(self, context: SinkContext) -> None:
        """Called first, in the writer's task and in the committer's."""

    def pre_commit(self, transaction: T) -> None:
        """Flushes: after it a commit must not fail because of the rows."""

    def finish(self, transaction: T) -> None:
        """The input has ended; `pre_commit` of the same transaction follows."""

    def recover_and_commit(self, transaction: T) -> None:
        """Commits a restored transaction, as `commit`: it must succeed eventually."""
        self.commit(transaction)

    def recover_and_abort(self, transaction: T) -> None:
        """Aborts a transaction that was open when a checkpoint was taken, as `abort`."""
        self.abort(transaction)

    def line_commits(self) -> Sequence[LineCommit] | None:
        """The last commit of each line of jobs, as `record_lines` has stored them; empty: none yet. None: the
        system does not record them, so nothing keeps two jobs from committing the same rows."""
        return None

    def record_lines(self, lines: Sequence[LineCommit], expected: Sequence[LineCommit]) -> bool:
        """Stores `lines` durably, if `expected` is what is stored: in one atomic step, such as an UPDATE with
        a condition. False: it is not. Called before the transactions of a checkpoint are committed. A job
        that does not continue another one's snapshot is refused if there are lines, unless `on_foreign` of
        the sink is ``"append"``."""
        raise ProtocolError(f"sink {self.name!r} has no record_lines")

    def close(self) -> None:
        """Releases what `open` acquired."""

    def encode(self, transaction: T) -> bytes:
        """The handle as it is kept in checkpoints."""
        return msgspec.msgpack.encode(transaction)

    def decode(self, content: bytes) -> T:
        """Raises CorruptSnapshot if it is not a handle."""
        try:
            return msgspec.msgpack.decode(content)  # type: ignore[no-any-return]
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"a transaction of sink {self.name!r} is unreadable: {error}") from error

    def now_ms(self) -> int:
        """Wall clock, for the age of transactions."""
        return time.time_ns() // 1_000_000

    # --- as a sink ----------------------------------------------------------------------------------

    def check(self, schema: pa.Schema | None) -> None:
        """Called on the client before anything starts. Raises ConfigError if the stream does not fit."""

    def create_writer(self) -> SinkWriter:
        return TransactionWriter(copy.copy(self))

    def create_committer(self) -> Committer | None:
        return TransactionCommitter(copy.copy(self))


class TransactionWriter:
    """The open transaction of one subtask."""

    def __init__(self, sink: TwoPhaseCommitSink[Any]) -> None:
        self._sink = sink
        self._opened = False
        self._current: Any = None
        self._begun_ms: int | None = None  # None: no transaction is open
        self._prepared: list[bytes] = []

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self._sink.open(context)
        self._opened = True
        if context.restored is None:
            TransactionLine(self._sink, context).check_new()
        for content in restored:
            self._sink.recover_and_abort(self._sink.decode(decode_held(content).handle))
        self._begin()

    def write(self, batch: Batch) -> None:
        if self._begun_ms is None:
            raise ProtocolError(f"sink {self._sink.name!r}: rows after the end of input")
        self._sink.invoke(self._current, batch)

    def flush(self, end_of_input: bool) -> None:
        """Pre-commits, and begins the next transaction unless the input has ended."""
        if self._begun_ms is None:
            return
        if end_of_input:
            self._sink.finish(self._current)
        self._sink.pre_commit(self._current)
        self._prepared.append(self._held())
        self._begun_ms = None
        if not end_of_input:
            self._begin()

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        prepared, self._prepared = self._prepared, []
        return prepared

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return () if self._begun_ms is None else (self._held(),)

    def close(self) -> None:
        """Aborts the open transaction; pre-committed ones are never aborted."""
        opened, self._opened = self._opened, False
        begun, self._begun_ms = self._begun_ms, None
        try:
            if begun is not None:
                self._sink.abort(self._current)
        finally:
            if opened:
                self._sink.close()

    def _begin(self) -> None:
        self._current = self._sink.begin_transaction()
        self._begun_ms = self._sink.now_ms()

    def _held(self) -> bytes:
        assert self._begun_ms is not None, "a transaction is open"
        return msgspec.msgpack.encode(_Held(handle=self._sink.encode(self._current), begun_ms=self._begun_ms))


class TransactionCommitter:
    """Tries to commit all pre-committed transactions, then raises the first error."""

    def __init__(self, sink: TwoPhaseCommitSink[Any]) -> None:
        self._sink = sink
        self._opened = False
        self._restored = -1
        self._line: TransactionLine | None = None
        self._remembered: Followed[str] | None = None  # of the last commit that the system has

    def restore_state(self, items: Sequence[bytes]) -> None:
        """Takes the newest."""
        found = [_LINE_STATE.decode(item) for item in items]
        self._remembered = max(found, key=lambda one: one.until, default=None)

    def snapshot_state(self) -> Sequence[bytes]:
        return () if self._remembered is None else (msgspec.json.encode(self._remembered),)

    def open(self, context: SinkContext) -> None:
        self._sink.open(context)
        self._opened = True
        self._restored = -1 if context.restored is None else context.restored
        self._line = TransactionLine(self._sink, context, self._remembered)
        self._remember(self._line, self._line.check())

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        first: Exception | None = None
        assert self._line is not None, "the committer is not open"
        newest = max((one.checkpoint_id for one in requests if one.committables), default=0)
        if newest:
            self._remember(self._line, self._line.record(newest, permit.snapshot))
        for request in requests:
            recovering = request.checkpoint_id <= self._restored
            for content in request.committables:
                try:
                    self._commit(decode_held(content), recovering=recovering)
                except Exception as error:  # the other transactions are committed nevertheless
                    if first is None:
                        first = error
                    else:
                        _log.warning("event=commit_failed_too sink=%s", self._sink.name, exc_info=error)
        if first is not None:
            raise first
        return CommitResult(CommitOutcome.COMMITTED)

    def close(self) -> None:
        opened, self._opened = self._opened, False
        if opened:
            self._sink.close()

    def _remember(self, line: TransactionLine, last: LineCommit | None) -> None:
        if last is not None:
            self._remembered = line.remembered(last)

    def _commit(self, held: _Held, *, recovering: bool) -> None:
        transaction = self._sink.decode(held.handle)
        commit: Callable[[Any], None] = self._sink.recover_and_commit if recovering else self._sink.commit
        elapsed_ms = self._sink.now_ms() - held.begun_ms
        limit = self._sink.transaction_timeout
        timeout_ms = 0 if limit is None else limit.timeout_ms
        text = "event=%s sink=%s transaction=%r open for %s ms, timeout %s ms"
        if limit and limit.warning_ratio is not None and elapsed_ms > timeout_ms * limit.warning_ratio:
            _log.warning(text, "transaction_old", self._sink.name, transaction, elapsed_ms, timeout_ms)
        try:
            commit(transaction)
        except Exception:  # of the user's code; only an overdue recovery is given up
            if not (recovering and limit and limit.ignore_failures and elapsed_ms > timeout_ms):
                raise
            _log.exception(text, "transaction_lost", self._sink.name, transaction, elapsed_ms, timeout_ms)


def decode_held(content: bytes) -> _Held:
    """Raises CorruptSnapshot for anything else."""
    try:
        return _HELD.decode(content)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"a restored transaction is unreadable: {error}") from error
