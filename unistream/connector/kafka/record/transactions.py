"""The transactions of one sink in Kafka: their ids, what each of them records, and what is left over. Pure.

    PREFIX.LINEAGE.SINK.SUBTASK.JOB-ATTEMPT.NUMBER        a transactional id
    PREFIX.LINEAGE.SINK.SUBTASK                           the group in which a subtask records its commits
    PREFIX.LINEAGE.SINK.line                              the group, and the id, of the record of the line

    begin ──► rows of one checkpoint ──► prepared at its barrier ──► committed when the checkpoint is complete
                                          └► and records its label, as an offset of that group

Ids. No two attempts have one in common, so one that was paused and wakes up ends no transaction of another
one. A broker remembers an id for a week, so they are used again, once their last transaction is complete.

Labels. The offset of the group becomes visible with the rows, in one transaction, so the topic itself says
what was committed: a committer that is restored leaves out what is there already, one that finds its
transaction ended otherwise knows whether its rows are lost, and a job that is restored from an older
checkpoint than the last committed one is refused. A label is the number of the checkpoint, below the number
of rewinds that were allowed: labels of a subtask only grow.

Left over. A transaction that is open, and of an attempt that is not there any more, holds back all readers of
committed rows. When the first barrier after a restore arrives, the restored committers have committed all
that their snapshot lists, so what is still open then is left over. Each writer aborts what former attempts
of its job have left of its subtask's number; those of numbers that no subtask has are divided among all.
What other jobs of the line have open is aborted by the committer, when its job has taken the line over
(`sink_line`): before that, one of them may still be the job that goes on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.base.ids import AttemptId, CheckpointId, LineageId, OperatorUid

ID_CHARS_MAX: Final = 249
_CHECKPOINT_BITS: Final = 40
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_OWNER: Final = re.compile(r"(\d+)\.([A-Za-z0-9_-]+)-\d+\.\d+")


class ProducerId(msgspec.Struct, frozen=True, array_like=True):
    """Who writes, as brokers know it; each `InitProducerId` gives another pair."""

    id: int
    epoch: int


class KafkaCommittable(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared transaction: all that a commit needs, but credentials.

    Attributes:
        topic_id: Of the topic to which it was written; "": the broker has none.
        label: What it records; 0: nothing.
        began_ms: Wall clock; after `timeout_ms` the broker has aborted it.
    """

    servers: str
    topic: str
    topic_id: str
    transactional_id: str
    producer: ProducerId
    label: int
    rows: int
    began_ms: int
    timeout_ms: int
    format: int = 1

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


def decode_committable(payload: bytes) -> KafkaCommittable:
    """Reads a stored committable. Raises CorruptSnapshot: it is unreadable."""
    try:
        return msgspec.json.decode(payload, type=KafkaCommittable)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"a committable of a Kafka sink cannot be read: {error}") from error


def open_too_long(topic: str, timeout_ms: int) -> ConfigError:
    """The error of a job without checkpoints: to run it again would take as long."""
    return ConfigError(
        f"topic {topic!r}: nothing was written: a job in BATCH writes all its rows in one transaction, and "
        f"the broker has aborted that after {timeout_ms / 1000:g} s, before the job had ended. Raise "
        "transaction_timeout (and transaction.max.timeout.ms of the broker, its limit), or run the job with "
        "execution.runtime-mode=STREAMING and an interval of checkpoints, each of which is a transaction"
    )


@dataclass(frozen=True, slots=True)
class Naming:
    """Transactional ids of one sink. `prefix`: of the user, for access lists of a cluster.

    >>> ids = Naming.of("unistream", LineageId("5f0c"), OperatorUid("to kafka"))
    >>> ids.begin
    'unistream.5f0c.to_kafka.'
    >>> own = ids.owner(AttemptId("77aa", "v", 3, 1))
    >>> ids.id_of(own, 0), ids.subtask_of(ids.id_of(own, 0))
    ('unistream.5f0c.to_kafka.3.77aa-1.0', 3)
    >>> ids.is_of(ids.id_of(own, 0), ["77aa"]), ids.line
    (True, 'unistream.5f0c.to_kafka.line')
    """

    begin: str

    @staticmethod
    def of(prefix: str, lineage: LineageId, uid: OperatorUid) -> Naming:
        """Raises ConfigError: a name gets too long."""
        begin = f"{prefix}.{_UNSAFE.sub('_', lineage)}.{_UNSAFE.sub('_', uid)}."
        if len(begin) > ID_CHARS_MAX - 60:
            raise ConfigError(
                f"transactional ids would begin with {begin!r}, which is {len(begin)} characters long, limit "
                f"{ID_CHARS_MAX - 60}: shorten transactional_id_prefix or the sink's uid"
            )
        return Naming(begin)

    def owner(self, attempt: AttemptId) -> str:
        """What all ids of one attempt of one subtask begin with."""
        return f"{self.begin}{attempt.index}.{_UNSAFE.sub('_', attempt.job)}-{attempt.attempt}."

    def id_of(self, owner: str, number: int) -> str:
        return f"{owner}{number}"

    def group(self, subtask: int) -> str:
        """The group in which a subtask records its commits."""
        return f"{self.begin}{subtask}"

    @property
    def line(self) -> str:
        """The group in which the line of jobs is recorded, and the id of the transactions that do so."""
        return f"{self.begin}line"

    def is_of(self, transactional_id: str, jobs: Collection[str]) -> bool:
        """Whether the id is that of a writer of one of these jobs."""
        rest = transactional_id.removeprefix(self.begin)
        found = _OWNER.fullmatch(rest) if rest != transactional_id else None
        return found is not None and found[2] in {_UNSAFE.sub("_", job) for job in jobs}

    def subtask_of(self, transactional_id: str) -> int | None:
        """The subtask of the writer whose id it is; None: it is not of this sink."""
        rest = transactional_id.removeprefix(self.begin)
        found = _OWNER.fullmatch(rest) if rest != transactional_id else None
        return None if found is None else int(found[1])


def left_over(
    open_ids: Iterable[str], naming: Naming, owner: str, *, index: int, parallelism: int
) -> list[str]:
    """The ids of the transactions that the writer of subtask `index` is to abort; see above."""
    found = []
    for one in open_ids:
        subtask = naming.subtask_of(one)
        if subtask is None or one.startswith(owner):
            continue
        if subtask == index or (subtask >= parallelism and subtask % parallelism == index):
            found.append(one)
    return sorted(found)


class IdPool:
    """Which of its ids an attempt may use for the next transaction. Not thread-safe."""

    def __init__(self) -> None:
        self._prepared: dict[int, ProducerId] = {}  # number -> its last transaction
        self._count = 0

    def to_look_at(self) -> list[int]:
        """Numbers whose last transactions may be complete by now."""
        return list(self._prepared)

    def take(self, committed: Mapping[int, ProducerId]) -> int:
        """The number of the next transaction. `committed`: whose last transactions are; who wrote these."""
        for number, producer in self._prepared.items():
            if committed.get(number) == producer:
                del self._prepared[number]
                return number
        self._count += 1
        return self._count - 1

    def prepared(self, number: int, producer: ProducerId) -> None:
        self._prepared[number] = producer

    def __len__(self) -> int:
        """How many ids there are."""
        return self._count


def label_of(rewinds: int, checkpoint_id: CheckpointId) -> int:
    """See above.

    >>> label_of(0, CheckpointId(7)) < label_of(1, CheckpointId(2))
    True
    """
    return (rewinds << _CHECKPOINT_BITS) | checkpoint_id


def rewinds_of(label: int) -> int:
    return label >> _CHECKPOINT_BITS


def checkpoint_of(label: int) -> CheckpointId:
    """The checkpoint that a label is of.

    >>> checkpoint_of(label_of(3, CheckpointId(7)))
    7
    """
    return CheckpointId(label & ((1 << _CHECKPOINT_BITS) - 1))
