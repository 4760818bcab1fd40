"""The job as data: what a master may know of a pipeline. No user object is in here.

The user's operators travel beside it, as an opaque artifact that only a worker opens
(`unistream.model.chain`). Immutable; validated by `unistream.core.graph.graph_check`.
"""

from __future__ import annotations

from enum import Enum

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
    """Whether a job's results are all at its end, or come as it goes."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"  # its sources are bounded; no checkpoints; results between its stages may be stored


class OperatorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the master knows of one operator of a chain.

    Attributes:
        uid: Stable identity; state is matched by it.
        generated_uid: True when the user gave none; such state is lost when the graph changes.
        stateful: It writes state into checkpoints.
    """

    uid: OperatorUid
    name: str
    generated_uid: bool = False
    stateful: bool = False


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How the master finds the splits of a source, as data.

    Attributes:
        connector: Name in the registry `unistream.connector.registry` ("kafka", "file", "datagen",
            "static"); the master loads only installed connectors, never user code.
        options: Options of that connector's discovery, JSON values only.
        bounded: The source ends by itself.
        pull: True: splits are given out on request, one by one (files); False: all splits are
            assigned at once, split k to subtask hash(split id) mod parallelism (Kafka).
        discovery_interval_ms: How often the splits are listed again while the job runs; 0 or less: only when
            the job starts or restarts. A bounded source is listed once.
    """

    connector: str
    options: dict[str, object]
    bounded: bool
    pull: bool
    discovery_interval_ms: int = 0

    __repr__ = redacted_repr


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
    """Nobody has set it: it follows the keyed state of the snapshot that a job starts from."""


class JobEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange between two vertices.

    Attributes:
        partition: Of the producer's results: whether the consumer reads along or waits for all of them.
        input_index: Which logical input of the target's head it feeds.
        key_columns: For `Ship.HASH`: columns of the rows, in order, that make the key.
        committables: Of a sink: no barrier overtakes what it carries.
    """

    id: EdgeId
    source: VertexId
    target: VertexId
    ship: Ship
    input_index: int = 0
    key_columns: tuple[str, ...] = ()
    partition: PartitionType = PartitionType.PIPELINED_BOUNDED
    committables: bool = False


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Vertices in topological order, and the edges between them."""

    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    config: dict[str, str] = {}
    """The job's own configuration, as text by key."""
    profiles: dict[str, ResourceProfile] = {}
    """What one slot of a slot sharing group needs; groups that are not named take any slot."""
    colocations: tuple[tuple[VertexId, ...], ...] = ()
    """Strict co-location groups: subtask i of all members runs in one slot, hence in one region."""
    job_type: JobType = JobType.STREAMING

    __repr__ = redacted_repr

    def vertex(self, vertex_id: VertexId) -> JobVertex:
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)


def shown(graph: JobGraph) -> JobGraph:
    """A copy for people to read: options of sources and of the job hold no secrets."""
    vertices = tuple(
        vertex
        if vertex.source is None
        else structs.replace(
            vertex, source=structs.replace(vertex.source, options=redacted(vertex.source.options))
        )
        for vertex in graph.vertices
    )
    return structs.replace(graph, vertices=vertices, config=redacted(graph.config))
