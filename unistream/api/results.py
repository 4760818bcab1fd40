"""The part of `DataStream` that runs a bounded pipeline and returns its rows."""

from __future__ import annotations

import tempfile
import uuid
from abc import abstractmethod
from typing import TYPE_CHECKING

import pyarrow as pa

from unistream.api.exchanges import Exchanges
from unistream.api.sinks import DataStreamSink
from unistream.base.config import RUNTIME_MODE
from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.port.sink import Sink

if TYPE_CHECKING:
    from unistream.host.spark_frames import DataFrame, SparkSession


class Results(Exchanges):
    """Methods that run the job and return this stream's rows."""

    @abstractmethod
    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Writes the rows."""

    def execute_and_collect(self, name: str | None = None) -> pa.Table:
        """Runs the job, which must be bounded, and returns this stream's rows in no particular order.

        The rows are exchanged through a folder of this machine, so the workers must run on it. Other sinks of
        the pipeline are written too, each time.

        Raises:
            UnistreamError: the job failed; the text says why.
        """
        from unistream.connector.collect import CollectSink, read_collected

        with tempfile.TemporaryDirectory(prefix="unistream-collect-") as folder:
            with self._builder.without_additions():
                self.sink_to(CollectSink(folder))
                self._builder.run(name, {})
            try:
                return read_collected(folder)
            except ConfigError:
                if self.schema is None:
                    raise
                return self.schema.empty_table()  # without rows no file has their types

    def to_dataframe(
        self,
        name: str | None = None,
        *,
        spark: SparkSession | None = None,
        staging: str | None = None,
    ) -> DataFrame:
        """Runs the pipeline as a BATCH job and returns a Spark DataFrame of this stream's rows.

        The job ends before this returns. The rows are in Parquet files until this program ends; other sinks
        of the pipeline are written too.

        Args:
            name: Name of the job.
            spark: Session of the DataFrame; None: the active one.
            staging: Path or URL of a folder for the rows that Spark, the workers and this program can all
                use; None: one of this machine, below ``$UNISTREAM_HOME``.

        Raises:
            ConfigError: the pipeline is unbounded, there is no session, a column has no type in Spark, or
                not all machines have the folder.
            UnistreamError: the job failed; the text says why.

        ::

            by_carrier = flights.key_by("carrier").window(...).aggregate(delay=us.sum("delay"))
            by_carrier.to_dataframe().where("delay > 100").show()
        """
        require("spark", "to_dataframe")
        from unistream.client.frames import frame_folder
        from unistream.connector.file import FileSink
        from unistream.host.spark_frames import (
            active_session,
            check_sees_folders,
            is_case_sensitive,
            read_frame,
        )
        from unistream.host.spark_types import spark_schema

        self._check_bounded()
        session = active_session("to_dataframe") if spark is None else spark
        if staging is not None and not staging:
            raise ConfigError("to_dataframe: staging= is the path or URL of a folder")
        check_sees_folders(session, staging, "to_dataframe")
        if self.schema is not None:
            spark_schema(self.schema, "to_dataframe", case_sensitive=is_case_sensitive(session))
        folder = frame_folder(staging)
        try:
            uid = f"dataframe-{uuid.uuid4().hex}"
            with self._builder.without_additions():
                self.sink_to(FileSink(folder.path)).name("dataframe").uid(uid)
                result = self._builder.run(name, {RUNTIME_MODE.key: "BATCH"})
            rows = sum(sink.rows for key, sink in result.sinks.items() if key.startswith(uid))
            return read_frame(session, folder, self.schema, rows, "to_dataframe")
        except BaseException:
            folder.close()
            raise

    def _check_bounded(self) -> None:
        for node in self._builder.graph.nodes:
            if node.source is not None and not node.source.bounded:
                raise ConfigError(
                    f"to_dataframe: source {node.name!r} is unbounded, so the job would never end; write the "
                    "stream to a sink such as DeltaSink, or read a bounded source"
                )
