"""The one place that makes readers of Parquet, so that a file has the same values wherever it is read.

INT96, in which Spark and Impala write times by default, has no unit. Arrow takes nanoseconds, and a time
outside of the years 1677 to 2262 silently becomes another one (9999-12-31 becomes 1816-03-29). Here its unit
is microseconds, as in Spark, Delta and Iceberg.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

INT96_UNIT: Final = "us"
_INT96: Final = "INT96"


def parquet_file(
    file: Any, *, pre_buffer: bool = False, int96_unit: Literal["us", "ns"] = INT96_UNIT
) -> pq.ParquetFile:
    """An opened file.

    Args:
        file: A path, a buffer or a seekable file.
        pre_buffer: Neighbouring columns are read by one request.
        int96_unit: Only who has made sure that all times fit takes another one.

    Raises:
        pyarrow.ArrowInvalid: it is no Parquet file.
    """
    return pq.ParquetFile(file, pre_buffer=pre_buffer, coerce_int96_timestamp_unit=int96_unit)


def parquet_schema(file: Any) -> pa.Schema:
    """The schema of the rows that `parquet_file` reads, without metadata. Raises pyarrow.ArrowInvalid."""
    return parquet_file(file).schema_arrow.remove_metadata()


def parquet_format() -> ds.ParquetFileFormat:
    """The format of fragments of datasets, with the types of `parquet_file`."""
    return ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit=INT96_UNIT))


def int96_columns(metadata: pq.FileMetaData) -> set[str]:
    """Names of the columns of the rows that are stored as INT96; nested ones by their paths."""
    columns = (metadata.schema.column(index) for index in range(metadata.num_columns))
    return {column.path for column in columns if column.physical_type == _INT96}
