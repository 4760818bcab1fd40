"""RocksDB: incremental checkpoints, claiming of snapshots, and how the rocksdb backend works."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, RealNumber, WholeNumber, one_of, parse_bool

INCREMENTAL_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.incremental",
    parse_bool,
    "false",
    "Whether checkpoints of the rocksdb backend store its own files, and only those that changed. "
    "Savepoints never do.",
)
CLAIM_MODE: Final = ConfigOption(
    "execution.state-recovery.claim-mode",
    one_of("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "Who owns the snapshot that a job starts from. NO_CLAIM: the user; the job neither deletes nor "
    "references its files. CLAIM: the job, which deletes it when it is no longer needed.",
)
ROCKSDB_WRITE_BUFFER_RATIO: Final = ConfigOption(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    RealNumber(0.01, 0.99),
    "0.5",
    "Share of an operator's managed memory for state not yet written to files; the rest is a cache.",
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
    "another parallelism fetches only the parts it needs. With more parts, rescaling to a parallelism "
    "that is not a multiple reads less, but checkpoints write more files.",
)
ROCKSDB_BLOOM_FILTER: Final = ConfigOption(
    "state.backend.rocksdb.use-bloom-filter",
    parse_bool,
    "true",
    "Whether files have Bloom filters, which avoid reads for keys that they do not contain (Flink: off).",
)
