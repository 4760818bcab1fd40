"""RocksDB: incremental checkpoints, claiming of snapshots, and how the rocksdb backend works."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, RealNumber, WholeNumber, one_of, parse_bool

INCREMENTAL_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.incremental",
    parse_bool,
    "false",
    "Whether checkpoints of the rocksdb backend keep its own files and store only those that changed. "
    "Savepoints never do.",
)
CLAIM_MODE: Final = ConfigOption(
    "execution.state-recovery.claim-mode",
    one_of("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "Whose a snapshot is that a job starts from. NO_CLAIM: the user's, nothing of it is removed or referred "
    "to. CLAIM: the job's, which removes it when it is not needed any more.",
)
ROCKSDB_WRITE_BUFFER_RATIO: Final = ConfigOption(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    RealNumber(0.01, 0.99),
    "0.5",
    "Share of an operator's managed memory for state that was not written to files yet; the rest is a cache.",
)
ROCKSDB_THREADS: Final = ConfigOption(
    "state.backend.rocksdb.thread.num",
    WholeNumber(1, 64),
    "2",
    "Threads of each stateful operator that write and merge files in the background.",
)
ROCKSDB_SHARDS: Final = ConfigOption(
    "state.backend.rocksdb.shards",
    WholeNumber(1, 64),
    "4",
    "Parts into which each subtask divides its key groups, each with files of its own: a restore with "
    "another parallelism fetches only the parts it needs. More of them make a rescaling to a parallelism "
    "that is no multiple read less, and checkpoints write more files.",
)
ROCKSDB_BLOOM_FILTER: Final = ConfigOption(
    "state.backend.rocksdb.use-bloom-filter",
    parse_bool,
    "true",
    "Whether files have filters that spare a look into them for keys that they do not hold (Flink: off).",
)
