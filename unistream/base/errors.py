"""Every error that unistream raises, sorted by what the caller must do.

UnistreamError
├── ConfigError            the user can fix it; never retried
│   ├── NotFound           there is no such job, worker or request
│   └── AlreadyEnded       the job has ended, so this can no longer be done
├── UserCodeError          from the user's own function or data; carries where, original as __cause__
│   ├── MissingCode        a worker has not what the user's code imports; no restart can help
│   └── SuppressRestarts   the same, and the user's function says that no restart can help
├── ProtocolError          a peer broke the rules; drop the connection
│   └── CorruptSnapshot    a stored object is unreadable or does not match its checksum; never skipped
├── JobCancelled           somebody ended the job before it had finished; what it committed stays
├── Fenced                 a newer epoch exists; stop at once, never retry
├── OutcomeUnknown         neither done nor not done; delete nothing, ask again
└── Transient              safe to repeat with the same arguments
    ├── Unreachable        an external system did not answer in time
    │   └── NobodyThere    nothing listens at its address: its process has ended, or never was there
    └── PartitionLost      what a task reads is gone or damaged: its producer has to run again
"""

from __future__ import annotations

from unistream.base.ids import PartitionId


class UnistreamError(Exception):
    """Root of the tree."""


class ConfigError(UnistreamError):
    """What the user gave cannot work; the text says what, where and what to do."""


class NotFound(ConfigError):
    """What was named does not exist here."""


class AlreadyEnded(ConfigError):
    """The job has ended; what was asked for needs a running one."""


class UserCodeError(UnistreamError):
    """A user function or a record failed.

    Args:
        message: One sentence naming operator, subtask and (if known) the row.
    """


class MissingCode(UserCodeError):
    """A worker has not what the user's code imports: no restart brings it there."""


class SuppressRestarts(UserCodeError):
    """A user's function says that starting again cannot help: the job fails at once, whatever the restart
    strategy allows (Flink's SuppressRestartsException).

    It counts wherever it is in the chain of causes. Raise it from what happened, so that this is told too.

    >>> raise SuppressRestarts("the feed has a column that this version cannot read") from KeyError("fare")
    Traceback (most recent call last):
    unistream.base.errors.SuppressRestarts: the feed has a column that this version cannot read
    """


class ProtocolError(UnistreamError):
    """A peer (or our own code) broke the rules."""


class CorruptSnapshot(ProtocolError):
    """A stored object is missing, truncated, or does not match its checksum."""


class JobCancelled(UnistreamError):
    """The job was cancelled, so there is no result (Flink's JobCancellationException)."""


class Fenced(UnistreamError):
    """A newer leader epoch or a newer attempt owns this; stop at once."""


class OutcomeUnknown(UnistreamError):
    """The outside system may or may not have done it; delete nothing, ask again."""


class Transient(UnistreamError):
    """Safe to repeat with the same arguments."""


class Unreachable(Transient):
    """An external system did not answer in time."""


class NobodyThere(Unreachable):
    """Nothing listens at its address; unlike a silent peer this one will hardly answer later."""


class PartitionLost(Transient):
    """A result partition is not there (any more) or cannot be read (Flink's PartitionException).

    Attributes:
        partition: Whose producer has to run again before a consumer can.
    """

    def __init__(self, message: str, partition: PartitionId) -> None:
        super().__init__(message)
        self.partition = partition
