"""State: where keyed state is kept, and what of it may be restored."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, one_of, parse_bool

STATE_BACKENDS: Final = ("hashmap", "rocksdb")

STATE_BACKEND: Final = ConfigOption(
    "state.backend.type",
    one_of(*STATE_BACKENDS),
    "hashmap",
    "Where keyed state is kept: hashmap (in memory, every checkpoint complete) or rocksdb (on local disk, "
    "may be larger than memory, incremental checkpoints).",
)
ALLOW_PICKLED_STATE: Final = ConfigOption(
    "execution.state-recovery.allow-pickled-state",
    parse_bool,
    "false",
    "Whether state that was declared pickled may be restored. Reading it runs code that it contains: set "
    "this only for checkpoints and savepoints whose origin you trust.",
)
IGNORE_UNCLAIMED_STATE: Final = ConfigOption(
    "execution.state-recovery.ignore-unclaimed-state",
    parse_bool,
    "false",
    "Whether state of a savepoint whose operator the job does not have is dropped (true), or the job is "
    "refused (false). The same as --allow-non-restored-state and allow_non_restored_state of "
    "Environment.execute.",
)
