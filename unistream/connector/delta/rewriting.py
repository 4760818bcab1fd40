"""Small data files of a Delta table written again as large ones: which of them, and how.

Nothing here changes a table: files are planned from a snapshot, written to their final place, where no
version names them yet, and named by the commit of `compaction`. The rows are decoded as the source decodes
them, so what other writers have made of a column (older types, missing columns) becomes what the table says.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pa_fs

from unistream.base.limits import MIB
from unistream.connector.common import PartitionKey, StageFiles, partition_folder
from unistream.connector.delta.schema import TableShape
from unistream.connector.delta.source_read import DeltaSpec, decode
from unistream.connector.delta.source_split import DataFile, whole_file
from unistream.connector.delta.stage import (
    ROW_GROUP_ROWS,
    DeltaFile,
    Statistics,
    parquet_writer,
    split_columns,
)

BUFFERED_BYTES_MAX: Final = 64 * MIB  # of decoded rows, which then are a row group


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Files of one partition that become one."""

    partition: dict[str, str | None]
    files: tuple[DataFile, ...]

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(file.path for file in self.files)


def plan(small: Sequence[DataFile], files_min: int, target_bytes: int) -> list[Rewrite]:
    """What is rewritten of partitions that have at least `files_min` small files, in their order."""
    found = []
    for files in _by_partition(small).values():
        if len(files) < files_min:
            continue
        for group in _groups(files, target_bytes):
            found.append(Rewrite(partition=group[0].partition, files=tuple(group)))
    return found


def _by_partition(files: Sequence[DataFile]) -> dict[PartitionKey, list[DataFile]]:
    found: dict[PartitionKey, list[DataFile]] = {}
    for file in files:
        found.setdefault(tuple(file.partition.values()), []).append(file)
    return found


def _groups(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Divides the files into groups of about this size; what would stay alone is left as it is."""
    group: list[DataFile] = []
    size = 0
    for file in files:
        group.append(file)
        size += file.size
        if size >= target_bytes:
            if len(group) > 1:
                yield group
            group, size = [], 0
    if len(group) > 1:
        yield group


def rewrite(
    planned: Rewrite, shape: TableShape, version: int, files: pa_fs.FileSystem, stage: StageFiles
) -> DeltaFile:
    """Writes the one file, durably.

    Raises:
        ConfigError: a file was removed meanwhile, or is not as the log says; no permission.
        UserCodeError: a file is damaged.
        Unreachable: the storage failed.
    """
    schema = split_columns(shape.schema, shape.partition_by)
    spec = DeltaSpec(table_uri=shape.table, schema=schema, read=schema, row_filter=())
    found = Statistics()

    def write(file: Any) -> None:
        with parquet_writer(file, schema) as writer:
            for rows in _row_groups(_batches(planned, spec, version, files), schema):
                found.add(rows)
                writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)

    path = f"{partition_folder(planned.partition)}compacted-{uuid.uuid4().hex}.parquet"
    size, modified_ms = stage.write(path, write)
    return DeltaFile(
        path=path,
        size=size,
        rows=found.rows,
        partition_values=planned.partition,
        stats=found.text(),
        modification_ms=modified_ms,
    )


def _batches(
    planned: Rewrite, spec: DeltaSpec, version: int, files: pa_fs.FileSystem
) -> Iterator[pa.RecordBatch]:
    for file in planned.files:
        for chunk in decode(whole_file(file, version, None), spec, files):
            yield chunk.records


def _row_groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Row groups of small files would be as small as they are."""
    held: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        held.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if rows >= ROW_GROUP_ROWS or nbytes >= BUFFERED_BYTES_MAX:
            yield pa.Table.from_batches(held, schema)
            held, rows, nbytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema)
