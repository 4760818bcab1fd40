"""Where a pipeline is put together and started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from unistream.api.graph import GraphBuilder, Port, check_max_parallelism, check_parallelism
from unistream.api.stream import DataStream
from unistream.base.config import CHAINING, MAX_PARALLELISM, PARALLELISM, Configuration
from unistream.base.errors import ConfigError, Fenced, OutcomeUnknown, UnistreamError, UserCodeError
from unistream.core.translate import translate
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure
from unistream.model.stream_graph import StreamGraph
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.event_time import is_event_time
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import Source

if TYPE_CHECKING:
    from unistream.client import JobClient, JobResult


class Environment:
    """Collects a pipeline's operators and runs them.

    Args:
        config: Options by key (`docs/reference/configuration.md`); an unknown key is refused.
        target: Where it runs: ``"spark"`` (the default), ``"local"``: child processes, or ``"remote"``: a
            cluster that is up.

    >>> import unistream as us
    >>> env = us.Environment({"parallelism.default": "2"})
    >>> env.parallelism
    2
    """

    def __init__(
        self, config: Configuration | Mapping[str, str] | None = None, *, target: str | None = None
    ) -> None:
        self._config = config if isinstance(config, Configuration) else Configuration(config)
        self._target = target
        self._builder = GraphBuilder(self.execute)
        self.set_parallelism(self._config.get(PARALLELISM))
        if self._config.get(MAX_PARALLELISM) != -1:
            self.set_max_parallelism(self._config.get(MAX_PARALLELISM))

    @property
    def config(self) -> Configuration:
        """What the job will run with."""
        return self._config

    @property
    def parallelism(self) -> int:
        """Of operators that set none."""
        return self._config.get(PARALLELISM)

    def set_parallelism(self, parallelism: int) -> Environment:
        """Parallelism of operators that set none.

        Raises:
            ConfigError: below 1, or above the max parallelism.
        """
        check_parallelism(parallelism, self._max_parallelism(), "environment")
        self._config = self._config.merged({PARALLELISM.key: str(parallelism)})
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Environment:
        """Number of key groups of operators that set none: the most that they can ever be scaled to."""
        check_max_parallelism(max_parallelism, self.parallelism, "environment")
        self._config = self._config.merged({MAX_PARALLELISM.key: str(max_parallelism)})
        return self

    def from_source(
        self, source: Source, watermark_strategy: WatermarkStrategy, name: str | None = None
    ) -> DataStream:
        """A stream of the rows of `source`.

        Raises:
            ConfigError: the strategy's timestamp column is not a time column of the source.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        >>> env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").schema.names
        ['n']
        """
        name = name or source.name
        schema = source.schema
        column = watermark_strategy.timestamp_column
        if column is not None:
            if column not in schema.names:
                raise ConfigError(
                    f"source {name!r}: there is no timestamp column {column!r} "
                    f"among {', '.join(schema.names)}"
                )
            if not is_event_time(schema.field(column).type):
                raise ConfigError(
                    f"source {name!r}: the timestamp column {column!r} is {schema.field(column).type}; "
                    "event time is int64 milliseconds, or an Arrow timestamp or date"
                )
        node = self._builder.add(
            name, SourceOperatorSpec(source=source, watermarks=watermark_strategy), stateful=True
        )
        node.source = source.info()
        return DataStream(self._builder, (Port(node.id),), schema)

    def stream_graph(self, name: str | None = None) -> StreamGraph:
        """What was put together so far: a copy, before chaining.

        Raises:
            ConfigError: nothing was put together.
        """
        if not self._builder.graph.nodes:
            raise ConfigError("the pipeline is empty: start it with from_source(...)")
        return self._builder.finished(name or self._builder.graph.name)

    def job_graph(self, name: str | None = None) -> tuple[JobGraph, JobCode]:
        """What will run: vertices of chained operators (data), and their code."""
        return translate(
            self.stream_graph(name),
            parallelism=self.parallelism,
            max_parallelism=self._max_parallelism(),
            chaining=self._config.get(CHAINING),
            config=self._config.to_dict(),
        )

    def explain(self) -> str:
        """The job as text: one line per vertex with its chain, then where its rows go.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        >>> numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        >>> _ = numbers.print()
        >>> print(env.explain())
        1. numbers -> print  (parallelism 1, max 128)
        """
        graph, _ = self.job_graph()
        numbers = {vertex.id: number for number, vertex in enumerate(graph.vertices, 1)}
        lines = []
        for vertex in graph.vertices:
            chain = " -> ".join(operator.name for operator in vertex.operators)
            size = f"(parallelism {vertex.parallelism}, max {vertex.max_parallelism})"
            lines.append(f"{numbers[vertex.id]}. {chain}  {size}")
            for edge in graph.outputs_of(vertex.id):
                by = f" by {', '.join(edge.key_columns)}" if edge.key_columns else ""
                lines.append(f"   {edge.ship.value}{by} -> {numbers[edge.target]}")
        return "\n".join(lines)

    def execute(self, name: str | None = None, *, savepoint: str | None = None) -> JobResult:
        """Runs the job and waits for its end.

        Args:
            name: Of the job, for people.
            savepoint: Directory of a savepoint or checkpoint to start from.

        Raises:
            ConfigError: the job cannot start as it is.
            UnistreamError: it failed; the text says why.
        """
        with self.execute_async(name, savepoint=savepoint) as job:
            result = job.wait()
        if result.failure is not None:
            raise _failure(result.failure)
        return result

    def execute_async(self, name: str | None = None, *, savepoint: str | None = None) -> JobClient:
        """Starts the job and returns at once; the client steers it."""
        from unistream import client
        from unistream.worker import artifact

        graph, code = self.job_graph(name)
        return client.execute(
            graph,
            artifact.pack(code),
            target=self._target,
            config=self._config.to_dict(),
            savepoint=savepoint,
        )

    def _max_parallelism(self) -> int | None:
        value = self._config.get(MAX_PARALLELISM)
        return None if value == -1 else value


def _failure(failure: TaskFailure) -> UnistreamError:
    """The error that stopped a job, in the class that it had where it happened."""
    kinds: dict[str, type[UnistreamError]] = {
        kind.__name__: kind for kind in (ConfigError, UserCodeError, Fenced, OutcomeUnknown)
    }
    return kinds.get(failure.kind, UnistreamError)(failure.message)
