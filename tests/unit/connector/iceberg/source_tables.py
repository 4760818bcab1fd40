"""Real Iceberg tables for tests of the source, with what pyiceberg does not write: files with deletes,
compaction, older forms; and what a discovery and a reader make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

import unistream as us
from tests.iceberg_lake import TABLE, Lake
from tests.support.harness.source_driver import SourceDriver
from unistream.connector.catalogue import create_discovery
from unistream.connector.common import decoded_split
from unistream.connector.iceberg.snapshot import new_snapshot_id
from unistream.connector.iceberg.source_split import IcebergSplit
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import GrowingDiscovery


def numbers(*rows: int) -> pa.Table:
    return pa.table({"i": pa.array(rows, pa.int64())})


def append(lake: Lake, rows: pa.Table) -> int:
    """The new snapshot."""
    lake.change(lambda table: table.append(rows))
    return head(lake)


def head(lake: Lake) -> int:
    with lake.table() as table:
        found = table.current_snapshot()
        assert found is not None
        return int(found.snapshot_id)


def source(lake: Lake, **options: Any) -> us.IcebergSource:
    return us.IcebergSource(TABLE, catalog_properties=lake.properties, **options)


def growing(lake: Lake, **options: Any) -> us.IcebergSource:
    return source(lake, bounded=False, **options)


def find(given: us.IcebergSource, known: KnownSplits | None = None, *, column: str = "") -> FoundSplits:
    kind = str(given.schema.field(column).type) if column else ""
    info = msgspec.structs.replace(given.info(), timestamp_column=column, timestamp_type=kind)
    discovery = create_discovery(info)
    assert isinstance(discovery, GrowingDiscovery)
    try:
        return discovery.find(known)
    finally:
        discovery.close()


def after(found: FoundSplits) -> KnownSplits:
    """What the next discovery is given."""
    return KnownSplits(ids=frozenset(), origin=found.origin, position=found.position)


def parts(splits: Sequence[Split]) -> list[IcebergSplit]:
    return [decoded_split(split, IcebergSplit, "Iceberg") for split in splits]


def read(given: us.IcebergSource, splits: Sequence[Split] | None = None) -> list[dict[str, Any]]:
    found = find(given).splits if splits is None else splits
    with SourceDriver(given, found) as task:
        return task.all_rows()


def values(given: us.IcebergSource, splits: Sequence[Split] | None = None, column: str = "i") -> list[Any]:
    return sorted(row[column] for row in read(given, splits))


# --- what pyiceberg does not write ----------------------------------------------------------------


def data_file(table: Table, path: str, **fields: Any) -> DataFile:
    """As a manifest has it; a file of rows unless `content` says otherwise."""
    given = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 1,
        "file_size_in_bytes": len(table.io.new_input(path)),
        **fields,
    }
    made = DataFile.from_args(_table_format_version=3, **given)
    made.spec_id = table.spec().spec_id
    return made


def write_parquet(table: Table, name: str, rows: pa.Table) -> str:
    path = f"{table.location()}/data/{name}.parquet"
    with table.io.new_output(path).create(overwrite=True) as stream:
        pq.write_table(rows, stream)
    return path


class _Deletes(ManifestWriterV2):
    """Of files with deletes; pyiceberg's is of files with rows."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def commit_files(
    table: Table,
    *,
    adds: Sequence[DataFile] = (),
    deletes: Sequence[DataFile] = (),
    removes: Callable[[DataFile], bool] = lambda _: False,
    operation: Operation,
) -> None:
    """One snapshot behind the head, as another engine makes it."""
    metadata = table.metadata
    old = table.current_snapshot()
    snapshot_id = new_snapshot_id(0 if old is None else old.snapshot_id)
    spec, schema = table.spec(), table.schema()
    made = []

    def manifest(kind: type[ManifestWriterV2], entries: Sequence[ManifestEntry]) -> None:
        output = table.io.new_output(f"{table.location()}/metadata/{snapshot_id}-{len(made)}.avro")
        with kind(spec, schema, output, snapshot_id, "gzip") as writer:
            for entry in entries:
                writer.add_entry(entry)
        made.append(writer.to_manifest_file())

    for kind, files in ((ManifestWriterV2, adds), (_Deletes, deletes)):
        if files:
            manifest(kind, [_entry(file, ManifestEntryStatus.ADDED, snapshot_id) for file in files])
    for one in old.manifests(table.io) if old is not None else ():
        entries = one.fetch_manifest_entry(table.io)
        if not any(removes(entry.data_file) for entry in entries):
            made.append(one)
            continue
        kind = _Deletes if one.content == ManifestContent.DELETES else ManifestWriterV2
        changed = []
        for entry in entries:
            gone = removes(entry.data_file)
            status = ManifestEntryStatus.DELETED if gone else ManifestEntryStatus.EXISTING
            new = _entry(entry.data_file, status, snapshot_id if gone else entry.snapshot_id)
            new.sequence_number, new.file_sequence_number = entry.sequence_number, entry.sequence_number
            changed.append(new)
        manifest(kind, changed)
    path = f"{table.location()}/metadata/snap-{snapshot_id}.avro"
    with write_manifest_list(
        format_version=2,
        output_file=table.io.new_output(path),
        snapshot_id=snapshot_id,
        parent_snapshot_id=None if old is None else old.snapshot_id,
        sequence_number=metadata.next_sequence_number(),
        avro_compression="gzip",
    ) as listed:
        listed.add_manifests(made)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None if old is None else old.snapshot_id,
        manifest_list=path,
        sequence_number=metadata.next_sequence_number(),
        summary=Summary(operation=operation),
        schema_id=metadata.current_schema_id,
    )
    ref = SetSnapshotRefUpdate(snapshot_id=snapshot_id, ref_name="main", type=SnapshotRefType.BRANCH)
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), ref))
    table.refresh()


def _entry(file: DataFile, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def paths(table: Table) -> list[str]:
    """Of the files with rows, in the order of their manifests."""
    return [task.file.file_path for task in table.scan().plan_files()]


def compact(table: Table, keep: Mapping[str, Any] | None = None) -> None:
    """All rows in one new file, by a snapshot of the kind `replace`."""
    rows = table.scan().to_arrow()
    path = write_parquet(table, f"compacted-{new_snapshot_id(0)}", _with_ids(table, rows))
    added = data_file(table, path, record_count=rows.num_rows)
    commit_files(table, adds=[added], removes=lambda _: True, operation=Operation.REPLACE)


def _with_ids(table: Table, rows: pa.Table) -> pa.Table:
    return rows.cast(
        pa.schema(
            [
                field.with_metadata({"PARQUET:field_id": str(table.schema().find_field(field.name).field_id)})
                for field in rows.schema
            ]
        )
    )


def with_ids(rows: pa.Table, *ids: int) -> pa.Table:
    return rows.cast(
        pa.schema(
            [
                field.with_metadata({"PARQUET:field_id": str(id_)})
                for field, id_ in zip(rows.schema, ids, strict=True)
            ]
        )
    )


def delete_positions(table: Table, path: str, *positions: int, named: bool = True) -> None:
    """Rows of a file. `named`: the manifest says which file, by its bounds."""
    rows = pa.table({"file_path": [path] * len(positions), "pos": pa.array(positions, pa.int64())})
    file = write_parquet(table, f"pos-{new_snapshot_id(0)}", with_ids(rows, 2147483546, 2147483545))
    bounds = {2147483546: path.encode()} if named else None
    deletes = data_file(
        table,
        file,
        content=DataFileContent.POSITION_DELETES,
        record_count=len(positions),
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    commit_files(table, deletes=[deletes], operation=Operation.DELETE)


def delete_equal(table: Table, rows: pa.Table, *ids: int) -> None:
    """All older rows that are equal to one of these, in all columns."""
    file = write_parquet(table, f"eq-{new_snapshot_id(0)}", with_ids(rows, *ids))
    deletes = data_file(
        table,
        file,
        content=DataFileContent.EQUALITY_DELETES,
        record_count=rows.num_rows,
        equality_ids=list(ids),
    )
    commit_files(table, deletes=[deletes], operation=Operation.DELETE)
