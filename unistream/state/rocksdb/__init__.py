"""Keyed state on the local disk in RocksDB, with incremental checkpoints.

Start with `backend`, then `store` (which databases there are), `keys` and `values` (their bytes),
`snapshot` and `restore`. Only `api` knows the library. May import: `state.common`.
"""

from __future__ import annotations

from unistream.state.rocksdb.backend import RocksDbStateBackend, rocksdb_tuning
