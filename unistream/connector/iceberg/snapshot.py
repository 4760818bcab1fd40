"""One snapshot of a table: the files of a checkpoint in manifests, and what the catalogue is asked to do.

Made by hand of pyiceberg's public parts. Its own producers write one manifest with the current partition spec
(and fail for files of an earlier one), and try again by themselves on a snapshot that was not looked at.

    manifests       one for each partition spec and schema of the new files; those of the head stay, small
                    ones are merged (`merge`), and those with files that are replaced are written again
    manifest list   all of them
    updates         the snapshot, the head of the branch, properties: together, or none of them
    requirements    the table's UUID, and the head that was looked at
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from unistream.base.errors import ConfigError
from unistream.connector.iceberg.merge import merged, schema_of
from unistream.connector.iceberg.partition import decoded
from unistream.connector.iceberg.record import BRANCH
from unistream.connector.iceberg.stage import IcebergCommittable, StagedDataFile

COMPRESSION: Final = "write.avro.compression-codec"
RANDOM_BITS: Final = 12  # below a time in ms: an id stays exact as a floating-point number until 2039


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSnapshot:
    """A snapshot whose files are written, and which no table has yet. `written`: these files."""

    snapshot_id: int
    updates: tuple[Any, ...]
    requirements: tuple[Any, ...]
    written: tuple[str, ...]


@dataclass(slots=True)
class _SnapshotFiles:
    """The files of one snapshot, as it is made."""

    table: Any
    snapshot_id: int
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    written: list[str] = field(default_factory=list)
    collector: SnapshotSummaryCollector = field(default_factory=SnapshotSummaryCollector)
    has_removed: bool = False

    def output(self, name: str) -> Any:
        path = self.table.location_provider().new_metadata_location(name)
        self.written.append(path)
        return self.table.io.new_output(path)

    def manifest(self, spec: Any, schema: Any, entries: Sequence[ManifestEntry]) -> ManifestFile:
        """A new one, with these entries."""
        metadata = self.table.metadata
        writer = write_manifest(
            format_version=metadata.format_version,
            spec=spec,
            schema=schema,
            output_file=self.output(f"{self.uuid}-m{len(self.written)}.avro"),
            snapshot_id=self.snapshot_id,
            avro_compression=metadata.properties.get(COMPRESSION, "gzip"),
        )
        with writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()


def new_snapshot_id(last: int) -> int:
    """An id greater than `last` and, as a rule, than all that were made before: the version of a table that a
    sink reports is the greatest one."""
    at_ms = time.time_ns() // 1_000_000
    return max((at_ms << RANDOM_BITS) | random.getrandbits(RANDOM_BITS), last + 1)


def prepare(
    table: Any,
    snapshot_id: int,
    staged: Sequence[IcebergCommittable],
    *,
    summary: Mapping[str, str],
    properties: Mapping[str, str],
    removed_properties: Sequence[str] = (),
    removed: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> PreparedSnapshot:
    """Writes the manifests of a snapshot behind the loaded head of `table`.

    Args:
        table: A `pyiceberg.table.Table`.
        snapshot_id: Of the snapshot.
        staged: Files that it adds.
        summary: What it says.
        properties: Of the table, from then on.
        removed_properties: Of the table, until then.
        removed: Data files of the head that it does not have, by the paths of their manifests.

    Raises:
        ConfigError: partitions are to be replaced that have files of another partition spec.
    """
    metadata = table.metadata
    head = metadata.snapshot_by_name(BRANCH)
    parts = _SnapshotFiles(table, snapshot_id)
    added = list(_added(parts, staged))
    replaced = _partitions(table, [one for one in staged if one.overwrite])
    manifests = [] if head is None else _live(head.manifests(table.io))
    changed = [one for one in manifests if one.manifest_path in removed]
    kept = [one for one in manifests if one.manifest_path not in removed]
    kept = list(_kept(parts, kept, replaced) if replaced else merged(table, kept, parts.manifest))
    for manifest in changed:
        kept += _filtered(parts, manifest, partial(_is_named, removed[manifest.manifest_path]))
    sequence = metadata.next_sequence_number()
    listed = parts.output(f"snap-{snapshot_id}-0-{parts.uuid}.avro")
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=listed,
        snapshot_id=snapshot_id,
        parent_snapshot_id=None if head is None else head.snapshot_id,
        sequence_number=sequence,
        avro_compression=metadata.properties.get(COMPRESSION, "gzip"),
    ) as writer:
        writer.add_manifests([*added, *kept])
    replaces = Operation.OVERWRITE if added else Operation.DELETE
    operation = replaces if parts.has_removed else Operation.APPEND
    totals = update_snapshot_summaries(
        summary=Summary(operation=operation, **parts.collector.build(), **summary),
        previous_summary=None if head is None else head.summary,
    )
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None if head is None else head.snapshot_id,
        manifest_list=listed.location,
        sequence_number=sequence,
        summary=totals,
        schema_id=metadata.current_schema_id,
    )
    return _prepared(parts, snapshot, head, properties, removed_properties)


def _prepared(
    parts: _SnapshotFiles,
    snapshot: Snapshot,
    head: Snapshot | None,
    properties: Mapping[str, str],
    removed: Sequence[str],
) -> PreparedSnapshot:
    updates: list[Any] = [
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(snapshot_id=snapshot.snapshot_id, ref_name=BRANCH, type=SnapshotRefType.BRANCH),
        SetPropertiesUpdate(updates=dict(properties)),
    ]
    if removed:
        updates.append(RemovePropertiesUpdate(removals=list(removed)))
    return PreparedSnapshot(
        snapshot_id=snapshot.snapshot_id,
        updates=tuple(updates),
        requirements=(
            AssertTableUUID(uuid=parts.table.metadata.table_uuid),
            AssertRefSnapshotId(ref=BRANCH, snapshot_id=None if head is None else head.snapshot_id),
        ),
        written=tuple(parts.written),
    )


# --- files that are added -------------------------------------------------------------------------


def unknown_to(table: Any, one: IcebergCommittable) -> list[str]:
    """The schema and the partition spec that these files were written by, as far as the table, as it was
    loaded, does not have them."""
    written = (
        ("schema", one.schema_id, table.schemas()),
        ("partition spec", one.spec_id, table.specs()),
    )
    needed = written if one.upsert is None else written[:1]
    return [f"{what} {id_}" for what, id_, known in needed if id_ not in known]


def check_known(where: str, table: Any, staged: Sequence[IcebergCommittable]) -> None:
    """Raises ConfigError: the table does not know any more how files were written."""
    for one in staged:
        unknown = unknown_to(table, one)
        if unknown:
            raise ConfigError(
                f"{where}: {len(one.files)} files of checkpoint {one.checkpoint_id} were written with "
                f"{unknown[0]}, which somebody has removed from the table; nothing of this checkpoint was "
                "committed. Bring it back, or start from an older savepoint"
            )


def _added(parts: _SnapshotFiles, staged: Sequence[IcebergCommittable]) -> Iterator[ManifestFile]:
    by_form: dict[tuple[int, int], list[StagedDataFile]] = {}
    for committable in staged:
        if committable.files:
            by_form.setdefault((committable.spec_id, committable.schema_id), []).extend(committable.files)
    for (spec_id, schema_id), files in by_form.items():
        spec, schema = parts.table.specs()[spec_id], parts.table.schemas()[schema_id]
        entries = []
        for file in files:
            added = _data_file(file, spec, schema)
            parts.collector.add_file(data_file=added, schema=schema, partition_spec=spec)
            entries.append(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=parts.snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=added,
                )
            )
        yield parts.manifest(spec, schema, entries)


def _data_file(file: StagedDataFile, spec: Any, schema: Any) -> DataFile:
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=decoded(spec, schema, file.partition),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts={},
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        key_metadata=None,
        split_offsets=list(file.split_offsets) or None,
        equality_ids=None,
        sort_order_id=None,
    )
    data_file.spec_id = spec.spec_id
    return data_file


# --- files that stay, and files that are replaced -------------------------------------------------


def _partitions(table: Any, staged: Sequence[IcebergCommittable]) -> dict[int, set[tuple[Any, ...]]]:
    """Partition spec -> partitions that new files replace."""
    found: dict[int, set[tuple[Any, ...]]] = {}
    for one in staged:
        spec, schema = table.specs()[one.spec_id], table.schemas()[one.schema_id]
        values = {values_of(decoded(spec, schema, file.partition)) for file in one.files}
        found.setdefault(one.spec_id, set()).update(values)
    return found


def values_of(record: Any) -> tuple[Any, ...]:
    """The values of a partition, to be compared. NaN, which equals nothing, is one value."""
    values = (record[i] for i in range(len(record)))
    return tuple("NaN" if value != value else value for value in values)  # noqa: PLR0124 - NaN alone


def _live(manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """The manifests that have files."""
    return [one for one in manifests if one.has_added_files() or one.has_existing_files()]


def _is_named(paths: frozenset[str], file: DataFile) -> bool:
    return file.file_path in paths


def _is_within(partitions: set[tuple[Any, ...]], file: DataFile) -> bool:
    return values_of(file.partition) in partitions


def _kept(
    parts: _SnapshotFiles, manifests: Sequence[ManifestFile], replaced: Mapping[int, set[tuple[Any, ...]]]
) -> Iterator[ManifestFile]:
    """The manifests, without the files of the replaced partitions."""
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            yield manifest
            continue
        if manifest.partition_spec_id not in replaced:
            raise ConfigError(
                f"table {'.'.join(parts.table.name())}: mode='overwrite-partitions' finds files of another "
                f"partition spec ({manifest.partition_spec_id}) than that of the new ones, so their "
                "partitions cannot be compared; nothing was committed. Rewrite the table's files with its "
                "newest spec first"
            )
        yield from _filtered(parts, manifest, partial(_is_within, replaced[manifest.partition_spec_id]))


def _filtered(
    parts: _SnapshotFiles, manifest: ManifestFile, is_removed: Callable[[DataFile], bool]
) -> Iterator[ManifestFile]:
    entries = manifest.fetch_manifest_entry(parts.table.io, discard_deleted=True)
    are_removed = [is_removed(entry.data_file) for entry in entries]
    if not any(are_removed):
        yield manifest
        return
    table = parts.table
    spec = table.specs()[manifest.partition_spec_id]
    schema = schema_of(table, spec)
    if schema is None:
        raise ConfigError(
            f"table {'.'.join(table.name())}: rows are to be replaced in files of partition spec "
            f"{spec.spec_id}, whose columns no schema of the table has any more; nothing was committed. "
            "Rewrite these files with the table's newest spec first (rewrite_data_files)"
        )
    changed = []
    for entry, removed in zip(entries, are_removed, strict=True):
        if removed:
            parts.has_removed = True
            parts.collector.remove_file(data_file=entry.data_file, schema=schema, partition_spec=spec)
        changed.append(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED if removed else ManifestEntryStatus.EXISTING,
                snapshot_id=parts.snapshot_id if removed else entry.snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
        )
    yield parts.manifest(spec, schema, changed)


def live_paths(table: Any) -> frozenset[str]:
    """The paths of the data files of the head."""
    head = table.metadata.snapshot_by_name(BRANCH)
    return frozenset(
        entry.data_file.file_path
        for manifest in (head.manifests(table.io) if head is not None else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )
