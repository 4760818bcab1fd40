"""What the event stream sends, and to whom: pictures of topics, and what has changed in them. Pure.

    topic             picture                   rows
    overview          `figures.Overview`        jobs
    job/ID            `JobInfo`                 subtasks
    checkpoints/ID    `CheckpointsInfo`         the latest snapshots

A topic has a log of its last changes, which all clients share; a client is a place in that log. It gets what
has changed since its place, or the whole picture if it has none, or one that the log no longer reaches. So a
client that reads slowly costs no memory and misses nothing. A place is the id of an event: the stream (one
for each time that a process leads), a version, and a digest of the topics. A place of another stream or of
other topics is none. A change names the version that it changes, so no client mixes two pictures.

A merge patch (RFC 7396) can neither set a field to null, which here says that nobody knows it, nor change one
element of a list.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.limits import MIB
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.job_info import JobInfo
from unistream.rest.figures import Overview
from unistream.rest.requests import job_id

EVENT_STREAM: Final = "text/event-stream"

OVERVIEW: Final = "overview"
JOB: Final = "job"
CHECKPOINTS: Final = "checkpoints"

TOPICS_MAX: Final = 40  # of one stream: 20 jobs with their checkpoints
CHANGES_KEPT_MAX: Final = 16  # of a topic: who was away for that many seconds gets no whole picture
CHANGES_BYTES_MAX: Final = 8 * MIB  # of a topic; the newest one is kept, however large it is

INTERVAL_S: Final = 1.0
CPU_PART_MAX: Final = 0.05  # of one core, that looking at one topic may take
BYTES_PER_S_MAX: Final = MIB  # of one topic: a job of 10,000 subtasks has pictures of 5 MB
LATE_S: Final = 5.0  # and more than three intervals: what is looked at hangs

_PLACE: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,15})-([0-9a-f]{16})")

Picture: TypeAlias = Overview | JobInfo | CheckpointsInfo


# --- events ---------------------------------------------------------------------------------------


class _StreamEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Times are by the clock of the cluster."""


class Hello(_StreamEvent, frozen=True, kw_only=True, tag="hello"):
    """The first one. `stream`: another one has other versions; `version`: of the server."""

    stream: str
    version: str
    cluster: str
    now_ms: int


class OverviewPicture(_StreamEvent, frozen=True, kw_only=True, tag="overview"):
    """The whole of topic `overview`, as it was at `at_ms`."""

    topic: str
    version: int
    at_ms: int
    whole: Overview


class JobPicture(_StreamEvent, frozen=True, kw_only=True, tag="job"):
    """The whole of topic `job/ID`."""

    topic: str
    version: int
    at_ms: int
    whole: JobInfo


class CheckpointsPicture(_StreamEvent, frozen=True, kw_only=True, tag="checkpoints"):
    """The whole of topic `checkpoints/ID`."""

    topic: str
    version: int
    at_ms: int
    whole: CheckpointsInfo


class Change(_StreamEvent, frozen=True, kw_only=True, tag="change"):
    """What makes version `version` of a topic from version `base`.

    Attributes:
        fields: Those that have another value.
        rows: Those that are new or have another value.
        order: The keys of all rows, in their order; null: they are the same as before. What is not in it
            is gone. Keys are the id of a job, ``<vertex> <index>`` of a subtask, the id of a snapshot.
    """

    topic: str
    version: int
    base: int
    at_ms: int
    fields: dict[str, Any]
    rows: list[Any]
    order: list[str] | None


class NoPicture(_StreamEvent, frozen=True, kw_only=True, tag="refused"):
    """A topic cannot be shown: the status and the sentences that a request for it would be answered with. The
    stream goes on, and may have a picture of it later."""

    topic: str
    version: int
    at_ms: int
    status: int
    errors: list[str]


class Beat(_StreamEvent, frozen=True, kw_only=True, tag="beat"):
    """The server is there. `looked_ms`: what has not changed by then was looked at then, too; null: not all
    was yet. `late_since_ms`: that is too long ago, since something hangs; null: it is not."""

    now_ms: int
    looked_ms: int | None
    late_since_ms: int | None


class End(_StreamEvent, frozen=True, kw_only=True, tag="end"):
    """The last one: the server ends."""

    now_ms: int


Event: TypeAlias = Hello | OverviewPicture | JobPicture | CheckpointsPicture | Change | NoPicture | Beat | End


def framed(events: Sequence[bytes], place: str | None = None) -> bytes:
    """The events as text/event-stream; `place`: where a client is that has all of them."""
    *first, last = (b"data: %b\n\n" % event for event in events)
    return b"".join([*first, b"" if place is None else b"id: %b\n" % place.encode(), last])


# --- topics and places ----------------------------------------------------------------------------


def topics_of(jobs: Sequence[str], checkpoints: Sequence[str]) -> tuple[str, ...]:
    """The topics of a request, each once. Raises ConfigError: an id cannot be one, or there are too many."""
    topics = [OVERVIEW, *(f"{JOB}/{job_id(id_)}" for id_ in jobs)]
    topics += [f"{CHECKPOINTS}/{job_id(id_)}" for id_ in checkpoints]
    found = tuple(dict.fromkeys(topics))
    if len(found) > TOPICS_MAX + 1:
        raise ConfigError(f"{len(found) - 1} jobs and checkpoints of jobs, limit {TOPICS_MAX} in one stream")
    return found


def place_of(stream: str, version: int, topics: Sequence[str]) -> str:
    return f"{stream}-{version}-{_digest(topics)}"


def version_at(place: str | None, stream: str, topics: Sequence[str]) -> int | None:
    """What a client has that is at `place`; None: nothing that counts here."""
    found = None if place is None else _PLACE.fullmatch(place)
    if found is None or (found[1], found[3]) != (stream, _digest(topics)):
        return None
    return int(found[2])


def _digest(topics: Sequence[str]) -> str:
    return hashlib.blake2s(" ".join(sorted(topics)).encode(), digest_size=8).hexdigest()


# --- pictures and changes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RowsField:
    """The field with the rows of a picture, and their keys; `passing`: a field that alone is no change."""

    field: str
    key: Callable[[Any], str]
    passing: str | None = None


_ROWS: Final[Mapping[type, _RowsField]] = {
    Overview: _RowsField("jobs", lambda row: str(row.summary.job), "now_ms"),
    JobInfo: _RowsField("subtasks", lambda row: f"{row.vertex} {row.index}"),
    CheckpointsInfo: _RowsField("latest", lambda row: str(row.checkpoint_id)),
}


class PictureRefusal(msgspec.Struct, frozen=True):
    """What is sent instead of a picture that could not be taken."""

    status: int
    errors: tuple[str, ...]


class PictureDifference(msgspec.Struct, frozen=True):
    """See `Change`."""

    fields: dict[str, Any]
    rows: list[Any]
    order: list[str] | None


def difference(before: Picture, after: Picture) -> PictureDifference | None:
    """What turns one picture of a topic into the other one; None: nothing to speak of."""
    kind = _ROWS[type(after)]
    names = [name for name in after.__struct_fields__ if name != kind.field]
    fields = {name: new for name in names if (new := getattr(after, name)) != getattr(before, name)}
    old, new = (list(getattr(picture, kind.field)) for picture in (before, after))
    rows, order = _changed_rows(old, new, kind.key)
    if not rows and order is None and fields.keys() <= {kind.passing}:
        return None
    return PictureDifference(fields, rows, order)


def _changed_rows(
    old: list[Any], new: list[Any], key: Callable[[Any], str]
) -> tuple[list[Any], list[str] | None]:
    keys = [key(row) for row in new]
    if keys == [key(row) for row in old]:
        return [row for was, row in zip(old, new, strict=True) if row != was], None
    known = {key(row): row for row in old}
    return [row for name, row in zip(keys, new, strict=True) if known.get(name) != row], keys


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    base: int
    event: bytes


class Look(NamedTuple):
    """What a look at a topic has shown. `is_new`: it is not as before; `change`: what is new in a picture
    that has changed."""

    picture: Picture | PictureRefusal
    is_new: bool
    change: PictureDifference | None = None


def compared(before: Picture | PictureRefusal | None, after: Picture | PictureRefusal) -> Look:
    """`before`: what clients have."""
    if before is None or isinstance(before, PictureRefusal) or isinstance(after, PictureRefusal):
        return Look(after, before != after)
    change = difference(before, after)
    return Look(after, change is not None, change)


class TopicLog:
    """The newest picture of a topic, and the changes that led to it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.picture: Picture | PictureRefusal | None = None
        self.version = 0
        self._at_ms = 0
        self._whole: bytes | None = None
        self._changes: deque[_Kept] = deque()

    def add(self, look: Look, version: int, at_ms: int) -> int:
        """A newer picture; how many bytes a client gets that has the one before, as far as is known."""
        base, self.picture, self.version = self.version, look.picture, version
        self._at_ms, self._whole = at_ms, None
        change = look.change
        if change is None:
            self._changes.clear()
            return 0
        event = Change(
            topic=self.topic,
            version=version,
            base=base,
            at_ms=at_ms,
            fields=change.fields,
            rows=change.rows,
            order=change.order,
        )
        self._changes.append(_Kept(version, base, msgspec.json.encode(event)))
        while len(self._changes) > 1 and self._is_too_long():
            self._changes.popleft()
        return len(self._changes[-1].event)

    def since(self, version: int | None) -> list[bytes]:
        """The events for a client that has all up to `version`."""
        if self.picture is None or (version is not None and version >= self.version):
            return []
        if version is not None:
            newer = [one for one in self._changes if one.version > version]
            if newer and newer[0].base <= version:
                return [one.event for one in newer]
        if self._whole is None:
            self._whole = msgspec.json.encode(self._event())
        return [self._whole]

    def _is_too_long(self) -> bool:
        kept = self._changes
        return len(kept) > CHANGES_KEPT_MAX or sum(len(one.event) for one in kept) > CHANGES_BYTES_MAX

    def _event(self) -> Event:
        topic, version, at_ms, picture = self.topic, self.version, self._at_ms, self.picture
        match picture:
            case Overview():
                return OverviewPicture(topic=topic, version=version, at_ms=at_ms, whole=picture)
            case JobInfo():
                return JobPicture(topic=topic, version=version, at_ms=at_ms, whole=picture)
            case CheckpointsInfo():
                return CheckpointsPicture(topic=topic, version=version, at_ms=at_ms, whole=picture)
            case PictureRefusal(status, errors):
                return NoPicture(
                    topic=topic, version=version, at_ms=at_ms, status=status, errors=list(errors)
                )
        raise AssertionError("nothing is sent before the first picture")


# --- when -----------------------------------------------------------------------------------------


def interval_s(cpu_s: float, sent_bytes: int) -> float:
    """Seconds from one look at a topic to the next. `cpu_s`: of the last one; `sent_bytes`: to each client,
    then.

    >>> interval_s(0.002, 20_000)
    1.0
    """
    return max(INTERVAL_S, cpu_s / CPU_PART_MAX, sent_bytes / BYTES_PER_S_MAX)


def late_since(looked_ms: int, now_ms: int, interval: float) -> int | None:
    """When a topic was looked at last, if that is too long ago."""
    return looked_ms if now_ms - looked_ms > 1_000 * max(LATE_S, 3 * interval) else None
