"""How the rows of a stream become data files of a table, as the table is when the first row comes.

The plan stays for the whole attempt: files keep the schema and the partition spec that they were written
with, and both stay valid when the table gets newer ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.types import BooleanType

from unistream.base.errors import ConfigError, Unreachable, UserCodeError
from unistream.connector.common import DELETES
from unistream.connector.common.columns_by_id import with_id
from unistream.connector.iceberg.catalog import TableAddress, TableSettings, answering
from unistream.connector.iceberg.partition import Partitioner, check_readable
from unistream.connector.iceberg.schema import changes, check_fits, file_schema, iceberg_schema
from unistream.connector.iceberg.stage import Key, StagedDataFile
from unistream.connector.iceberg.table import IcebergSinkTable

CODEC: Final = "write.parquet.compression-codec"
LEVEL: Final = "write.parquet.compression-level"
ROW_GROUP_ROWS: Final = 1 << 20
DELETES_FIELD: Final = with_id(pa.field(DELETES, pa.bool_()), 2147483644)
"""The column of staged rows that says whether they delete others. Its id is the one that the specification
keeps for "the row is deleted"; no column of a table has it."""
_UNCOUNTED: Final = StatisticsCollector(
    field_id=2147483644,
    iceberg_type=BooleanType(),
    mode=MetricsMode(MetricModeTypes.NONE),
    column_name=DELETES,
)
EVOLUTIONS_MAX: Final = 10  # each that fails is another one's success


def plan_for(
    address: TableAddress, settings: TableSettings, stream: pa.Schema, *, gone: ConfigError | None
) -> WritePlan:
    """Creates the table, or adds columns to it, if the sink may. `gone`: raised if there is no table.

    Raises:
        ConfigError: the stream does not fit the table, or there is none and none may be created.
        Unreachable: the catalogue does not answer.
    """
    wanted = iceberg_schema(stream)
    with IcebergSinkTable.opened(address) as lake:
        if lake.load() is None:
            if gone is not None:
                raise gone
            if not settings.create:
                raise ConfigError(f"table {address.text} does not exist, and the sink has create=False")
            lake.create(wanted, settings.partition_by, settings.table_properties)
        check_readable(lake.table.spec(), lake.table.schema(), wanted)
        for _ in range(EVOLUTIONS_MAX if settings.add_columns else 0):
            missing = changes(address.table, lake.table.schema(), wanted)
            if not missing or lake.evolve(missing):
                break
        check_fits(address.table, lake.table.schema(), wanted)
        lake.check_writable()
        return WritePlan(address.table, lake.table, stream)


class WritePlan:
    """Writes files of one table.

    Args:
        where: The table, for messages.
        table: A `pyiceberg.table.Table`.
        stream: Schema of the rows; it fits.
    """

    def __init__(self, where: str, table: Any, stream: pa.Schema) -> None:
        held = table.schema()
        self._where = where
        self._io = table.io
        self._locations = table.location_provider()
        self._properties = dict(table.properties)
        self._fields = file_schema(held, stream)
        self._partitioner = Partitioner(table.spec(), held, self._fields)
        self._collected = compute_statistics_plan(held, self._properties)
        self._collected[_UNCOUNTED.field_id] = _UNCOUNTED
        self._ids = {**parquet_path_to_id_mapping(held), DELETES: _UNCOUNTED.field_id}
        self.table_id = str(table.metadata.table_uuid)
        self.schema_id = int(held.schema_id)
        self.spec_id = int(table.spec().spec_id)

    def split(self, records: pa.RecordBatch) -> Iterator[tuple[Key, pa.RecordBatch]]:
        """The rows of each partition, in the types of the table. Raises UserCodeError."""
        return self._partitioner.split(self.stored(records))

    def stored(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the types of the table. Raises UserCodeError."""
        columns = [self._stored(records.column(i), field) for i, field in enumerate(self._fields)]
        return pa.RecordBatch.from_arrays(columns, schema=self._fields)

    def write(self, key: Key, batches: Sequence[pa.RecordBatch], name: str) -> StagedDataFile:
        """Writes a durable file with these rows.

        Raises:
            ConfigError: no permission.
            Unreachable: the storage failed; the incomplete file is removed.
        """
        folder = _Folder(self._partitioner.folder(key)) if key else None
        path = self._locations.new_data_location(name, folder)
        table = pa.Table.from_batches(batches, self._fields)
        return self._written(path, table, self._partitioner.encoded(key))

    def stage(self, batches: Sequence[pa.RecordBatch], name: str) -> StagedDataFile:
        """A durable file with rows of all partitions, in their order, and with `DELETES` if they have it. No
        snapshot will name it. Raises as `write`."""
        has_deletes = DELETES in batches[0].schema.names
        fields = self._fields.append(DELETES_FIELD) if has_deletes else self._fields
        held = [pa.RecordBatch.from_arrays(one.columns, schema=fields) for one in batches]
        table = pa.Table.from_batches(held, fields)
        return self._written(self._locations.new_data_location(name), table, ())

    def _written(self, path: str, table: pa.Table, partition: tuple[bytes | None, ...]) -> StagedDataFile:
        output = self._io.new_output(path)
        try:
            with answering(f"table {self._where}", f"writing {path}"):
                metadata = self._write(table, output)
                size = len(output)
        except (ConfigError, Unreachable):
            self.remove(path)
            raise
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata, stats_columns=self._collected, parquet_column_mapping=self._ids
        )
        _keep_bounds_that_cannot_be_cut(statistics)
        file_statistics = statistics.to_serialized_dict()
        return StagedDataFile(
            path=path,
            size=size,
            rows=table.num_rows,
            partition=partition,
            column_sizes=file_statistics["column_sizes"],
            value_counts=file_statistics["value_counts"],
            null_value_counts=file_statistics["null_value_counts"],
            lower_bounds=file_statistics["lower_bounds"],
            upper_bounds=file_statistics["upper_bounds"],
            split_offsets=tuple(file_statistics["split_offsets"] or ()),
        )

    def remove(self, path: str) -> None:
        """Removes a file as far as the storage allows it: readers do not see a staged file that remains."""
        try:
            self._io.delete(path)
        except Exception:
            return

    def _write(self, table: pa.Table, output: Any) -> Any:
        collected: list[Any] = []
        level = self._properties.get(LEVEL)
        codec = self._properties.get(CODEC, "zstd")
        with (
            output.create() as stream,
            pq.ParquetWriter(
                stream,
                table.schema,
                compression="none" if codec == "uncompressed" else codec,
                compression_level=None if level is None else int(level),
                store_schema=False,  # readers use the table's schema
                metadata_collector=collected,
            ) as writer,
        ):
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        return collected[0]

    def _stored(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.null_count and not field.nullable:
            raise UserCodeError(
                f"table {self._where}: column {field.name!r} is declared without nulls but has some"
            )
        if column.type.equals(field.type, check_metadata=True):
            return column
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UserCodeError(
                f"table {self._where}: column {field.name!r} ({column.type}) cannot be stored as "
                f"{field.type}: {error}"
            ) from error


class _Folder:
    """The folder of a partition, as pyiceberg asks for it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def to_path(self) -> str:
        return self._path


def _keep_bounds_that_cannot_be_cut(statistics: Any) -> None:
    """An upper bound of texts is cut, and its last character made the next one. There is none for U+D7FF,
    and pyiceberg 0.12 ends in a UnicodeEncodeError: such a bound stays as long as it is."""
    for aggregator in statistics.column_aggregates.values():
        try:
            aggregator.max_as_bytes()
        except UnicodeEncodeError:
            aggregator.trunc_length = None
