"""What the Iceberg source takes from pyiceberg beside its public methods: the entries of manifests."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS

from tests.iceberg_lake import Lake
from tests.unit.connector.iceberg.source_tables import append, delete_equal, delete_positions, numbers, paths
from unistream.connector.iceberg.source_manifests import ENTRY_VERSION, PLACES, all_entries, delete_file

NAMES = ("referenced_data_file", "content_offset", "content_size_in_bytes")


def test_the_fields_of_version_3_are_where_they_are_looked_for() -> None:
    names = [field.name for field in DATA_FILE_TYPE[ENTRY_VERSION].fields]
    assert tuple(names[place] for place in PLACES) == NAMES
    assert max(MANIFEST_ENTRY_SCHEMAS) == ENTRY_VERSION, "a newer version has fields that nobody looks at"


def test_entries_are_those_of_pyiceberg_itself(tmp_path: Path) -> None:
    """Where it reads them; its numbers are inherited as ours are."""
    lake = Lake(tmp_path)
    lake.create(numbers().schema)
    append(lake, numbers(1, 2))
    append(lake, numbers(3))
    lake.change(lambda table: delete_positions(table, paths(table)[0], 0))
    lake.change(lambda table: delete_equal(table, numbers(3), 1))
    with lake.table() as table:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        manifests = snapshot.manifests(table.io)
        theirs = [entry for one in manifests for entry in one.fetch_manifest_entry(table.io)]
        ours = list(all_entries(table.io, manifests))
        assert [
            (one.file.file_path, one.sequence, one.snapshot, one.file.content, one.file.equality_ids)
            for one in ours
        ] == [
            (
                one.data_file.file_path,
                one.sequence_number,
                one.snapshot_id,
                one.data_file.content,
                one.data_file.equality_ids,
            )
            for one in theirs
        ]
        deletes = [delete_file(one, table.spec()) for one in ours if one.is_delete]
        assert [one.is_equality for one in deletes] == [True, False]
        assert [one.referenced is None for one in deletes] == [True, False]
