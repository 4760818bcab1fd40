"""What kinds of snapshots there are, and how they store state: names that clients and masters share."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias, TypeVar

from unistream.base.errors import ConfigError

E = TypeVar("E", bound=Enum)

FormatName: TypeAlias = Literal["canonical", "native"]
TypeName: TypeAlias = Literal["configured", "full", "incremental"]
"""Values of `SavepointFormat` and `CheckpointType`, as users write them."""


class SnapshotKind(Enum):
    """What kind of snapshot a barrier starts. Values are the wire form."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"  # the job keeps running
    SUSPEND = "suspend"  # stop-with-savepoint
    TERMINATE = "terminate"  # stop-with-savepoint --drain

    @property
    def title(self) -> str:
        """The kind's name for users."""
        titles = {SnapshotKind.SUSPEND: "stop with savepoint", SnapshotKind.TERMINATE: "drain with savepoint"}
        return titles.get(self, self.value)

    @property
    def is_savepoint(self) -> bool:
        return self is not SnapshotKind.CHECKPOINT

    @property
    def is_synchronous(self) -> bool:
        """The job ends with it, and no row may be processed after its barrier."""
        return self in (SnapshotKind.SUSPEND, SnapshotKind.TERMINATE)


class SavepointFormat(Enum):
    """How a savepoint stores keyed state (FLIP-203). Values are the wire form, names Flink's in REST."""

    CANONICAL = "canonical"  # open tables, whatever the backend
    NATIVE = "native"  # a backend's own files, if it has any: only that backend reads them

    @classmethod
    def parse(cls, text: str) -> SavepointFormat:
        """The format of that name, in upper or lower case. Raises ConfigError for anything else."""
        return _parse(cls, text, "the format of a savepoint")


class CheckpointType(Enum):
    """The files to which a requested checkpoint may refer; Flink's names, values are the wire form."""

    CONFIGURED = "configured"  # as `execution.checkpointing.incremental` says
    FULL = "full"  # only to its own
    INCREMENTAL = "incremental"  # as in Flink the same as CONFIGURED: it does not turn incremental on

    @classmethod
    def parse(cls, text: str) -> CheckpointType:
        """The type of that name, in upper or lower case. Raises ConfigError for anything else."""
        return _parse(cls, text, "the type of a checkpoint")


def _parse(kind: type[E], text: str, what: str) -> E:
    try:
        return kind(text.lower())
    except ValueError:
        known = " or ".join(one.value for one in kind)
        raise ConfigError(f"{what} is {known}, not {text[:80]!r}") from None
