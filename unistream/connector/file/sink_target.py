"""What a file sink's committer remembers of its folder, and whether that is still what it finds.

The folder is known by the records in it (`_unistream/`), of which the newest is never removed by the sink.
Committed files are the readers' and prove nothing: they may be moved or deleted. A folder without the record
of the last commit was removed, emptied, or put back from a backup that is older.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from unistream.base.errors import ConfigError, CorruptSnapshot

STATE_FORMAT: Final = 1


class FileTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The folder, and the newest checkpoint that has a record there."""

    root: str
    checkpoint_id: int
    format: int = STATE_FORMAT


_DECODER: Final = msgspec.msgpack.Decoder(FileTarget)


def encode_target(target: FileTarget) -> bytes:
    return msgspec.msgpack.encode(target)


def decode_targets(items: Sequence[bytes]) -> FileTarget | None:
    """The newest; None: nothing is remembered.

    Raises:
        CorruptSnapshot: it is something else, or of another format.
    """
    try:
        found = [_DECODER.decode(item) for item in items]
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(f"what a file sink has committed to is unreadable: {error}") from error
    other = next((one.format for one in found if one.format != STATE_FORMAT), None)
    if other is not None:
        raise CorruptSnapshot(
            f"the state of a file sink's committer has format {other}, this version reads {STATE_FORMAT}"
        )
    return max(found, key=lambda target: target.checkpoint_id, default=None)


def check_target(target: FileTarget, records: Sequence[int], *, folder: str, sink_uid: str) -> None:
    """Does the folder hold the record of the last commit, or a later one?

    Args:
        target: What is remembered.
        records: Checkpoints that have one, ascending.
        folder: Where they are.
        sink_uid: For the message.

    Raises:
        ConfigError: it does not; nothing may be written.
    """
    last = records[-1] if records else 0
    if last >= target.checkpoint_id:
        return
    now = f"has the record of checkpoint {last} only" if records else "has no record of this sink now"
    raise ConfigError(
        f"file sink: sink {sink_uid!r} had committed up to checkpoint {target.checkpoint_id} to "
        f"{target.root}, but {folder} {now}: the folder was removed, emptied or put back to an earlier "
        "state; nothing was written. Bring it back (or start from a savepoint that is as old as what is "
        "there); or, to go on without what it held, give the sink another uid and allow non-restored state"
    )
