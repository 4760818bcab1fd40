"""Which storage and which handle a descriptor gets."""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa

from unistream.model.keyed_snapshot import StateKind
from unistream.model.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from unistream.model.state_values import conformer, key_conformer
from unistream.port.state import CurrentKey
from unistream.state.common.lifetime import Lifetime
from unistream.state.hashmap import rows, ttl


def make_rows(descriptor: StateDescriptor) -> rows.Rows:
    """An empty dict for the state."""
    shallow = {StateKind.LIST: list, StateKind.MAP: dict}.get(descriptor.kind, _same)
    conform = _same if descriptor.options.pickled else conformer(descriptor.name, descriptor.type)
    keys = None
    if isinstance(descriptor, MapStateDescriptor):
        keys = key_conformer(descriptor.name, descriptor.key_type)
    return rows.Rows(copy.deepcopy if _is_nested(descriptor) else shallow, conform, keys)


def make_handle(
    descriptor: StateDescriptor, state: rows.Rows, current: CurrentKey, life: Lifetime | None
) -> Any:
    """ValueState, ListState, MapState or AppendingState of `port.state`."""
    if life is not None:
        return _make_ttl_handle(descriptor, state, current, life)
    nested = _is_nested(descriptor)
    match descriptor:
        case ReducingStateDescriptor():
            return rows.ReducingHandle(state, current, descriptor.reduce)
        case AggregatingStateDescriptor():
            return rows.AggregatingHandle(state, current, descriptor.aggregate)
        case ListStateDescriptor():
            return rows.ListHandle(state, current, nested=nested)
        case MapStateDescriptor():
            return rows.MapHandle(state, current, nested=nested)
    return (rows.NestedValueHandle if nested else rows.ValueHandle)(state, current)


def _make_ttl_handle(
    descriptor: StateDescriptor, state: rows.Rows, current: CurrentKey, life: Lifetime
) -> Any:
    match descriptor:
        case ReducingStateDescriptor():
            return ttl.TtlReducingHandle(state, current, life, descriptor.reduce)
        case AggregatingStateDescriptor():
            return ttl.TtlAggregatingHandle(state, current, life, descriptor.aggregate)
        case ListStateDescriptor():
            return ttl.TtlListHandle(state, current, life)
        case MapStateDescriptor():
            return ttl.TtlMapHandle(state, current, life)
    return ttl.TtlValueHandle(state, current, life)


def _is_nested(descriptor: StateDescriptor) -> bool:
    """A value can be changed in place, so that copies must be deep."""
    return bool(descriptor.options.pickled or pa.types.is_nested(descriptor.type))


def _same(value: Any) -> Any:
    return value
