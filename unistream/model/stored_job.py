"""What a new leader of a cluster finds of its jobs: the form of what is stored, as JSON.

A `StoredJob` is a file; all else are values of the HA store (`port.ha`), under the names that
docs/decision/high-availability.md lists.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.base.ids import (
    CheckpointId,
    ClusterId,
    EdgeId,
    JobId,
    LeaderEpoch,
    LineageId,
    VertexId,
)
from unistream.base.releases import SILENT
from unistream.base.secrets import redacted_repr
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind

FORMAT: Final = 1
_ARTIFACT_NAME: Final = re.compile(r"([0-9a-f]{64})(?:-([1-9][0-9]{0,19}))?")

T = TypeVar("T", bound=msgspec.Struct)


class ClusterIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """``identity``: the id of the cluster, made by its first leader."""

    cluster: ClusterId
    format: int = FORMAT


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted job. Options of the cluster are not in it: those of the cluster that recovers it apply.

    Attributes:
        graph, config, savepoint, allow_non_restored, first_checkpoint_pause_ms, given: As submitted.
        artifact: Name of the user's code in the artifact store.
        parallelism: Of vertices whose parallelism a user has changed since.
        pipeline: Name of what it was made of in the artifact store; empty: it was not sent, or there is no
            need.
        version: Of unistream that has taken it, and its client.
    """

    job: JobId
    lineage: LineageId
    submitted_ms: int
    graph: JobGraph
    artifact: str
    config: dict[str, str] = {}
    savepoint: str | None = None
    allow_non_restored: bool = False
    first_checkpoint_pause_ms: int = 0
    given: dict[str, str] = {}
    parallelism: dict[VertexId, int] = {}
    pipeline: str = ""
    version: str = SILENT
    format: int = FORMAT

    __repr__ = redacted_repr


class JobPointer(msgspec.Struct, frozen=True, kw_only=True):
    """``jobs/<job>/job``: the artifacts with the stored job, with the code that it needs, and with what it
    was made of (empty: there is none); its name, for messages about a job that cannot be read. `seal`: see
    `core.access.code_seal`; empty: an earlier version has written it."""

    stored: str
    artifact: str
    name: str
    submitted_ms: int
    pipeline: str = ""
    seal: str = ""
    format: int = FORMAT

    @property
    def artifacts(self) -> tuple[str, ...]:
        """All of them."""
        return (self.stored, self.artifact, *((self.pipeline,) if self.pipeline else ()))


class KeptJob(msgspec.Struct, frozen=True, kw_only=True):
    """``kept/<name>``: what was submitted of a job stays after its end, since `kept_ms`. `for_restart`:
    somebody may want to start it again; `for_replay`: somebody may want to replay its dead letters, so only
    what it was made of stays; otherwise a client needs it, such as an upgrade."""

    job: JobId
    pointer: JobPointer
    kept_ms: int
    for_restart: bool = False
    for_replay: bool = False
    format: int = FORMAT

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The names of the artifacts that stay."""
        return (self.pointer.pipeline,) if self.for_replay else self.pointer.artifacts


class StoredRescale(msgspec.Struct, frozen=True, kw_only=True):
    """Another parallelism for a job. `digest`: of the request as its client has sent it. `parallelism`: what
    is to be done; empty once it is."""

    digest: str
    parallelism: dict[VertexId, int] = {}


class StoredOperation(msgspec.Struct, frozen=True, kw_only=True):
    """A savepoint, a stop or a change of parallelism that a client has started under this trigger id
    (Flink's), and its outcome.

    Attributes:
        kind: Of a change of parallelism: that of the snapshot with which it begins.
        rescale: The change of parallelism; None: it is none.
        target: As requested; None: the default.
        path: Its savepoint, once it is complete (a stop: once the job has ended). A change of parallelism:
            empty, once the job runs with it, under this leader and the next.
        resumes_from: After a drain the savepoint from which a job can be resumed.
        error: Why it has failed.
    """

    trigger: str
    kind: SnapshotKind
    target: str | None = None
    savepoint_format: SavepointFormat = SavepointFormat.CANONICAL
    rescale: StoredRescale | None = None
    path: str | None = None
    resumes_from: str | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.path is not None or self.error is not None

    @property
    def outlives_its_master(self) -> bool:
        """The next leader goes on with it."""
        return self.kind.is_synchronous or self.rescale is not None


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``jobs/<job>/request``: what was accepted and is to be done, by this leader or the next.

    Attributes:
        cancel: The job is cancelled.
        stop: A stop of this kind; None: none.
        target, savepoint_format: Of its savepoint.
        operations: What clients ask about, the newest last; see `master.store.operations`.
    """

    cancel: bool = False
    stop: SnapshotKind | None = None
    target: str | None = None
    savepoint_format: SavepointFormat = SavepointFormat.CANONICAL
    operations: tuple[StoredOperation, ...] = ()
    format: int = FORMAT


class SinkSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink has committed. `newest`: (checkpoint id, rows) of its last commits, which may be reported
    again after a restart, oldest first."""

    rows: int
    commits: int
    checkpoint_id: CheckpointId | None = None
    table_version: int | None = None
    table_rows: int | None = None
    newest: tuple[tuple[CheckpointId, int], ...] = ()


class TotalsSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """What people are shown of a job over its whole life, when a snapshot of it was complete. Under the next
    leader they go on from there.

    Attributes:
        completed, failed: Snapshots, with that one.
        restored: How often tasks were started from one.
        sinks: By uid.
    """

    completed: int = 0
    failed: int = 0
    restored: int = 0
    sinks: dict[str, SinkSoFar] = {}


NO_TOTALS: Final = TotalsSoFar()


class CheckpointPointer(msgspec.Struct, frozen=True, kw_only=True):
    """``jobs/<job>/checkpoints/<id>``: the directory of a snapshot that the job can restart from."""

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    directory: str
    totals: TotalsSoFar = NO_TOTALS
    format: int = FORMAT


class CheckpointCounter(msgspec.Struct, frozen=True, kw_only=True):
    """``jobs/<job>/counter``: no lower id is free."""

    highest: CheckpointId
    format: int = FORMAT


class AttemptCounter(msgspec.Struct, frozen=True, kw_only=True):
    """``jobs/<job>/attempts``: no attempt of a task has a higher number; how often the job was restarted."""

    highest: int
    restarts: int
    format: int = FORMAT

    @property
    def next_attempt(self) -> int:
        """The lowest number that is free."""
        return self.highest + 1

    @property
    def restarts_then(self) -> int:
        """When a further leader goes on with the job, which starts it again."""
        return self.restarts + 1


NOTHING_USED: Final = AttemptCounter(highest=-1, restarts=-1)
"""The counter of a job that has begun no attempt."""


class SealedCommittables(msgspec.Struct, frozen=True, kw_only=True):
    """Committables that one task has reported, for the consumers of one exchange."""

    vertex: VertexId
    subtask: int
    edge: EdgeId
    contents: tuple[bytes, ...]


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """What a BATCH job commits: its tasks have finished, and none of them ever runs again. A file.

    Attributes:
        lineage: In whose name it is committed.
        parallelism: Of all vertices.
        levels: Those of `core.execution.reported_results` that have finished.
        partitions: What committers above them read.
        staged: The same of a job that an engine runs.
    """

    lineage: LineageId
    parallelism: dict[VertexId, int] = {}
    levels: int = 0
    partitions: tuple[SealedCommittables, ...] = ()
    staged: tuple[bytes, ...] = ()
    format: int = FORMAT

    def __repr__(self) -> str:
        return f"Sealed({self.levels} levels, {len(self.partitions) + len(self.staged)} parts)"


class CommittingPointer(msgspec.Struct, frozen=True, kw_only=True):
    """``jobs/<job>/committing``: a BATCH job has begun to make its output visible. `sealed`: the artifact
    with what it commits; "": that was not stored."""

    sealed: str = ""
    format: int = FORMAT


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """Files to remove after the end of a job, see `core.contract.DiscardSnapshot`."""

    directory: str
    shared: tuple[str, ...] = ()
    sweep_next_to: str | None = None
    sweep_before: CheckpointId | None = None


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """``results/<job>``: the job has ended and never starts again.

    Attributes:
        leftovers: To be removed. After that `cleaned` is True, and nothing else of the job is stored.
        checkpoint_root: Where they are.
        savepoint: The newest one, also of a stop. `resumes_from`: after a drain another one.
        operations: Of its clients, all of them over.
    """

    job: JobId
    name: str
    lineage: LineageId
    state: str
    submitted_ms: int
    ended_ms: int
    restarts: int = 0
    failure: TaskFailure | None = None
    savepoint: str | None = None
    resumes_from: str | None = None
    operations: tuple[StoredOperation, ...] = ()
    checkpoint_root: str = ""
    leftovers: tuple[Leftover, ...] = ()
    cleaned: bool = False
    format: int = FORMAT

    def __hash__(self) -> int:
        return hash(self.job)


class ArtifactName(NamedTuple):
    """``<sha256>-<epoch>``: the SHA-256 of the bytes in hex, and the leader that has stored them. Earlier
    versions had no epoch in a name: that is 0."""

    sha256: str
    epoch: LeaderEpoch

    def __str__(self) -> str:
        return f"{self.sha256}-{self.epoch}" if self.epoch else self.sha256

    @classmethod
    def find(cls, text: str) -> ArtifactName | None:
        """None: `text` is not the name of an artifact."""
        match = _ARTIFACT_NAME.fullmatch(text)
        return None if match is None else cls(match[1], LeaderEpoch(int(match[2] or 0)))

    @classmethod
    def parse(cls, text: str) -> ArtifactName:
        """Raises ConfigError: it is not the name of an artifact."""
        found = cls.find(text)
        if found is None:
            raise ConfigError(f"not the name of an artifact, its SHA-256 and an epoch: {text[:100]!r}")
        return found


def encode_stored(value: msgspec.Struct) -> bytes:
    """The value as the JSON that is stored."""
    return msgspec.json.encode(value)


def decode_stored(content: bytes, kind: type[T], where: str) -> T:
    """The value that `encode_stored` has made.

    Raises:
        CorruptSnapshot: it is something else, or of a newer version; names `where` it was found.
    """
    try:
        form = msgspec.json.decode(content, type=dict[str, Any]).get("format")
        if isinstance(form, int) and form > FORMAT:
            raise CorruptSnapshot(
                f"{where} was written by a newer version (format {form}, this one reads {FORMAT}): upgrade"
            )
        return msgspec.json.decode(content, type=kind)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{where} cannot be read: {error}") from error
