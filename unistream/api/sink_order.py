"""Whether the rows of one key come to a sink that keeps the last of them in their order.

Where rows of a key come to it from several subtasks, or to several of its own, which of them is the last is
chance. That is so behind a `rebalance`, behind a `key_by` of other columns, and where several subtasks read
one source, unless that assigns whole partitions (Kafka): those are expected to hold all rows of a key.
"""

from __future__ import annotations

from collections import defaultdict

from unistream.model.graph import Ship
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.operator.sink import SinkWriterOperator
from unistream.port.sink import ReplacesByKey


def order_advice(graph: StreamGraph, parallelism: int) -> str | None:
    """A warning about the first such sink; None: there is none. `parallelism`: of a node without its own."""
    look = _KeyOrder(graph, parallelism)
    for node in graph.nodes:
        sink = node.operator.sink if isinstance(node.operator, SinkWriterOperator) else None
        key = sink.row_key if isinstance(sink, ReplacesByKey) else ()
        if key and not look.is_in_order(node, frozenset(key)):
            columns = ", ".join(map(repr, key))
            return (
                f"sink {node.name!r} keeps the last row of each key, but rows of one key may come to it "
                f"through several subtasks, in any order: put key_by({columns}) before it, or run what is "
                "before it with set_parallelism(1)"
            )
    return None


class _KeyOrder:
    def __init__(self, graph: StreamGraph, parallelism: int) -> None:
        self._nodes = {node.id: node for node in graph.nodes}
        self._inputs: defaultdict[int, list[StreamEdge]] = defaultdict(list)
        for edge in graph.edges:
            self._inputs[edge.target].append(edge)
        self._parallelism = parallelism

    def is_in_order(self, node: StreamNode, key: frozenset[str]) -> bool:
        """All rows of a key are in one subtask of the node, as they were at their source."""
        if not self._inputs[node.id]:
            return self._width(node) == 1 or (node.source is not None and not node.source.pull)
        return all(self._keeps(edge, node, key) for edge in self._inputs[node.id])

    def _keeps(self, edge: StreamEdge, node: StreamNode, key: frozenset[str]) -> bool:
        source = self._nodes[edge.source]
        width, before = self._width(node), self._width(source)
        if edge.ship is Ship.HASH:
            return width == 1 or set(edge.key_columns) <= key
        is_forward = edge.ship is Ship.FORWARD or (edge.ship is None and width == before)
        return (is_forward or width == 1) and self.is_in_order(source, key)

    def _width(self, node: StreamNode) -> int:
        return node.parallelism or self._parallelism
