"""Which rows a file sink cannot write: found before they are staged, where they would fail the job.

no time, or one that no folder can be named by, or a text that is too long for that, empty, or Hive's for null
Parquet: times in seconds that its milliseconds cannot hold
JSON: a map that has a key twice
CSV: a null in the only column, a time outside of years 1 to 9999
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from unistream.connector.common import (
    TWICE,
    beyond_years,
    reasons_of,
    repeated_keys,
    uncastable,
    without_folder,
)
from unistream.connector.file.sink_csv import ALONE
from unistream.connector.file.sink_format import BucketAssigner, Format
from unistream.model.elements import Batch


class FileRowCheck:
    """See `unistream.port.sink.RowCheck`."""

    def __init__(self, buckets: BucketAssigner, file_format: Format) -> None:
        self._buckets = buckets
        self._format = file_format

    def open(self) -> None:
        """Does nothing: all is known from the rows."""

    def refused(self, batch: Batch) -> Mapping[int, str]:
        return reasons_of(self._reasons(batch))

    def _reasons(self, batch: Batch) -> Iterator[tuple[pa.Array, str]]:
        times = self._buckets.times(batch)
        if times is not None and times.null_count:
            yield times.is_null(), "no time, so it has no bucket"
        alone = batch.records.num_columns == 1 + len(self._buckets.columns)
        for name, column in zip(batch.records.schema.names, batch.records.columns, strict=True):
            if name in self._buckets.columns:
                if (bad := beyond_years(column)) is not None:
                    yield bad, f"a time in {name!r} outside of years 1 to 9999, which no folder is named by"
                if (bad := without_folder(name, column)) is not None:
                    yield bad, f"a text in {name!r} that readers would not get back from the name of a folder"
            elif self._format == "json" and (bad := repeated_keys(column)) is not None:
                yield bad, TWICE.format(name)
            elif self._format == "csv" and alone and column.null_count:
                yield column.is_null(), ALONE
            elif self._format == "csv" and (bad := beyond_years(column)) is not None:
                yield bad, f"a time in {name!r} outside of years 1 to 9999, which CSV readers refuse"
            elif self._format == "parquet" and (bad := _beyond_parquet(column)) is not None:
                yield bad, f"a time in {name!r} that Parquet's milliseconds cannot hold"


def _beyond_parquet(column: pa.Array) -> pa.Array | None:
    """Parquet has no times in seconds."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "s":
        return None
    return uncastable(column, pa.timestamp("ms", kind.tz))
