"""What a Delta committer remembers of its table, and whether that is still what it finds.

A table is the one that was committed to if its id is (the `id` in its metadata, given when it is made), its
version is not a lower one, and the transaction of the last commit is in it. So these are the same table:

    OPTIMIZE, VACUUM, DELETE, RESTORE, an overwrite    new versions of it, whatever they do with the rows
    a checkpoint or cleanup of its log                 the version, id and transactions stay

and these are not: a table that was removed and made again, and one whose folder was put back from a backup
that does not have the last commit. A table that lets transactions expire is known by id and version alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from unistream.base.errors import ConfigError, CorruptSnapshot

STATE_FORMAT: Final = 1
EXPIRES: Final = "delta.setTransactionRetentionDuration"


class DeltaTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The table after the last commit.

    Attributes:
        checkpoint_id: What that commit brought; 0: the table was looked at only.
    """

    table_uri: str
    table_id: str
    version: int
    checkpoint_id: int
    format: int = STATE_FORMAT


class FoundTable(Protocol):
    """A loaded table, as far as it is compared."""

    @property
    def table_id(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def configuration(self) -> dict[str, str]: ...


_DECODER: Final = msgspec.msgpack.Decoder(DeltaTarget)


def encode_target(target: DeltaTarget) -> bytes:
    return msgspec.msgpack.encode(target)


def decode_targets(items: Sequence[bytes]) -> DeltaTarget | None:
    """The newest; None: nothing is remembered.

    Raises:
        CorruptSnapshot: it is something else, or of another format.
    """
    try:
        found = [_DECODER.decode(item) for item in items]
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(f"what a Delta sink has committed to is unreadable: {error}") from error
    other = next((one.format for one in found if one.format != STATE_FORMAT), None)
    if other is not None:
        raise CorruptSnapshot(
            f"the state of a Delta sink's committer has format {other}, this version reads {STATE_FORMAT}"
        )
    return max(found, key=lambda target: target.checkpoint_id, default=None)


def check_target(target: DeltaTarget, found: FoundTable | None, last: int | None, *, sink_uid: str) -> None:
    """Is this the table that `target` speaks of, with all that was committed to it?

    Args:
        target: What is remembered.
        found: What is at its address now; None: no table.
        last: The last checkpoint of this sink that it holds; None: it knows nothing of the sink.
        sink_uid: For the message.

    Raises:
        ConfigError: it is not; nothing may be written.
    """
    now = _difference(target, found, last)
    if now is None:
        return
    number = target.checkpoint_id
    done = f"had committed up to checkpoint {number} to" if number else "began with"
    raise ConfigError(
        f"table {target.table_uri}: sink {sink_uid!r} {done} the table with id {target.table_id} "
        f"(version {target.version}), but {now}; nothing was written. Bring that table back (or start from a "
        "savepoint that is as old as what is there); or, to go on without its rows, give the sink another "
        "uid and allow non-restored state"
    )


def _difference(target: DeltaTarget, found: FoundTable | None, last: int | None) -> str | None:
    """What is there instead; None: all is as it should be."""
    if found is None:
        return "there is no table now"
    if found.table_id != target.table_id:
        return f"the table there now has id {found.table_id} (version {found.version})"
    if found.version < target.version:
        return f"it is at version {found.version} now"
    if not target.checkpoint_id or (last is None and EXPIRES in found.configuration):
        return None
    if last is None:
        return f"it holds nothing of that now (version {found.version})"
    if last < target.checkpoint_id:
        return f"it holds no more than checkpoint {last} of it now (version {found.version})"
    return None
