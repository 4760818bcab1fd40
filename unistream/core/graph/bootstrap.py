"""Which pipelines can be bootstrapped, how far event time is then, and what has ended for good.

A bootstrap reads the history of each hybrid source, and all of other bounded sources. A vertex with a hybrid
source somewhere before it goes on with live rows, from the savepoint; what has only other sources before it
is *drained*: it ends as in any BATCH job, and is finished in the savepoint.

Every row that a hybrid source reads after its history is at the fence or later, whatever the disorder. So the
watermark behind the history is the fence - 1, if rows have their event time from the fence's column. Where it
is not known how far event time is, no timer could fire between two rows of the history as it does in a
stream: such a source is refused, unless it has no watermarks at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, VertexId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.graph import HISTORY, JobGraph, SourceInfo
from unistream.model.messages import Split

BOOTSTRAP_CHECKPOINT: Final = CheckpointId(1)
"""The id of the savepoint: the first snapshot of a new line of jobs."""

FENCE_OPTION: Final = "fence"
FENCE_COLUMN_OPTION: Final = "fence_column"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSource:
    """A source as the pipeline has it.

    Attributes:
        node: Of the stream graph.
        has_watermarks: In a stream.
    """

    node: int
    name: str
    info: SourceInfo
    has_watermarks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapPlan:
    """A bootstrap of a stream graph. `watermarks`: by node; see `model.graph.Bootstrap`."""

    directory: str
    watermarks: Mapping[int, int]


def bootstrap_watermarks(sources: Sequence[PipelineSource], until_ms: int | None) -> dict[int, int]:
    """How far event time is behind the history of each hybrid source, ms, by node.

    Args:
        sources: All of the pipeline.
        until_ms: What the user expects the fence to be; None: whatever it is.

    Raises:
        ConfigError: the pipeline has no history to begin with, another fence, or none where one is needed.
    """
    hybrids = [one for one in sources if one.info.phases]
    if not hybrids:
        raise ConfigError(
            "bootstrap: the pipeline has no HybridSource, which says where its history ends; use "
            "us.HybridSource(history, live, fence=…, timestamp_column=…)"
        )
    for one in sources:
        if not one.info.phases and not one.info.bounded:
            raise ConfigError(
                f"bootstrap: source {one.name!r} never ends and has no history; make it the live part of a "
                "us.HybridSource"
            )
    return {one.node: _watermark(one, until_ms) for one in hybrids}


def _watermark(source: PipelineSource, until_ms: int | None) -> int:
    info, fence = source.info, source.info.options.get(FENCE_OPTION)
    if until_ms is not None and fence != until_ms:
        raise ConfigError(_other_fence(source.name, fence, until_ms))
    if not source.has_watermarks:
        return MIN_WATERMARK
    if isinstance(fence, int) and info.options.get(FENCE_COLUMN_OPTION) == info.timestamp_column:
        return fence - 1
    column = info.timestamp_column
    raise ConfigError(
        f"bootstrap: how far event time is behind the history of source {source.name!r} is not known; fence "
        f"it by its event times: us.HybridSource(…, fence=…, timestamp_column={column!r})"
    )


def _other_fence(name: str, fence: object, until_ms: int) -> str:
    if fence is None:
        return (
            f"bootstrap: until is {until_ms} ms, and source {name!r} has no fence; the job that goes on "
            f"needs the same one, so give it to the pipeline: us.HybridSource(…, fence={until_ms}, "
            "timestamp_column=…), or leave out until"
        )
    return (
        f"bootstrap: until is {until_ms} ms, and the fence of source {name!r} is {fence} ms; the job that "
        "goes on reads live rows from the fence on, so change the fence of the pipeline, or leave out until"
    )


def history_only(graph: JobGraph) -> dict[VertexId, SourceInfo]:
    """The hybrid sources, of which a bootstrap reads the history alone."""
    return {v.id: v.source for v in graph.vertices if v.source is not None and v.source.phases}


def history_splits(splits: Iterable[Split]) -> tuple[Split, ...]:
    """The splits that a bootstrap reads of a hybrid source."""
    return tuple(split for split in splits if split.phase == HISTORY)


def drained_vertices(graph: JobGraph) -> frozenset[VertexId]:
    """What has ended for good when a bootstrap has: no hybrid source is before it."""
    goes_on = set(history_only(graph))
    for vertex in graph.vertices:  # producers come first
        if any(edge.source in goes_on for edge in graph.edges if edge.target == vertex.id):
            goes_on.add(vertex.id)
    return frozenset(vertex.id for vertex in graph.vertices) - goes_on


def last_watermarks(graph: JobGraph) -> dict[VertexId, int]:
    """The watermark of each vertex at the end of a bootstrap; MAX_WATERMARK where it is drained."""
    assert graph.bootstrap is not None, "only a bootstrap ends before its input"
    found: dict[VertexId, int] = {}
    for vertex in graph.vertices:  # producers come first
        before = [found[edge.source] for edge in graph.edges if edge.target == vertex.id]
        found[vertex.id] = graph.bootstrap.watermarks.get(vertex.id, min(before, default=MAX_WATERMARK))
    return found


def check_bootstrap(graph: JobGraph) -> None:
    """Raises ConfigError if a part of the job cannot go on from the savepoint."""
    drained = drained_vertices(graph)
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    for edge in graph.edges:
        if edge.committables and edge.source in drained:
            raise ConfigError(
                f"bootstrap: {names[edge.source]!r} writes rows of sources that have no live part; run that "
                "part of the pipeline as a job of its own"
            )
