"""Delta Lake tables as a sink, exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.limits import MIB
from unistream.base.secrets import Secret, resolved_options
from unistream.connector.delta.schema import check_fits, stored_schema
from unistream.connector.delta.stage import Stage, decode_committable
from unistream.connector.delta.writer import DeltaWriter
from unistream.port.sink import Committer, SinkWriter

if TYPE_CHECKING:
    from unistream.connector.delta.table import LakeTable

SCHEMES: Final = frozenset(
    {"file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "azure", "adl", "hdfs", "r2", "oss"}
)
TARGET_FILE_BYTES: Final = 64 * MIB

OnRewind = Literal["refuse", "allow_duplicates"]


class DeltaSink:
    """Appends the stream to a Delta table: one commit for each checkpoint, visible once it is complete.

    Args:
        table_uri: Local path or URL of the table's folder.
        partition_by: Columns whose values divide the table, in order. The empty text is null there, as
            the Delta protocol wants it.
        mode: ``"append"`` only.
        create: Create the table at the first commit if there is none; else it must exist.
        on_rewind: What to do when the job is restored from a checkpoint older than what the table
            holds: ``"refuse"`` to start, or write it again.
        target_file_bytes: Rows of one partition value are written out when they take this much memory;
            besides at every checkpoint.
        storage_options: For deltalake (``AWS_REGION``, …). As below, text may be ``${env:NAME}``,
            ``${file:PATH}`` or a `Secret`.
        filesystem_options: For fsspec, through which data files are written (``key``, ``endpoint_url``,
            …); needed for tables that are not local.

    Raises:
        ConfigError: an argument cannot work, or deltalake is not installed. Whether stream and table fit
            is told by `check`.
    """

    def __init__(
        self,
        table_uri: str,
        *,
        partition_by: Sequence[str] = (),
        mode: Literal["append"] = "append",
        create: bool = True,
        on_rewind: OnRewind = "refuse",
        target_file_bytes: int = TARGET_FILE_BYTES,
        storage_options: Mapping[str, str | Secret] | None = None,
        filesystem_options: Mapping[str, Any] | None = None,
    ) -> None:
        require("delta", "DeltaSink")
        if mode != "append":
            raise ConfigError(f"a Delta sink can only append, not {mode!r}")
        if on_rewind not in ("refuse", "allow_duplicates"):
            raise ConfigError(f"on_rewind must be 'refuse' or 'allow_duplicates', not {on_rewind!r}")
        if target_file_bytes < 1:
            raise ConfigError(f"target_file_bytes must be above 0, not {target_file_bytes}")
        self._table_uri = _absolute(table_uri)
        self._partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self._create = create
        self._on_rewind = on_rewind
        self._target_file_bytes = target_file_bytes
        self._storage_options = dict(storage_options or {})
        self._filesystem_options = dict(filesystem_options or {})

    @property
    def name(self) -> str:
        return "delta"

    @property
    def table_uri(self) -> str:
        """Absolute."""
        return self._table_uri

    @property
    def global_committer(self) -> bool:
        return True

    def check(self, schema: pa.Schema | None) -> None:
        """Looks at the table if there is one; creates nothing.

        Raises:
            ConfigError: the stream does not fit the table (column, found and wanted type), has a type
                that Delta does not know, or the table is missing or cannot be created.
        """
        table = _open_table(self._table_uri, self._opened_with())
        if table is None:
            self._check_creatable()
        if schema is None:
            return
        stored = stored_schema(schema, self._partition_by)
        if table is not None:
            check_fits(table.shape, stored, self._partition_by)

    def create_writer(self) -> SinkWriter:
        return DeltaWriter(
            table_uri=self._table_uri,
            partition_by=self._partition_by,
            target_file_bytes=self._target_file_bytes,
            options=resolved_options("filesystem option", self._filesystem_options),
            create=self._create,
        )

    def create_committer(self) -> Committer | None:
        return _committer(
            table_uri=self._table_uri,
            partition_by=self._partition_by,
            create=self._create,
            allow_rewind=self._on_rewind == "allow_duplicates",
            storage_options=self._opened_with(),
            stage=Stage(self._table_uri, resolved_options("filesystem option", self._filesystem_options)),
        )

    def _opened_with(self) -> dict[str, str]:
        return resolved_options("storage option", self._storage_options)

    def _check_creatable(self) -> None:
        if not self._create:
            raise ConfigError(f"there is no table at {self._table_uri}, and the sink has create=False")
        if "://" in self._table_uri:
            return
        folder = self._table_uri
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder):
            raise ConfigError(f"table {self._table_uri} cannot be created: {folder} is a file")
        if not os.access(folder, os.W_OK):
            raise ConfigError(f"table {self._table_uri} cannot be created: no right to write in {folder}")


def committer_of(committables: Sequence[bytes]) -> Committer:
    """The committer of what a snapshot lists. Credentials come from the environment, as deltalake and fsspec
    read it (``AWS_ACCESS_KEY_ID``, …).

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
        storage_options={},
        stage=Stage(staged.table_uri, {}),
    )


def _open_table(table_uri: str, storage_options: Mapping[str, str]) -> LakeTable | None:
    require("delta", "a Delta table")
    from unistream.connector.delta.table import LakeTable

    return LakeTable.open(table_uri, storage_options)


def _committer(**arguments: Any) -> Committer:
    """Deltalake is loaded here, so that a pipeline can be looked at where it is not installed."""
    require("delta", "a Delta table")
    from unistream.connector.delta.committer import DeltaCommitter

    return DeltaCommitter(**arguments)


def _absolute(table_uri: str) -> str:
    """Workers run in other folders. ``file://`` URLs become paths."""
    if not table_uri:
        raise ConfigError("a Delta sink needs the path or URL of its table")
    scheme, separator, rest = table_uri.partition("://")
    if not separator:
        return os.path.abspath(table_uri)
    if scheme not in SCHEMES:
        raise ConfigError(f"{table_uri}: Delta tables lie on {', '.join(sorted(SCHEMES))}, not on {scheme!r}")
    return os.path.abspath(rest) if scheme == "file" else table_uri.rstrip("/")
