"""A folder that is watched: which of its files are new. Pure.

    listed             in the state               then
    ------------------------------------------------------------------------------------------
    young              no                         it waits: it may still be written
    old enough         no                         it is read, and from now on in the state
    the same mark      yes                        nothing
    another mark       yes                        it has changed: it is named, and not read again
    another mark       yes, and it was gone       a new file of an old name: as if it were not in the state
    not listed         yes                        it is gone; after REMEMBERED_MS it is forgotten

A mark is the size of a file, and its ETag or else the time of its last change. What is gone is remembered for
a while, since a folder that is not mounted, or a listing that lacks something, looks the same. So the state
has some 30 bytes for each file that is there or was there in that time; who removes files that were read, or
moves them away, keeps it small.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError

REMEMBERED_MS: Final = 7 * 86_400_000  # as old as files may be in Spark's source
FILES_AT_ONCE: Final = 100_000  # of one look; the others come with the next one
_TIMES: Final = ("LastModified", "mtime", "last_modified", "updated", "created")  # of fsspec's file systems
_PATH_BYTES: Final = 12  # two of a million paths are alike with a probability of 1e-17
_MARK_BYTES: Final = 6  # compared with that of the same path only


class FoundFile(NamedTuple):
    """A file of a watched folder. `size`: in bytes; `mark`: another one if the file is; `modified_ms`: since
    1970; None: not known."""

    path: str
    size: int
    mark: str = ""
    modified_ms: int | None = None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Files that were found before: path -> mark, both shortened. `gone`: since when (ms) one is not
    listed."""

    files: dict[str, str] = {}
    gone: dict[str, int] = {}

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def decode_seen(position: str) -> Seen:
    """Reads the position of a watched folder. Raises ConfigError: it is unreadable."""
    try:
        return msgspec.json.decode(position, type=Seen)
    except UNDECODABLE as error:
        raise ConfigError(f"the position of a watched folder is unreadable: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderChanges:
    """What a listing shows. `seen`: the next state."""

    seen: Seen
    new: tuple[FoundFile, ...]
    changed: tuple[FoundFile, ...]


def look(
    listed: Sequence[FoundFile], seen: Seen, *, now_ms: int, min_age_ms: int, at_most: int = FILES_AT_ONCE
) -> FolderChanges:
    """
    Args:
        listed: All files of the folder, by path.
        seen: By the look before.
        now_ms: Time of the listing.
        min_age_ms: A file is read when it has not changed for this long.
        at_most: New files of one look; the others come with the next one.

    >>> file = FoundFile("a.csv", 3, "3 x", modified_ms=1_000)
    >>> young = look([file], Seen(), now_ms=1_500, min_age_ms=1_000)
    >>> old = look([file], young.seen, now_ms=2_000, min_age_ms=1_000)
    >>> len(young.new), len(old.new), len(look([file], old.seen, now_ms=9_000, min_age_ms=0).new)
    (0, 1, 0)
    """
    files: dict[str, str] = {}
    gone: dict[str, int] = {}
    new: list[FoundFile] = []
    changed: list[FoundFile] = []
    for file in listed:
        key, mark = _short(file.path, _PATH_BYTES), short_mark(file)
        before = seen.files.get(key)
        if before is None or (before != mark and key in seen.gone):
            if is_settled(file, now_ms, min_age_ms) and len(new) < at_most:
                new.append(file)
                files[key] = mark
            elif before is not None:
                files[key], gone[key] = before, seen.gone[key]
            continue
        if before != mark:
            changed.append(file)
        files[key] = mark
    for key in seen.files.keys() - files.keys():
        since = seen.gone.get(key, now_ms)
        if now_ms - since < REMEMBERED_MS:
            files[key], gone[key] = seen.files[key], since
    return FolderChanges(seen=Seen(files=files, gone=gone), new=tuple(new), changed=tuple(changed))


def is_settled(file: FoundFile, now_ms: int, min_age_ms: int) -> bool:
    """Whether a file has not changed for long enough. A time in the future says nothing: else it would never
    be read."""
    if file.modified_ms is None:
        return True
    return not -min_age_ms <= now_ms - file.modified_ms < min_age_ms


def short_mark(file: FoundFile) -> str:
    return _short(f"{file.size} {file.mark}", _MARK_BYTES)


def as_seen(files: Sequence[FoundFile]) -> Seen:
    """The state after these were found."""
    return Seen(files={_short(file.path, _PATH_BYTES): short_mark(file) for file in files})


def _short(text: str, size: int) -> str:
    digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=size)
    return base64.urlsafe_b64encode(digest.digest()).decode()


def changed_file(named: str) -> str:
    """The message that a file has changed."""
    return (
        f"file {named} has changed, or was removed, since it was found in a watched folder, where each file "
        "is read once; write what is new to a new file and put the old one back, or say "
        'on_change="skip" to go on without it'
    )


# --- what file systems say ------------------------------------------------------------------------


def mark_of(facts: dict[str, Any]) -> str:
    """The mark by which a changed file is known, of the facts that fsspec has about it; "": they have none.

    >>> mark_of({"ETag": '"9f"', "LastModified": 5}), mark_of({"mtime": 5.25}), mark_of({})
    ('9f', '5.25', '')
    """
    etag = facts.get("ETag") or facts.get("etag")
    if etag:
        return str(etag).strip('"')
    return next((str(facts[name]) for name in _TIMES if facts.get(name) is not None), "")


def modified_ms(facts: dict[str, Any]) -> int | None:
    """The time at which the file was last changed, in ms; None: not known.

    >>> modified_ms({"mtime": 1.5}), modified_ms({"updated": "1970-01-01T00:00:01Z"}), modified_ms({})
    (1500, 1000, None)
    """
    at = next((facts[name] for name in _TIMES if facts.get(name) is not None), None)
    if isinstance(at, str):
        try:
            at = dt.datetime.fromisoformat(at)
        except ValueError:
            return None
    if isinstance(at, dt.datetime):
        at = (at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp()
    return int(at * 1000) if isinstance(at, int | float) else None
