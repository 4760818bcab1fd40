"""The lineage of a pipeline: which data sets its sources and sinks are, and which columns come from which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from unistream.base.ids import OperatorUid
from unistream.core.graph import uid_of
from unistream.model.lineage import (
    LineageDataset,
    LineageGraph,
    SinkLineage,
    SourceColumn,
    SourceLineage,
)
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.operator.sink import SinkWriterOperator
from unistream.port.lineage import NamesDatasets, TracesColumns
from unistream.port.operator import SourceOperatorSpec
from unistream.port.sink import is_transactional
from unistream.port.source import DEAD_LETTERS_TAG

Output: TypeAlias = tuple[int, str | None]
"""(node, tag): a side output, or with None the main one."""

Schemas: TypeAlias = Mapping[Output, pa.Schema | None]

_Columns: TypeAlias = dict[str, frozenset[SourceColumn]]


def lineage_graph(graph: StreamGraph, schemas: Schemas) -> LineageGraph:
    """See the module. `schemas`: columns of the outputs that are known."""
    traced = _Traced(graph, schemas)
    sources, sinks = [], []
    for node in graph.nodes:
        operator = node.operator
        if isinstance(operator, SourceOperatorSpec):
            sources.append(_source(node, operator, schemas.get((node.id, None))))
        elif isinstance(operator, SinkWriterOperator):
            sinks.append(traced.sink(node, operator))
    return LineageGraph(tuple(sources), tuple(sinks))


def written_by(graph: StreamGraph) -> dict[OperatorUid, tuple[str, ...]]:
    """URIs of what each sink writes, of those that say so, by the uid of its commits."""
    found = {
        uid: tuple(dataset.uri for dataset in _datasets(operator.sink)) for uid, operator in _sinks(graph)
    }
    return {uid: uris for uid, uris in found.items() if uris}


def plain_sinks(graph: StreamGraph) -> tuple[OperatorUid, ...]:
    """The sinks that commit nothing."""
    return tuple(uid for uid, operator in _sinks(graph) if not is_transactional(operator.sink))


def _sinks(graph: StreamGraph) -> list[tuple[OperatorUid, SinkWriterOperator]]:
    """Writers by the uid of their commits: if the user gave none, it is not that of the operator."""
    return [
        (node.operator.sink_uid or uid_of(node), node.operator)
        for node in graph.nodes
        if isinstance(node.operator, SinkWriterOperator)
    ]


def read_by(graph: StreamGraph) -> dict[OperatorUid, tuple[str, ...]]:
    """URIs of what each source reads, of those that say so."""
    sources = [(uid_of(node), node.operator) for node in graph.nodes]
    found = {
        uid: tuple(dataset.uri for dataset in _datasets(operator.source))
        for uid, operator in sources
        if isinstance(operator, SourceOperatorSpec)
    }
    return {uid: uris for uid, uris in found.items() if uris}


def _source(node: StreamNode, operator: SourceOperatorSpec, schema: pa.Schema | None) -> SourceLineage:
    return SourceLineage(
        uid=uid_of(node),
        name=node.name,
        bounded=node.source is not None and node.source.bounded,
        schema=schema,
        datasets=_datasets(operator.source),
    )


def _datasets(end: Any) -> tuple[LineageDataset, ...]:
    return tuple(end.lineage_datasets()) if isinstance(end, NamesDatasets) else ()


class _Traced:
    """Origins of all outputs, from the sources on; a node's inputs have smaller numbers."""

    def __init__(self, graph: StreamGraph, schemas: Schemas) -> None:
        self._graph = graph
        self._schemas = schemas
        self._inputs: dict[int, list[StreamEdge]] = {node.id: [] for node in graph.nodes}
        for edge in graph.edges:
            self._inputs[edge.target].append(edge)
        self._sources: dict[int, list[int]] = {}
        self._between: dict[int, set[int]] = {}
        self._columns: dict[Output, _Columns] = {}
        for node in graph.nodes:
            upstream = {source for edge in self._inputs[node.id] for source in self._sources[edge.source]}
            is_source = isinstance(node.operator, SourceOperatorSpec)
            self._sources[node.id] = [node.id] if is_source else sorted(upstream)
            before = [edge.source for edge in self._inputs[node.id]]
            own = set() if is_source else {node.id}
            self._between[node.id] = own.union(*(self._between[source] for source in before))
            for tag in {None, *(edge.tag for edge in graph.edges if edge.source == node.id)}:
                self._columns[node.id, tag] = self._made(node, tag)

    def sink(self, node: StreamNode, operator: SinkWriterOperator) -> SinkLineage:
        edges = self._inputs[node.id]
        schema = self._schema(edges)
        one = edges[0] if len(edges) == 1 else None
        side = None if one is None or one.tag is None else (uid_of(self._graph.nodes[one.source]), one.tag)
        is_letters = side is not None and side[1] == DEAD_LETTERS_TAG
        known = {} if is_letters else self._joined(edges)
        uids = [uid_of(self._graph.nodes[source]) for source in self._sources[node.id]]
        between = sorted(self._between[node.id] - {node.id})
        return SinkLineage(
            uid=uid_of(node),
            name=node.name,
            has_uid=node.uid is not None,
            schema=schema,
            datasets=_datasets(operator.sink),
            sources=tuple(uids),
            columns={name: known[name] for name in schema.names if name in known} if schema else {},
            dead_letters_of=side[0] if side is not None and is_letters else None,
            side_output_of=None if is_letters else side,
            operators=tuple(self._graph.nodes[number].name for number in between),
        )

    def _schema(self, edges: Sequence[StreamEdge]) -> pa.Schema | None:
        """All edges of an input have the same columns."""
        return self._schemas.get((edges[0].source, edges[0].tag))

    def _made(self, node: StreamNode, tag: str | None) -> _Columns:
        """Where the columns of an output come from; without those of which that is not known."""
        operator = node.operator
        if isinstance(operator, SourceOperatorSpec):
            schema = self._schemas.get((node.id, None))
            own = schema.names if tag is None and schema is not None else []
            return {name: frozenset({(uid_of(node), name)}) for name in own}
        if not isinstance(operator, TracesColumns):
            return {}
        inputs = [
            [edge for edge in self._inputs[node.id] if edge.input_index == i] for i in range(node.inputs)
        ]
        schemas = [schema for edges in inputs if (schema := self._schema(edges)) is not None]
        if len(schemas) < node.inputs:
            return {}
        columns = [self._joined(edges) for edges in inputs]
        return {
            name: frozenset[SourceColumn]().union(*(columns[i][column] for i, column in origins))
            for name, origins in operator.column_origins(schemas, tag).items()
            if all(column in columns[i] for i, column in origins)
        }

    def _joined(self, edges: Sequence[StreamEdge]) -> _Columns:
        """The columns of an input that several streams feed: known is what is known of all of them."""
        each = [self._columns[edge.source, edge.tag] for edge in edges]
        names = [name for name in each[0] if all(name in one for one in each)]
        return {name: frozenset[SourceColumn]().union(*(one[name] for one in each)) for name in names}
