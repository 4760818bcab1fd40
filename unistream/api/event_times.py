"""Whether the rows of a stream can have event times: known when the line is written, not an hour later on a
worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from unistream.base.errors import ConfigError
from unistream.model.graph import SourceInfo
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.operator.common import FilterRows, FlatMapRows, KeyRows, MapRows
from unistream.operator.join import BroadcastLookupJoin
from unistream.operator.limit import LimitRows
from unistream.operator.stateless import FilterBatches, MapBatches, Project, SideSplit
from unistream.port.operator import SourceOperatorSpec

UNTIMED: Final = frozenset({"datagen", "delta", "file", "iceberg", "static"})
"""Connectors whose rows have no event times but those of a column (those of Kafka have)."""

_KEEPS_TIMES: Final = (
    *(FilterBatches, FilterRows, FlatMapRows, KeyRows, LimitRows, MapBatches, MapRows, Project, SideSplit),
    BroadcastLookupJoin,
)
"""Their rows have the event times of the rows of their first input."""


def check_event_times(graph: StreamGraph, nodes: Iterable[int], what: str) -> None:
    """Raises ConfigError if it is known that rows of one of these nodes have no event time."""
    inputs: dict[int, list[StreamEdge]] = {}
    for edge in graph.edges:
        if edge.input_index == 0:
            inputs.setdefault(edge.target, []).append(edge)
    for node in nodes:
        source = _untimed_source(graph.nodes, inputs, node)
        if source is not None:
            raise ConfigError(
                f"{what}: rows of source {source.name!r} have no event times; say which column has them: "
                "us.WatermarkStrategy.for_bounded_out_of_orderness('5 s').with_timestamp_column(…) in "
                "from_source, or in assign_timestamps_and_watermarks where the column is computed"
            )


def _untimed_source(
    nodes: Sequence[StreamNode], inputs: Mapping[int, Sequence[StreamEdge]], start: int
) -> StreamNode | None:
    """A source from which rows come without event times; None: there is none, or nobody knows."""
    seen, waiting = set[int](), [start]
    while waiting:
        node = nodes[waiting.pop()]
        if node.id in seen:
            continue
        seen.add(node.id)
        operator = node.operator
        if isinstance(operator, SourceOperatorSpec):
            timed = operator.watermarks.timestamp_column is not None
            if not timed and node.source is not None and _is_untimed(node.source):
                return node
        elif isinstance(operator, MapBatches) and operator.timestamp_column is not None:
            continue
        elif isinstance(operator, _KEEPS_TIMES):
            waiting += [edge.source for edge in inputs.get(node.id, ())]
    return None


def _is_untimed(source: SourceInfo) -> bool:
    return all(phase.connector in UNTIMED for phase in source.phases or (source,))
