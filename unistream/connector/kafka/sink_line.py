"""Which job of a line may commit to a topic: the record of its last commit, and who may change it.

    record  ─ label and job of the last commit, an offset of the group `Naming.line` with its metadata
    claim   ─ before the transactions of a checkpoint are committed: the record is read, the rules of
              `unistream.port.line` say whether this job may go on, and it is changed on exactly what was read

Of two jobs that go on from one snapshot one can claim; the other one has committed nothing then, and its
transactions are aborted. A job that dies between claim and commit commits the same transactions when it is
restored: they are those of a complete checkpoint. A topic may be written by any number of lines, which know
nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from unistream.base.errors import CorruptSnapshot, UnistreamError
from unistream.base.ids import CheckpointId
from unistream.connector.common import OnRewind, rewound
from unistream.connector.kafka.record_change import change_record
from unistream.connector.kafka.transactions import Naming, checkpoint_of, label_of, rewinds_of
from unistream.connector.kafka.wire import Producing, Recorded
from unistream.port.line import (
    Followed,
    followed_by,
    may_follow,
    still_followed,
    succeeded,
    writer_of,
)
from unistream.port.sink import SinkContext

CHOICES: Final = "; or set on_rewind='allow_duplicates' and accept duplicates"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of the record. `is_rewind`: the job has noted a rewind, and committed nothing since."""

    job: str
    is_rewind: bool = False


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """The last commit of a line; `job` is empty if it was made by a version that did not note it."""

    label: int
    job: str
    is_rewind: bool = False

    @property
    def checkpoint(self) -> CheckpointId:
        return checkpoint_of(self.label)


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """State of a committer: the job whose commits up to checkpoint `until` this one follows."""

    job: str
    until: int
    label: int
    format: int = 1


class _Refused(Exception):
    """Ends a change of the record."""


class Line:
    """The record of one sink.

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
        remembered: Remembered | None = None,
    ) -> None:
        self._producing = producing
        self._naming = naming
        self._topic = topic
        self._where = f"topic {topic!r}"
        self._context = context
        known = None if remembered is None else Followed(remembered.job, remembered.until)
        self._followed = followed_by(context, context.predecessor, known)
        self._last: Last | None = None
        self._seen = {context.job, context.predecessor, ""}  # jobs that are no rivals
        self._has_looked = False
        self.has_committed = False  # in this attempt, as this job

    def last(self, subtask: int) -> Last | None:
        """The last commit, as far as it is known without waiting. `subtask`: whose own record counts too, for
        commits of versions that kept no other."""
        found = self._producing.noted(self._naming.line, self._topic)
        own = self._producing.recorded(self._naming.group(subtask), self._topic)
        last = None if found is None else _decoded(found)
        if own is not None and (last is None or last.label < own):
            last = Last(label=own, job="" if last is None else last.job)
        if not self._has_looked and last is not None:
            self._seen.add(last.job)
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
        note = msgspec.json.encode(Note(job=context.job, is_rewind=True)).decode()

        def decide(found: Recorded | None) -> tuple[int, str]:
            now = None if found is None else _decoded(found)
            if now is not None and now.job != context.job and (now.label, now.job) != (last.label, last.job):
                raise succeeded(self._where, context, writer=now.job, has_committed=False)
            return label, note

        self._changed(decide)

    def claim(self, label: int, checkpoint_id: CheckpointId) -> UnistreamError | None:
        """Before transactions with labels up to `label` are committed. Returns why this job may not commit
        them; None: it may.

        Raises:
            OutcomeUnknown, Transient: the record could not be changed; nothing is known.
        """
        job = writer_of(self._context, checkpoint_id)
        note = msgspec.json.encode(Note(job=job)).decode()
        refused: list[UnistreamError] = []

        def decide(found: Recorded | None) -> tuple[int, str] | None:
            last = None if found is None else _decoded(found)
            refusal = None if last is None or self._context.finalizing else self._refusal(last)
            if refusal is not None:
                refused.append(refusal)
                raise _Refused
            return None if last is not None and last.label >= label else (label, note)

        try:
            self._changed(decide)
        except _Refused:
            return refused[-1]
        if job == self._context.job:
            self.has_committed, self._followed = True, ()
        return None

    def taken_over(self) -> UnistreamError | None:
        """Why what this job wrote is refused, if another one has the line."""
        last = self.last(self._context.index)
        return None if last is None else self._refusal(last)

    def is_lost(self) -> bool:
        """Another job has claimed the line since `last` was called first: none that this one may follow."""
        found = self._producing.noted(self._naming.line, self._topic)
        return found is not None and _decoded(found).job not in self._seen

    def remembered(self) -> Remembered | None:
        """For the state."""
        last = self._last
        if last is None or not last.job:
            return None
        one = still_followed(last.job, last.checkpoint, self._followed)
        return Remembered(job=one.job, until=one.until, label=last.label)

    def know(self, last: Last | None) -> None:
        """What was found when the job began."""
        self._last = last

    def _refusal(self, last: Last) -> UnistreamError | None:
        job, context = last.job, self._context
        if not job or may_follow(job, last.checkpoint, me=context.job, followed=self._followed):
            return None
        return succeeded(self._where, context, writer=job, has_committed=self.has_committed)

    def _changed(self, decide: Callable[[Recorded | None], tuple[int, str] | None]) -> None:
        name = self._naming.line
        found = change_record(self._producing, name, name, self._topic, decide)
        self._last = None if found is None else _decoded(found)


def decode_remembered(items: Sequence[bytes]) -> Remembered | None:
    """The newest of the states of one or several committers. Raises CorruptSnapshot."""
    try:
        found = [msgspec.json.decode(item, type=Remembered) for item in items]
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(f"the committer state of a Kafka sink cannot be read: {error}") from error
    return max(found, key=lambda one: one.label, default=None)


def _decoded(found: Recorded) -> Last:
    try:
        note = msgspec.json.decode(found.note, type=Note)
    except msgspec.MsgspecError:  # of an earlier version, which noted nothing
        return Last(label=found.label, job="")
    return Last(label=found.label, job=note.job, is_rewind=note.is_rewind)
