"""Which job of a line may commit to a topic: the record of its last commit, and who may change it.

    record  ─ label and job of the last commit, an offset of the group `Naming.line` with its metadata
    claim   ─ before the transactions of a checkpoint are committed: the record is read, the rules of
              `unistream.port.line` say whether this job may go on, and it is changed on exactly what was read

Of two jobs that go on from one snapshot one can claim; the other one has committed nothing then, and its
transactions are aborted. A job that dies between claim and commit commits the same transactions when it is
restored: they are those of a complete checkpoint. A topic may be written by any number of lines, which know
nothing of each other.

    takeover ─ the first checkpoint of a job is complete, and has no rows: what former jobs have left open
               would hold back readers until there are some. The record says that this job has the line now,
               though the last commit is another one's, and those whose transactions it aborts commit nothing
               more. A sibling, which starts from the same snapshot as this job, may still be the faster one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from unistream.base.errors import UNDECODABLE, CorruptSnapshot, UnistreamError
from unistream.base.ids import CheckpointId
from unistream.connector.common import OnRewind, rewound
from unistream.connector.kafka.broker.record_change import change_record
from unistream.connector.kafka.broker.wire import GroupOffset, Producing
from unistream.connector.kafka.record.transactions import Naming, checkpoint_of, label_of, rewinds_of
from unistream.port.line import Followed, SinkLine
from unistream.port.sink import SinkContext

CHOICES: Final = "; or set on_rewind='allow_duplicates' and accept duplicates"


class TopicLineNote(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of the record. `is_rewind`: the job has noted a rewind, and committed nothing since.
    `taken`: the job that has taken the line over from it, and committed nothing yet."""

    job: str
    is_rewind: bool = False
    taken: str = ""


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """The last commit of a line; `job` is empty if it was made by a version that did not note it."""

    label: int
    job: str
    is_rewind: bool = False
    taken: str = ""

    @property
    def checkpoint(self) -> CheckpointId:
        return checkpoint_of(self.label)


class KafkaCommitterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a committer: the job whose commits up to checkpoint `until` this one follows."""

    job: str
    until: int
    label: int
    format: int = 1


class _Refused(Exception):
    """Ends a change of the record."""


class TopicLine:
    """The record of the last commit of one sink, and who may change it.

    Args:
        producing: Connections; the caller closes them.
        remembered: From the restored state of a committer.
    """

    def __init__(
        self,
        producing: Producing,
        naming: Naming,
        topic: str,
        context: SinkContext,
        remembered: KafkaCommitterState | None = None,
    ) -> None:
        self._producing = producing
        self._naming = naming
        self._topic = topic
        self._where = f"topic {topic!r}"
        self._context = context
        followed = None if remembered is None else Followed(remembered.job, remembered.until)
        self._line = SinkLine(self._where, context, str, followed)
        self._last: Last | None = None
        self._seen = {context.job, context.predecessor, ""}  # jobs that are no rivals
        self._has_looked = False
        self._has_taken = False

    @property
    def has_committed(self) -> bool:
        """Whether this attempt has committed, as this job."""
        return self._line.has_committed

    def last(self, subtask: int) -> Last | None:
        """The last commit, as far as it is known without waiting. `subtask`: whose own record counts too, for
        commits of versions that kept no other."""
        found = self._producing.noted(self._naming.line, self._topic)
        own = self._producing.recorded(self._naming.group(subtask), self._topic)
        last = None if found is None else _decoded(found)
        if own is not None and (last is None or last.label < own):
            last = Last(label=own, job="" if last is None else last.job, taken=last.taken if last else "")
        if not self._has_looked and last is not None:
            self._seen |= {last.job, last.taken}
        self._has_looked = True
        return last

    def check(self, last: Last | None, on_rewind: OnRewind) -> bool:
        """Whether this job begins with a rewind.

        Raises:
            ConfigError: a rewind that is not allowed, or another job writes this line.
            Fenced: another job has taken over from this one.
        """
        context = self._context
        if last is None or context.finalizing:
            return False
        refusal = self._refusal(last)
        self.check_label(last.label, on_rewind)
        if last.checkpoint > context.committed_max:
            return True
        if refusal is not None:
            if last.is_rewind and on_rewind == "allow_duplicates":
                return True  # by a job that went back as this one does, and got no further
            raise refusal
        return False

    def check_label(self, label: int, on_rewind: OnRewind) -> None:
        """Raises ConfigError: a commit with this label shows a rewind that is not allowed."""
        context = self._context
        is_rewind = checkpoint_of(label) > context.committed_max and not context.finalizing
        if is_rewind and on_rewind == "refuse":
            raise rewound(f"topic {self._topic}", context, checkpoint_of(label), CHOICES)

    def begin_again(self, last: Last) -> None:
        """Records an allowed rewind, before checkpoints get ids that were used before. From now on the jobs
        before it commit nothing more.

        Raises:
            ConfigError: another job has changed the record meanwhile.
        """
        context = self._context
        label = label_of(rewinds_of(last.label) + 1, CheckpointId(context.restored or 0))
        note = msgspec.json.encode(TopicLineNote(job=context.job, is_rewind=True)).decode()

        def decide(found: GroupOffset | None) -> tuple[int, str]:
            now = None if found is None else _decoded(found)
            if now is not None and now.job != context.job and (now.label, now.job) != (last.label, last.job):
                raise self._line.succeeded(now.job)
            return label, note

        self._changed(decide)

    def claim(self, label: int, checkpoint_id: CheckpointId) -> UnistreamError | None:
        """Claims the topic before transactions with labels up to `label` are committed. Returns why this job
        may not commit them; None: it may.

        Raises:
            OutcomeUnknown, Transient: the record could not be changed; nothing is known.
        """
        job = self._line.writer(checkpoint_id)
        is_own = job == self._context.job

        def decide(last: Last | None) -> Last | None:
            if last is not None and last.label >= label:
                return None
            return Last(label=label, job=job, taken="" if is_own or last is None else last.taken)

        refusal = self._claimed(decide)
        if refusal is None:
            self._line.committed(checkpoint_id)
        return refusal

    def take_over(self) -> tuple[set[str], UnistreamError | None]:
        """Takes the line over when the first checkpoint of this job is complete, and has nothing to commit.
        Returns the jobs that commit nothing more, whose transactions can be aborted; or why this job may not
        go on.

        Raises as `claim`.
        """
        me, former = self._context.job, self._context.predecessor or ""
        before = {former}

        def decide(last: Last | None) -> Last | None:
            last = last or Last(label=0, job=former)
            before.update({last.job, last.taken})
            return None if me in (last.job, last.taken) else msgspec.structs.replace(last, taken=me)

        refusal = self._claimed(decide)
        self._has_taken = refusal is None
        return (set() if refusal else before - {me, ""}), refusal

    def taken_over(self) -> UnistreamError | None:
        """Why what this job wrote is refused, if another one has the line. Its transaction was aborted, which
        a job does that has taken the line over."""
        last = self.last(self._context.index)
        if last is None or last.taken in ("", self._context.job):
            return None if last is None else self._refusal(last)
        return self._succeeded(last.taken)

    def is_lost(self) -> bool:
        """Whether another job has claimed the line since `last` was called first: none that this one may
        follow."""
        found = self._producing.noted(self._naming.line, self._topic)
        if found is None:
            return False
        last, context = _decoded(found), self._context
        had_it = context.job in (last.job, context.predecessor)
        return last.job not in self._seen or (had_it and last.taken not in self._seen)

    def remembered(self) -> KafkaCommitterState | None:
        """The last commit as the state of the committer has it; None: there is none."""
        last = self._last
        if last is None or not last.job:
            return None
        one = self._line.remembered(last.job, last.checkpoint)
        return KafkaCommitterState(job=one.job, until=one.until, label=last.label)

    def know(self, last: Last | None) -> None:
        """What was found when the job began."""
        self._last = last

    def _refusal(self, last: Last) -> UnistreamError | None:
        job, me = last.job, self._context.job
        if job and not self._line.follows(job, last.checkpoint):
            return self._succeeded(job)
        had_it = self._has_taken or me in (job, self._context.predecessor)
        return self._succeeded(last.taken) if had_it and last.taken not in ("", me) else None

    def _succeeded(self, job: str) -> UnistreamError:
        return self._line.succeeded(job, has_written=self._has_taken)

    def _claimed(self, decide: Callable[[Last | None], Last | None]) -> UnistreamError | None:
        """Changes the record, unless its last commit is of a job that this one may not follow."""
        refused: list[UnistreamError] = []

        def checked(found: GroupOffset | None) -> tuple[int, str] | None:
            last = None if found is None else _decoded(found)
            refusal = None if last is None or self._context.finalizing else self._refusal(last)
            if refusal is not None:
                refused.append(refusal)
                raise _Refused
            new = decide(last)
            if new is None:
                return None
            note = TopicLineNote(job=new.job, is_rewind=new.is_rewind, taken=new.taken)
            return new.label, msgspec.json.encode(note).decode()

        try:
            self._changed(checked)
        except _Refused:
            return refused[-1]
        return None

    def _changed(self, decide: Callable[[GroupOffset | None], tuple[int, str] | None]) -> None:
        name = self._naming.line
        found = change_record(self._producing, name, name, self._topic, decide)
        self._last = None if found is None else _decoded(found)


def decode_remembered(items: Sequence[bytes]) -> KafkaCommitterState | None:
    """The newest of the states of one or several committers. Raises CorruptSnapshot."""
    try:
        found = [msgspec.json.decode(item, type=KafkaCommitterState) for item in items]
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"the committer state of a Kafka sink cannot be read: {error}") from error
    return max(found, key=lambda one: one.label, default=None)


def _decoded(found: GroupOffset) -> Last:
    try:
        note = msgspec.json.decode(found.note, type=TopicLineNote)
    except UNDECODABLE:  # of an earlier version, which noted nothing
        return Last(label=found.label, job="")
    return Last(label=found.label, job=note.job, is_rewind=note.is_rewind, taken=note.taken)
