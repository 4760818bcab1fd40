"""Which manifests are merged, and that a table of merged ones is what it was."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent

from tests.contract.sinks.case import batch, permit, request
from tests.iceberg_lake import Lake
from tests.unit.connector.iceberg.parts import Parts, rows
from unistream.connector.iceberg.merge import FILES_MAX, schema_of, small_ones


@dataclass
class Manifest:
    manifest_length: int = 5_000
    partition_spec_id: int = 0
    content: ManifestContent = ManifestContent.DATA
    added_files_count: int | None = 1
    existing_files_count: int | None = None


FEW = {"commit.manifest.min-count-to-merge": "3"}


@pytest.mark.parametrize(
    ("manifests", "properties", "merged"),
    [
        pytest.param([Manifest()] * 2, FEW, [], id="too few"),
        pytest.param([Manifest()] * 4, FEW, [0, 1, 2], id="as many as are needed"),
        pytest.param([Manifest()] * 99, {}, [], id="99 by default are too few"),
        pytest.param([Manifest()] * 100, {}, list(range(100)), id="100 by default are enough"),
        pytest.param(
            [Manifest()] * 4, {**FEW, "commit.manifest-merge.enabled": "false"}, [], id="switched off"
        ),
        pytest.param(
            [Manifest(), Manifest(partition_spec_id=1), Manifest()], FEW, [], id="of several partition specs"
        ),
        pytest.param(
            [Manifest(), Manifest(content=ManifestContent.DELETES), Manifest()], FEW, [], id="of delete files"
        ),
        pytest.param(
            [Manifest(500_000), *[Manifest()] * 3, Manifest(600_000)], FEW, [1, 2, 3], id="of one size only"
        ),
        pytest.param(
            [Manifest(added_files_count=FILES_MAX // 2)] * 4,
            FEW,
            [],
            id="not more files than one commit writes",
        ),
    ],
)
def test_small_manifests_of_one_size_are_merged(
    manifests: list[Any], properties: dict[str, str], merged: list[int]
) -> None:
    assert small_ones(manifests, properties) == merged


def test_a_table_of_merged_manifests_is_what_it_was(lake: Lake, parts: Parts) -> None:
    sink = parts.sink(partition_by="day", table_properties={"commit.manifest.min-count-to-merge": "4"})
    writer, committer = parts.writer(sink), parts.committer(sink)
    for checkpoint in range(1, 21):
        staged = parts.staged(checkpoint, rows(id=[checkpoint], day=[f"day {checkpoint % 3}"]), writer)
        committer.commit(permit(checkpoint), request(checkpoint, *staged))
    assert lake.ids() == list(range(1, 21))
    assert lake.rows("SELECT id FROM t WHERE day = 'day 1' ORDER BY id") == [(n,) for n in range(1, 21, 3)]
    with lake.table() as table:
        head = table.current_snapshot()
        assert head is not None
        assert len(head.manifests(table.io)) < 10
        entries = [entry for one in head.manifests(table.io) for entry in one.fetch_manifest_entry(table.io)]
        added = {entry.snapshot_id: entry.sequence_number for entry in entries}
        assert added == {one.snapshot_id: one.sequence_number for one in table.snapshots()}
    assert lake.summaries()[-1]["total-data-files"] == "20"


def test_a_repeated_commit_is_recognised_behind_a_merge(lake: Lake, parts: Parts) -> None:
    sink = parts.sink(table_properties={"commit.manifest.min-count-to-merge": "2"})
    committer, staged = parts.committer(sink), {}
    writer = parts.writer(sink)
    for checkpoint in (1, 2, 3, 4):
        staged[checkpoint] = parts.staged(checkpoint, batch(checkpoint), writer)
        committer.commit(permit(checkpoint), request(checkpoint, *staged[checkpoint]))
    parts.committer(sink, restored=4).commit(permit(4), request(4, *staged[4]))
    assert lake.ids() == [1, 2, 3, 4]


def test_the_schema_of_a_partition_spec_has_its_columns() -> None:
    def schema(id_: int, *fields: int) -> Any:
        return SimpleNamespace(schema_id=id_, field_ids=fields)

    old, new = schema(0, 1, 2), schema(1, 1)
    table = SimpleNamespace(schema=lambda: new, schemas=lambda: {0: old, 1: new})
    by_second = SimpleNamespace(fields=[SimpleNamespace(source_id=2)])
    by_none = SimpleNamespace(fields=[SimpleNamespace(source_id=3)])
    assert schema_of(table, by_second) is old
    assert schema_of(table, by_none) is None
