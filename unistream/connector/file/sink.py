"""Folders of files as a sink, exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.limits import MIB
from unistream.base.secrets import resolved_options
from unistream.connector.file.sink_committer import FileSinkCommitter
from unistream.connector.file.sink_format import SUFFIXES, Buckets, Format, check_schema
from unistream.connector.file.sink_stage import FileStage, decode_committable
from unistream.connector.file.sink_writer import FileSinkWriter
from unistream.port.sink import Committer, SinkWriter

TARGET_FILE_BYTES: Final = 64 * MIB

OnRewind = Literal["refuse", "allow_duplicates"]


class FileSink:
    """Writes the stream to files in a folder: Parquet or JSON lines, new files at every checkpoint, visible
    once it is complete.

    A file is first staged (hidden), belongs to its checkpoint when that is complete, and is then renamed to
    ``part-…``. Empty files are never written. For whole checkpoints that appear at one moment use a table.

    Args:
        path: Local path or URL of the folder; made if it does not exist.
        format: ``"parquet"`` or ``"json"`` (one object per line).
        partition_by: Columns whose values name folders, ``column=value/``; they are left out of the files.
        bucket_by_time: `strftime` format of another level of folders, as ``"%Y-%m-%d/%H"``.
        time_column: The time for that; None: the rows' event time.
        target_file_bytes: Rows of one folder are written out with the row with which they take this much
            memory (on disk Parquet takes less); besides at every checkpoint, and the largest when those
            of all folders of a task take more than 128 MiB.
        on_rewind: What to do when the job is restored from a checkpoint older than what the folder
            holds: ``"refuse"`` to start, or write it again.
        filesystem_options: For fsspec (``key``, ``endpoint_url``, …); text may be ``${env:NAME}``,
            ``${file:PATH}`` or a `Secret`.

    Raises:
        ConfigError: an argument cannot work.

    >>> sink = FileSink("/tmp/flights", partition_by=["origin"])
    >>> sink.check(pa.schema([("origin", pa.string()), ("delay", pa.int64())]))
    """

    def __init__(
        self,
        path: str,
        *,
        format: Format = "parquet",
        partition_by: Sequence[str] = (),
        bucket_by_time: str | None = None,
        time_column: str | None = None,
        target_file_bytes: int = TARGET_FILE_BYTES,
        on_rewind: OnRewind = "refuse",
        filesystem_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not path:
            raise ConfigError("a file sink needs the path or URL of its folder")
        if format not in SUFFIXES:
            raise ConfigError(f"file sink: format must be one of {', '.join(SUFFIXES)}, not {format!r}")
        if target_file_bytes < 1:
            raise ConfigError(f"target_file_bytes must be above 0, not {target_file_bytes}")
        if on_rewind not in ("refuse", "allow_duplicates"):
            raise ConfigError(f"on_rewind must be 'refuse' or 'allow_duplicates', not {on_rewind!r}")
        if time_column is not None and bucket_by_time is None:
            raise ConfigError("file sink: time_column needs bucket_by_time, the format of the folders")
        self._root = _absolute(path)
        self._format: Format = format
        self._partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self._bucket_by_time = bucket_by_time
        self._time_column = time_column
        self._target_file_bytes = target_file_bytes
        self._on_rewind = on_rewind
        self._filesystem_options = dict(filesystem_options or {})

    @property
    def name(self) -> str:
        return "files"

    @property
    def path(self) -> str:
        """Absolute."""
        return self._root

    @property
    def global_committer(self) -> bool:
        """Files are renamed by one task: the record of a checkpoint names those of all writers."""
        return True

    def check(self, schema: pa.Schema | None) -> None:
        """Writes nothing.

        Raises:
            ConfigError: a column is not there, nothing would be left in the files, the format cannot hold
                the type of a column or no folder can be made of it, or the path is a file.
        """
        self._stage()
        if "://" not in self._root and os.path.exists(self._root) and not os.path.isdir(self._root):
            raise ConfigError(f"file sink: {self._root} is not a folder")
        if schema is None:
            return
        check_schema(schema, self._format, self._buckets())

    def create_writer(self) -> SinkWriter:
        return FileSinkWriter(
            root=self._root,
            stage=self._stage(),
            file_format=self._format,
            buckets=self._buckets(),
            target_bytes=self._target_file_bytes,
        )

    def create_committer(self) -> Committer | None:
        allow = self._on_rewind == "allow_duplicates"
        return FileSinkCommitter(root=self._root, stage=self._stage(), allow_rewind=allow)

    def _buckets(self) -> Buckets:
        return Buckets(self._partition_by, self._bucket_by_time, self._time_column)

    def _stage(self) -> FileStage:
        return FileStage(self._root, resolved_options("filesystem option", self._filesystem_options))


def committer_of(committables: Sequence[bytes]) -> Committer:
    """The committer of what a snapshot lists. Credentials come from the environment, as fsspec reads it.

    Raises:
        CorruptSnapshot: a committable cannot be read.
    """
    root = decode_committable(committables[0]).root
    return FileSinkCommitter(root=root, stage=FileStage(root, {}), allow_rewind=False)


def _absolute(path: str) -> str:
    """Workers run in other folders. ``file://`` URLs become paths."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return os.path.abspath(path)
    return os.path.abspath(rest) if scheme == "file" else path.rstrip("/")
