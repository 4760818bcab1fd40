"""How much of a state a backend holds, expired values included: what sweeps are judged by."""

from __future__ import annotations

from unistream.model.keyed_snapshot import StateKind
from unistream.state.hashmap import HashMapStateBackend
from unistream.state.rocksdb import RocksDbStateBackend

Backend = HashMapStateBackend | RocksDbStateBackend


def held(backend: Backend, name: str) -> int:
    """Values, elements and entries of a state. Goes through all of them."""
    if isinstance(backend, RocksDbStateBackend):
        families = (backend._store.families(layout) for layout in backend._store.named(name))
        return sum(1 for one in families for _ in one.rows(backend._key_groups))
    state = backend._states.get(name)
    if state is None:
        return sum(batch.num_rows for part in backend._restored.get(name, []) for batch in part.batches)
    if not hasattr(state.store, "rows"):
        return int(state.store.filled(len(backend._index)).sum())
    rows = state.store.rows
    many = state.descriptor.kind in (StateKind.LIST, StateKind.MAP)
    return sum(map(len, rows.values())) if many else len(rows)
