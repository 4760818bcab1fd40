"""Which columns of its sources a pipeline uses: the others are not built, sent or kept. And which rows: those
that a filter drops right behind the source need not be read.

    source (a, b, c, d) ──► filter (c > 0) ──► select a, b        the source gives a, b, c, where c > 0

From the ends of the pipeline to its beginnings: each operator says which columns of its inputs it needs for
those of its outputs that are used (`port.projection.UsesColumns`). One that does not say, such as a user's
function or a sink, needs all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.model.expression import readable
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.operator.common import expression_columns
from unistream.port.operator import SourceOperatorSpec
from unistream.port.projection import (
    ReadsColumns,
    ReadsSelectedRows,
    Selection,
    SelectsRows,
    UsedColumns,
    UsesColumns,
    together,
)

SHOWN_CHARS: Final = 200  # of an expression

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


def select_in_sources(graph: StreamGraph, schemas: Schemas) -> None:
    """Replaces the sources of `graph` that can leave out rows which all their readers drop.

    The filters stay where they are: a source leaves out what it knows without reading it, and no more. Rows
    that are dropped move the watermark, so the source of an endless stream in event time reads them.
    """
    readers: dict[tuple[int, str | None], list[StreamNode]] = defaultdict(list)
    nodes = {node.id: node for node in graph.nodes}
    for edge in graph.edges:
        readers[edge.source, edge.tag].append(nodes[edge.target])
    selected: dict[int, pc.Expression | None] = {}
    for node in reversed(graph.nodes):  # readers come later, except in a cycle, which is refused
        found = [_dropping(reader, selected.get(reader.id)) for reader in readers[node.id, None]]
        known = [one for one in found if one is not None]
        selected[node.id] = reduce(or_, known) if known and len(known) == len(found) else None
    for node in graph.nodes:
        spec, expression, schema = node.operator, selected[node.id], schemas.get((node.id, None))
        if expression is None or schema is None or not isinstance(spec, SourceOperatorSpec):
            continue
        is_endless = node.source is not None and not node.source.bounded
        if is_endless and spec.watermarks.out_of_orderness_ms is not None:
            continue
        if isinstance(spec.source, ReadsSelectedRows):
            selection = Selection(expression, tuple(sorted(expression_columns(expression, schema))))
            node.operator = replace(spec, source=spec.source.reading_rows(selection))
            node.selection = shown_expression(readable(expression))


def _dropping(node: StreamNode, behind: pc.Expression | None) -> pc.Expression | None:
    """The rows that a reader needs; None: all. `behind`: those that its own readers need."""
    own = node.operator.selection if isinstance(node.operator, SelectsRows) else None
    return own if own is None or behind is None else own & behind


def shown_expression(text: str) -> str:
    """It is cut off: a list of values may be long."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
