"""What both state backends share: columns, folds, lifetimes, key codec, snapshot files.

Keyed snapshots are written and read here (`keyed_files`, `snapshot_writer`, `snapshot_reader`), values of
earlier types are converted (`migration`), states of many keys are columns (`columns`, `folds`,
`containers`). May import: `model`, `port`, `base`, and no backend. Start with `columns`.
"""

from __future__ import annotations

from unistream.state.common.columns import (
    COMPACT_SLOTS_MIN,
    Column,
    ColumnCopy,
    RowColumn,
    SlotValue,
    array_of,
    check_column,
    check_count,
    conformed,
    python_values,
)
from unistream.state.common.containers import (
    elements,
    entries_of,
    entry_keys,
    entry_values,
    flattened,
    lists_of,
    refuse_null,
)
from unistream.state.common.declarations import check_same
from unistream.state.common.folder_writer import FolderWriter
from unistream.state.common.folds import (
    AggregatingColumn,
    FoldedColumn,
    ReducingColumn,
    by_key,
    fold_of,
    sorted_rows,
)
from unistream.state.common.groups import groups_in, of_groups, without_groups
from unistream.state.common.key_codec import KeyCodec
from unistream.state.common.keyed_files import batches_of, read_keyed_share, write_keyed_table
from unistream.state.common.lifetime import Lifetime
from unistream.state.common.migration import check_fits, convert, key_schema_of, plain_type
from unistream.state.common.pickled import pickler, unpickled
from unistream.state.common.slot_index import SlotIndex, SlotKeys
from unistream.state.common.snapshot_reader import read_operator_state
from unistream.state.common.snapshot_writer import UnfitState, write_task_snapshot
from unistream.state.common.uploads import Uploads

__all__ = [
    "COMPACT_SLOTS_MIN",
    "AggregatingColumn",
    "Column",
    "ColumnCopy",
    "FoldedColumn",
    "FolderWriter",
    "KeyCodec",
    "Lifetime",
    "ReducingColumn",
    "RowColumn",
    "SlotIndex",
    "SlotKeys",
    "SlotValue",
    "UnfitState",
    "Uploads",
    "array_of",
    "batches_of",
    "by_key",
    "check_column",
    "check_count",
    "check_fits",
    "check_same",
    "conformed",
    "convert",
    "elements",
    "entries_of",
    "entry_keys",
    "entry_values",
    "flattened",
    "fold_of",
    "groups_in",
    "key_schema_of",
    "lists_of",
    "of_groups",
    "pickler",
    "plain_type",
    "python_values",
    "read_keyed_share",
    "read_operator_state",
    "refuse_null",
    "sorted_rows",
    "unpickled",
    "without_groups",
    "write_keyed_table",
    "write_task_snapshot",
]
