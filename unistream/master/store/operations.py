"""What clients have started of one job under trigger ids, as later leaders find it: savepoints, stops and
changes of parallelism. Pure.

    in progress ──► path       it is complete
         └────────► error      it has failed, was refused, or was cut off with its master

A stop and a change of parallelism outlive their master, and so do their operations. A savepoint does not: it
may be taken again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.core.contract import SnapshotRequest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import StoredOperation, StoredRescale

KEPT_MAX: Final = 16
"""How many operations of one job are kept. A client asks within minutes, and few ask at once. All are one
value together with the stop, which is written whole and must be small: with the longest paths 64 KiB, of the
1 MiB that ZooKeeper takes."""
ERROR_CHARS_MAX: Final = 1_000
CUT_OFF: Final = (
    "the master that took this savepoint has ended before it was known to be complete; take it again (a "
    "directory without _metadata that it has left may be removed)"
)

Operations: TypeAlias = tuple[StoredOperation, ...]


@dataclass(frozen=True, slots=True)
class RescaleAsked:
    """Another parallelism. The same `digest` is the same request, also where `parallelism` is not known any
    more."""

    digest: str
    parallelism: Mapping[VertexId, int] = field(default_factory=dict, compare=False)


Request: TypeAlias = SnapshotRequest | RescaleAsked


@dataclass(frozen=True, slots=True)
class TriggeredOperation:
    """One of them, for who asks. `resumes_from`: see `StoredOperation`."""

    request: Request
    answer: Future[str]
    resumes_from: str | None = None

    @property
    def is_rescale(self) -> bool:
        return isinstance(self.request, RescaleAsked)

    def of(self, request: Request, trigger: str) -> Future[str]:
        """The answer to the same request. Raises ConfigError: it is another one."""
        if request != self.request:
            raise ConfigError(f"trigger id {trigger} is the one of another request; choose a new one")
        return self.answer


def digest_of_widths(parallelism: Mapping[str, int]) -> str:
    """The digest of a change of parallelism, as its client names the vertices."""
    return hashlib.sha256(msgspec.json.encode(dict(parallelism), order="sorted")).hexdigest()


def begun(known: Operations, trigger: str, request: Request) -> Operations:
    """The operations with a new one; the oldest that is over makes room for it, else the oldest savepoint."""
    if len(known) >= KEPT_MAX:
        oldest = sorted(known, key=lambda one: (not one.is_over, one.outlives_its_master))[0]
        known = tuple(one for one in known if one is not oldest)
    return (*known, _stored(trigger, request))


def _stored(trigger: str, request: Request) -> StoredOperation:
    if isinstance(request, RescaleAsked):
        rescale = StoredRescale(digest=request.digest, parallelism=dict(request.parallelism))
        return StoredOperation(trigger=trigger, kind=SnapshotKind.CHECKPOINT, rescale=rescale)
    return StoredOperation(
        trigger=trigger, kind=request.kind, target=request.target, savepoint_format=request.format
    )


def taken_over(known: Operations) -> Operations:
    """The operations as the next leader takes them over: savepoints in progress were cut off."""
    return settled(known, lambda one: not one.outlives_its_master, error=CUT_OFF)


def settled(
    known: Operations,
    which: Callable[[StoredOperation], bool],
    *,
    path: str | None = None,
    resumes_from: str | None = None,
    error: str | None = None,
) -> Operations:
    """The operations, of which those in progress that `which` chooses have this outcome."""
    if error is not None:
        error = error[:ERROR_CHARS_MAX]

    def over(one: StoredOperation) -> StoredOperation:
        rescale = None if one.rescale is None else replace(one.rescale, parallelism={})
        return replace(one, path=path, resumes_from=resumes_from, error=error, rescale=rescale)

    return tuple(over(one) if not one.is_over and which(one) else one for one in known)


def find_operation(known: Sequence[StoredOperation], trigger: str) -> StoredOperation | None:
    return next((one for one in known if one.trigger == trigger), None)


def request_of(one: StoredOperation) -> Request:
    """What the client has requested with this operation."""
    if one.rescale is not None:
        return RescaleAsked(one.rescale.digest, one.rescale.parallelism)
    return SnapshotRequest(kind=one.kind, target=one.target, format=one.savepoint_format)


def operation_of(one: StoredOperation) -> TriggeredOperation:
    """The operation with its outcome; one in progress has an answer that never comes."""
    answer: Future[str] = Future()
    if one.path is not None:
        answer.set_result(one.path)
    elif one.error is not None:
        answer.set_exception(ConfigError(one.error))
    return TriggeredOperation(request_of(one), answer, one.resumes_from)
