"""Real Delta tables for tests of the source, and what a discovery and a reader make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake

from tests.support.harness.source_driver import SourceDriver
from unistream.connector.catalogue import create_discovery
from unistream.connector.common import decoded_split
from unistream.connector.delta import DeltaSource
from unistream.connector.delta.source_split import DeltaSplit
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import GrowingDiscovery


def numbers(*rows: int) -> pa.Table:
    return pa.table({"i": pa.array(rows, pa.int64())})


def append(table: Path, rows: pa.Table, **options: Any) -> int:
    """The new version."""
    write_deltalake(str(table), rows, mode="append", **options)
    return DeltaTable(str(table)).version()


def of_row_groups(rows: int) -> dict[str, Any]:
    return {"writer_properties": WriterProperties(max_row_group_size=rows)}


def commit(table: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
    """Writes a commit as another writer of Delta would."""
    (table / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def actions_of(table: Path, version: int) -> list[dict[str, Any]]:
    text = (table / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def rewrite(table: Path, version: int, change: Mapping[str, Mapping[str, Any]]) -> None:
    """Changes fields of the actions of a commit, by the names of the actions."""
    commit(
        table,
        version,
        [
            {name: {**fields, **change.get(name, {})} for name, fields in action.items()}
            for action in actions_of(table, version)
        ],
    )


def find(source: DeltaSource, known: KnownSplits | None = None, *, column: str = "") -> FoundSplits:
    kind = str(source.schema.field(column).type) if column else ""
    info = msgspec.structs.replace(source.info(), timestamp_column=column, timestamp_type=kind)
    discovery = create_discovery(info)
    assert isinstance(discovery, GrowingDiscovery)
    try:
        return discovery.find(known)
    finally:
        discovery.close()


def after(found: FoundSplits) -> KnownSplits:
    """What the next discovery is given."""
    return KnownSplits(ids=frozenset(), origin=found.origin, position=found.position)


def parts(splits: Sequence[Split]) -> list[DeltaSplit]:
    return [decoded_split(split, DeltaSplit, "Delta") for split in splits]


def read(source: DeltaSource, splits: Sequence[Split] | None = None) -> list[dict[str, Any]]:
    given = find(source).splits if splits is None else splits
    with SourceDriver(source, given) as task:
        return task.all_rows()


def values(source: DeltaSource, splits: Sequence[Split] | None = None, column: str = "i") -> list[Any]:
    return sorted(row[column] for row in read(source, splits))
