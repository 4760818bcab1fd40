"""The part of a pipeline that a replay runs: an operator with letters as its input, and what is behind it.

    source ─ map ─┬─ … ─ sink        becomes     letters ─ map ─┬─ … ─ sink
                  └─ dead-letters                   │           └─ dead-letters
                                                    └─ replayed

Letters of a source are what its records give that it can read now, in the place of the source.
Other inputs of the operators behind it, such as the table of a join, are read again whole, so they have to be
bounded. Streams that were only united with the rows are left out: their rows were processed.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Final

from unistream.api.environment import Environment
from unistream.api.functions import lit
from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.base.targets import known_target
from unistream.connector.file import FileSink, FileSource
from unistream.core.graph import uid_of
from unistream.dead_letters.ledger import Ledger
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.join import BroadcastLookupJoin
from unistream.operator.replayed import LETTERS_INPUT, REPLAYED_COLUMNS, InsteadOfSource, Replayed
from unistream.operator.sink import CheckedRows, SinkOperator, SinkWriterOperator
from unistream.port.line import KeepsLine
from unistream.port.operator import SourceOperatorSpec
from unistream.port.sink import AppendsToForeign, Sink
from unistream.port.source import DEAD_LETTERS_TAG

SUFFIX: Final = "-replay"
"""What is added to the uids of sinks: commits of a replay are not those of the pipeline's job, which may go
on next to it."""


@dataclass(frozen=True, slots=True)
class ReplayedPart:
    """Nodes of a pipeline.

    Attributes:
        start: The operator that gets the letters, or the source whose records they are.
        behind: It, and all that its rows come to.
        others: What other inputs of those read.
    """

    graph: StreamGraph
    start: StreamNode
    behind: frozenset[int]
    others: frozenset[int]


def appending(sink: Sink) -> Sink:
    """The sink next to whatever line of jobs writes its target.

    Raises:
        ConfigError: it keeps a line, and cannot do so.
    """
    if isinstance(sink, AppendsToForeign):
        return sink.appending()
    if isinstance(sink, KeepsLine):
        raise ConfigError(f"sink {sink.name!r} cannot append to the output of another job, so no replay can")
    return sink


def append_everywhere(graph: StreamGraph) -> None:
    """The sinks of a pipeline that is built already are `appending`, in place: its stages and committers
    refer to them. Raises ConfigError: one cannot be."""
    sinks = [node.operator.sink for node in graph.nodes if isinstance(node.operator, SinkWriterOperator)]
    for sink in sinks:
        other = appending(sink)
        if other is not sink:
            vars(sink).update(vars(other))


def replayed_part(graph: StreamGraph, operator_uid: str, *, from_empty_state: bool) -> ReplayedPart:
    """Raises ConfigError: there is no such operator, or what is behind it cannot be run for itself."""
    start = _operator(graph, operator_uid)
    behind = _closed(
        {start.id}, [(edge.source, edge.target) for edge in graph.edges if not _is_of_letters(start, edge)]
    )
    sides = {
        edge.source
        for edge in graph.edges
        if edge.target in behind
        and edge.source not in behind
        and not _is_of_rows(graph, edge.target, edge.input_index, behind, start)
    }
    others = _closed(sides, [(edge.target, edge.source) for edge in graph.edges])
    part = ReplayedPart(graph, start, frozenset(behind), frozenset(others))
    _check(part, from_empty_state=from_empty_state)
    return part


def _is_of_letters(start: StreamNode, edge: StreamEdge) -> bool:
    """It carries letters of the source that is replayed, which sends none of those that it cannot read still:
    they stay where they are."""
    is_source = isinstance(start.operator, SourceOperatorSpec)
    return is_source and edge.source == start.id and edge.tag == DEAD_LETTERS_TAG


def _is_of_rows(graph: StreamGraph, target: int, index: int, behind: set[int], start: StreamNode) -> bool:
    """The input gets rows of the replay, so that other streams that are united there are left out."""
    if target == start.id:
        return index == LETTERS_INPUT
    return any(
        edge.target == target and edge.input_index == index and edge.source in behind for edge in graph.edges
    )


def _closed(begin: set[int], arrows: list[tuple[int, int]]) -> set[int]:
    found, waiting = set(begin), list(begin)
    while waiting:
        node = waiting.pop()
        new = {target for source, target in arrows if source == node} - found
        found |= new
        waiting += new
    return found


def _operator(graph: StreamGraph, uid: str) -> StreamNode:
    for node in graph.nodes:
        if uid_of(node) == uid and not isinstance(node.operator, SinkOperator):
            return node
    known = ", ".join(repr(str(uid_of(node))) for node in graph.nodes)
    raise ConfigError(
        f"the pipeline has no operator {uid!r}, whose letters these are; its operators are {known}. Give the "
        "operator its uid again: .uid(…)"
    )


def _check(part: ReplayedPart, *, from_empty_state: bool) -> None:
    for n in sorted(part.others):
        node = part.graph.nodes[n]
        if node.source is not None and not node.source.bounded:
            raise ConfigError(
                f"what is behind {part.start.name!r} also reads source {node.name!r}, which is unbounded, so "
                "a replay would never end"
            )
    stateful = [
        part.graph.nodes[n].name
        for n in sorted(part.behind)
        if part.graph.nodes[n].stateful
        and part.graph.nodes[n].source is None
        and part.graph.nodes[n].sink is None
        and not isinstance(part.graph.nodes[n].operator, BroadcastLookupJoin)
    ]
    if stateful and not from_empty_state:
        raise ConfigError(
            f"{stateful[0]!r} has state, which the job has and a replay does not: its results would be those "
            "of the replayed rows alone, next to those that are there. --from-empty-state if that is right"
        )


def replay_environment(
    part: ReplayedPart,
    environment: Environment,
    ledger: Ledger,
    replay: str,
    target: str,
) -> Environment:
    """The pipeline of a replay. `environment`: with the whole pipeline."""
    made = Environment(_config(environment.config, ledger, replay), target=known_target(target))
    letters = made.from_source(
        FileSource(ledger.letters_file(replay), schema=REPLAYED_COLUMNS),
        WatermarkStrategy.no_watermarks(),
        "dead letters",
    ).uid("unistream-replayed-letters")
    letters.set_parallelism(1)
    noted = letters.select("letter", replay=lit(replay)).uid("unistream-noted-letters").set_parallelism(1)
    sink = FileSink(ledger.replayed_folder, on_foreign="append")
    noted.sink_to(sink).uid("unistream-replayed").set_parallelism(1)
    _Copied(part, made, letters._ports[0].node).copy(environment)
    return made


def _config(config: Configuration, ledger: Ledger, replay: str) -> Configuration:
    """A stream, so that there are checkpoints: by them a replay that is killed is known to have committed."""
    usual = {
        options.CHECKPOINT_INTERVAL.key: "1 s",
        options.RESTART_STRATEGY.key: "fixed-delay",
        options.RESTART_ATTEMPTS.key: "3",
        options.RESTART_DELAY.key: "1 s",
    }
    needed = {
        options.RUNTIME_MODE.key: "STREAMING",
        options.CHECKPOINT_DIR.key: ledger.checkpoints_folder(replay),
        options.CHECKPOINT_RETENTION.key: "RETAIN_ON_CANCELLATION",
    }
    return Configuration(usual | config.to_dict() | needed)


class _Copied:
    """Nodes of a pipeline in a graph that has the letters already."""

    def __init__(self, part: ReplayedPart, made: Environment, letters: int) -> None:
        self._part = part
        self._builder = made._builder
        self._letters = letters
        self._ids: dict[int, int] = {}

    def copy(self, environment: Environment) -> None:
        graph, part = self._part.graph, self._part
        for node in graph.nodes:
            if node.id in part.behind or node.id in part.others:
                self._node(node)
        for edge in graph.edges:
            if edge.target not in self._ids or _is_of_letters(part.start, edge):
                continue
            if edge.source in part.behind or (
                edge.source in part.others and not self._is_left_out(edge.target, edge.input_index)
            ):
                self._builder.graph.edges.append(
                    replace(edge, source=self._ids[edge.source], target=self._ids[edge.target])
                )
        self._letters_edge()
        follows = environment._builder.follows
        for follower, leader in follows.items():
            if follower in self._ids and leader in self._ids:
                self._builder.follows[self._ids[follower]] = self._ids[leader]
        self._builder.profiles |= dict(graph.profiles)

    def _is_left_out(self, target: int, index: int) -> bool:
        part = self._part
        return target in part.behind and _is_of_rows(part.graph, target, index, set(part.behind), part.start)

    def _node(self, node: StreamNode) -> None:
        operator, uid, parallelism = node.operator, uid_of(node), node.parallelism
        if isinstance(operator, CheckedRows):  # it follows the commits of its sink
            operator = copy(operator)
            operator.sink_uid = OperatorUid(f"{operator.sink_uid}{SUFFIX}")
        if node is self._part.start:
            if isinstance(operator, SourceOperatorSpec):
                operator = InsteadOfSource(operator.watermarks.timestamp_column)
                node = replace(node, source=None, inputs=1, stateful=False)
            operator, parallelism = Replayed(operator), 1  # type: ignore[arg-type]  # it is no source now
        if isinstance(operator, SinkOperator):
            operator, uid = copy(operator), OperatorUid(f"{uid}{SUFFIX}")
            operator.sink_uid = OperatorUid(f"{operator.sink_uid}{SUFFIX}")
            if operator.belongs_to is not None:
                operator.belongs_to = OperatorUid(f"{operator.belongs_to}{SUFFIX}")
        copied = replace(
            node,
            id=len(self._builder.graph.nodes),
            operator=operator,
            uid=uid,
            sink=None if node.sink is None else self._ids.get(node.sink, len(self._builder.graph.nodes)),
            records_positions=False,
            parallelism=parallelism,
        )
        self._ids[node.id] = copied.id
        self._builder.graph.nodes.append(copied)

    def _letters_edge(self) -> None:
        edge = StreamEdge(
            source=self._letters, target=self._ids[self._part.start.id], input_index=LETTERS_INPUT
        )
        self._builder.graph.edges.append(edge)
