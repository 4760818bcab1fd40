"""An Iceberg table as a source sees it: its snapshots, columns, and the files of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Or,
)
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection, manifest_evaluator
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import TruncateTransform

from unistream.base.errors import ConfigError
from unistream.connector.common import RowFilter, find_recorded, may_select
from unistream.connector.common.columns_by_id import id_of
from unistream.connector.common.row_filter import FilterTerm
from unistream.connector.iceberg.catalog import answering
from unistream.connector.iceberg.merge import schema_of
from unistream.connector.iceberg.record import BRANCH, owner_in, owner_name, recorded_commits
from unistream.connector.iceberg.source_log import History, SnapshotFacts
from unistream.connector.iceberg.source_manifests import (
    SourceManifestEntry,
    all_entries,
    delete_file,
    lake_file,
)
from unistream.connector.iceberg.source_schema import TableColumns, key_columns, table_columns
from unistream.connector.iceberg.source_split import DeleteIndex, Deletes, LakeFile, check_format, file_bounds
from unistream.model.positions import SourcePositions

NAME_MAPPING: Final = "schema.name-mapping.default"

_BITS: Final = {"int": 32, "long": 64}
_COMPARED: Final[dict[str, Callable[[str, Any], BooleanExpression]]] = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}


@dataclass(frozen=True, slots=True)
class Added:
    """What one snapshot has changed: files with new rows, and the number of those that it removes or that
    hold deletes. `inherits`: it has rows of earlier ones, too."""

    files: list[LakeFile]
    removes: int
    inherits: bool


class IcebergSourceTable:
    """One table, as of the last look at it.

    Args:
        where: For messages.
        table: A `pyiceberg.table.Table`.
    """

    def __init__(self, where: str, table: Any) -> None:
        self._where = where
        self._table = table
        self._spec_schemas: dict[int, Schema] = {}

    @property
    def id(self) -> str:
        return str(self._table.metadata.table_uuid)

    @property
    def io(self) -> Any:
        """The `pyiceberg.io.FileIO` of the table."""
        return self._table.io

    @property
    def name_mapping(self) -> str | None:
        found: str | None = self._table.properties.get(NAME_MAPPING)
        return found

    @property
    def keys(self) -> pa.Schema:
        """See `key_columns`."""
        schemas = self._table.schemas()
        older = sorted(schemas.values(), key=lambda one: -one.schema_id)
        return key_columns([self._table.schema(), *older])

    def columns(self, snapshot: SnapshotFacts | None) -> TableColumns:
        """The columns that the snapshot was written with; None: the newest. Raises ConfigError: a type is not
        known."""
        what = self._where if snapshot is None else f"{self._where}, snapshot {snapshot.id}"
        with answering(self._where, "reading its schema"):
            return table_columns(what, self._schema(snapshot))

    def _schema(self, snapshot: SnapshotFacts | None) -> Schema:
        id_ = None if snapshot is None else snapshot.schema_id
        found: Schema = self._table.schemas().get(id_, self._table.schema())
        return found

    # --- snapshots --------------------------------------------------------------------------------

    def is_tag(self, ref: str) -> bool:
        found = self._table.refs().get(ref)
        return found is not None and found.snapshot_ref_type == SnapshotRefType.TAG

    def history(self, ref: str) -> History:
        """Raises ConfigError: there is no such branch or tag."""
        metadata = self._table.metadata
        refs = self._table.refs()
        if ref not in refs and ref != BRANCH:
            raise ConfigError(
                f"{self._where} has no branch and no tag {ref!r}; there are "
                f"{', '.join(sorted(refs)) or 'none'}"
            )
        head = metadata.snapshot_by_name(ref)
        return History(
            where=self._where if ref == BRANCH else f"{self._where}, {ref!r}",
            snapshots={one.snapshot_id: _facts(one) for one in metadata.snapshots},
            head=None if head is None else head.snapshot_id,
        )

    def log(self) -> list[tuple[int, int]]:
        """What its newest snapshot was, by time (ms)."""
        return [(one.timestamp_ms, one.snapshot_id) for one in self._table.metadata.snapshot_log]

    def recorded(self, snapshot: SnapshotFacts, connector: str, name: str) -> SourcePositions:
        """Finds up to which positions of a source the snapshot has everything. Raises ConfigError: nobody
        knows."""
        metadata = self._table.metadata
        return find_recorded(
            self._where.removeprefix("table "),
            f"snapshot {snapshot.id}",
            lambda: recorded_commits(metadata, snapshot.id),
            gone="the snapshots of its last rows have expired",
            connector=connector,
            name=name,
            owner_of=lambda positions: owner_in(metadata.properties, owner_name(positions)),
        )

    # --- files ------------------------------------------------------------------------------------

    def files(
        self, snapshot: SnapshotFacts, row_filter: RowFilter, read: pa.Schema
    ) -> Iterator[tuple[LakeFile, tuple[Deletes, ...]]]:
        """Yields the files that may have rows that the filter selects, with the deletes about them.

        Raises:
            ConfigError: a file cannot be read by this source.
            Unreachable: the storage does not answer.
        """
        with answering(self._where, f"reading the manifests of snapshot {snapshot.id}"):
            manifests = self._table.snapshot_by_id(snapshot.id).manifests(self._table.io)
            prunes = {
                id_: _Pruner(spec, self._schema(snapshot), row_filter, read)
                for id_, spec in self._table.specs().items()
            }
            deletes = [one for one in manifests if one.content == ManifestContent.DELETES]
            data = [
                one
                for one in manifests
                if one.content == ManifestContent.DATA and prunes[one.partition_spec_id].may_have(one)
            ]
            index = DeleteIndex(self._where, map(self._delete_file, self._live(deletes)))
            for entry in self._live(data):
                if prunes[entry.file.spec_id].may_select(entry.file.partition):
                    file = self._lake_file(entry)
                    if may_select(row_filter, partial(file_bounds, file, read)):
                        yield file, index.about(file)

    def added(self, snapshot: SnapshotFacts) -> Added:
        """Raises as `files`."""
        with answering(self._where, f"reading the manifests of snapshot {snapshot.id}"):
            manifests = self._table.snapshot_by_id(snapshot.id).manifests(self._table.io)
            new = [one for one in manifests if one.added_snapshot_id == snapshot.id]
            entries = list(all_entries(self._table.io, new))
        mine = [one for one in entries if one.snapshot == snapshot.id]
        adds = [one for one in mine if one.status == "added"]
        files = [self._lake_file(one) for one in adds if not one.is_delete]
        removed = sum(one.status == "deleted" for one in mine) + sum(one.is_delete for one in adds)
        inherits = len(new) < len(manifests) or any(one.status != "added" for one in entries)
        return Added(files, removed, inherits)

    def _live(self, manifests: Sequence[Any]) -> Iterator[SourceManifestEntry]:
        return (one for one in all_entries(self._table.io, manifests) if one.status != "deleted")

    def _lake_file(self, entry: SourceManifestEntry) -> LakeFile:
        spec = self._table.specs()[entry.file.spec_id]
        if spec.spec_id not in self._spec_schemas:
            self._spec_schemas[spec.spec_id] = schema_of(self._table, spec) or self._table.schema()
        file = lake_file(entry, spec, self._spec_schemas[spec.spec_id])
        check_format(self._where, file)
        return file

    def _delete_file(self, entry: SourceManifestEntry) -> Any:
        return delete_file(entry, self._table.specs()[entry.file.spec_id])


def _facts(snapshot: Any) -> SnapshotFacts:
    summary = snapshot.summary
    return SnapshotFacts(
        id=snapshot.snapshot_id,
        parent=snapshot.parent_snapshot_id,
        sequence=snapshot.sequence_number or 0,
        at_ms=snapshot.timestamp_ms,
        operation="a snapshot" if summary is None else str(summary.operation.value),
        schema_id=snapshot.schema_id,
    )


# --- partitions that a filter rules out -----------------------------------------------------------


class _Pruner:
    """Rules files out by the values of partitions, also of transforms such as buckets and days. It rules
    nothing out where somebody has dropped the column of a partition."""

    def __init__(self, spec: PartitionSpec, schema: Schema, row_filter: RowFilter, read: pa.Schema) -> None:
        self._manifest: Callable[[Any], bool] | None = None
        self._record: Callable[[Any], bool] | None = None
        known = {field.source_id for field in spec.fields} <= schema.field_ids
        if row_filter and spec.fields and known:
            wanted = _expression(row_filter, schema, read, _wrapping(spec, schema))
            projected = inclusive_projection(schema, spec)(wanted)
            self._manifest = manifest_evaluator(spec, schema, projected)
            fields = spec.partition_type(schema).fields
            self._record = expression_evaluator(Schema(*fields), projected, case_sensitive=True)

    def may_have(self, manifest: Any) -> bool:
        return self._manifest is None or self._manifest(manifest)

    def may_select(self, partition: Any) -> bool:
        return self._record is None or self._record(partition)


def _wrapping(spec: PartitionSpec, schema: Schema) -> dict[str, tuple[int, int]]:
    """Columns of integers that are truncated for a partition: below the first number the prefix has no place
    in the type, and is stored as one above the second number (as Java does it, and Rust)."""
    found: dict[str, tuple[int, int]] = {}
    for field in spec.fields:
        bits = _BITS.get(str(schema.find_type(field.source_id)))
        if bits is not None and isinstance(field.transform, TruncateTransform):
            name = schema.find_column_name(field.source_id) or ""
            low, high = found.get(name, (-(2 ** (bits - 1)), 2 ** (bits - 1)))
            width = field.transform.width
            found[name] = max(low, width - 2 ** (bits - 1)), min(high, 2 ** (bits - 1) - width)
    return found


def _expression(
    row_filter: RowFilter, schema: Schema, read: pa.Schema, wrapping: dict[str, tuple[int, int]]
) -> BooleanExpression:
    """An expression that is true for all rows that the filter selects, and maybe others. `wrapping`: see
    `_wrapping`."""
    found: BooleanExpression = AlwaysFalse()
    for group in row_filter:
        all_of: BooleanExpression = AlwaysTrue()
        for term in group:
            name = schema.find_column_name(id_of(read.field(term.column)) or 0)
            one = _term(term, name)
            low, high = wrapping.get(name or "", (None, 0))
            if low is not None and (term.op in ("<", "<=") or any(value < low for value in term.values)):
                one = Or(one, GreaterThanOrEqual(name, high))
            all_of = And(all_of, one)
        found = Or(found, all_of)
    return found


def _term(term: FilterTerm, name: str | None) -> BooleanExpression:
    """The expression of one condition. `name`: of the column in the schema."""
    if name is None or not _has_literal(term):
        return AlwaysTrue()
    if term.op == "is":
        return IsNull(name)
    values = [_literal(value, term.kind) for value in term.values]
    if term.op == "in":
        return In(name, values)
    compare = _COMPARED.get(term.op)
    return AlwaysTrue() if compare is None else compare(name, values[0])


def _literal(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_temporal(kind):
        return value.isoformat() + ("+00:00" if pa.types.is_timestamp(kind) and kind.tz else "")
    return f"{value:.{kind.scale}f}" if isinstance(value, Decimal) else value


def _has_literal(term: FilterTerm) -> bool:
    """Pyiceberg compares partitions with such values. Not floats, which it reads with another precision."""
    kind = term.kind
    if pa.types.is_decimal(kind):
        return all(value == round(value, kind.scale) for value in term.values)
    return not pa.types.is_floating(kind) and not (pa.types.is_timestamp(kind) and kind.unit == "ns")
