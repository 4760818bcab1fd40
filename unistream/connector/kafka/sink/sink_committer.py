"""Commits prepared transactions: one request for each, which may be repeated."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.base.ids import CheckpointId
from unistream.connector.common import OnRewind
from unistream.connector.kafka.broker.config import Properties
from unistream.connector.kafka.broker.hanging import mark_committed
from unistream.connector.kafka.broker.wire import Producing, TransactionEnd
from unistream.connector.kafka.record.transactions import (
    KafkaCommittable,
    Naming,
    decode_committable,
    open_too_long,
)
from unistream.connector.kafka.sink.sink_line import KafkaCommitterState, TopicLine, decode_remembered
from unistream.connector.kafka.sink.sink_target import OnLost
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, SinkContext, VisibleRows

DONE_KEPT_MAX: Final = 1_000  # of transactions that this committer has committed
RECORDED_WITHIN_S: Final = 5.0  # a commit that is done is recorded by then
RETRY_S: Final = 0.2
LOOKED_EVERY_S: Final = 30.0  # whether commits are marked; a broker has restarted by then
ABORT_TIMEOUT_MS: Final = 60_000  # of an id that nobody uses any more
ENVIRONMENT: Final = "UNISTREAM_KAFKA_"
"""Begin of variables with properties of the client, such as UNISTREAM_KAFKA_SECURITY_PROTOCOL."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Lost:
    """A transaction that cannot be committed. `ended`: how it is lost."""

    committable: KafkaCommittable
    payload: bytes
    ended: TransactionEnd


class KafkaCommitter:
    """See `unistream.port.sink.Committer`.

    Args:
        servers: Where the topic is.
        topic: Its name.
        prefix: Of transactional ids and groups.
        on_lost: What happens if a transaction can not be committed any more.
    """

    connector = "kafka"
    is_sole = True  # the record of the line counts for the rows of all writers

    def __init__(
        self,
        servers: str,
        properties: Properties,
        *,
        topic: str,
        prefix: str,
        on_lost: OnLost,
        on_rewind: OnRewind,
    ) -> None:
        self._servers = servers
        self._properties = properties
        self._topic = topic
        self._prefix = prefix
        self._on_lost = on_lost
        self._on_rewind = on_rewind
        self._connections: Producing | None = None
        self._done: dict[tuple[str, int, int], None] = {}  # see `_key`; in order
        self._asks = False  # what was committed before
        self._remembered: KafkaCommitterState | None = None
        self._is_refused = False
        self._has_taken = False  # the line, in this attempt, with an empty checkpoint
        self._unmarked: list[KafkaCommittable] = []  # not looked at since they were committed
        self._look_s = time.monotonic() + LOOKED_EVERY_S

    def restore_state(self, items: Sequence[bytes]) -> None:
        """Restores the last commit that the snapshot remembers. Raises CorruptSnapshot: it is unreadable."""
        self._remembered = decode_remembered(items)

    def snapshot_state(self) -> Sequence[bytes]:
        return [] if self._remembered is None else [msgspec.json.encode(self._remembered)]

    def open(self, context: SinkContext) -> None:
        """Raises ConfigError: a later checkpoint than the restored one was committed, or another job writes
        this line; Fenced."""
        self._context = context
        self._naming = Naming.of(self._prefix, context.lineage, context.sink_uid)
        self._asks = context.restored is not None or not context.checkpointing
        self._line = TopicLine(self._producing, self._naming, self._topic, context, self._remembered)
        last = self._line.last(context.index)
        self._line.know(last)
        if last is not None and self._line.check(last, self._on_rewind):
            self._line.begin_again(last)
            self._abort_former()
        self._remembered = self._line.remembered()

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        """Commits all transactions of the request.

        Raises:
            ConfigError: one of them is lost, and that fails the job; or another job writes this line, and
                the transactions are aborted.
            Fenced: another job has taken over, and the transactions are aborted.
        """
        permit.require(self._context.lineage, request.checkpoint_id)
        given = [(decode_committable(payload), payload) for payload in request.committables]
        self._check_whole([one for one, _ in given if self._key(one) not in self._done], request)
        is_repeated = request.checkpoint_id <= (self._context.restored or 0)
        self._claim([one for one, _ in given if self._key(one) not in self._done], request.checkpoint_id)
        before = self._committed_before([one for one, _ in given], request.checkpoint_id)
        rows, lost = 0, []
        for transaction, payload in given:
            if transaction in before:
                self._end_rival(transaction)
            elif (ended := self._commit(transaction)) is TransactionEnd.DONE:
                rows += transaction.rows
                self._unmarked.append(transaction)
            else:
                lost.append(_Lost(transaction, payload, ended))
            self._remember(transaction)
        if lost and self._on_lost == "fail":
            raise ConfigError(_sentence(lost[0], request))
        self._remembered = self._line.remembered()
        if is_repeated:
            dropped = {each.payload for each in lost}
            mark_committed(self._producing, [one for one, payload in given if payload not in dropped])
        self._abort_rivals([one for one, _ in given])
        self._look_at_markers()
        is_all = bool(given) and len(before) == len(given)
        return CommitResult(
            CommitOutcome.ALREADY_COMMITTED if is_all else CommitOutcome.COMMITTED,
            rows=rows,
            failed=tuple(each.payload for each in lost),
            reason=_sentence(lost[0], request) if lost else "",
            visible=_visible(request.checkpoint_id, rows, sum(one.rows for one in before)),
        )

    def empty_checkpoint(self, permit: CommitPermit) -> None:
        """Readers do not wait until this job has rows for what a former one has left open: this job takes the
        line over with its first checkpoint.

        Raises:
            ConfigError, Fenced: another job has taken over.
        """
        context = self._context
        permit.require(context.lineage, permit.checkpoint_id)
        self._look_at_markers()
        is_own = permit.checkpoint_id > (context.restored or 0)
        if self._line.has_committed or self._has_taken or not is_own or context.restored is None:
            return
        before, refusal = self._line.take_over()
        if refusal is not None:
            self._is_refused = True
            raise refusal
        self._abort(lambda one: self._naming.is_of(one, before))
        self._has_taken = True

    def close(self) -> None:
        connections = self._connections
        if connections is not None and self._is_refused:
            with suppress(UnistreamError):  # the broker does it after the timeout
                self._abort_own()
        self._connections = None
        if connections is not None:
            connections.close()

    @property
    def _producing(self) -> Producing:
        if self._connections is None:
            self._connections = Producing(self._servers, self._properties)
        return self._connections

    def _look_at_markers(self) -> None:
        """Looks, now and then, whether each commit is marked in its partitions. A job that may not write what
        is missing says so, and goes on: it fails when it is started again."""
        if time.monotonic() < self._look_s:
            return
        unmarked, self._unmarked = self._unmarked, []
        self._look_s = time.monotonic() + LOOKED_EVERY_S
        try:
            mark_committed(self._producing, unmarked)
        except Unreachable:
            self._unmarked = unmarked
        except ConfigError as error:
            logger.error("event=kafka_transaction_not_marked: %s", error)  # noqa: TRY400

    # --- what is committed --------------------------------------------------------------------------

    def _recorded(self, subtask: int) -> int:
        """The last label of a subtask; 0: none."""
        return self._producing.recorded(self._naming.group(subtask), self._topic) or 0

    def _claim(self, todo: Sequence[KafkaCommittable], checkpoint_id: CheckpointId) -> None:
        """Claims the topic before anything is taken for committed: two jobs that start from one snapshot use
        the same labels.

        Raises what `TopicLine.claim` returns, when nobody can commit these transactions any more.
        """
        if not todo:
            return
        is_first = not self._line.has_committed
        refusal = self._line.claim(max(one.label for one in todo), checkpoint_id)
        if refusal is not None:
            self._is_refused = True
            for one in todo:
                with suppress(UnistreamError):  # the broker does it after the timeout
                    self._producing.end(one.transactional_id, one.producer, commit=False)
            raise refusal
        crash_point("kafka.claimed")
        if is_first and self._line.has_committed and self._context.checkpointing:
            self._abort_former()

    def _abort_former(self) -> None:
        """What other jobs of this line have open: none of it can be committed since this one has claimed."""
        self._abort(lambda one: not self._naming.is_of(one, [self._context.job]))

    def _abort_own(self) -> None:
        self._abort(lambda one: self._naming.is_of(one, [self._context.job]))

    def _abort(self, holds: Callable[[str], bool]) -> None:
        for one in self._producing.open_ids(self._naming.begin):
            if one != self._naming.line and holds(one):
                logger.warning("event=kafka_transaction_aborted id=%s: its job has lost the line", one)
                self._producing.begin(one, ABORT_TIMEOUT_MS)

    def _committed_before(
        self, given: Sequence[KafkaCommittable], checkpoint_id: CheckpointId
    ) -> list[KafkaCommittable]:
        """The transactions that were committed by this committer; or by an earlier attempt, which may have
        died before anybody knew."""
        labels = dict[int, int]()
        if self._asks:
            labels = {subtask: self._recorded(subtask) for subtask in {self._subtask(one) for one in given}}
            if checkpoint_id <= (self._context.restored or 0):
                self._line.check_label(max(labels.values(), default=0), self._on_rewind)
        self._asks = not self._context.checkpointing
        return [
            one
            for one in given
            if self._key(one) in self._done or (one.label and labels.get(self._subtask(one), 0) >= one.label)
        ]

    def _commit(self, one: KafkaCommittable) -> TransactionEnd:
        """Commits one transaction: DONE, or how it is lost."""
        ended = self._producing.end(one.transactional_id, one.producer, commit=True)
        if ended is TransactionEnd.DONE:
            return ended
        until = time.monotonic() + RECORDED_WITHIN_S
        while one.label:
            if self._recorded(self._subtask(one)) >= one.label:
                return TransactionEnd.DONE
            if time.monotonic() > until:
                break
            time.sleep(RETRY_S)
        return ended

    def _check_whole(self, todo: Sequence[KafkaCommittable], request: CommitRequest) -> None:
        """Checks a checkpoint before any of its transactions is committed: nothing of it is, if the broker
        may have aborted a part of it because it was open for too long. Raises ConfigError."""
        now_ms = time.time() * 1000
        is_old = any(now_ms - one.began_ms > one.timeout_ms / 2 for one in todo)
        if self._on_lost != "fail" or not is_old:
            return
        lost = list[_Lost]()
        for transaction in todo:
            ended = self._producing.ended(transaction.transactional_id, transaction.producer)
            if (
                ended is TransactionEnd.DONE
                or self._recorded(self._subtask(transaction)) >= transaction.label > 0
            ):
                return  # an earlier attempt has begun to commit it
            if ended is not None:
                lost.append(_Lost(transaction, b"", ended))
        if not lost:
            return
        if not self._context.checkpointing:  # the next run writes all of it again
            for transaction in todo:
                self._producing.end(transaction.transactional_id, transaction.producer, commit=False)
            raise open_too_long(self._topic, lost[0].committable.timeout_ms)
        raise ConfigError(_sentence(lost[0], request))

    def _remember(self, one: KafkaCommittable) -> None:
        self._done[self._key(one)] = None
        if len(self._done) > DONE_KEPT_MAX:
            del self._done[next(iter(self._done))]

    def _key(self, one: KafkaCommittable) -> tuple[str, int, int]:
        return one.transactional_id, one.producer.id, one.producer.epoch

    def _subtask(self, one: KafkaCommittable) -> int:
        found = self._naming.subtask_of(one.transactional_id)
        return self._context.index if found is None else found

    # --- of a job without checkpoints -----------------------------------------------------------------

    def _end_rival(self, one: KafkaCommittable) -> None:
        """Aborts a transaction whose rows were committed in another one."""
        if not self._context.checkpointing:
            self._producing.end(one.transactional_id, one.producer, commit=False)

    def _abort_rivals(self, given: Sequence[KafkaCommittable]) -> None:
        """Attempts of the same subtasks that have not won."""
        if self._context.checkpointing or not given:
            return
        subtasks = {self._subtask(one) for one in given}
        for one in self._producing.open_ids(self._naming.begin):
            if self._naming.subtask_of(one) in subtasks:
                logger.info("event=kafka_transaction_aborted id=%s: another attempt has won", one)
                self._producing.begin(one, given[0].timeout_ms)


def _visible(checkpoint_id: CheckpointId, now: int, before: int) -> tuple[VisibleRows, ...]:
    """The rows of a request that this call, and those that an earlier one has committed."""
    if not now and not before:
        return ()
    return (VisibleRows(checkpoint_id, now + before, already=not now),)


def committer_of(committables: Sequence[bytes]) -> KafkaCommitter:
    """The committer for committables of a snapshot, see `unistream.connector.catalogue`. Properties of the
    client come from the environment: `ENVIRONMENT` and their name.

    Raises:
        CorruptSnapshot: a committable cannot be read.
    """
    one = decode_committable(committables[0])
    found = {
        name.removeprefix(ENVIRONMENT).lower(): value
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT)
    }
    prefix = one.transactional_id.partition(".")[0]
    return KafkaCommitter(
        one.servers, found, topic=one.topic, prefix=prefix, on_lost="fail", on_rewind="refuse"
    )


def _sentence(lost: _Lost, request: CommitRequest) -> str:
    transaction = lost.committable
    began = datetime.fromtimestamp(transaction.began_ms / 1000, UTC).isoformat(timespec="seconds")
    rows = f"{transaction.rows:,} rows of checkpoint {request.checkpoint_id}"
    if lost.ended is TransactionEnd.FORGOTTEN:
        return (
            f"topic {transaction.topic!r}: whether {rows} were committed is not known any more: the broker "
            f"has forgotten their transaction {transaction.transactional_id!r}, begun at {began}, and the "
            "record of its commit, as it does after a week without use. They are there if the job was "
            "stopped with a savepoint, which commits before it ends, and lost if it died before that: look "
            "into the topic, then go on without writing them (again) by on_lost='drop', or start from an "
            "older snapshot with on_rewind='allow_duplicates', with which the rows behind it come twice"
        )
    timeout_s = transaction.timeout_ms // 1000
    return (
        f"topic {transaction.topic!r}: {rows} are lost: the broker has aborted their transaction "
        f"{transaction.transactional_id!r}, begun at {began}, before it was "
        f"committed (transaction_timeout, {timeout_s} s). Start from an older snapshot with "
        "on_rewind='allow_duplicates', with which the rows behind it come twice, or go on without them by "
        "on_lost='drop'"
    )
