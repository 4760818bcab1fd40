"""What both state backends share: columns, folds, times to live, key codec, snapshot files.

Keyed snapshots are written and read here (`keyed_files`, `snapshot_writer`, `snapshot_reader`), values of
earlier types are converted (`migration`), states of many keys are columns (`columns`, `folds`,
`containers`). The backends import the modules, other layers only what is named here. May import: `model`,
`port`, `base`, and no backend. Start with `columns`.
"""

from __future__ import annotations

from unistream.state.common.keyed_files import batches_of, read_keyed_share, write_keyed_table
from unistream.state.common.migration import OWN_COLUMNS, described, plain_type
from unistream.state.common.snapshot_reader import read_list_items, read_operator_state
from unistream.state.common.snapshot_writer import (
    FolderWriter,
    UnfitState,
    list_handle,
    write_task_snapshot,
)
from unistream.state.common.uploads import Uploads
