"""Delta Lake tables as a sink, exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.limits import MIB
from unistream.base.object_stores import delta_options
from unistream.base.secrets import Secret, resolved_options
from unistream.connector import common
from unistream.connector.delta.row_check import DeltaRowCheck
from unistream.connector.delta.schema import check_fits, check_rewritable, stored_schema
from unistream.connector.delta.stage import decode_committable
from unistream.connector.delta.table_uri import checked_uri
from unistream.connector.delta.writer import DeltaWriter
from unistream.model.expression import Expression, as_arrow
from unistream.model.lineage import LineageDataset, dataset_at
from unistream.port.line import LineCommit, OnForeign
from unistream.port.replacement import RangeTarget
from unistream.port.sink import Committer, RowCheck, SinkWriter, TableDescription

TARGET_FILE_BYTES: Final = 64 * MIB
Mode: TypeAlias = Literal["append", "upsert", "overwrite-partitions"]
MODES: Final[tuple[Mode, ...]] = ("append", "upsert", "overwrite-partitions")


class DeltaSink(common.KeyedSink):
    """Writes the stream to a Delta table: one commit for each checkpoint, visible once it is complete.

    Args:
        table_uri: Local path or URL of the table's folder.
        partition_by: Columns whose values divide the table, in order. A row with the empty text there is
            refused: the Delta protocol has it for null, so it would not come back. In the modes that replace
            rows, so is ``__HIVE_DEFAULT_PARTITION__``, and a decimal column: deltalake, which writes the
            files then, gets them wrong.
        mode: ``"append"`` adds rows. ``"upsert"`` replaces the row of the same key, by the last one of a
            checkpoint (``MERGE``): the committer holds the rows of a checkpoint in memory, and the table's
            files that have some of the keys are written again. Rows of one key have to come to one subtask
            (`key_by`), else it is not defined which of them is the last. ``"overwrite-partitions"``, in a job
            that commits once, at its end: the rows replace what is in their partitions, and other partitions
            stay. A table without partitions is replaced as a whole.
        key: Column, or columns, of the key, with ``"upsert"``. In the table each key has to be there once.
        delete_when: With ``"upsert"``: an expression over the columns; rows for which it holds remove the row
            of their key, and are not written.
        create: Create a missing table at the first commit; otherwise it must exist.
        on_rewind: If the job is restored from a checkpoint older than the table's last: ``"refuse"`` to
            start, or ``"allow_duplicates"``.
        on_foreign: If another line of jobs writes the table (this job was not started from a snapshot of
            it): ``"refuse"`` to start, or ``"append"`` to it.
        target_file_bytes: Rows of one partition value are written to a file when they take this much memory,
            and at every checkpoint.
        auto_compact_files: When a partition has so many files of less than 64 MiB, they are rewritten as few
            large ones (as by Delta's ``OPTIMIZE``) while the stream goes on; None: never.
        time_column: The column with the time of a row, by which `unistream backfill` replaces a range; None:
            ``window_start``, if the rows are results of windows.
        storage_options: Options of deltalake (``AWS_REGION``, …). Here and below, text may be
            ``${env:NAME}``, ``${file:PATH}`` or a `Secret`.
        filesystem_options: Options of fsspec, which writes the data files (``key``, ``endpoint_url``, …);
            needed for tables that are not local.

    Raises:
        ConfigError: an argument is wrong, or deltalake is not installed.
    """

    def __init__(
        self,
        table_uri: str,
        *,
        partition_by: Sequence[str] = (),
        mode: Mode = "append",
        key: str | Sequence[str] = (),
        delete_when: Expression | None = None,
        create: bool = True,
        on_rewind: common.OnRewind = "refuse",
        on_foreign: OnForeign = "refuse",
        target_file_bytes: int = TARGET_FILE_BYTES,
        auto_compact_files: int | None = None,
        time_column: str | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
        filesystem_options: Mapping[str, Any] | None = None,
    ) -> None:
        require("delta", "DeltaSink")
        super().__init__(
            common.checked_upsert("a Delta sink", mode, MODES, key, delete_when),
            on_rewind=on_rewind,
            on_foreign=on_foreign,
            target_file_bytes=target_file_bytes,
        )
        self._delete_when = as_arrow(delete_when)
        self._overwrite = mode == "overwrite-partitions"
        self._table_uri = checked_uri(table_uri, "sink")
        self._partition_by = common.names_of(partition_by)
        self._create = create
        self._target_file_bytes = target_file_bytes
        self._auto_compact_files = _checked_files(auto_compact_files)
        self._time_column = time_column
        self._storage_options = dict(storage_options or {})
        self._filesystem_options = dict(filesystem_options or {})

    @property
    def name(self) -> str:
        return "delta"

    @property
    def table_uri(self) -> str:
        """The absolute path or URL of the table."""
        return self._table_uri

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        return [dataset_at(self._table_uri, "delta")]

    @property
    def records_positions(self) -> bool:
        return True

    def check(self, schema: pa.Schema | None) -> None:
        """Reads the table if there is one; creates nothing.

        Raises:
            ConfigError: the stream does not fit the table, has a type that Delta does not support, or the
                table is missing or cannot be created.
        """
        require("delta", "a Delta table")
        from unistream.connector.delta.table import DeltaSinkTable

        table = DeltaSinkTable.open(self._table_uri, self._resolved_storage_options())
        if table is None:
            self._check_creatable()
        if schema is None:
            return
        stored = stored_schema(schema, self._partition_by)
        self._check_time_column(stored)
        self._check_upsert(schema, stored)
        if self.replaces_rows:
            check_rewritable(f"table {self._table_uri}", stored, self._partition_by)
        if table is not None:
            check_fits(table.shape, stored, self._partition_by, replaces_rows=self.replaces_rows)

    @property
    def replaces_rows(self) -> bool:
        """See `unistream.port.sink.ReplacesRows`."""
        return self._upsert is not None or self._overwrite

    def check_new_line(self, lineage: str = "") -> None:
        """See `unistream.port.line.KeepsLine`."""
        from unistream.connector.delta.line import check_no_other
        from unistream.connector.delta.table import DeltaSinkTable

        table = DeltaSinkTable.open(self._table_uri, self._resolved_storage_options())
        if table is not None and self._on_foreign == "refuse":
            check_no_other(f"table {self._table_uri}", table, lineage)

    def last_commit(self, sink_uid: str) -> LineCommit | None:
        """See `unistream.port.line.KeepsLine`."""
        from unistream.connector.delta.line import last_commit
        from unistream.connector.delta.table import DeltaSinkTable

        table = DeltaSinkTable.open(self._table_uri, self._resolved_storage_options())
        return None if table is None else last_commit(table, sink_uid)

    def description(self) -> TableDescription | None:
        """See `unistream.port.sink.DescribesTable`: from the table's log."""
        from unistream.connector.delta.table import DeltaSinkTable

        table = DeltaSinkTable.open(self._table_uri, self._resolved_storage_options())
        return None if table is None else TableDescription(table.shape.schema, table.row_count())

    @property
    def time_column(self) -> str | None:
        return self._time_column

    def range_target(self, column: str) -> RangeTarget:
        """See `unistream.port.replacement.WithRangeReplacement`."""
        require("delta", "a Delta table")
        from unistream.connector.delta.replacement import DeltaRange

        return DeltaRange(
            self._table_uri,
            column,
            partition_by=self._partition_by,
            options=self._resolved_storage_options(),
            filesystem_options=resolved_options("filesystem option", self._filesystem_options),
        )

    def create_row_check(self) -> RowCheck:
        """See `unistream.port.sink.ChecksRows`."""
        return DeltaRowCheck(self._table_uri, self._partition_by, self.row_key, rewritten=self.replaces_rows)

    def create_writer(self) -> SinkWriter:
        return DeltaWriter(
            table_uri=self._table_uri,
            partition_by=self._partition_by,
            target_file_bytes=self._target_file_bytes,
            stage=self._stage(),
            create=self._create,
            upsert=self._upsert,
            delete_when=self._delete_when,
            overwrite=self._overwrite,
        )

    def create_committer(self) -> Committer | None:
        return _committer(
            table_uri=self._table_uri,
            partition_by=self._partition_by,
            create=self._create,
            allow_rewind=self._on_rewind == "allow_duplicates",
            append_to_foreign=self._on_foreign == "append",
            storage_options=self._resolved_storage_options(),
            stage=self._stage(),
            auto_compact_files=self._auto_compact_files,
        )

    def _stage(self) -> common.StageFiles:
        options = resolved_options("filesystem option", self._filesystem_options)
        return common.StageFiles(self._table_uri, options, f"table {self._table_uri}")

    def _resolved_storage_options(self) -> dict[str, str]:
        options: dict[str, str] = resolved_options("storage option", self._storage_options)
        return delta_options(self._table_uri, options)

    def _check_time_column(self, stored: pa.Schema) -> None:
        name = self._time_column
        if name is None:
            return
        if name not in stored.names:
            raise ConfigError(
                f"time_column {name!r} is no column of the stream, which has {', '.join(stored.names)}"
            )
        if not pa.types.is_timestamp(stored.field(name).type):
            raise ConfigError(f"time_column {name!r} is {stored.field(name).type}; it has to be a timestamp")

    def _check_upsert(self, schema: pa.Schema, stored: pa.Schema) -> None:
        """Checks the key and the condition of an upsert. Raises ConfigError: the table or the rows do not
        have them."""
        if self._upsert is not None:
            common.check_key("a Delta table", self._upsert.key, stored, takes_bytes=False)
        common.check_condition(self._delete_when, schema)

    def _check_creatable(self) -> None:
        if not self._create:
            raise ConfigError(f"there is no table at {self._table_uri}, and the sink has create=False")
        if "://" in self._table_uri:
            return
        folder = self._table_uri
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.exists(folder):
            raise ConfigError(f"table {self._table_uri} cannot be created: {folder} is a link to nothing")
        if not os.path.isdir(folder):
            raise ConfigError(f"table {self._table_uri} cannot be created: {folder} is a file")
        if not os.access(folder, os.W_OK):
            raise ConfigError(
                f"table {self._table_uri} cannot be created: no permission to write in {folder}"
            )


def committer_of(committables: Sequence[bytes]) -> Committer:
    """The committer for committables of a snapshot. Credentials come from the environment, as deltalake and
    fsspec read it (``AWS_ACCESS_KEY_ID``, …).

    Raises:
        ConfigError: deltalake is not installed.
        CorruptSnapshot: a committable cannot be read.
    """
    staged = decode_committable(committables[0])
    return _committer(
        table_uri=staged.table_uri,
        partition_by=staged.partition_by,
        create=staged.create,
        allow_rewind=False,
        append_to_foreign=False,
        storage_options=delta_options(staged.table_uri, {}),
        stage=common.StageFiles(staged.table_uri, {}, f"table {staged.table_uri}"),
    )


def _committer(**arguments: Any) -> Committer:
    """Imports deltalake, which a client that only inspects a pipeline does not need."""
    require("delta", "a Delta table")
    from unistream.connector.delta.committer import DeltaCommitter

    return DeltaCommitter(**arguments)


def _checked_files(files: int | None) -> int | None:
    """The argument `auto_compact_files` if it is valid. Raises ConfigError: it is below 2, or no number."""
    if files is not None and (isinstance(files, bool) or not isinstance(files, int) or files < 2):
        raise ConfigError(f"auto_compact_files is a number from 2 on, such as 50, or None, not {files!r}")
    return files
