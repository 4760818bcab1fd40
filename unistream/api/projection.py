"""Which columns of its sources a pipeline uses: the others are not built, sent or kept.

    source (a, b, c, d) ──► filter (c > 0) ──► select a, b        the source gives a, b, c

From the ends of the pipeline to its beginnings: each operator says which columns of its inputs it needs for
those of its outputs that are used (`port.projection.UsesColumns`). One that does not say, such as a user's
function or a sink, needs all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.port.operator import SourceOperatorSpec
from unistream.port.projection import ReadsColumns, UsedColumns, UsesColumns, together

Schemas = Mapping[tuple[int, str | None], pa.Schema | None]
"""(node, tag) -> columns of an output; tag None: of its main output."""


def narrow_sources(graph: StreamGraph, schemas: Schemas) -> None:
    """Replaces the sources of `graph` that can leave out columns which nobody uses."""
    wanted = _wanted(graph, schemas)
    for node in graph.nodes:
        spec = node.operator
        if not isinstance(spec, SourceOperatorSpec) or not isinstance(spec.source, ReadsColumns):
            continue
        schema, used = schemas.get((node.id, None)), wanted[node.id].get(None)
        if schema is None or used is None or len(set(schema.names)) < len(schema):
            continue
        time = spec.watermarks.timestamp_column
        read = (used | (frozenset() if time is None else {time})) & set(schema.names)
        if len(read) < len(schema):  # a batch needs a column, so that it has rows
            read = read or frozenset(schema.names[:1])
            node.operator = replace(spec, source=spec.source.reading(read))
            node.left_out = tuple(name for name in schema.names if name not in read)


def _wanted(graph: StreamGraph, schemas: Schemas) -> dict[int, dict[str | None, UsedColumns]]:
    """Node -> output that has a reader -> the columns that are used."""
    inputs: dict[int, list[StreamEdge]] = defaultdict(list)
    for edge in graph.edges:
        inputs[edge.target].append(edge)
    wanted: dict[int, dict[str | None, UsedColumns]] = {node.id: {} for node in graph.nodes}
    for node in reversed(graph.nodes):  # a node's inputs have smaller ids
        needed = _needed(node, inputs[node.id], schemas, wanted[node.id])
        for edge in inputs[node.id]:
            used = together(needed[edge.input_index], frozenset(edge.key_columns))
            before = wanted[edge.source].get(edge.tag, frozenset())
            wanted[edge.source][edge.tag] = together(before, used)
    return wanted


def _needed(
    node: StreamNode, edges: list[StreamEdge], schemas: Schemas, wanted: Mapping[str | None, UsedColumns]
) -> list[UsedColumns]:
    known = {edge.input_index: schemas.get((edge.source, edge.tag)) for edge in edges}
    columns = [schema for i in range(node.inputs) if (schema := known.get(i)) is not None]
    if not isinstance(node.operator, UsesColumns) or len(columns) < node.inputs:
        return [None] * node.inputs
    return list(node.operator.used_columns(columns, wanted))
