"""Merges small manifests while a snapshot is made, so that their number does not grow with each checkpoint.

Java's writers fill one manifest up to its target size and write it again each time; here only manifests of
about the same size are merged, as levels of a log-structured tree: each file is written again a few times in
all, and the work of one commit has a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile

ENABLED: Final = "commit.manifest-merge.enabled"
MIN_COUNT: Final = "commit.manifest.min-count-to-merge"
MIN_COUNT_DEFAULT: Final = 100
FILES_MAX: Final = 4_000  # that one commit writes again: some 0.3 s
_LEVEL_BITS: Final = 3  # sizes of one level differ by less than a factor of 8


class Sized(Protocol):
    """What is needed of a manifest."""

    @property
    def content(self) -> Any: ...
    @property
    def partition_spec_id(self) -> int: ...
    @property
    def manifest_length(self) -> int: ...
    @property
    def added_files_count(self) -> int | None: ...
    @property
    def existing_files_count(self) -> int | None: ...


def small_ones(manifests: Sequence[Sized], properties: Mapping[str, str]) -> list[int]:
    """The places of those to be merged into one; empty: there are not enough."""
    if properties.get(ENABLED, "true").lower() == "false":
        return []
    least = max(2, int(properties.get(MIN_COUNT, MIN_COUNT_DEFAULT)))
    levels: dict[tuple[int, int], list[int]] = {}
    for place, one in enumerate(manifests):
        if one.content == ManifestContent.DATA:
            level = one.manifest_length.bit_length() // _LEVEL_BITS
            levels.setdefault((one.partition_spec_id, level), []).append(place)
    for _, places in sorted(levels.items(), key=lambda level: level[0][1]):
        if len(places) < least:
            continue
        chosen = places[:least]
        if sum(_files(manifests[place]) for place in chosen) <= FILES_MAX:
            return chosen
    return []


def _files(manifest: Sized) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def merged(
    table: Any,
    manifests: Sequence[ManifestFile],
    write: Callable[[Any, Any, list[ManifestEntry]], ManifestFile],
) -> Iterator[ManifestFile]:
    """Yields all of `manifests`, the small ones as one.

    Args:
        table: That they are of.
        manifests: Of its head.
        write: Writes one, of a partition spec, a schema and entries.
    """
    places = set(small_ones(manifests, table.metadata.properties)) if _may_merge(table) else set()
    if places:
        spec = table.specs()[manifests[min(places)].partition_spec_id]
        schema = schema_of(table, spec)
        if schema is None:
            places = set()
        else:
            entries = [one for place in sorted(places) for one in _existing(table, manifests[place])]
            yield write(spec, schema, entries)
    yield from (one for place, one in enumerate(manifests) if place not in places)


def _may_merge(table: Any) -> bool:
    """Entries of version 1 have no sequence numbers to keep."""
    return int(table.metadata.format_version) == 2


def _existing(table: Any, manifest: ManifestFile) -> Iterator[ManifestEntry]:
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
        yield ManifestEntry.from_args(
            status=ManifestEntryStatus.EXISTING,
            snapshot_id=entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )


def schema_of(table: Any, spec: Any) -> Any:
    """The newest schema that has all columns of a partition spec; None: there is none any more."""
    sources = {field.source_id for field in spec.fields}
    current = table.schema()
    older = sorted(table.schemas().values(), key=lambda one: -one.schema_id)
    return next((one for one in (current, *older) if sources <= set(one.field_ids)), None)
