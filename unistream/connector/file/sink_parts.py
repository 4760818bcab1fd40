"""Staged files of a file sink as a committable names them, and their names."""

from __future__ import annotations

import re
import uuid
from typing import Final

import msgspec

from unistream.base.errors import CorruptSnapshot
from unistream.base.ids import JobId, OperatorUid
from unistream.connector.common import decode_formatted

COMMITTABLE_FORMAT: Final = 3  # since 2: uploads; since 3: staged apart. Others would look in the wrong place
PART: Final = "part-"
ADJACENT: Final = 0
APART: Final = 1


class PartFile(msgspec.Struct, frozen=True, kw_only=True):
    """A closed file.

    Attributes:
        bucket: Folder relative to the root, ending in ``/`` unless empty.
        upload: Id of its multipart upload; empty: it is a staged file.
        tags: Of the parts of the upload, in order.
        place: Where it is staged. Of earlier versions that is next to the finished files.
    """

    bucket: str
    name: str
    size: int
    rows: int
    upload: str = ""
    tags: tuple[str, ...] = ()
    place: int = ADJACENT

    @property
    def path(self) -> str:
        return f"{self.bucket}{self.name}"


class FileCommittable(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask staged for one checkpoint."""

    root: str
    files: tuple[PartFile, ...]
    format: int = COMMITTABLE_FORMAT


_COMMITTABLE: Final = msgspec.msgpack.Decoder(FileCommittable)


def decode_committable(content: bytes) -> FileCommittable:
    """Raises CorruptSnapshot, also for a path that leads out of the root."""
    what = "a committable of a file sink"
    committable = decode_formatted(_COMMITTABLE, content, what=what, expected=COMMITTABLE_FORMAT, least=1)
    for file in committable.files:
        is_named = file.name.startswith(PART) and "/" not in file.name
        if not is_named or set(file.path.split("/")) & {"", ".", ".."}:
            raise CorruptSnapshot(f"a committable of a file sink names {file.path!r}")
    return committable


def staging_owner(job: JobId, sink_uid: OperatorUid, name: int) -> str:
    """The prefix of the names of one writer's files, the same for all its attempts."""
    return f"{staging_owners(job, sink_uid)}{name}-"


def staging_owners(job: JobId, sink_uid: OperatorUid) -> str:
    """The prefix of the names of all writers' files."""
    return f"{PART}{short_name(sink_uid)}-{job[:16]}-"


def part_name(owner: str, counter: int, suffix: str) -> str:
    """The name of a staged file, unique among all attempts."""
    return f"{owner}{counter}-{uuid.uuid4().hex[:12]}{suffix}"


def counter_of(owner: str, name: str) -> int | None:
    """The counter in the name of one of `owner`'s files; None: it belongs to another owner."""
    if not name.startswith(owner):
        return None
    text = name[len(owner) :].partition("-")[0]
    return int(text) if text.isdecimal() else None


def short_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", text)[:64]
