"""Commits prepared transactions: one request for each, which may be repeated."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.connector.common import OnRewind, rewound
from unistream.connector.kafka.config import Properties
from unistream.connector.kafka.hanging import mark_committed
from unistream.connector.kafka.sink_target import OnLost
from unistream.connector.kafka.transactions import (
    KafkaCommittable,
    Naming,
    checkpoint_of,
    decode_committable,
)
from unistream.connector.kafka.wire import Ended, Producing
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, SinkContext, VisibleRows

DONE_KEPT_MAX: Final = 1_000  # of transactions that this committer has committed
RECORDED_WITHIN_S: Final = 5.0  # a commit that is done is recorded by then
RETRY_S: Final = 0.2
ENVIRONMENT: Final = "UNISTREAM_KAFKA_"
"""Begin of variables with properties of the client, such as UNISTREAM_KAFKA_SECURITY_PROTOCOL."""

logger = logging.getLogger(__name__)


class KafkaCommitter:
    """See `unistream.port.sink.Committer`.

    Args:
        servers: Where the topic is.
        topic: Its name.
        prefix: Of transactional ids and groups.
        on_lost: What happens if a transaction can not be committed any more.
    """

    connector = "kafka"

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

    def open(self, context: SinkContext) -> None:
        """Raises ConfigError: a later checkpoint than the restored one was committed."""
        self._context = context
        self._naming = Naming.of(self._prefix, context.lineage, context.sink_uid)
        self._asks = context.restored is not None or not context.checkpointing
        self._check_rewind([self._recorded(context.index)])

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        """All transactions of the request.

        Raises:
            ConfigError: one of them is lost, and that fails the job.
        """
        permit.require(self._context.lineage, request.checkpoint_id)
        given = [(decode_committable(payload), payload) for payload in request.committables]
        is_repeated = request.checkpoint_id <= (self._context.restored or 0)
        before = self._committed_before([one for one, _ in given], request.checkpoint_id)
        rows, lost = 0, []
        for one, payload in given:
            if one in before:
                self._end_rival(one)
            elif self._commit(one):
                rows += one.rows
            else:
                lost.append((one, payload))
            self._remember(one)
        if lost and self._on_lost == "fail":
            raise ConfigError(_sentence(lost[0][0], request))
        if is_repeated:
            dropped = {payload for _, payload in lost}
            mark_committed(self._producing, [one for one, payload in given if payload not in dropped])
        self._abort_rivals([one for one, _ in given])
        is_all = bool(given) and len(before) == len(given)
        return CommitResult(
            CommitOutcome.ALREADY_COMMITTED if is_all else CommitOutcome.COMMITTED,
            rows=rows,
            failed=tuple(payload for _, payload in lost),
            reason=_sentence(lost[0][0], request) if lost else "",
            visible=_visible(request.checkpoint_id, rows, sum(one.rows for one in before)),
        )

    def close(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()

    @property
    def _producing(self) -> Producing:
        if self._connections is None:
            self._connections = Producing(self._servers, self._properties)
        return self._connections

    # --- what is committed --------------------------------------------------------------------------

    def _recorded(self, subtask: int) -> int:
        """The last label of a subtask; 0: none."""
        return self._producing.recorded(self._naming.group(subtask), self._topic) or 0

    def _check_rewind(self, labels: Iterable[int]) -> None:
        """Raises ConfigError: a later checkpoint than the restored one was committed."""
        context, last = self._context, max(map(checkpoint_of, labels), default=0)
        if last > context.committed_max and not context.finalizing and self._on_rewind == "refuse":
            choices = "; or set on_rewind='allow_duplicates' and accept duplicates"
            raise rewound(f"topic {self._topic}", context, last, choices)

    def _committed_before(
        self, given: Sequence[KafkaCommittable], checkpoint_id: CheckpointId
    ) -> list[KafkaCommittable]:
        """By this committer; or by an earlier attempt, which may have died before anybody knew."""
        labels = dict[int, int]()
        if self._asks:
            labels = {subtask: self._recorded(subtask) for subtask in {self._subtask(one) for one in given}}
            if checkpoint_id <= (self._context.restored or 0):
                self._check_rewind(labels.values())
        self._asks = not self._context.checkpointing
        return [
            one
            for one in given
            if self._key(one) in self._done or (one.label and labels.get(self._subtask(one), 0) >= one.label)
        ]

    def _commit(self, one: KafkaCommittable) -> bool:
        """False: it is lost."""
        ended = self._producing.end(one.transactional_id, one.producer, commit=True)
        if ended is Ended.DONE:
            return True
        until = time.monotonic() + RECORDED_WITHIN_S
        while one.label:
            if self._recorded(self._subtask(one)) >= one.label:
                return True
            if time.monotonic() > until:
                break
            time.sleep(RETRY_S)
        if ended is Ended.FORGOTTEN:
            logger.warning(
                "event=kafka_transaction_forgotten id=%s rows=%s: the broker knows neither the transaction "
                "nor what was committed, which it forgets after a week; it counts as committed, since a stop "
                "with a savepoint commits before it ends",
                one.transactional_id,
                one.rows,
            )
            return True
        return False

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
        """The same rows were committed in another transaction."""
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
    """The committer for committables of a snapshot, see `unistream.connector.committers`. Properties of the
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


def _sentence(lost: KafkaCommittable, request: CommitRequest) -> str:
    began = datetime.fromtimestamp(lost.began_ms / 1000, UTC).isoformat(timespec="seconds")
    timeout_s = lost.timeout_ms // 1000
    return (
        f"topic {lost.topic!r}: {lost.rows:,} rows of checkpoint {request.checkpoint_id} are lost: the "
        f"broker has aborted their transaction {lost.transactional_id!r}, begun at {began}, before it was "
        f"committed (transaction_timeout, {timeout_s} s). Start from an older snapshot with "
        "on_rewind='allow_duplicates', with which the rows behind it come twice, or go on without them by "
        "on_lost='drop'"
    )
