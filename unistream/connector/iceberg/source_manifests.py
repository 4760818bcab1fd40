"""The manifests of a snapshot as they are written: which files it has, added, or removed.

The one place of the source that reads manifests. pyiceberg's own `fetch_manifest_entry` reads the fields of
format version 2 only, and its scan refuses tables with equality deletes; here all fields are read, by
pyiceberg's reader of Avro and its schemas of entries. `test_contract_iceberg_manifests` shows that they are
what they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, TypeAlias

from pyiceberg.avro.file import AvroFile
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType

from unistream.connector.iceberg.partition import reads_doubles
from unistream.connector.iceberg.snapshot import values_of
from unistream.connector.iceberg.source_split import DeleteFile, LakeFile

MANIFESTS_AT_ONCE: Final = 16  # read at the same time; an object store answers each in some 20 ms
ENTRY_VERSION: Final = 3
Status: TypeAlias = Literal["added", "existing", "deleted"]

_STATUS: Final[dict[Any, Status]] = {
    ManifestEntryStatus.ADDED: "added",
    ManifestEntryStatus.EXISTING: "existing",
    ManifestEntryStatus.DELETED: "deleted",
}
PLACES: Final = (17, 18, 19)
"""The ids of the fields of version 3 in an entry, for which pyiceberg has no names: which file deletes are
about, where they are in theirs, and how long."""


class SourceManifestEntry:
    """One entry of a manifest. `snapshot`: which one has added or deleted it. `manifest`: its path."""

    __slots__ = ("file", "is_delete", "manifest", "sequence", "snapshot", "status")

    def __init__(self, entry: ManifestEntry, manifest: ManifestFile) -> None:
        self.status: Status = _STATUS[entry.status]
        self.snapshot = entry.snapshot_id if entry.snapshot_id is not None else manifest.added_snapshot_id
        self.sequence = int(
            manifest.sequence_number if entry.sequence_number is None else entry.sequence_number
        )
        self.file: DataFile = entry.data_file
        self.manifest: str = manifest.manifest_path
        self.is_delete = manifest.content == ManifestContent.DELETES


def entries_of(io: Any, manifest: ManifestFile) -> list[SourceManifestEntry]:
    """Reads the entries of one manifest. Numbers that it leaves out are its own (sequence number
    inheritance)."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[ENTRY_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        found = []
        for entry in reader:
            entry.data_file.spec_id = manifest.partition_spec_id
            found.append(SourceManifestEntry(entry, manifest))
        return found


def all_entries(io: Any, manifests: Sequence[ManifestFile]) -> Iterator[SourceManifestEntry]:
    """Reads the entries of several manifests, in their order."""
    if len(manifests) < 2:
        for manifest in manifests:
            yield from entries_of(io, manifest)
        return
    with ThreadPoolExecutor(MANIFESTS_AT_ONCE, "iceberg-manifests") as pool:
        for found in pool.map(lambda one: entries_of(io, one), manifests):
            yield from found


def lake_file(entry: SourceManifestEntry, spec: PartitionSpec, schema: Schema) -> LakeFile:
    """A data file. `schema`: has the columns that partitions are of, unless somebody has dropped them."""
    file = entry.file
    constants, unreadable = _constants(file, spec, schema)
    return LakeFile(
        path=file.file_path,
        size=file.file_size_in_bytes,
        rows=file.record_count,
        format=file.file_format.name,
        encrypted=file.key_metadata is not None,
        sequence=entry.sequence,
        partition=partition_of(file, spec),
        constants=constants,
        unreadable=unreadable,
        manifest=entry.manifest,
        least=file.lower_bounds or {},
        greatest=file.upper_bounds or {},
        nulls=file.null_value_counts or {},
    )


def partition_of(file: DataFile, spec: PartitionSpec) -> tuple[Any, ...]:
    """The spec and the values of a partition, by which deletes find their files."""
    return spec.spec_id, values_of(file.partition)


def delete_file(entry: SourceManifestEntry, spec: PartitionSpec) -> DeleteFile:
    """A file with deletes. Those of an unpartitioned spec are of the whole table, if they are by equality."""
    file = entry.file
    whole = all(isinstance(field.transform, VoidTransform) for field in spec.fields)
    referenced, offset, length = (file[place] for place in PLACES)
    return DeleteFile(
        path=file.file_path,
        size=file.file_size_in_bytes,
        format=file.file_format.name,
        encrypted=file.key_metadata is not None,
        sequence=entry.sequence,
        partition=None if whole else partition_of(file, spec),
        equality_ids=tuple(file.equality_ids or ()),
        is_equality=file.content == DataFileContent.EQUALITY_DELETES,
        referenced=referenced or _only_path(file),
        offset=offset,
        length=length,
    )


_PATH_ID: Final = 2147483546  # of the column with paths in files of positions, by the specification


def _only_path(file: DataFile) -> str | None:
    """The file that all its rows name, by its statistics."""
    least, greatest = (file.lower_bounds or {}).get(_PATH_ID), (file.upper_bounds or {}).get(_PATH_ID)
    return least.decode() if least is not None and least == greatest else None


def _constants(
    file: DataFile, spec: PartitionSpec, schema: Schema
) -> tuple[dict[int, bytes | None], tuple[int, ...]]:
    """Columns that are the same in all rows of a file, which need not have them; and those of which pyiceberg
    does not know the value."""
    found: dict[int, bytes | None] = {}
    unreadable = []
    for place, field in enumerate(spec.fields):
        if not isinstance(field.transform, IdentityTransform) or field.source_id not in schema.field_ids:
            continue
        kind = schema.find_type(field.source_id)
        if isinstance(kind, DoubleType) and not reads_doubles():
            unreadable.append(field.source_id)
            continue
        value = file.partition[place]
        found[field.source_id] = None if value is None else bytes(to_bytes(kind, value))
    return found, tuple(unreadable)
