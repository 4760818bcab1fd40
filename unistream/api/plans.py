"""The part of `Environment` that shows and translates its pipeline; it starts nothing."""

from __future__ import annotations

import logging
from typing import Any

from msgspec import structs

from unistream.api.bootstrap import BootstrapOrder
from unistream.api.environment_settings import EnvironmentSettings
from unistream.api.frames import Frames
from unistream.api.graph import GraphBuilder
from unistream.api.lineage import lineage_graph, plain_sinks, read_by, written_by
from unistream.api.pipeline import Pipeline, packed
from unistream.api.sinks import check_does_something, dangling_advice, sinks_of
from unistream.base.config import CHAINING, CHECKPOINT_INTERVAL
from unistream.base.errors import ConfigError
from unistream.core import graph as graphs
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph
from unistream.model.lineage import LineageGraph
from unistream.model.stream_graph import StreamGraph
from unistream.port.sink import Sink

_log = logging.getLogger(__name__)


class PlanMethods(EnvironmentSettings):
    """Methods that show what a pipeline is, and what job it becomes."""

    _builder: GraphBuilder

    def stream_graph(self, name: str | None = None) -> StreamGraph:
        """A copy of the pipeline as built so far, before chaining.

        Raises:
            ConfigError: the pipeline is empty, or the name is not text.
        """
        if name is not None and not isinstance(name, str):
            raise ConfigError(f"the name of a job is text, not {name!r:.200}")
        self._check_begun()
        return self._builder.finished(self._builder.graph.name if name is None else name)

    def _check_begun(self) -> None:
        if not self._builder.graph.nodes:
            raise ConfigError("the pipeline is empty: start it with from_source(...)")

    def sinks(self) -> dict[str, Sink]:
        """The sinks of the pipeline by uid: for tools that show where it writes."""
        return sinks_of(self._builder.graph)

    def lineage(self) -> LineageGraph:
        """Which data sets the pipeline reads and writes, and which columns come from which, as far as its
        operators say so: for catalogues. Reads and writes nothing.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> rows = env.from_collection([{"id": 1, "paid": 3}], name="rows")
        >>> _ = rows.select("id", twice=us.col("paid") * 2).sink_to(us.FileSink("/lake/orders"))
        >>> (sink,) = env.lineage().sinks
        >>> sink.datasets[0].uri, [column for _, column in sink.columns["twice"]]
        ('file:///lake/orders', ['paid'])
        """
        self._check_begun()
        return lineage_graph(*self._builder.finished_with_schemas(self._builder.graph.name))

    def is_bounded(self) -> bool:
        """The pipeline ends by itself: all its sources do."""
        return all(node.source is not None and node.source.bounded for node in self._builder.sources())

    def job_graph(self, name: str | None = None) -> tuple[JobGraph, JobCode]:
        """The job graph: vertices of chained operators as data, and their code."""
        return self._translated(self.stream_graph(name))

    def packed_pipeline(self, name: str | None = None) -> bytes:
        """What the cluster keeps to replay the job's dead letters by itself; empty: it cannot, or has no need
        (`unistream.api.pipeline`)."""
        graph, follows = self.stream_graph(name), self._builder.followed()
        return packed(Pipeline(graph=graph, follows=follows, config=self.travelling()))

    def staged_job_graph(
        self, name: str | None = None, bootstrap: BootstrapOrder | None = None
    ) -> tuple[JobGraph, JobCode, Frames]:
        """The job graph to be started: as `job_graph`, but Spark has evaluated the DataFrames. The caller
        closes the `Frames`, or lets them be removed after the job. With `bootstrap` it reads the history and
        writes a savepoint.

        Raises:
            ConfigError: the pipeline has sources alone, or cannot be bootstrapped.
            UserCodeError: Spark could not evaluate a DataFrame.
        """
        stream_graph, frames = self.stream_graph(name), Frames()
        check_does_something(stream_graph)
        ordered = None if bootstrap is None else bootstrap.for_graph(stream_graph)
        self._resolved(stream_graph, ordered)  # an error costs no evaluation
        frames.stage(stream_graph)
        try:
            return *self._translated(stream_graph, ordered), frames
        except BaseException:
            frames.close()
            raise

    def _translated(
        self, stream_graph: StreamGraph, bootstrap: graphs.BootstrapPlan | None = None
    ) -> tuple[JobGraph, JobCode]:
        graph, code = graphs.translate_resolved(self._resolved(stream_graph, bootstrap), self.travelling())
        graph = structs.replace(
            graph,
            writes=written_by(stream_graph),
            reads=read_by(stream_graph),
            plain_sinks=plain_sinks(stream_graph),
        )
        if bootstrap is not None:
            graphs.check_bootstrap(graph)
            return graph, code
        reason = graphs.why_interval_is_idle(graph, self._config)
        is_asked_for = CHECKPOINT_INTERVAL.key in self._options.given.to_dict()  # a file has it for all jobs
        if reason is not None and is_asked_for:
            _log.warning(
                "event=checkpoints_disabled job=%r reason=%r: %s has no effect",
                graph.name,
                reason,
                CHECKPOINT_INTERVAL.key,
            )
        return graph, code

    def _resolve(self, name: str | None = None) -> graphs.Resolved:
        return self._resolved(self.stream_graph(name))

    def _resolved(
        self, stream_graph: StreamGraph, bootstrap: graphs.BootstrapPlan | None = None
    ) -> graphs.Resolved:
        return graphs.resolve(
            stream_graph,
            parallelism=self.parallelism,
            max_parallelism=self._max_parallelism(),
            chaining=self._config.get(CHAINING),
            config=self._config.to_dict(),
            bootstrap=bootstrap,
        )

    def explain(self) -> str:
        """The job as text: its operators, which of them share a task (`->`), its subtasks, and a warning
        about streams that end in no sink.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        >>> numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        >>> _ = numbers.print()
        >>> print(env.explain())
        stream graph 'unistream job': 2 operators, 1 edge
          0: numbers  (parallelism 1, slots default)
          1: print  (parallelism 1, slots default)
          0 -> 1 forward: chained
        <BLANKLINE>
        job graph 'unistream job': 1 vertex, 0 exchanges, BATCH
        [1] numbers -> print  (parallelism 1 of 128, slots default)
            source datagen, bounded
            numbers-0: numbers  (stateful, generated uid)
            print-1: print  (stateful, generated uid)
        <BLANKLINE>
        execution graph: 1 subtask, 1 region
          [1] subtasks 0 attempt 0
          region 0: [1] 0
        <BLANKLINE>
        engine: spark if the target is Spark, 1 stage; otherwise native, the built-in runtime
          stage 0: [1]: 1 task
        """
        resolved = self._resolve()
        job = graphs.translate_resolved(resolved, self._config.to_dict())[0]
        found = graphs.explain(resolved, job)
        advice = dangling_advice(resolved.graph)
        return found if advice is None else f"{found}\n\nwarning: {advice}"

    def explain_json(self) -> dict[str, Any]:
        """What `explain` shows, for programs: ``streamGraph`` and ``jobGraph`` as Flink shows them,
        ``executionGraph``.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        >>> numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        >>> _ = numbers.rebalance().print()
        >>> env.explain_json()["jobGraph"]["nodes"][1]["inputs"][0]["ship_strategy"]
        'REBALANCE'
        """
        resolved = self._resolve()
        return graphs.plan_json(resolved, graphs.translate_resolved(resolved, self._config.to_dict())[0])
