"""The new rows in Parquet files, one folder for each attempt, below the table, where workers can write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError
from unistream.base.object_stores import file_system
from unistream.base.os_failures import failure
from unistream.base.parquet_files import parquet_file, parquet_schema
from unistream.core.backfill import StagedFile
from unistream.port.replacement import NewRows

BATCH_ROWS: Final = 65_536


class Staging:
    """Args:
    folder: Local path or URL.
    options: Of fsspec.
    """

    def __init__(self, folder: str, options: Mapping[str, Any]) -> None:
        self.folder = folder
        self._system, self._inner = file_system(folder, options)

    def files(self) -> tuple[StagedFile, ...]:
        """What the finished job has written. Raises Unreachable."""
        try:
            if not self._system.exists(self._inner):
                return ()
            self._system.invalidate_cache()
            found = [path for path in self._system.find(self._inner) if _name(path).startswith("part-")]
            return tuple(
                StagedFile(
                    path=path[len(self._inner.rstrip("/")) + 1 :],
                    size=int(self._system.size(path)),
                    rows=self._rows(path),
                )
                for path in sorted(found)
            )
        except OSError as error:
            raise failure(f"the staged rows in {self.folder} could not be listed", error) from error

    def new_rows(self, files: tuple[StagedFile, ...]) -> NewRows:
        """The content of at least one file, a batch at a time. Raises ConfigError: a file is missing."""
        for file in files:
            path = f"{self._inner}/{file.path}"
            if not self._system.exists(path) or int(self._system.size(path)) != file.size:
                raise ConfigError(
                    f"the staged file {self.folder}/{file.path} of {file.size} B is missing or has changed; "
                    "give the backfill up (--abort) and begin again"
                )
        with self._system.open(f"{self._inner}/{files[0].path}") as file:
            schema = parquet_schema(file)

        def read() -> pa.RecordBatchReader:
            return pa.RecordBatchReader.from_batches(schema, self._batches(files, schema))

        return NewRows(schema=schema, read=read)

    def remove(self) -> None:
        """Safe to repeat."""
        if self._system.exists(self._inner):
            self._system.rm(self._inner, recursive=True)

    def _rows(self, path: str) -> int:
        with self._system.open(path) as file:
            return int(pq.read_metadata(file).num_rows)

    def _batches(self, files: tuple[StagedFile, ...], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for one in files:
            with self._system.open(f"{self._inner}/{one.path}") as file:
                for batch in parquet_file(file).iter_batches(BATCH_ROWS):
                    yield batch.cast(schema)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
