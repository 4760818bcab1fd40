"""What of a pipeline a backfill computes again: from the history to one sink, without the rest.

    HybridSource ─ … ─ windows ─ … ─ DeltaSink      becomes
    history ─ needed event times ─ … ─ windows ─ … ─ results in the range ─ FileSink

Other sources have to be bounded (dimensions of a join) and are read whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NoReturn

import msgspec

from unistream.api.environment import Environment
from unistream.api.graph import GraphBuilder, Port
from unistream.api.sinks import DataStreamSink
from unistream.base.config import (
    CHECKPOINT_INTERVAL,
    CHECKPOINT_INTERVAL_DURING_BACKLOG,
    RUNTIME_MODE,
    Configuration,
)
from unistream.base.errors import ConfigError
from unistream.connector.file import FileSink
from unistream.core.backfill import Reach, WindowGrid
from unistream.core.graph import resolve, translate_resolved
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph
from unistream.model.stream_graph import StreamGraph, StreamNode
from unistream.model.time_range import TimeRange
from unistream.operator.common import (
    AssignTimestampsAndWatermarks,
    FilterRows,
    FlatMapRows,
    KeyRows,
    MapRows,
)
from unistream.operator.join import BroadcastLookupJoin
from unistream.operator.sink import SinkWriterOperator
from unistream.operator.stateless import FilterBatches, MapBatches, Project, SideSplit
from unistream.operator.time_range import OUTSIDE_METRIC, KeepEventTimes, KeepResults
from unistream.operator.window import WINDOW_END, WINDOW_START, LocalWindowAggregate, WindowAggregate
from unistream.port.operator import SourceOperatorSpec
from unistream.port.replacement import RangeTarget, WithRangeReplacement
from unistream.port.source import Source, WithHistory, WithTimeRange

RESULTS: Final = "results of the range"
UID: Final = "unistream-backfill"  # of the sink of the BATCH job
OUTSIDE: Final = f"{RESULTS}.{OUTSIDE_METRIC}"
"""The counter of the job for results outside of the range."""

_STREAMS_ONLY: Final = (CHECKPOINT_INTERVAL.key, CHECKPOINT_INTERVAL_DURING_BACKLOG.key)
_PER_ROW: Final = (
    SourceOperatorSpec,
    AssignTimestampsAndWatermarks,
    BroadcastLookupJoin,
    FilterBatches,
    FilterRows,
    FlatMapRows,
    KeyRows,
    LocalWindowAggregate,
    MapRows,
    Project,
    SideSplit,
)
"""Operators whose results have the event time of the row that they are made of. So has `MapBatches` without a
new timestamp column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputation:
    """What is computed again.

    Attributes:
        sink_uid: Of the sink, or its name.
        histories: Node of a source -> its history.
        times: Node -> the column of the event times that it gives its rows, if it does.
    """

    graph: StreamGraph
    writer: StreamNode
    target: RangeTarget
    nodes: frozenset[int]
    histories: Mapping[int, Source]
    times: Mapping[int, str]
    reach: Reach

    @property
    def sink_uid(self) -> str:
        return self.writer.uid or self.writer.name

    @property
    def has_windows(self) -> bool:
        """Rows behind the watermark are dropped, so that a finished result stays as it is."""
        return any(isinstance(self.graph.nodes[n].operator, WindowAggregate) for n in self.nodes)


def recomputation(
    environment: Environment, *, sink: str | None, column: str | None, lookback_ms: int | None
) -> Recomputation:
    """
    Args:
        environment: With the pipeline.
        sink: Uid or name of the sink; None: the only one that can be replaced.
        column: With the time of a result; None: as the sink says, or the start of windows.
        lookback_ms: How far from its time the events of a result can be; None: as the windows say.

    Raises:
        ConfigError: there is no such sink, no history, or the times of the results are not known.
    """
    graph = environment.stream_graph()
    writer = _writer(graph, sink)
    operator = writer.operator
    assert isinstance(operator, SinkWriterOperator)
    assert isinstance(operator.sink, WithRangeReplacement)
    nodes = _upstream(graph, writer.id)
    histories = _histories(graph, nodes)
    times = _times(graph, nodes, histories)
    windows = [op.windows for n in nodes if isinstance(op := graph.nodes[n].operator, WindowAggregate)]
    column = column or operator.sink.time_column or (WINDOW_START if windows else None)
    if column is None:
        raise ConfigError(
            f"sink {_label(writer)}: which column has the time of a row? Give --column NAME, or the sink "
            "time_column="
        )
    strange = _strange(graph, nodes, column, times, with_windows=bool(windows))
    if lookback_ms is not None:
        reach = Reach(span_ms=lookback_ms, final_at_time=column == WINDOW_END)
    elif strange is not None:
        raise ConfigError(
            f"how long before or after its time the events of a result can be is not known, because "
            f"{strange}; give the longest time as --lookback (such as '1 d')"
        )
    else:
        grid = [WindowGrid(size_ms=w.size_ms, slide_ms=w.slide_ms, offset_ms=w.offset_ms) for w in windows]
        reach = Reach(
            span_ms=sum(w.size_ms for w in windows),
            final_at_time=column == WINDOW_END or not windows,
            starts=grid[0] if len(grid) == 1 and column == WINDOW_START else None,
            in_order=len(grid) == 1,
        )
    return Recomputation(
        graph=graph,
        writer=writer,
        target=operator.sink.range_target(column),
        nodes=nodes,
        histories=histories,
        times=times,
        reach=reach,
    )


def batch_job(
    environment: Environment, found: Recomputation, range_: TimeRange, folder: str, name: str
) -> tuple[JobGraph, JobCode]:
    """The BATCH job that writes the results of the range as Parquet files into `folder`."""
    builder = _Rewritten(environment, found, range_.text)
    needed = found.reach.rows_for(range_)
    assigned = {n for n in found.times if n not in found.histories}
    at = assigned or set(found.times)
    for node in found.graph.nodes:
        if node.id in found.nodes:
            history = found.histories.get(node.id)
            if node.id in at and isinstance(history, WithTimeRange):
                history = history.within(found.times[node.id], needed)
            builder.copy(node, history)
            if node.id in at:
                builder.filter_behind(node, KeepEventTimes(needed), "events of the range")
    last = builder.in_place_of(found.writer, KeepResults(found.target.column, range_))
    options = dict(found.target.filesystem_options)
    sink = DataStreamSink(
        builder.builder, (Port(last.id),), FileSink(folder, filesystem_options=options)
    ).uid(UID)
    if found.writer.parallelism is not None:
        sink.set_parallelism(found.writer.parallelism)
    config = batch_config(Configuration(environment.travelling())).to_dict()
    resolved = resolve(
        builder.builder.finished(name),
        parallelism=environment.parallelism,
        max_parallelism=None,
        chaining=True,
        config=config,
    )
    return translate_resolved(resolved, config)


def batch_config(config: Configuration) -> Configuration:
    """Options of the BATCH job."""
    kept = {key: value for key, value in config.to_dict().items() if key not in _STREAMS_ONLY}
    return Configuration(kept | {RUNTIME_MODE.key: "BATCH"})


class _Rewritten:
    """A graph that is made of another one, node by node."""

    def __init__(self, environment: Environment, found: Recomputation, name: str) -> None:
        def start(_name: str | None, _options: Mapping[str, str]) -> NoReturn:
            raise AssertionError("this graph is only translated")

        self.builder = GraphBuilder(start)
        self.builder.graph.profiles = dict(found.graph.profiles)
        self._edges = found.graph.edges
        self._ids: dict[int, int] = {}  # old -> new
        self._behind: dict[int, int] = {}  # old -> new node whose rows take the place of its main output

    def copy(self, node: StreamNode, history: Source | None) -> None:
        copied = replace(node, id=len(self.builder.graph.nodes))
        if history is not None:
            spec = node.operator
            assert isinstance(spec, SourceOperatorSpec)
            info = history.info()
            if node.source is not None:
                info = msgspec.structs.replace(
                    info,
                    timestamp_column=node.source.timestamp_column,
                    timestamp_type=node.source.timestamp_type,
                )
            copied = replace(copied, operator=replace(spec, source=history), source=info)
        self._ids[node.id] = copied.id
        self.builder.graph.nodes.append(copied)
        self._copy_edges(node.id, copied.id)

    def filter_behind(self, node: StreamNode, operator: object, name: str) -> None:
        added = self.builder.add(name, operator, [[Port(self._ids[node.id])]])
        self._fit(added, node)
        self._behind[node.id] = added.id

    def in_place_of(self, writer: StreamNode, operator: object) -> StreamNode:
        added = self.builder.add(RESULTS, operator)
        added.inputs = writer.inputs
        self._fit(added, writer)
        self._copy_edges(writer.id, added.id)
        return added

    def _copy_edges(self, old: int, new: int) -> None:
        for edge in self._edges:
            if edge.target == old:
                source = self._ids[edge.source]
                if edge.tag is None:
                    source = self._behind.get(edge.source, source)
                self.builder.graph.edges.append(replace(edge, source=source, target=new))

    @staticmethod
    def _fit(added: StreamNode, other: StreamNode) -> None:
        added.parallelism, added.max_parallelism = other.parallelism, other.max_parallelism
        added.slot_sharing_group = other.slot_sharing_group


def _writer(graph: StreamGraph, wanted: str | None) -> StreamNode:
    found = [
        node
        for node in graph.nodes
        if isinstance(node.operator, SinkWriterOperator)
        and isinstance(node.operator.sink, WithRangeReplacement)
    ]
    if not found:
        raise ConfigError("the pipeline has no sink whose rows can be replaced, such as us.DeltaSink(…)")
    chosen = [node for node in found if wanted in (None, node.uid, node.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(_label(node) for node in found)
    if not chosen:
        raise ConfigError(f"--sink {wanted!r} is none of the sinks that can be replaced: {names}")
    raise ConfigError(f"which of the sinks {names}? Give one by its uid: --sink UID")


def _label(node: StreamNode) -> str:
    return repr(str(node.uid or node.name))


def _upstream(graph: StreamGraph, last: int) -> frozenset[int]:
    """The nodes from which `last` gets rows, without itself."""
    found: set[int] = set()
    waiting = [last]
    while waiting:
        node = waiting.pop()
        new = {edge.source for edge in graph.edges if edge.target == node} - found
        found |= new
        waiting += new
    return frozenset(found)


def _histories(graph: StreamGraph, nodes: frozenset[int]) -> dict[int, Source]:
    found: dict[int, Source] = {}
    for node in sorted(nodes):
        operator = graph.nodes[node].operator
        if not isinstance(operator, SourceOperatorSpec):
            continue
        if isinstance(operator.source, WithHistory):
            history = operator.source.history
            if not history.info().bounded:
                raise ConfigError(f"the history of source {_label(graph.nodes[node])} is unbounded")
            found[node] = history
        elif not operator.source.info().bounded:
            raise ConfigError(
                f"source {_label(graph.nodes[node])} is unbounded and has no history to compute results "
                "from; use us.HybridSource(history, live)"
            )
    if not found:
        raise ConfigError(
            "no source of the results has a history to compute them from; use us.HybridSource(history, live)"
        )
    return found


def _times(graph: StreamGraph, nodes: frozenset[int], histories: Mapping[int, Source]) -> dict[int, str]:
    """Node -> the column of event times: sources with a history, and operators that assign them."""
    found: dict[int, str] = {}
    for n in sorted(nodes):
        operator = graph.nodes[n].operator
        if isinstance(operator, SourceOperatorSpec) and n in histories:
            column = operator.watermarks.timestamp_column
        elif isinstance(operator, AssignTimestampsAndWatermarks):
            column = operator.column
        else:
            continue
        if column is not None:
            found[n] = column
    return found


def _strange(
    graph: StreamGraph, nodes: frozenset[int], column: str, times: Mapping[int, str], *, with_windows: bool
) -> str | None:
    """Why times of results do not follow from event times and windows; None: they do."""
    for n in sorted(nodes):
        node = graph.nodes[n]
        if isinstance(node.operator, MapBatches):
            if node.operator.timestamp_column is not None:
                return f"{_label(node)} gives its rows other event times"
        elif not isinstance(node.operator, (*_PER_ROW, WindowAggregate)):
            return f"{_label(node)} may keep events for any time"
    if with_windows:
        if column not in (WINDOW_START, WINDOW_END):
            return f"column {column!r} is neither the start nor the end of the windows"
    elif column not in times.values():
        return f"column {column!r} is not the one of the event times"
    return None if times else "no column has the event times of the history"
