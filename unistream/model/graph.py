"""The job graph as data: all that a master knows of a pipeline. It contains no object of the user.

The user's operators are in an opaque artifact that only workers open (`unistream.model.chain`). Immutable;
validated by `unistream.core.graph.graph_check`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec
from msgspec import structs

from unistream.base.ids import EdgeId, OperatorUid, VertexId
from unistream.base.secrets import redacted, redacted_repr
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile


class Ship(Enum):
    """How rows of an edge find their consumer subtask."""

    FORWARD = "forward"  # i -> i, equal parallelism
    RESCALE = "rescale"  # pointwise, round robin inside the group
    REBALANCE = "rebalance"  # round robin over all
    HASH = "hash"  # by key group
    BROADCAST = "broadcast"
    GLOBAL = "global"  # all to subtask 0

    @property
    def is_pointwise(self) -> bool:
        return self in (Ship.FORWARD, Ship.RESCALE)


class JobType(Enum):
    """Flink's runtime mode of a job."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"  # its sources are bounded; no checkpoints; results between its stages may be stored


class OperatorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the master knows of one operator of a chain.

    Attributes:
        uid: Stable identity, by which state is found.
        generated_uid: The user gave none; its state is lost when the graph changes.
        stateful: It writes state into checkpoints.
        records: Of a committer that records positions: uids of the sources whose rows are all in its commits
            (`unistream.core.graph.recorded_sources`).
        declared_at: ``FILE:LINE`` of the user's program that has added it to the pipeline; empty: nobody
            knows. For people: two graphs that differ here alone are the same.
    """

    uid: OperatorUid
    name: str
    generated_uid: bool = False
    stateful: bool = False
    records: tuple[OperatorUid, ...] = ()
    declared_at: str = ""


HISTORY: Final = 0
LIVE: Final = 1
"""Places in `SourceInfo.phases`."""


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How the master finds the splits of a source, as data.

    Attributes:
        connector: Name in the registry `unistream.connector.catalogue` ("kafka", "file", "datagen",
            "static"); the master loads only installed connectors, never user code.
        options: Options of that connector's discovery, JSON values only.
        bounded: The source ends by itself.
        pull: True: splits are assigned on request, one by one (files); False: all at once, to subtask
            hash(split id) mod parallelism (Kafka).
        timestamp_column, timestamp_type: The column of the event times and its Arrow type, by whose least
            value a connector may order splits; empty: the time is not in a column.
        in_order: The rows follow event time in the order of the split ids and of the positions in a split, up
            to the disorder that the watermark strategy allows. Otherwise each split has an order of its own.
        discovery_interval_ms: Time between discoveries of splits while the job runs; 0 or less: only when the
            job starts or restarts. A bounded source has one discovery.
        phases: Two sources that are read one after the other, the bounded `HISTORY` and then `LIVE`. Their
            `bounded`, `pull` and `in_order` count, and each split says of which one it is (`Split.phase`).
            Empty: it is one source.
        recorded_as: Name of what is read, if sinks may record its positions with their commits: each split is
            a partition whose offset only grows (`Split.recorded`). They do until the first one is finished.
            Empty: they may not.
        recorded_by_name: Several things are read, each with a name and an origin of its own
            (`FoundSplits.origins`). The partition of a split is ``NAME-PARTITION``, and the positions of each
            are recorded for themselves.
    """

    connector: str
    options: dict[str, object]
    bounded: bool
    pull: bool
    timestamp_column: str = ""
    timestamp_type: str = ""
    in_order: bool = False
    discovery_interval_ms: int = 0
    phases: tuple[SourceInfo, ...] = ()
    recorded_as: str = ""
    recorded_by_name: bool = False

    __repr__ = redacted_repr

    @property
    def last_phase(self) -> SourceInfo:
        """The live source of one with phases, else itself."""
        return self.phases[LIVE] if self.phases else self


class JobVertex(msgspec.Struct, frozen=True, kw_only=True):
    """A chain of operators that runs in one task. `operators[0]` is the head."""

    id: VertexId
    name: str
    operators: tuple[OperatorInfo, ...]
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str = "default"
    source: SourceInfo | None = None
    inputs: int = 0
    """Number of logical inputs of the head (0 for a source, 2 for a join). Several edges may feed one."""
    max_parallelism_derived: bool = False
    """It is not configured, so it follows the keyed state of the snapshot that a job starts from."""
    offloaded: bool = False
    """It is in the bounded part of a STREAMING job: its operators are in their batch form, and what leaves
    that part is stored before the stream reads it."""


class JobEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange between two vertices.

    Attributes:
        partition: Of the producer's results: whether the consumer reads them while they are produced.
        input_index: Which logical input of the target's head it feeds.
        key_columns: For `Ship.HASH`: columns of the rows, in order, that make the key.
        committables: It carries a sink's committables, which no barrier overtakes.
        sorted: Its consumer sorts its rows by key: a stored partition is read bucket by bucket
            (`model.key_buckets`).
    """

    id: EdgeId
    source: VertexId
    target: VertexId
    ship: Ship
    input_index: int = 0
    key_columns: tuple[str, ...] = ()
    partition: PartitionType = PartitionType.PIPELINED_BOUNDED
    committables: bool = False
    sorted: bool = False


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """What a BATCH job bootstraps that reads the history of its hybrid sources and writes a savepoint, from
    which a STREAMING job goes on.

    Attributes:
        directory: Of the savepoint.
        watermarks: Hybrid source -> how far event time is behind its history, ms: no later row is at this
            time or before. Windows and timers until then fire in the BATCH job. MIN_WATERMARK: the source
            has no watermarks.
        timestamp_ms: When the job was accepted, wall clock.
    """

    directory: str
    watermarks: dict[VertexId, int]
    timestamp_ms: int = 0


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Vertices in topological order, and the edges between them."""

    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    config: dict[str, str] = {}
    """The job's own configuration, as text by key."""
    profiles: dict[str, ResourceProfile] = {}
    """Resources of one slot of a slot sharing group; other groups take any slot."""
    colocations: tuple[tuple[VertexId, ...], ...] = ()
    """Strict co-location groups: subtask i of all members runs in one slot, hence in one region."""
    job_type: JobType = JobType.STREAMING
    bootstrap: Bootstrap | None = None
    writes: dict[OperatorUid, tuple[str, ...]] = {}
    """URIs of what each sink writes, of those that say so (`unistream.model.lineage`). The uid is that of the
    sink's commits."""
    reads: dict[OperatorUid, tuple[str, ...]] = {}
    """URIs of what each source reads, of those that say so."""
    plain_sinks: tuple[OperatorUid, ...] = ()
    """Sinks that commit nothing, ever: what they are given is with the target when it is sent."""

    __repr__ = redacted_repr

    def vertex(self, vertex_id: VertexId) -> JobVertex:
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)


def without_places(graph: JobGraph) -> JobGraph:
    """Equal for all programs that make the same graph, wherever their lines stand."""

    def placeless(vertex: JobVertex) -> JobVertex:
        operators = tuple(structs.replace(operator, declared_at="") for operator in vertex.operators)
        return structs.replace(vertex, operators=operators)

    return structs.replace(graph, vertices=tuple(map(placeless, graph.vertices)))


def shown(graph: JobGraph) -> JobGraph:
    """A copy for people, without the secrets in options of sources and of the job."""

    def public(vertex: JobVertex) -> JobVertex:
        source = vertex.source
        if source is None:
            return vertex
        return structs.replace(vertex, source=structs.replace(source, options=redacted(source.options)))

    return structs.replace(graph, vertices=tuple(map(public, graph.vertices)), config=redacted(graph.config))
