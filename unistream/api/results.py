"""The part of `DataStream` that looks at rows: a job of what leads to them, which writes to no sink.

rows ──► filter ──► sink            `execute` runs all of it
└──► map ──► execute_and_collect      runs rows and map
"""

from __future__ import annotations

import tempfile
import time
import uuid
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from unistream.api.exchanges import Exchanges
from unistream.api.sinks import DataStreamSink
from unistream.base.config import CHECKPOINT_INTERVAL, RESTART_STRATEGY, RUNTIME_MODE
from unistream.base.errors import AlreadyEnded, ConfigError
from unistream.base.extras import require
from unistream.operator.limit import LimitRows
from unistream.port.sink import Sink

if TYPE_CHECKING:
    from unistream.api.stream import DataStream
    from unistream.client.remote.job_client import JobClient
    from unistream.host.spark_frames import DataFrame, SparkSession

POLL_S: Final = 0.02
AS_THEY_COME: Final = {
    RUNTIME_MODE.key: "STREAMING",
    CHECKPOINT_INTERVAL.key: "100 ms",  # rows are seen when a checkpoint has committed them
    RESTART_STRATEGY.key: "none",
}


class ResultMethods(Exchanges):
    """Methods that run a job of what leads to this stream and return its rows. No sink of the pipeline is
    written: other branches do not run."""

    @abstractmethod
    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Writes the rows."""

    @abstractmethod
    def _then(
        self, name: str, operator: object, schema: pa.Schema | None, *, stateful: bool = False
    ) -> DataStream:
        """The stream behind another operator."""

    def limit(self, n: int) -> DataStream:
        """The first `n` rows, whichever come first; those behind them are read and dropped. One subtask.

        >>> import unistream as us
        >>> rows = us.Environment().from_collection([{"n": 1}, {"n": 2}, {"n": 3}])
        >>> rows.limit(2)
        DataStream(n int64)

        Raises:
            ConfigError: `n` is not a whole number of at least 1.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ConfigError(f"limit: {n!r} is not a number of rows; it is at least 1")
        limited = self._then(f"limit {n}", LimitRows(n), self.schema, stateful=True)
        return limited.set_parallelism(1).set_max_parallelism(1)

    def take(self, n: int, name: str | None = None) -> pa.Table:
        """Runs a job until this stream has `n` rows, or ends, and returns them in no particular order. The
        stream may be unbounded: the job is cancelled then. See `execute_and_collect`.

        >>> import unistream as us
        >>> env = us.Environment(target="local")
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=None, bounded=False)
        >>> endless = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "endless")
        >>> endless.take(3).num_rows
        3

        Raises:
            ConfigError: `n` is not a whole number of at least 1.
            UnistreamError: the job failed; the text says why.
        """
        from unistream.connector.collect import CollectSink, committed_rows

        with tempfile.TemporaryDirectory(prefix="unistream-collect-") as folder, self._builder.looking():
            self.limit(n).sink_to(CollectSink(folder))
            with self._builder.started(name, AS_THEY_COME) as job:
                while committed_rows(folder) < n and not job.status().is_terminal:
                    time.sleep(POLL_S)
                if committed_rows(folder) < n:
                    job.result()
                else:
                    _cancel(job)
            return self._collected(folder)

    def show(self, n: int = 20) -> None:
        """Prints the rows of `take(n)` as a table.

        >>> import unistream as us
        >>> us.Environment(target="local").from_collection([{"id": 7, "name": "AA"}]).show()
        id  name
         7  AA
        """
        from unistream.api.shown import print_table

        print_table(self.take(n))

    def _collected(self, folder: str) -> pa.Table:
        from unistream.connector.collect import read_collected

        try:
            return read_collected(folder)
        except ConfigError:
            if self.schema is None:
                raise
            return self.schema.empty_table()  # without rows no file has their types

    def execute_and_collect(self, name: str | None = None) -> pa.Table:
        """Runs a job of what leads to this stream, which must be bounded, and returns its rows in no
        particular order. The pipeline stays as it is.

        The rows are exchanged through a folder of this machine, so the workers must run on it.

        Raises:
            ConfigError: a source of the stream is unbounded; see `take`.
            UnistreamError: the job failed; the text says why.
        """
        from unistream.client.job.reported import reported_result
        from unistream.connector.collect import CollectSink

        self._check_bounded("execute_and_collect")
        with tempfile.TemporaryDirectory(prefix="unistream-collect-") as folder:
            with self._builder.looking():
                self.sink_to(CollectSink(folder))
                with self._builder.started(name, {}) as job:
                    reported_result(job)
            return self._collected(folder)

    def to_dataframe(
        self,
        name: str | None = None,
        *,
        spark: SparkSession | None = None,
        staging: str | None = None,
    ) -> DataFrame:
        """Runs what leads to this stream as a BATCH job and returns a Spark DataFrame of its rows.

        The job ends before this returns. The rows are in Parquet files until this program ends.

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
        from unistream.client.machine.frames import frame_folder
        from unistream.connector.file import FileSink
        from unistream.host.spark_frames import (
            active_session,
            check_sees_folders,
            is_case_sensitive,
            read_frame,
        )
        from unistream.host.spark_types import spark_schema

        self._check_bounded("to_dataframe")
        session = active_session("to_dataframe") if spark is None else spark
        if staging is not None and not staging:
            raise ConfigError("to_dataframe: staging= is the path or URL of a folder")
        check_sees_folders(session, staging, "to_dataframe")
        if self.schema is not None:
            spark_schema(self.schema, "to_dataframe", case_sensitive=is_case_sensitive(session))
        folder = frame_folder(staging)
        try:
            uid = f"dataframe-{uuid.uuid4().hex}"
            with self._builder.looking():
                self.sink_to(FileSink(folder.path)).name("dataframe").uid(uid)
                with self._builder.started(name, {RUNTIME_MODE.key: "BATCH"}) as job:
                    result = job.result()
            rows = sum(sink.rows for key, sink in result.sinks.items() if key.startswith(uid))
            return read_frame(session, folder, self.schema, rows, "to_dataframe")
        except BaseException:
            folder.close()
            raise

    def _check_bounded(self, what: str) -> None:
        for node in self._builder.upstream(self._ports):
            if node.source is not None and not node.source.bounded:
                raise ConfigError(
                    f"{what}: source {node.name!r} is unbounded, so the job would never end; take(n) returns "
                    "the first rows, a sink such as DeltaSink keeps all, or read a bounded source"
                )


def _cancel(job: JobClient) -> None:
    with suppress(AlreadyEnded):
        job.cancel()
    job.wait()
