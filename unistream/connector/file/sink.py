"""Folders of files as a sink, exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from unistream.base.errors import ConfigError
from unistream.base.limits import MIB
from unistream.base.secrets import resolved_options
from unistream.connector.common import OnRewind, TargetSink, absolute, names_of
from unistream.connector.file.folders import table_at
from unistream.connector.file.line import check_no_other, last_commit
from unistream.connector.file.row_check import FileRowCheck
from unistream.connector.file.sink_committer import FileSinkCommitter
from unistream.connector.file.sink_format import SUFFIXES, BucketAssigner, Format, check_schema
from unistream.connector.file.sink_parts import decode_committable
from unistream.connector.file.sink_stage import FileStage
from unistream.connector.file.sink_writer import FileSinkWriter
from unistream.model.lineage import LineageDataset, dataset_at
from unistream.port.line import LineCommit, OnForeign
from unistream.port.sink import Committer, RowCheck, SinkWriter

TARGET_FILE_BYTES: Final = 64 * MIB


class FileSink(TargetSink):
    """Writes the stream to files in a folder: Parquet, JSON lines or CSV, new files at every checkpoint,
    visible once it is complete.

    A file is staged (hidden), and renamed to ``part-…`` when its checkpoint is complete. Empty files are
    never written. Files of a checkpoint appear one after the other; a table shows them at once.

    Args:
        path: Local path or URL of the folder; created if it does not exist.
        format: ``"parquet"``, ``"json"`` (one object per line) or ``"csv"`` (texts in quotes, a null is
            nothing; to be read by a `FileSource` with ``text_nulls=True``).
        partition_by: Columns whose values name folders, ``column=value/``; the files do not contain them.
        bucket_by_time: `strftime` format of another level of folders, such as ``"%Y-%m-%d/%H"``.
        time_column: The time for that; None: the rows' event time.
        target_file_bytes: Rows of one folder are written to a file when they take this much memory (Parquet
            is smaller on disk), and at every checkpoint; the largest also when those of all folders of a
            task take more than 128 MiB.
        on_rewind: If the job is restored from a checkpoint older than the folder's last: ``"refuse"`` to
            start, or ``"allow_duplicates"``.
        on_foreign: If another line of jobs writes the folder (this job was not started from a snapshot of
            it): ``"refuse"`` to start, or ``"append"`` to it.
        filesystem_options: Options of fsspec (``key``, ``endpoint_url``, …); text may be ``${env:NAME}``,
            ``${file:PATH}`` or a `Secret`.

    Raises:
        ConfigError: an argument is wrong.

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
        on_foreign: OnForeign = "refuse",
        filesystem_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not path:
            raise ConfigError("a file sink needs the path or URL of its folder")
        if format not in SUFFIXES:
            raise ConfigError(f"file sink: format must be one of {', '.join(SUFFIXES)}, not {format!r}")
        super().__init__(on_rewind=on_rewind, on_foreign=on_foreign, target_file_bytes=target_file_bytes)
        if time_column is not None and bucket_by_time is None:
            raise ConfigError("file sink: time_column needs bucket_by_time, the format of the folders")
        self._root = absolute(path)
        self._format: Format = format
        self._partition_by = names_of(partition_by)
        self._bucket_by_time = bucket_by_time
        self._time_column = time_column
        self._target_file_bytes = target_file_bytes
        self._filesystem_options = dict(filesystem_options or {})

    @property
    def name(self) -> str:
        return "files"

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        return [dataset_at(self._root, self._format)]

    @property
    def path(self) -> str:
        """The absolute path or URL of the folder."""
        return self._root

    def check(self, schema: pa.Schema | None) -> None:
        """Writes nothing.

        Raises:
            ConfigError: a column is missing, no column is left for the files, the format does not support the
                type of a column, its values cannot name folders, or the path is a file or a table.
        """
        self._stage()
        if "://" not in self._root and os.path.exists(self._root) and not os.path.isdir(self._root):
            raise ConfigError(f"file sink: {self._root} is not a folder")
        if "://" not in self._root and (kind := table_at(LocalFileSystem(), self._root)) is not None:
            raise ConfigError(
                f"file sink: {self._root} is {kind}, whose readers would not see the files: write to the "
                "table by its own sink, such as us.DeltaSink, or to another folder"
            )
        if schema is not None:
            check_schema(schema, self._format, self._buckets())

    def check_new_line(self, lineage: str = "") -> None:
        """See `unistream.port.line.KeepsLine`."""
        if self._on_foreign == "refuse":
            check_no_other(f"file sink: {self._root}", self._stage(), lineage)

    def last_commit(self, sink_uid: str) -> LineCommit | None:
        """See `unistream.port.line.KeepsLine`."""
        return last_commit(self._stage(), sink_uid)

    def create_row_check(self) -> RowCheck:
        """See `unistream.port.sink.ChecksRows`."""
        return FileRowCheck(self._buckets(), self._format)

    def create_writer(self) -> SinkWriter:
        return FileSinkWriter(
            root=self._root,
            stage=self._stage(),
            file_format=self._format,
            buckets=self._buckets(),
            target_bytes=self._target_file_bytes,
        )

    def create_committer(self) -> Committer | None:
        return FileSinkCommitter(
            root=self._root,
            stage=self._stage(),
            allow_rewind=self._on_rewind == "allow_duplicates",
            append_to_foreign=self._on_foreign == "append",
        )

    def _buckets(self) -> BucketAssigner:
        return BucketAssigner(self._partition_by, self._bucket_by_time, self._time_column)

    def _stage(self) -> FileStage:
        return FileStage(self._root, resolved_options("filesystem option", self._filesystem_options))


def committer_of(committables: Sequence[bytes]) -> Committer:
    """The committer for committables of a snapshot. Credentials come from the environment, as fsspec reads
    it.

    Raises:
        CorruptSnapshot: a committable cannot be read.
    """
    root = decode_committable(committables[0]).root
    return FileSinkCommitter(
        root=root, stage=FileStage(root, {}), allow_rewind=False, append_to_foreign=False
    )
