"""A user's pipeline as a simulated job: its graph, with slowed sources and sinks that write into the
simulation's table.

    bounded source ─► its own reader, in small pieces with pauses between them
    other source   ─► the rows of `inputs`
    sink           ─► writer and committer of a table in memory, without later stages
    a kept sink    ─► its own, whose commits may be cut off

The seed decides the size of pieces; the position in a split is the reader's position before its last batch
and the number of rows of it that were emitted. So a reader has to read the same rows again from the same
position.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from unistream.api.environment import Environment
from unistream.api.sinks import sinks_replaced
from unistream.base.config import CHAINING, MAX_PARALLELISM, RUNTIME_MODE, Configuration
from unistream.base.config_file import LayeredConfig
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.connector.datagen import DatagenSource
from unistream.connector.static import StaticSource
from unistream.core.graph import resolve, translate_resolved
from unistream.model.chain import Chain, JobCode
from unistream.model.columns.column_forms import ValueRefused
from unistream.model.graph import JobGraph
from unistream.model.stream_graph import StreamEdge, StreamGraph, StreamNode
from unistream.operator.common import table_of
from unistream.operator.sink import CommitterOperator, OnCommitOperator, SinkOperator, SinkWriterOperator
from unistream.port.operator import SourceOperatorSpec
from unistream.testing.simulation.commits import interrupted
from unistream.testing.simulation.ends import PacedSource, RecordingSink, SimulatedRun, StandIn
from unistream.worker.code import load, pack, sha256

Pipeline = Callable[..., object]
Inputs = Mapping[str, "pa.Table | Sequence[Mapping[str, object]]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserJob:
    """What all runs have in common.

    Attributes:
        code: Vertex -> packed operators.
        replaced: Replaced parts of the user's pipeline, one sentence each.
        sinks: uid (or name and place) -> name of the connector, for all sinks.
    """

    graph: JobGraph
    code: Mapping[Any, bytes]
    replaced: tuple[str, ...]
    sinks: Mapping[str, str]

    def chains(self, site: SimulatedRun) -> dict[Any, Callable[[], Chain]]:
        """Vertex -> creates the operators of one task in the run of `site`."""
        return {vertex: _maker(vertex, content, site) for vertex, content in self.code.items()}


def user_job(
    pipeline: Pipeline | Environment, config: Mapping[str, str], inputs: Inputs, *, keep_sinks: bool
) -> UserJob:
    """Builds the pipeline once. Of a replaced sink only the name is read (unless `pipeline` is an
    environment, whose sinks were checked when it was built).

    Raises:
        ConfigError: it cannot be simulated: a source is unbounded and has no rows in `inputs`; a uid in
            `inputs` is not that of a source; the pipeline itself is refused.
    """
    with nullcontext() if keep_sinks else sinks_replaced(lambda sink: StandIn(sink.name)):
        environment = _built(pipeline, config)
    graph = environment.stream_graph()
    replaced = [*_replace_sources(graph, inputs)]
    sinks = {
        str(sink_uid(node)): node.name
        for node in graph.nodes
        if isinstance(node.operator, SinkWriterOperator)
    }
    if not keep_sinks:
        graph, sentences = _replace_sinks(graph)
        replaced += sentences
    values = environment.config
    most = values.get(MAX_PARALLELISM)
    options = values.to_dict()
    if values.get(RUNTIME_MODE) == "AUTOMATIC":
        options[RUNTIME_MODE.key] = (
            "STREAMING"  # every input here is bounded, also where it stands for a stream
        )
    resolved = resolve(
        graph,
        parallelism=environment.parallelism,
        max_parallelism=None if most == -1 else most,
        chaining=values.get(CHAINING),
        config=options,
    )
    job_graph, code = translate_resolved(resolved, options)
    packed = {vertex: pack(JobCode(chains={vertex: chain})) for vertex, chain in code.chains.items()}
    return UserJob(graph=job_graph, code=packed, replaced=tuple(replaced), sinks=sinks)


def _built(pipeline: Pipeline | Environment, config: Mapping[str, str]) -> Environment:
    if isinstance(pipeline, Environment):
        return pipeline.without_surroundings()
    takes = [
        parameter
        for parameter in inspect.signature(pipeline).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    environment = Environment(LayeredConfig(Configuration(config)))
    built = pipeline(environment) if takes else pipeline()
    if isinstance(built, Environment):
        return built.without_surroundings()
    if not takes:
        raise ConfigError("a pipeline function without parameters must return its Environment")
    return environment


# --- sources --------------------------------------------------------------------------------------


def _replace_sources(graph: StreamGraph, inputs: Inputs) -> list[str]:
    """Changes the nodes of `graph` in place."""
    replaced, names = [], []
    for node in graph.nodes:
        spec = node.operator
        if not isinstance(spec, SourceOperatorSpec) or node.source is None:
            continue
        key = str(node.uid or node.name)
        names.append(key)
        source = spec.source
        if key in inputs:
            source = StaticSource(_table(inputs[key], source.schema, key))
            replaced.append(f"source {key!r} ({node.source.connector}) reads the rows of `inputs`")
        elif not node.source.bounded:
            raise ConfigError(
                f"simulate: source {key!r} ({node.source.connector}) is unbounded; "
                f"pass its rows: inputs={{{key!r}: rows}}"
            )
        elif isinstance(source, DatagenSource) and source.unpaced() is not source:
            source = source.unpaced()
            replaced.append(f"source {key!r} (datagen) is paced by the simulation")
        node.endless = not node.source.bounded
        node.source = source.info()
        node.operator = replace(spec, source=PacedSource(source, key))
    for key in inputs:
        if key not in names:
            raise ConfigError(f"simulate: inputs contains {key!r}, which is not one of the sources {names}")
    return replaced


def _table(rows: pa.Table | Sequence[Mapping[str, object]], schema: pa.Schema, key: str) -> pa.Table:
    try:
        if isinstance(rows, pa.Table):
            return rows.select(schema.names).cast(schema)
        return table_of([{**dict.fromkeys(schema.names), **row} for row in rows], schema)
    except ValueRefused as refused:
        raise ConfigError(
            f"simulate: row {refused.position} of source {key!r} does not fit its schema: {refused.reason}"
        ) from refused
    except (KeyError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"simulate: the rows of source {key!r} do not fit its schema: {error}") from error


# --- sinks ----------------------------------------------------------------------------------------


def _replace_sinks(graph: StreamGraph) -> tuple[StreamGraph, list[str]]:
    """Writers write into the simulation's table; later stages are left out."""
    writers = [node for node in graph.nodes if isinstance(node.operator, SinkWriterOperator)]
    dropped = {
        node.id
        for node in graph.nodes
        if isinstance(node.operator, SinkOperator) and not isinstance(node.operator, SinkWriterOperator)
    }
    kept = [node for node in graph.nodes if node.id not in dropped]
    moved = {node.id: place for place, node in enumerate(kept)}
    nodes = [replace(node, id=moved[node.id]) for node in kept]
    edges = [
        replace(edge, source=moved[edge.source], target=moved[edge.target])
        for edge in graph.edges
        if edge.source in moved and edge.target in moved
    ]
    replaced = []
    for writer in writers:
        node = nodes[moved[writer.id]]
        uid = sink_uid(writer)
        committer = _record(node, uid, len(nodes))
        nodes.append(committer)
        edges.append(StreamEdge(source=node.id, target=committer.id, committables=True))
        replaced.append(f"sink {uid!r} ({writer.name}) is replaced by a table in memory")
    return replace(graph, nodes=nodes, edges=edges), replaced


def _record(writer: StreamNode, uid: OperatorUid, place: int) -> StreamNode:
    """Makes `writer` write into the table, and creates its committer."""
    sink = RecordingSink(None)
    writer.operator = SinkWriterOperator(sink, uid)
    return StreamNode(
        id=place,
        name=f"{writer.name} committer",
        operator=CommitterOperator(sink, uid),
        uid=None if writer.uid is None else OperatorUid(f"{writer.uid}-committer"),
        parallelism=writer.parallelism,
        max_parallelism=writer.max_parallelism,
        slot_sharing_group=writer.slot_sharing_group,
        stateful=True,
    )


def sink_uid(writer: StreamNode) -> OperatorUid:
    """The uid of its rows: the user's, or its name and place."""
    operator = writer.operator
    assert isinstance(operator, SinkWriterOperator), "for writers only"
    return operator.sink_uid or OperatorUid(f"{writer.name}-{writer.id}")


# --- in a run -------------------------------------------------------------------------------------


def _maker(vertex: Any, content: bytes, site: SimulatedRun) -> Callable[[], Chain]:
    name = sha256(content)

    def make() -> Chain:
        chain = load(content, name).chains[vertex]
        for node in chain.nodes:
            operator = node.operator
            if isinstance(operator, SourceOperatorSpec) and isinstance(operator.source, PacedSource):
                operator.source.site = site
            elif isinstance(operator, SinkOperator) and isinstance(operator._sink, RecordingSink):
                operator._sink.table = site.recorded
            elif isinstance(operator, CommitterOperator | OnCommitOperator):
                operator.commit_through(lambda create, sink: interrupted(create, sink, site))
        return chain

    return make
