"""The part of `Environment` that adds sources."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from unistream.api.collections import collected
from unistream.api.described import is_described
from unistream.api.frames import DataFrameSource
from unistream.api.graph import GraphBuilder, Port, check_node_name, check_timestamp_column
from unistream.api.stream import DataStream
from unistream.base.errors import ConfigError, Unreachable
from unistream.model.columns.given_schema import Columns, as_schema
from unistream.model.graph import SourceInfo
from unistream.model.watermarks import WatermarkStrategy
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import DEAD_LETTERS_TAG, SendsDeadLetters, Source, timed

if TYPE_CHECKING:
    from unistream.host.spark_frames import DataFrame


_log = logging.getLogger(__name__)


class SourceMethods:
    """Methods that begin a stream."""

    _builder: GraphBuilder

    def from_source(
        self, source: Source, watermark_strategy: WatermarkStrategy, name: str | None = None
    ) -> DataStream:
        """A stream of the rows of `source`.

        Raises:
            ConfigError: an argument has the wrong type, or the timestamp column is not a time column of the
                source.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        >>> env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").schema.names
        ['n']
        """
        if inspect.isclass(source) or not callable(getattr(source, "create_reader", None)):
            raise ConfigError(
                f"from_source takes a source such as us.StaticSource(table), not {type(source).__name__}"
            )
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise ConfigError(
                "from_source takes a WatermarkStrategy, such as us.WatermarkStrategy.no_watermarks(),"
                f" not {watermark_strategy!r:.200}"
            )
        name = source.name if name is None else check_node_name(name)
        schema, info = _found(source, name)
        column = watermark_strategy.timestamp_column
        if column is not None:
            check_timestamp_column(schema, column, f"source {name!r}")
            source = timed(source, column)
        node = self._builder.add(
            name, SourceOperatorSpec(source=source, watermarks=watermark_strategy), stateful=True
        )
        node.source = info
        if column is not None and info is not None and schema is not None:
            node.source = msgspec.structs.replace(
                info, timestamp_column=column, timestamp_type=str(schema.field(column).type)
            )
        if isinstance(source, SendsDeadLetters) and source.dead_letter_schema is not None:
            self._builder.schemas[node.id, DEAD_LETTERS_TAG] = source.dead_letter_schema
        return DataStream(self._builder, (Port(node.id),), schema)

    def from_collection(
        self,
        rows: Iterable[Mapping[str, Any]] | pa.Table,
        schema: pa.Schema | Columns | None = None,
        *,
        watermark_strategy: WatermarkStrategy | None = None,
        name: str = "collection",
    ) -> DataStream:
        """A bounded stream of rows of this program, in their order: for lookups, examples and tests.

        Args:
            rows: A dict for each row, or a table; at most 256 MiB. They are copied now.
            schema: Columns and their types; None: those of the rows.
            watermark_strategy: None: the rows have no event times.
            name: Name of the source.

        Raises:
            ConfigError: a row does not fit, or there are too many.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> env.from_collection([{"carrier": "AA", "name": "American"}], name="carriers").schema.names
        ['carrier', 'name']
        """
        from unistream.connector.static import StaticSource

        table = collected(rows, as_schema(schema, "schema="))
        return self.from_source(
            StaticSource(table), watermark_strategy or WatermarkStrategy.no_watermarks(), name
        )

    def from_dataframe(
        self,
        df: DataFrame,
        watermark_strategy: WatermarkStrategy | None = None,
        name: str = "dataframe",
        *,
        staging: str | None = None,
    ) -> DataStream:
        """A bounded stream of the rows of a Spark DataFrame, in no particular order.

        Spark evaluates the DataFrame once for each job, when the job is started, and writes its rows to
        Parquet files, which the job reads on any target, also after a restart. They are removed when the
        job has ended; until then this program has to run.

        Args:
            df: Its types must have a form in Arrow.
            watermark_strategy: None: the rows have no event times.
            name: Name of the source.
            staging: Path or URL of a folder for the rows that Spark, the workers, the cluster and this
                program can all use; None: one of this machine, below ``$UNISTREAM_HOME``.

        Raises:
            ConfigError: an argument has the wrong type, a column has no Arrow type or the name of another
                one, or Spark runs on other machines and there is no `staging`.

        ::

            flights = env.from_dataframe(spark.table("flights").where("year = 2013"))
        """
        source = DataFrameSource(df, staging)
        return self.from_source(source, watermark_strategy or WatermarkStrategy.no_watermarks(), name)


def _found(source: Source, name: str) -> tuple[pa.Schema | None, SourceInfo | None]:
    """Its columns, and how its splits are found. None: it cannot say now, in a pipeline that is described.

    Raises:
        ConfigError, Unreachable: in any other.
    """
    try:
        return source.schema, source.info()
    except (ConfigError, Unreachable) as error:
        if not is_described():
            raise
        _log.warning("event=source_not_described source=%r reason=%r", name, str(error))
        return None, None
