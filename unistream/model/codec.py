"""Bytes of control messages, in-band events and manifests. Closed types, size limits, no pickle."""

from __future__ import annotations

import hashlib
from typing import Final, TypeVar

import msgspec

from unistream.base.errors import UNDECODABLE, CorruptSnapshot, ProtocolError
from unistream.base.ids import CheckpointId
from unistream.base.limits import ARTIFACT_BYTES_MAX, FRAME_BYTES_MAX
from unistream.model import elements as el
from unistream.model.messages import Answer, Bundle, Request, TaskReport, ToJobManager, ToTaskManager
from unistream.model.snapshot import MANIFEST_FORMAT, Manifest

T = TypeVar("T")

# msgspec raises UnicodeDecodeError for bad UTF-8 and RecursionError for deep nesting
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)

_ENCODER: Final = msgspec.msgpack.Encoder()
_TO_TASK_MANAGER: Final[msgspec.msgpack.Decoder[ToTaskManager]] = msgspec.msgpack.Decoder(ToTaskManager)
_TASK_REPORT: Final[msgspec.msgpack.Decoder[TaskReport]] = msgspec.msgpack.Decoder(TaskReport)
_FOR_TASK_MANAGER: Final[msgspec.msgpack.Decoder[ToTaskManager | Bundle]] = msgspec.msgpack.Decoder(
    ToTaskManager | Bundle
)
_FOR_JOB_MANAGER: Final[msgspec.msgpack.Decoder[ToJobManager | Bundle]] = msgspec.msgpack.Decoder(
    ToJobManager | Bundle
)
_ANSWER: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    """Wire form of a control message.

    Raises:
        ProtocolError: it contains a value that cannot be encoded, such as half of a surrogate pair.
    """
    try:
        return _ENCODER.encode(message)
    except (ValueError, TypeError, OverflowError, *UNDECODABLE) as error:
        raise ProtocolError(f"{type(message).__name__} cannot be written: {error}") from error


def decode_to_task_manager(data: bytes | msgspec.Raw) -> ToTaskManager:
    """Raises ProtocolError for anything that is not one of these messages."""
    return _decode(_TO_TASK_MANAGER, data)


def decode_task_report(data: bytes | msgspec.Raw) -> TaskReport:
    """One of a bundle. Raises ProtocolError for anything that is not one of these messages."""
    return _decode(_TASK_REPORT, data)


def decode_for_task_manager(data: bytes) -> ToTaskManager | Bundle:
    """A received request. Raises ProtocolError for anything else."""
    return _decode(_FOR_TASK_MANAGER, data)


def decode_for_job_manager(data: bytes) -> ToJobManager | Bundle:
    """A received request. Raises ProtocolError for anything else."""
    return _decode(_FOR_JOB_MANAGER, data)


def decode_answer(data: bytes) -> Answer:
    """Raises ProtocolError; an artifact may be larger than a frame."""
    return _decode(_ANSWER, data, ARTIFACT_BYTES_MAX + FRAME_BYTES_MAX)


def _decode(
    decoder: msgspec.msgpack.Decoder[T], data: bytes | msgspec.Raw, bytes_max: int = FRAME_BYTES_MAX
) -> T:
    size = len(memoryview(data))
    if size > bytes_max:
        raise ProtocolError(f"message of {size} B, limit {bytes_max} B")
    try:
        return decoder.decode(data)
    except _UNREADABLE as error:
        raise ProtocolError(f"not a control message: {error}") from error


# --- events between batches -----------------------------------------------------------------------


class _WireEvent(msgspec.Struct, frozen=True, tag_field="t", tag=str.lower, array_like=True):
    pass


class _Watermark(_WireEvent, frozen=True):
    timestamp: int


class _Status(_WireEvent, frozen=True):
    idle: bool


class _Barrier(_WireEvent, frozen=True):
    checkpoint_id: int
    timestamp_ms: int
    kind: el.SnapshotKind
    directory: str = ""
    alignment: el.AlignmentType = el.AlignmentType.ALIGNED
    timeout_ms: int | None = None
    format: el.SavepointFormat = el.SavepointFormat.CANONICAL
    full: bool = False


class _Cancel(_WireEvent, frozen=True):
    checkpoint_id: int


class _EndOfBucket(_WireEvent, frozen=True):
    number: int
    count: int


class _EndOfData(_WireEvent, frozen=True):
    drain: bool


class _EndOfPartition(_WireEvent, frozen=True):
    pass


_EVENT: Final = msgspec.msgpack.Decoder(
    _Watermark | _Status | _Barrier | _Cancel | _EndOfBucket | _EndOfData | _EndOfPartition
)


def encode_event(event: el.Event) -> bytes:
    """Wire form of an in-band event."""
    match event:
        case el.Watermark(timestamp):
            wire: _WireEvent = _Watermark(timestamp)
        case el.WatermarkStatus(idle):
            wire = _Status(idle)
        case el.CheckpointBarrier(number, at_ms, kind, directory, alignment, timeout_ms, format_, full):
            wire = _Barrier(number, at_ms, kind, directory, alignment, timeout_ms, format_, full)
        case el.CancelCheckpointMarker(checkpoint_id):
            wire = _Cancel(checkpoint_id)
        case el.EndOfBucket(number, count):
            wire = _EndOfBucket(number, count)
        case el.EndOfData(drain):
            wire = _EndOfData(drain)
        case el.EndOfPartition():
            wire = _EndOfPartition()
    return _ENCODER.encode(wire)


def decode_event(data: bytes) -> el.Event:
    """Raises ProtocolError for anything else."""
    match _decode(_EVENT, data):
        case _Watermark(timestamp):
            return el.Watermark(timestamp)
        case _Status(idle):
            return el.WatermarkStatus(idle)
        case _Barrier(number, at_ms, kind, directory, alignment, timeout_ms, format_, full):
            return el.CheckpointBarrier(
                CheckpointId(number), at_ms, kind, directory, alignment, timeout_ms, format_, full
            )
        case _Cancel(checkpoint_id):
            return el.CancelCheckpointMarker(CheckpointId(checkpoint_id))
        case _EndOfBucket(number, count):
            return el.EndOfBucket(number, count)
        case _EndOfData(drain):
            return el.EndOfData(drain)
        case _:
            return el.EndOfPartition()


# --- manifests ------------------------------------------------------------------------------------


class _Sealed(msgspec.Struct, frozen=True):
    """The file: `sha256` (hex) is that of the bytes of `manifest`."""

    sha256: str
    manifest: msgspec.Raw


class _Format(msgspec.Struct, frozen=True):
    format: int


def encode_manifest(manifest: Manifest) -> bytes:
    """JSON, so that people and other programs can read a savepoint; bytes are base64.

    The manifest contains its own checksum, because no other one covers it. The bytes around both are fixed,
    so that any changed, missing or additional byte of the file is found.
    """
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    return _sealed(content)


def _sealed(content: bytes) -> bytes:
    return b'{"sha256": "%b",\n"manifest": %b}\n' % (hashlib.sha256(content).hexdigest().encode(), content)


def decode_manifest(data: bytes) -> Manifest:
    """Raises CorruptSnapshot for anything that is not a whole manifest of a known format."""
    sealed = _read_json(data, _Sealed)
    content = bytes(sealed.manifest)
    found = _read_json(content, _Format).format
    if found != MANIFEST_FORMAT:
        raise CorruptSnapshot(
            f"manifest format {found}, this version reads {MANIFEST_FORMAT}: use the version that wrote it"
        )
    if hashlib.sha256(content).hexdigest() != sealed.sha256:
        raise CorruptSnapshot("the manifest does not match its checksum: it was changed after it was written")
    whole = _sealed(content)
    if len(data) < len(whole):
        raise CorruptSnapshot(
            f"not a manifest, or a truncated one: it has {len(data)} B instead of {len(whole)} B"
        )
    if data != whole:
        raise CorruptSnapshot(
            f"the manifest was changed after it was written: it has {len(data)} B, not {len(whole)} B"
        )
    return _read_json(content, Manifest)


def _read_json(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except _UNREADABLE as error:
        raise CorruptSnapshot(f"not a manifest, or a truncated one: {error}") from error
