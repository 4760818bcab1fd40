"""Which storage and which handle a descriptor gets."""

from __future__ import annotations

import copy
from typing import Any, Final

import pyarrow as pa

from unistream.model.columns.state_values import conformer, key_conformer
from unistream.model.keyed_snapshot import StateKind
from unistream.model.state import (
    AggregatingStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from unistream.port.state import CurrentKey
from unistream.state.common.lifetime import Lifetime
from unistream.state.hashmap import rows, ttl


def make_rows(descriptor: StateDescriptor) -> rows.CopyOnWriteStateMap:
    """An empty dict for the state."""
    shallow = {StateKind.LIST: list, StateKind.MAP: dict}.get(descriptor.kind, _same)
    conform = _same if descriptor.options.pickled else conformer(descriptor.name, descriptor.type)
    keys = None
    if isinstance(descriptor, MapStateDescriptor):
        keys = key_conformer(descriptor.name, descriptor.key_type)
    nested = bool(descriptor.options.pickled or pa.types.is_nested(descriptor.type))
    return rows.CopyOnWriteStateMap(copy.deepcopy if nested else shallow, conform, keys, nested=nested)


def make_handle(
    descriptor: StateDescriptor, state: rows.CopyOnWriteStateMap, current: CurrentKey, life: Lifetime | None
) -> Any:
    """ValueState, ListState, MapState or AppendingState of `port.state`."""
    plain, living = _HANDLES[descriptor.kind]
    if plain is rows.HeapValueState and state.nested:
        plain = rows.HeapNestedValueState
    fold: Any = None
    if isinstance(descriptor, ReducingStateDescriptor):
        fold = descriptor.reduce
    elif isinstance(descriptor, AggregatingStateDescriptor):
        fold = descriptor.aggregate
    return plain(state, current, fold) if life is None else living(state, current, life, fold)


_HANDLES: Final[dict[StateKind, tuple[type[rows.HeapState], type[ttl.HeapTtlState]]]] = {
    StateKind.VALUE: (rows.HeapValueState, ttl.HeapTtlValueState),
    StateKind.LIST: (rows.HeapListState, ttl.HeapTtlListState),
    StateKind.MAP: (rows.HeapMapState, ttl.HeapTtlMapState),
    StateKind.REDUCING: (rows.HeapReducingState, ttl.HeapTtlReducingState),
    StateKind.AGGREGATING: (rows.HeapAggregatingState, ttl.HeapTtlAggregatingState),
}


def _same(value: Any) -> Any:
    return value
