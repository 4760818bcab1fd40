"""Positions of sources in the snapshots of a table: what a sink records, and what a source finds there."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pyiceberg.table import Table

from tests.contract.sinks.case import LINEAGE, permit, request
from tests.iceberg_lake import Lake
from tests.unit.connector.iceberg.parts import Parts, rows
from tests.unit.connector.iceberg.source_tables import compact, head, source
from unistream.base.errors import ConfigError
from unistream.base.ids import LineageId, OperatorUid
from unistream.connector.catalogue import create_discovery
from unistream.model.positions import SourcePositions
from unistream.port.source import RecordedDiscovery


def at(*offsets: int, name: str = "flights") -> SourcePositions:
    return SourcePositions(
        uid=OperatorUid("topic"),
        connector="kafka",
        name=name,
        origin="id-1",
        offsets={str(p): offset for p, offset in enumerate(offsets)},
    )


def write(parts: Parts, checkpoint: int, *positions: SourcePositions, lineage: LineageId = LINEAGE) -> None:
    sink = parts.sink(on_foreign="append")
    committer = parts.committer(sink, lineage=lineage, restored=checkpoint - 1 or None)
    staged = parts.staged(checkpoint, rows(id=[checkpoint]), parts.writer(sink, lineage=lineage))
    allowed = dataclasses.replace(permit(checkpoint, lineage), positions=positions)
    committer.commit(allowed, request(checkpoint, *staged))


def found(lake: Lake, name: str = "flights", **options: Any) -> tuple[int, SourcePositions]:
    """The number of splits, and the positions."""
    discovery = create_discovery(source(lake, **options).info())
    assert isinstance(discovery, RecordedDiscovery)
    splits, positions = discovery.find_recorded("kafka", name)
    return len(splits.splits), positions


def test_a_source_finds_what_the_sink_has_recorded_of_the_snapshot_that_it_reads(
    lake: Lake, parts: Parts
) -> None:
    write(parts, 1, at(5, 6))
    first = head(lake)
    write(parts, 2, at(9, 8), at(1, name="other"))
    assert found(lake) == (2, at(9, 8))
    assert found(lake, "other") == (2, at(1, name="other"))
    assert found(lake, snapshot_id=first) == (1, at(5, 6))
    lake.change(compact)
    assert found(lake) == (1, at(9, 8)), "compaction changes no rows"


def append(table: Table) -> None:
    table.append(table.scan().to_arrow())


def expire(table: Table) -> None:
    """All but a compaction."""
    compact(table)
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.snapshots()][:-1]).commit()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            append, r"\(snapshot \d+, append\) is by another writer and has no positions", id="others"
        ),
        pytest.param(expire, "since the snapshots of its last rows have expired", id="expired"),
    ],
)
def test_positions_of_older_rows_say_nothing_of_newer_ones(
    lake: Lake, parts: Parts, change: Any, message: str
) -> None:
    write(parts, 1, at(5))
    lake.change(change)
    with pytest.raises(ConfigError, match=rf"table lake.rows.*, snapshot \d+: .*{message}"):
        found(lake)


def test_positions_of_several_sinks_say_nothing(lake: Lake, parts: Parts) -> None:
    write(parts, 1, at(5))
    write(parts, 1, at(7), lineage=LineageId("another"))
    with pytest.raises(ConfigError, match="several sinks have written rows of kafka 'flights' to it"):
        found(lake)


def test_an_empty_table_and_a_part_of_one_have_no_positions(lake: Lake, parts: Parts) -> None:
    write(parts, 1, at(5))
    with pytest.raises(ConfigError, match="positions are those of a snapshot, and none is read"):
        found(lake, after_snapshot=head(lake))
