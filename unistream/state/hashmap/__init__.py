"""Keyed state in memory: rows by key, or columns of slots.

Snapshots are by reference: `freeze` costs one copy of a dict or none. Start with `backend`, then `rows`
(a value per key, `ttl` with a time to live) and `columns` (many keys at a time). May import:
`state.common`.
"""

from __future__ import annotations

from unistream.state.hashmap.backend import HashMapStateBackend
