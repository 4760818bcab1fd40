"""Column mapping: the columns of a table by the names, or the ids, that they have in its files.

    name    by the physical name, which stays when a column is renamed
    id      by the field id; by the physical name in a file that has no ids

The log has physical names, too: keys of partition values and of statistics. A column that was dropped and
added again under its name has another physical name, and another id. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common.columns_by_id import NamedField, identified, with_id

MODE: Final = "delta.columnMapping.mode"
PHYSICAL: Final = b"delta.columnMapping.physicalName"
ID: Final = b"delta.columnMapping.id"
NONE: Final = "none"
NAME: Final = "name"
MODES: Final = (NONE, NAME, "id")

V = TypeVar("V")


def mode_of(table: str, configuration: Mapping[str, str | None]) -> str:
    """Raises ConfigError: it is not known."""
    mode = configuration.get(MODE) or NONE
    if mode not in MODES:
        raise ConfigError(f"table {table} uses column mapping ({mode}), which this source does not know")
    return mode


def stored_field(table: str, field: pa.Field) -> pa.Field:
    """The field with its id and its physical name, also inside structs. `field`: as deltalake has it. Raises
    ConfigError: the log does not say them."""
    metadata = field.metadata or {}
    if ID not in metadata or PHYSICAL not in metadata:
        raise ConfigError(f"table {table}: column {field.name!r} has no id or no physical name in the log")
    made = with_id(field.with_type(_stored_type(table, field.type)), int(metadata[ID]))
    return made.with_metadata({**made.metadata, PHYSICAL: metadata[PHYSICAL]})


def _stored_type(table: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([stored_field(table, one) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_inner(table, kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_inner(table, kind.key_field), _inner(table, kind.item_field))
    return kind


def _inner(table: str, field: pa.Field) -> pa.Field:
    """Elements have no ids of their own."""
    return pa.field(field.name, _stored_type(table, field.type), field.nullable)


def physical_name(field: pa.Field) -> str:
    """The name of a column in files and in the log; its own without a mapping."""
    found = (field.metadata or {}).get(PHYSICAL)
    return str(field.name if found is None else found.decode())


def by_logical_name(values: Mapping[str, V], fields: Iterable[pa.Field]) -> dict[str, V]:
    """Values of the log by the names that columns have for a job; others stay as they are."""
    names = {physical_name(field): field.name for field in fields}
    return {names.get(name, name): value for name, value in values.items()}


# --- files ----------------------------------------------------------------------------------------


def identified_columns(where: str, found: pa.Schema, wanted: pa.Schema, mode: str) -> pa.Schema:
    """The columns of a file, with ids. `wanted`: those that are looked for."""
    names = [_named(field) for field in wanted]
    return identified(where, found, names, by_name=mode == NAME)


def _named(field: pa.Field) -> NamedField:
    id_ = (field.metadata or {}).get(b"PARQUET:field_id")
    inner = _inner_names(field.type)
    return NamedField(names=[physical_name(field)], field_id=None if id_ is None else int(id_), fields=inner)


def _inner_names(kind: Any) -> list[NamedField]:
    if pa.types.is_struct(kind):
        return [_named(one) for one in kind]
    if pa.types.is_list(kind):
        return [NamedField(names=["element"], fields=_inner_names(kind.value_type))]
    if pa.types.is_map(kind):
        return [
            NamedField(names=["key"], fields=_inner_names(kind.key_type)),
            NamedField(names=["value"], fields=_inner_names(kind.item_type)),
        ]
    return []
