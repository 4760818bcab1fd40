"""A Spark DataFrame as a bounded source, whose rows are staged for each job that is started."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.extras import require
from unistream.model.graph import SourceInfo
from unistream.model.stream_graph import StreamGraph, StreamNode
from unistream.port.operator import SourceOperatorSpec
from unistream.port.source import Source, SourceReader

if TYPE_CHECKING:
    from unistream.client.remote.job_client import JobClient
    from unistream.host.spark_frames import DataFrame, FrameFolder

POLL_S: Final = 0.2
LOST_S: Final = 60.0  # a cluster that does not answer for so long is not waited for
REMOVED_S: Final = 30.0

_log = logging.getLogger(__name__)


class DataFrameSource:
    """The rows of `frame`. Used through `Environment.from_dataframe`: it cannot be read before it is staged.

    Raises:
        ConfigError: it is no DataFrame, a type has no Arrow form, or Spark needs `staging`.
    """

    def __init__(self, frame: DataFrame, staging: str | None) -> None:
        require("spark", "from_dataframe")
        from unistream.host.spark_frames import check_sees_folders, is_case_sensitive
        from unistream.host.spark_types import arrow_schema

        session = getattr(frame, "sparkSession", None)
        if session is None or not hasattr(type(frame), "observe"):
            raise ConfigError(f"from_dataframe takes a Spark DataFrame, not {type(frame).__name__}")
        if frame.isStreaming:
            raise ConfigError("from_dataframe: a streaming DataFrame is unbounded; read its source itself")
        if staging is not None and not staging:
            raise ConfigError("from_dataframe: staging= is the path or URL of a folder")
        check_sees_folders(session, staging, "from_dataframe")
        case_sensitive = is_case_sensitive(session)
        self._schema = arrow_schema(frame.schema, "from_dataframe", case_sensitive=case_sensitive)
        self._frame = frame
        self._staging = staging

    @property
    def name(self) -> str:
        return "dataframe"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def info(self) -> SourceInfo:
        return SourceInfo(connector="dataframe", options={}, bounded=True, pull=True)

    def create_reader(self) -> SourceReader:
        raise ConfigError(
            "the rows of a DataFrame are staged when its Environment starts the job: use execute, "
            "execute_async or 'unistream run'"
        )

    def stage(self, name: str) -> tuple[Source, FrameFolder]:
        """Evaluates the DataFrame; the source of its rows, and the folder that contains them.

        Raises:
            UserCodeError: Spark could not evaluate it.
            ConfigError: the folder is not one for all machines.
        """
        from unistream.client.machine.frames import frame_folder
        from unistream.connector.file import FileSource
        from unistream.host.spark_frames import write_frame

        folder = frame_folder(self._staging)
        try:
            files = write_frame(self._frame, folder, f"source {name!r}")
            return FileSource(files, schema=self._schema), folder
        except BaseException:
            folder.close()
            raise


def refuse_detached(graph: StreamGraph) -> None:
    """Raises ConfigError if the job would outlive the program that keeps the rows of its DataFrames."""
    for name in frame_sources(graph):
        raise ConfigError(
            f"run --detached: source {name!r} is a DataFrame, whose rows are kept by the program that starts "
            "the job; run it without --detached"
        )


def frame_sources(graph: StreamGraph) -> list[str]:
    """Names of the sources that are DataFrames."""
    return [
        node.name
        for node in graph.nodes
        if isinstance(node.operator, SourceOperatorSpec) and isinstance(node.operator.source, DataFrameSource)
    ]


class Frames:
    """The staged rows of one job.

    >>> Frames().close()
    """

    def __init__(self) -> None:
        self._folders: list[FrameFolder] = []
        self._watcher: threading.Thread | None = None

    @property
    def staged(self) -> bool:
        """There are some: the program must live as long as the job."""
        return bool(self._folders)

    def stage(self, graph: StreamGraph) -> None:
        """Replaces the sources of `graph` that are DataFrames by sources of their rows. Raises as
        `DataFrameSource.stage` does."""
        try:
            for place, node in enumerate(graph.nodes):
                operator = node.operator
                if isinstance(operator, SourceOperatorSpec) and isinstance(operator.source, DataFrameSource):
                    source, folder = operator.source.stage(node.name)
                    self._folders.append(folder)
                    graph.nodes[place] = staged(node, operator, source)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """A block inside which the job is started; the rows are removed if that fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def remove_after(self, job: JobClient, *, target: str | None, config: Configuration) -> None:
        """Removes the rows when the job has ended. Until then the program does not end."""
        if not self._folders:
            return
        job_id, status = job.job_id, job.status
        if target == "remote":  # the caller may close the client, and the job runs on
            from unistream.client.job.submission import connect
            from unistream.client.remote.rest_client import RestJobClient

            connection = connect(config)
            own = RestJobClient(connection, job_id, owns_connection=True)
            status = own.status
            closing: contextlib.AbstractContextManager[object] = contextlib.closing(own)
        else:
            closing = contextlib.nullcontext()

        def watch() -> None:
            try:
                with closing:
                    _wait_for_end(lambda: status().is_terminal)
            finally:
                self.close()

        self._watcher = threading.Thread(target=watch, name=f"frames-{job_id}")
        self._watcher.start()

    def wait_removed(self) -> None:
        """Returns when the rows of an ended job have been removed."""
        if self._watcher is not None:
            self._watcher.join(REMOVED_S)

    def close(self) -> None:
        """Safe to repeat."""
        for folder in self._folders:
            folder.close()


def _wait_for_end(has_ended: Callable[[], bool]) -> None:
    seen_s = time.monotonic()
    while time.monotonic() - seen_s < LOST_S:
        try:
            if has_ended():
                return
            seen_s = time.monotonic()
        except UnistreamError as error:
            _log.info("event=frames_status_unknown reason=%r", error)
        time.sleep(POLL_S)


def staged(node: StreamNode, operator: SourceOperatorSpec, source: Source) -> StreamNode:
    """`node` with another source of the same rows."""
    before = node.source
    assert before is not None, "a source node has the description of its source"
    info = msgspec.structs.replace(
        source.info(), timestamp_column=before.timestamp_column, timestamp_type=before.timestamp_type
    )
    return replace(node, operator=replace(operator, source=source), source=info)
