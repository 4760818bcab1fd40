"""The folder of each row of a file sink, and the bytes of a file; and which columns are supported.

Whether a column is supported is tried with the calls that write: a row of its type is divided into folders
and written to memory, and Parquet is read again. A type is refused if this fails, or if two different values
would be equal in the file (such as times in nanoseconds in JSON).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.parquet_files import parquet_file
from unistream.connector import common
from unistream.connector.file.sink_csv import read_again, write_csv
from unistream.model.elements import Batch

Format = Literal["parquet", "json", "csv"]
SUFFIXES: Final[dict[Format, str]] = {"parquet": ".parquet", "json": ".jsonl", "csv": ".csv"}
ROW_GROUP_ROWS: Final = 1 << 20
JSON_CHUNK_ROWS: Final = 1 << 14
_NAMES: Final[dict[Format, str]] = {"parquet": "Parquet", "json": "JSON", "csv": "CSV"}
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_REFUSALS: Final = (pa.ArrowException, OSError, LookupError, ArithmeticError, TypeError, ValueError)


class BucketAssigner:
    """The folders of rows.

    Args:
        columns: Their values name folders, ``column=value/``; the files do not contain them.
        time_format: `strftime` format of another level of folders.
        time_column: The time for that; None: the event time of the rows.
    """

    def __init__(self, columns: tuple[str, ...], time_format: str | None, time_column: str | None) -> None:
        self.columns = columns
        self._time_format = time_format
        self._time_column = time_column

    def split(self, batch: Batch) -> list[tuple[str, pa.RecordBatch]]:
        """The rows of each bucket, in their order. Raises UserCodeError for rows without a time, and for
        values that readers would not get back from the name of a folder."""
        columns = [batch.records.column(name) for name in self.columns]
        times = self.times(batch)
        if times is not None:
            if times.null_count:
                raise UserCodeError("file sink: a row has no time, so it has no bucket")
            columns.append(pc.strftime(times, format=self._time_format))
        if not columns:
            return [(self._folder(()), batch.records)]
        rest = batch.records.drop_columns(list(self.columns))
        return [
            (self._folder(tuple(common.value_text(column[row].as_py()) for column in columns)), rows)
            for row, rows in common.by_values(rest, columns)
        ]

    def check(self, schema: pa.Schema) -> None:
        """Raises ConfigError for a column that is missing, or whose values cannot name folders."""
        for name in (*self.columns, *([self._time_column] if self._time_column else ())):
            if name not in schema.names:
                raise ConfigError(f"file sink: there is no column {name!r} among {', '.join(schema.names)}")
        if set(self.columns) >= set(schema.names):
            raise ConfigError("file sink: every column is in partition_by, nothing is left for the files")
        self._check_names(schema.names)
        for name in self.columns:
            _check_folders(schema.field(name))
        if self._time_column is not None:
            timed = schema.field(self._time_column)
            if not pa.types.is_temporal(timed.type):
                raise ConfigError(f"file sink: column {timed.name!r} is {timed.type}, not a time")
            by_time = BucketAssigner((), self._time_format, timed.name)
            _try(by_time, timed, f"whose values bucket_by_time={self._time_format!r} cannot format")
        if self.columns or self._time_format is not None:
            for field in schema:
                if field.name not in self.columns:
                    _try(
                        BucketAssigner((_other(field),), None, None),
                        field,
                        "which cannot be divided into folders",
                    )

    def _check_names(self, names: Sequence[str]) -> None:
        """Raises ConfigError for a column whose folders readers would pass over or mix up. `names`: of all
        columns."""
        folded = [other.casefold() for other in names]
        for name in self.columns:
            if not name or name[0] in "._":
                raise ConfigError(
                    f"file sink: readers pass over folders of the column {name!r} of partition_by, as their "
                    "names begin with '.' or '_' or name no column; rename it before the sink"
                )
            if (why := common.folder_misfit(name, "1")) is not None:
                raise ConfigError(
                    f"file sink: no value of partition_by fits: {why}; rename it before the sink"
                )
            if common.folder_name(name) != name:
                raise ConfigError(
                    f"file sink: column {name!r} of partition_by has a name that folders spell otherwise and "
                    "not all readers take back; rename it before the sink"
                )
            if self.columns.count(name) > 1 or folded.count(name.casefold()) > 1:
                raise ConfigError(
                    f"file sink: column {name!r} of partition_by is there twice, but for its case, and "
                    "readers take the two for one; rename it before the sink"
                )

    def times(self, batch: Batch) -> pa.Array | None:
        """The times of the rows, for their folders; None: these have none. Raises UserCodeError: rows have no
        time."""
        if self._time_format is None:
            return None
        if self._time_column is not None:
            return batch.records.column(self._time_column)
        if batch.timestamps is None:
            raise UserCodeError("file sink: bucket_by_time needs rows with event time, or a time_column")
        return batch.timestamps.cast(pa.timestamp("ms"))

    def _folder(self, key: tuple[str | None, ...]) -> str:
        folder = ""
        for column, value in zip(self.columns, key, strict=False):
            if (why := common.folder_misfit(column, value)) is not None:
                raise UserCodeError(f"file sink: {why}; replace it before the sink, or use another column")
            folder += common.value_folder(column, value)
        return folder if self._time_format is None else f"{folder}{str(key[-1]).strip('/')}/"


def write_table(
    table: pa.Table, file: Any, file_format: Format, remembered: Mapping[bytes, bytes] | None = None
) -> None:
    """All rows of one file. `remembered`: for the footer of Parquet."""
    if file_format == "parquet":
        if remembered:
            table = table.replace_schema_metadata({**(table.schema.metadata or {}), **remembered})
        pq.write_table(table, file, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        return
    if file_format == "csv":
        write_csv(table, file)
        return
    for batch in table.to_batches(JSON_CHUNK_ROWS):
        file.write(common.json_lines(batch))


# --- does a column fit? -----------------------------------------------------------------------------


def _other(column: pa.Field) -> str:
    """The name of a second column, next to the one that is tried."""
    return f"{column.name} and another"


def _try(buckets: BucketAssigner, column: pa.Field, what: str) -> None:
    row = pa.record_batch([common.sample(column.type), pa.array([0])], names=[column.name, _other(column)])
    try:
        buckets.split(Batch(row))
    except _REFUSALS as error:
        raise ConfigError(
            f"file sink: column {column.name!r} is {column.type}, {what}: {_first_line(error)}; cast it "
            "before the sink, or use another column"
        ) from error


def _check_folders(column: pa.Field) -> None:
    """Raises ConfigError for a column whose values cannot name folders."""
    if pa.types.is_nested(column.type) or any(is_bytes(column.type) for is_bytes in _BYTES):
        raise ConfigError(
            f"file sink: column {column.name!r} is {column.type}, whose values cannot name folders; cast it "
            "to text before the sink, or use another column"
        )
    _try(BucketAssigner((column.name,), None, None), column, "whose values cannot name folders")
    first, second = (common.sample(column.type, number)[0].as_py() for number in (0, 1))
    if first != second and common.value_text(first) == common.value_text(second):
        raise ConfigError(
            f"file sink: column {column.name!r} is {column.type}, whose smallest unit is lost in the name of "
            "a folder; cast it before the sink, or use another column"
        )


def check_schema(schema: pa.Schema, file_format: Format, buckets: BucketAssigner) -> None:
    """Raises ConfigError for a column that cannot be divided into folders or written."""
    buckets.check(schema)
    for field in schema:
        if field.name in buckets.columns:
            continue
        why = misfit(field.type, file_format)
        if why is not None:
            others = [f"format={other!r}" for other in SUFFIXES if misfit(field.type, other) is None]
            cure = " or ".join(["cast it before the sink", *([f"use {others[0]}"] if others else [])])
            raise ConfigError(
                f"file sink: column {field.name!r} is {field.type}, which {_NAMES[file_format]} cannot hold: "
                f"{why}; {cure}"
            )


def misfit(type_: pa.DataType, file_format: Format) -> str | None:
    """Why files of that format cannot hold values of that type, as a clause; None: they can."""
    values = common.sample(type_, 0), common.sample(type_, 1)
    try:
        first, second = (_found(value, file_format) for value in values)
    except _REFUSALS as error:
        return _first_line(error)
    if first == second and values[0] != values[1]:
        return "values that differ by its smallest unit would be equal in the file"
    if file_format == "csv" and first != values[0]:
        return "a reader would find another value"
    return None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _found(values: pa.Array, file_format: Format) -> object:
    """The content of a file of these values, for comparison; for JSON its text."""
    file = io.BytesIO()
    columns = {"c": values, "another": [0]} if file_format == "csv" else {"c": values}
    write_table(pa.table(columns), file, file_format)
    if file_format == "csv":
        return read_again(file.getvalue(), values.type)
    return parquet_file(file).read()["c"] if file_format == "parquet" else file.getvalue()
