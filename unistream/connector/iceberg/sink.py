"""Iceberg tables as a sink, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.secrets import Secret
from unistream.connector.common import (
    KeyedSink,
    OnRewind,
    check_condition,
    check_key,
    checked_upsert,
    names_of,
)
from unistream.connector.iceberg.catalog import (
    FORMAT_VERSION,
    FORMAT_VERSION_MAX,
    TableAddress,
    TableSettings,
    checked_address,
    lineage_of,
)
from unistream.connector.iceberg.stage import TARGET_FILE_BYTES, decode_committable
from unistream.connector.iceberg.writer import IcebergWriter
from unistream.model.expression import Expression, as_arrow
from unistream.model.lineage import LineageDataset
from unistream.port.line import LineCommit, OnForeign
from unistream.port.sink import Committer, RowCheck, SinkWriter, TableDescription

Mode: TypeAlias = Literal["append", "upsert", "overwrite-partitions"]
SchemaEvolution: TypeAlias = Literal["refuse", "add"]
MODES: Final[tuple[Mode, ...]] = ("append", "upsert", "overwrite-partitions")
EVOLUTIONS: Final[tuple[SchemaEvolution, ...]] = ("refuse", "add")


class IcebergSink(KeyedSink):
    """Writes the stream to an Iceberg table: one snapshot for each checkpoint, visible once it is complete.

    Args:
        table: ``namespace.name``.
        catalog: Name of the catalog, in pyiceberg's configuration or for `catalog_properties`. Tables of a
            SQL catalog are stored under it, so all who use one give it the same name.
        catalog_properties: Of pyiceberg's catalogs: ``type``, ``uri``, ``warehouse``, ``s3.endpoint``, … Text
            may be ``${env:NAME}``, ``${file:PATH}`` or a `Secret`.
        mode: ``"append"`` adds rows. ``"upsert"`` replaces the row of the same key, by the last one of a
            checkpoint: the committer holds the rows of a checkpoint in memory, and the table's files that
            have some of the keys are written again (copy on write). Rows of one key have to come to one
            subtask (`key_by`), else it is not defined which of them is the last. ``"overwrite-partitions"``,
            in a job that commits once, at its end: the rows replace what is in their partitions, and other
            partitions stay. A table without partitions is replaced as a whole.
        key: Column, or columns, of the key, with ``"upsert"``. If others have added a key several times, the
            next row of that key replaces all of them.
        delete_when: With ``"upsert"``: an expression over the columns; rows for which it holds remove the row
            of their key, and are not written.
        partition_by: How the sink partitions a table that it creates: columns, ``bucket(16, id)``,
            ``truncate(4, name)``, ``year(at)``, ``month(at)``, ``day(at)``, ``hour(at)``. Empty: an existing
            table's own partitions are followed.
        schema_evolution: If the stream has columns that the table has not: ``"refuse"`` to start; or
            ``"add"`` them when the first row comes, and widen types (int to long, float to double, the
            precision of decimals).
        create: Create a missing table, and its namespace, when the first row comes; otherwise it must exist.
        table_properties: Of a table that the sink creates.
        on_rewind: If the job is restored from a checkpoint older than the table's last: ``"refuse"`` to
            start, or ``"allow_duplicates"``.
        on_foreign: If another line of jobs writes the table (this job was not started from a snapshot of
            it): ``"refuse"`` to start, or ``"append"`` to it.
        target_file_bytes: Rows of one partition are written to a file when they take this much memory, and at
            every checkpoint.

    Raises:
        ConfigError: an argument is wrong, or pyiceberg is not installed.

    >>> sink = IcebergSink(
    ...     "lake.orders",
    ...     catalog_properties={"uri": "sqlite:////tmp/catalog.db", "warehouse": "/tmp/lake"},
    ...     partition_by=["day(at)", "bucket(16, id)"],
    ... )
    >>> sink.name
    'Iceberg: lake.orders'
    >>> from unistream import col
    >>> latest = IcebergSink("lake.latest", mode="upsert", key="id", delete_when=col("op") == "d")
    >>> latest.row_key
    ('id',)
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: str = "default",
        catalog_properties: Mapping[str, str | Secret] | None = None,
        mode: Mode = "append",
        key: str | Sequence[str] = (),
        delete_when: Expression | None = None,
        partition_by: str | Sequence[str] = (),
        schema_evolution: SchemaEvolution = "refuse",
        create: bool = True,
        table_properties: Mapping[str, str] | None = None,
        on_rewind: OnRewind = "refuse",
        on_foreign: OnForeign = "refuse",
        target_file_bytes: int = TARGET_FILE_BYTES,
    ) -> None:
        require("iceberg", "IcebergSink")
        super().__init__(
            checked_upsert("an Iceberg sink", mode, MODES, key, delete_when),
            on_rewind=on_rewind,
            on_foreign=on_foreign,
            target_file_bytes=target_file_bytes,
        )
        if schema_evolution not in EVOLUTIONS:
            raise ConfigError(
                f"Iceberg sink: schema_evolution must be 'refuse' or 'add', not {schema_evolution!r}"
            )
        version = (table_properties or {}).get(FORMAT_VERSION, "2")
        if not str(version).isdecimal() or not 1 <= int(version) <= FORMAT_VERSION_MAX:
            raise ConfigError(
                f"Iceberg sink: table property {FORMAT_VERSION!r} must be 1 or 2, not {version!r}"
            )
        self._delete_when = as_arrow(delete_when)
        self._address = checked_address(catalog, table, catalog_properties or {})
        self._mode: Mode = mode
        self._settings = TableSettings(
            partition_by=names_of(partition_by),
            create=create,
            add_columns=schema_evolution == "add",
            table_properties={name: str(value) for name, value in (table_properties or {}).items()},
        )
        self._target_file_bytes = target_file_bytes

    def __repr__(self) -> str:
        return f"IcebergSink({self._address.table!r})"

    @property
    def name(self) -> str:
        return f"Iceberg: {self._address.table}"

    @property
    def records_positions(self) -> bool:
        """Whether the summary of each snapshot has the positions of sources."""
        return self._mode != "overwrite-partitions"

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`: below the warehouse, if that is a place; else in the catalog."""
        return [lineage_of(self._address)]

    def check(self, schema: pa.Schema | None) -> None:
        """Reads the table if there is one; creates no table and no column.

        Raises:
            ConfigError: the stream does not fit the table, has a type that Iceberg does not have, or the
                table is missing or cannot be partitioned so.
            Unreachable: the catalogue does not answer.
        """
        from unistream.connector.iceberg.table import IcebergSinkTable

        with IcebergSinkTable.opened(self._address) as lake:
            table = lake.load()
            if table is None and not self._settings.create:
                raise ConfigError(f"table {self._address.text} does not exist, and the sink has create=False")
            if table is not None:
                lake.check_writable()
            if schema is not None:
                self._check_columns(schema, table)

    def _check_columns(self, schema: pa.Schema, table: Any) -> None:
        from unistream.connector.iceberg.partition import check_readable, check_same, partition_spec
        from unistream.connector.iceberg.schema import changes, check_fits, iceberg_schema

        where, partition_by = self._address.table, self._settings.partition_by
        wanted = iceberg_schema(schema)
        self._check_upsert(schema, table)
        if table is None:
            partition_spec(wanted, partition_by)
            return
        check_readable(table.spec(), table.schema(), wanted)
        if self._settings.add_columns:
            changes(where, table.schema(), wanted)
        else:
            check_fits(where, table.schema(), wanted)
        if partition_by:
            check_same(where, table.schema(), table.spec(), partition_by)

    def _check_upsert(self, schema: pa.Schema, table: Any) -> None:
        """Checks the key and the condition of an upsert. Raises ConfigError: the rows or the table do not
        allow it."""
        check_condition(self._delete_when, schema)
        if self._upsert is None:
            return
        check_key("an Iceberg table", self._upsert.key, schema, takes_bytes=True)
        if table is not None:
            from unistream.connector.iceberg.source_schema import table_columns
            from unistream.connector.iceberg.upsert import check_rewritable

            where = f"table {self._address.table}"
            check_rewritable(where, table_columns(where, table.schema()).unreadable)

    @property
    def replaces_rows(self) -> bool:
        """See `unistream.port.sink.ReplacesRows`."""
        return self._mode != "append"

    def check_new_line(self, lineage: str = "") -> None:
        """See `unistream.port.line.KeepsLine`."""
        if self._on_foreign == "refuse":
            from unistream.connector.iceberg.record import check_no_other

            check_no_other(f"table {self._address.table}", self._records(), lineage)

    def last_commit(self, sink_uid: str) -> LineCommit | None:
        """See `unistream.port.line.KeepsLine`."""
        from unistream.connector.iceberg.record import last_commit

        return last_commit(self._records(), sink_uid)

    def _records(self) -> Any:
        from unistream.connector.iceberg.record import records
        from unistream.connector.iceberg.table import IcebergSinkTable

        with IcebergSinkTable.opened(self._address) as lake:
            table = lake.load()
            return {} if table is None else records(self._address.table, table.metadata)

    def description(self) -> TableDescription | None:
        """See `unistream.port.sink.DescribesTable`: from the table's metadata."""
        from unistream.connector.iceberg.schema import arrow_schema
        from unistream.connector.iceberg.table import IcebergSinkTable

        with IcebergSinkTable.opened(self._address) as lake:
            table = lake.load()
            return None if table is None else TableDescription(arrow_schema(table.schema()), lake.row_count())

    def letters(self) -> pa.Table:
        """See `unistream.port.dead_letters.KeepsLetters`."""
        from unistream.connector.iceberg.source_rows import read_rows

        return read_rows(self._address)

    def letters_folder(self) -> str | None:
        """See `unistream.port.dead_letters.KeepsLetters`: the location of the table."""
        with self._existing() as table:
            return str(table.location())

    @contextmanager
    def _existing(self) -> Iterator[Any]:
        """The table. Raises ConfigError: there is none."""
        from unistream.connector.iceberg.table import IcebergSinkTable

        with IcebergSinkTable.opened(self._address) as lake:
            table = lake.load()
            if table is None:
                raise ConfigError(f"table {self._address.text} does not exist")
            yield table

    def create_row_check(self) -> RowCheck:
        """See `unistream.port.sink.ChecksRows`."""
        from unistream.connector.iceberg.row_check import IcebergRowCheck

        return IcebergRowCheck(self._address, self.row_key)

    def create_writer(self) -> SinkWriter:
        return IcebergWriter(
            address=self._address,
            settings=self._settings,
            overwrite=self._mode == "overwrite-partitions",
            target_file_bytes=self._target_file_bytes,
            upsert=self._upsert,
            delete_when=self._delete_when,
        )

    def create_committer(self) -> Committer | None:
        return _committer(
            self._address,
            allow_rewind=self._on_rewind == "allow_duplicates",
            append_to_foreign=self._on_foreign == "append",
            target_file_bytes=self._target_file_bytes,
        )


def committer_of(committables: Sequence[bytes]) -> Committer:
    """The committer for committables of a snapshot. What the catalogue needs and the snapshot has not, its
    passwords, comes from pyiceberg's own configuration (``PYICEBERG_CATALOG__<NAME>__URI``, …).

    Raises:
        ConfigError: pyiceberg is not installed.
        CorruptSnapshot: a committable cannot be read.
    """
    stored = decode_committable(committables[0]).location
    return _committer(_with_environment(stored), allow_rewind=False, append_to_foreign=False)


def _with_environment(address: TableAddress) -> TableAddress:
    require("iceberg", "an Iceberg table")
    from pyiceberg.utils.config import Config

    configured = Config().get_catalog_config(address.catalog) or {}
    stored = address.properties  # what is missing there, pyiceberg itself takes from its configuration
    own = {name: str(value) for name, value in configured.items() if name in stored}
    return TableAddress(
        catalog=address.catalog, table=address.table, properties={**address.properties, **own}
    )


def _committer(address: TableAddress, **arguments: Any) -> Committer:
    """Imports pyiceberg, which a client that only inspects a pipeline does not need."""
    require("iceberg", "an Iceberg table")
    from unistream.connector.iceberg.committer import IcebergCommitter

    return IcebergCommitter(address, **arguments)
