"""Every error that unistream raises, sorted by what the caller must do.

UnistreamError
├── ConfigError            the user can fix it; never retried
│   ├── NotFound           there is no such job, worker or request
│   ├── AccessDenied       no token was presented that is taken
│   │   └── Forbidden      one was, and what it allows does not include this
│   ├── FolderInUse        another cluster has the folder
│   ├── Busy               it cannot be done now, as something else goes on; try again later
│   └── AlreadyEnded       the job has ended, so this can no longer be done
├── UserCodeError          from the user's own function or data; carries where, original as __cause__
│   ├── MissingCode        a worker lacks a module that the user's code imports; no restart can help
│   └── SuppressRestarts   the same, and the user's function says that no restart can help
├── ProtocolError          a peer broke the rules; drop the connection
│   └── CorruptSnapshot    a stored object is unreadable or does not match its checksum; never skipped
├── JobCancelled           the job was cancelled before it had finished; its commits stay
├── Fenced                 a newer epoch exists; stop at once, never retry
├── OutcomeUnknown         it may or may not have been done; delete nothing, check again
└── Transient              safe to repeat with the same arguments
    ├── Unreachable        an external system did not answer in time
    │   ├── NothingListens    nothing listens at its address: its process has ended, or never started
    │   └── ClusterEnded      its process has ended, and nobody starts it again by itself
    ├── RemoteTransportError   a connection to another worker broke; that worker may have failed
    └── PartitionLost      an input of a task is missing or damaged: its producer has to run again
"""

from __future__ import annotations

from typing import Final

import msgspec

from unistream.base.ids import PartitionId

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes of somebody else: text that is no UTF-8 and nesting without end have errors
of their own."""


class UnistreamError(Exception):
    """Root of the tree."""


class ConfigError(UnistreamError):
    """The user's input cannot work; the message says what, where and what to do."""


class NotFound(ConfigError):
    """The named object does not exist here."""


class AccessDenied(ConfigError):
    """The caller has no token of the cluster that is taken now."""


class Forbidden(AccessDenied):
    """The caller's token does not let it do this."""


class FolderInUse(ConfigError):
    """A running cluster has the folder. `pid`: of its master, on this machine; None: not known."""

    def __init__(self, message: str, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class Busy(ConfigError):
    """It cannot be done now."""


class AlreadyEnded(ConfigError):
    """The job has ended; the request needs a running one."""


class UserCodeError(UnistreamError):
    """A user function or a record failed.

    Args:
        message: One sentence naming operator, subtask and (if known) the row.

    Attributes:
        row: Position of the row in the batch that failed; None: it is not known.
    """

    row: int | None = None


class MissingCode(UserCodeError):
    """A worker lacks a module that the user's code imports, which no restart installs."""


class SuppressRestarts(UserCodeError):
    """A user's function says that starting again cannot help: the job fails at once, whatever the restart
    strategy allows (Flink's SuppressRestartsException).

    It counts anywhere in the chain of causes. Raise it from the original error, so that both are reported.

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
    """The external system may or may not have done it; delete nothing, check again."""


class Transient(UnistreamError):
    """Safe to repeat with the same arguments."""


class Unreachable(Transient):
    """An external system did not answer in time."""


class RemoteTransportError(Transient):
    """A connection to another worker broke; that worker may have failed."""


class NothingListens(Unreachable):
    """Nothing listens at its address; unlike a silent peer it is unlikely to answer later."""


class ClusterEnded(Unreachable):
    """The process of a cluster for one job has ended: the message says what is left and how to go on."""


class PartitionLost(Transient):
    """A result partition is missing or cannot be read (Flink's PartitionException).

    Attributes:
        partition: The lost one, whose producer has to run again.
    """

    def __init__(self, message: str, partition: PartitionId) -> None:
        super().__init__(message)
        self.partition = partition
