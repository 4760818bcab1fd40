"""State of operators without keys as tables: lists (`value`) and broadcast maps (`map_key`, `value`).

    stored items ── Arrow IPC streams ──► read_list: subtask, and the columns of the items
    rows of a user ── columns, types, no key twice ──► list_items: what an operator would have stored

Lists of operators of the library (positions of sources, pending commits, states of writers) have other forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.model.columns.arrow_layouts import filtered, taken
from unistream.model.snapshot import ListMode, OperatorListState
from unistream.model.state import (
    MAP_KEY_COLUMN,
    VALUE_COLUMN,
    MapStateDescriptor,
    OperatorListDescriptor,
)
from unistream.model.state_types import common_table
from unistream.operator import process
from unistream.savepoint.state_rows import check_unique, fitted, in_one_form
from unistream.state.common import plain_type

SUBTASK_COLUMN: Final = "subtask"
ListDescriptor = OperatorListDescriptor | MapStateDescriptor


def list_columns(items: Sequence[bytes]) -> pa.Schema | None:
    """Columns of the elements; None: not all are Arrow streams with common columns."""
    found = [process.item_schema(item) for item in {process.item_head(item): item for item in items}.values()]
    known = [schema for schema in found if schema is not None and SUBTASK_COLUMN not in schema.names]
    return common_table(known) if known and len(known) == len(found) else None


def read_list(items: Sequence[tuple[int, bytes]], name: str, schema: pa.Schema) -> pa.Table:
    """Elements with the subtask that stored them; `schema`: from `list_columns`. Raises CorruptSnapshot."""
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
        for batch in process.read_item(item, name, schema):
            owner = pa.repeat(pa.scalar(subtask, pa.int32()), batch.num_rows)
            yield pa.RecordBatch.from_arrays([owner, *batch.columns], schema=wanted)


def list_items(
    state: ListDescriptor | str, rows: pa.Table, mode: ListMode | None, former: ListMode | None
) -> tuple[str, OperatorListState]:
    """Name and items of a list or a broadcast map, for `SavepointWriter.with_rows`, which see. `former`: mode
    of the list of that name."""
    found = _declared(state, rows, mode or former or ListMode.SPLIT)
    name = found.name
    if isinstance(found, MapStateDescriptor):
        how, wanted = ListMode.BROADCAST, process.map_schema(found)
    else:
        how, wanted = found.mode, process.list_schema(found)
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
    batches = table.combine_chunks().to_batches(process.item_rows_max(how))
    return name, OperatorListState(
        how, tuple(process.item_of(_alone(batch)) for batch in batches if batch.num_rows)
    )


def _declared(state: ListDescriptor | str, rows: pa.Table, mode: ListMode) -> ListDescriptor:
    if not isinstance(state, str):
        if not isinstance(state, ListDescriptor):
            raise ConfigError(
                f"with_rows writes a list or a broadcast map, and {state!r} is neither; keyed state is "
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
    """A copy of its rows: views of texts would keep the table that they are sliced from."""
    return taken(batch, np.arange(batch.num_rows))


def _of_one(rows: pa.Table) -> pa.Table:
    """The rows of the first subtask: all have the same."""
    subtasks = rows.column(SUBTASK_COLUMN).to_numpy()
    return filtered(rows, subtasks == subtasks.min()) if len(subtasks) else rows
