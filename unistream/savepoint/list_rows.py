"""State of operators without keys as tables: lists (`value`) and broadcast maps (`map_key`, `value`).

    stored items ── Arrow IPC streams ──► read_list: subtask, and the columns of the items
    rows of a user ── columns, types, no key twice ──► list_items: what an operator would have stored

Lists of another make (positions of sources, commits that wait, the writers' own) are not these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.model.arrow_layouts import filtered, taken
from unistream.model.snapshot import ListMode
from unistream.model.state import (
    MAP_KEY_COLUMN,
    VALUE_COLUMN,
    MapStateDescriptor,
    OperatorListDescriptor,
)
from unistream.model.state_types import common_table
from unistream.operator.process import (
    item_head,
    item_of,
    item_rows_max,
    item_schema,
    list_schema,
    map_schema,
    read_item,
)
from unistream.savepoint.pieces import ListItems
from unistream.savepoint.state_rows import check_unique, fitted, in_one_form
from unistream.state.common import plain_type

SUBTASK_COLUMN: Final = "subtask"
ListDescriptor = OperatorListDescriptor | MapStateDescriptor


def list_columns(items: Sequence[bytes]) -> pa.Schema | None:
    """Columns of the elements; None: they are in a form of their own, or in several."""
    found = [item_schema(item) for item in {item_head(item): item for item in items}.values()]
    known = [schema for schema in found if schema is not None and SUBTASK_COLUMN not in schema.names]
    return common_table(known) if known and len(known) == len(found) else None


def read_list(items: Sequence[tuple[int, bytes]], name: str, schema: pa.Schema) -> pa.Table:
    """Elements with the subtask that stored them; `schema` is that of `list_columns`.

    Raises:
        CorruptSnapshot: an item cannot be read.
    """
    wanted = pa.schema([pa.field(SUBTASK_COLUMN, pa.int32()), *schema])
    try:
        batches = list(_batches(items, name, schema, wanted))
    except (pa.ArrowException, OSError) as error:
        raise CorruptSnapshot(f"list {name!r} cannot be read: {error}") from error
    return pa.Table.from_batches(batches, wanted).combine_chunks()


def _batches(
    items: Sequence[tuple[int, bytes]], name: str, schema: pa.Schema, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for subtask, item in items:
        for batch in read_item(item, name, schema):
            owner = pa.repeat(pa.scalar(subtask, pa.int32()), batch.num_rows)
            yield pa.RecordBatch.from_arrays([owner, *batch.columns], schema=wanted)


def list_items(
    state: ListDescriptor | str, rows: pa.Table, mode: ListMode | None, former: ListMode | None
) -> tuple[str, ListItems]:
    """Name and items of a list or a broadcast map, as `SavepointWriter.with_rows` was given it. `former`: how
    the list of that name was dealt out.

    Raises:
        ConfigError: see there.
    """
    found = _declared(state, rows, mode or former or ListMode.SPLIT)
    name = found.name
    if isinstance(found, MapStateDescriptor):
        how, wanted = ListMode.BROADCAST, map_schema(found)
    else:
        how, wanted = found.mode, list_schema(found)
    if mode is not None and mode is not how:
        raise ConfigError(f"state {name!r} is declared as {how.value} list, not as {mode.value} list")
    if SUBTASK_COLUMN in rows.schema.names and SUBTASK_COLUMN not in wanted.names:
        rows = _of_one(rows) if how is ListMode.BROADCAST else rows
        rows = rows.drop_columns([SUBTASK_COLUMN])
    table = fitted(name, rows, wanted)
    if isinstance(found, MapStateDescriptor):
        table = in_one_form(table, [MAP_KEY_COLUMN])
        for column in table.schema.names:
            if table.column(column).null_count:
                raise ConfigError(f"state {name!r}: the {column} of an entry is null; drop the entry")
        check_unique(name, table, [MAP_KEY_COLUMN])
    batches = table.combine_chunks().to_batches(item_rows_max(how))
    return name, ListItems(how, tuple(item_of(_alone(batch)) for batch in batches if batch.num_rows))


def _declared(state: ListDescriptor | str, rows: pa.Table, mode: ListMode) -> ListDescriptor:
    if not isinstance(state, str):
        if not isinstance(state, ListDescriptor):
            raise ConfigError(
                f"with_rows writes a list or a broadcast map, and {state!r} is neither; state by key is "
                "written by with_state"
            )
        return state
    names = rows.schema.names
    if VALUE_COLUMN not in names:
        raise ConfigError(f"state {state!r}: there is no column {VALUE_COLUMN!r} among {', '.join(names)}")
    value = plain_type(rows.schema.field(VALUE_COLUMN).type)
    if MAP_KEY_COLUMN not in names:
        return OperatorListDescriptor(state, value, mode)
    return MapStateDescriptor(state, value, key_type=plain_type(rows.schema.field(MAP_KEY_COLUMN).type))


def _alone(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Its rows without those that they were cut from, which views of texts would take along."""
    return taken(batch, np.arange(batch.num_rows))


def _of_one(rows: pa.Table) -> pa.Table:
    """All subtasks have the same: the rows of the first."""
    subtasks = rows.column(SUBTASK_COLUMN).to_numpy()
    return filtered(rows, subtasks == subtasks.min()) if len(subtasks) else rows
