"""Which handle a descriptor gets."""

from __future__ import annotations

from typing import Any

from unistream.base.errors import ConfigError
from unistream.model.keyed_snapshot import StateKind
from unistream.model.state import (
    AggregatingStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from unistream.model.state_values import conformer, key_conformer
from unistream.state.common import Lifetime
from unistream.state.hashmap.rows import (
    AggregatingHandle,
    CurrentKey,
    ListHandle,
    MapHandle,
    NestedValueHandle,
    ReducingHandle,
    Rows,
    ValueHandle,
    copier,
    is_nested,
)
from unistream.state.hashmap.ttl import (
    TtlAggregatingHandle,
    TtlListHandle,
    TtlMapHandle,
    TtlReducingHandle,
    TtlValueHandle,
)


def make_rows(descriptor: StateDescriptor) -> Rows:
    """An empty dict for the state."""
    shallow = {StateKind.LIST: list, StateKind.MAP: dict}.get(descriptor.kind, _same)
    conform = _same if descriptor.options.pickled else conformer(descriptor.name, descriptor.type)
    keys = None
    if isinstance(descriptor, MapStateDescriptor):
        keys = key_conformer(descriptor.name, descriptor.key_type)
    return Rows(copier(descriptor, shallow), conform, keys)


def make_handle(descriptor: StateDescriptor, rows: Rows, current: CurrentKey, life: Lifetime | None) -> Any:
    """ValueState, ListState, MapState or AppendingState of `port.state` over `rows`."""
    nested = is_nested(descriptor)
    if isinstance(descriptor, ReducingStateDescriptor):
        if life is not None:
            return TtlReducingHandle(rows, current, life, descriptor.reduce)
        return ReducingHandle(rows, current, descriptor.reduce)
    if isinstance(descriptor, AggregatingStateDescriptor):
        if life is not None:
            return TtlAggregatingHandle(rows, current, life, descriptor.aggregate)
        return AggregatingHandle(rows, current, descriptor.aggregate)
    if descriptor.kind is StateKind.LIST:
        return (
            ListHandle(rows, current, nested=nested) if life is None else TtlListHandle(rows, current, life)
        )
    if descriptor.kind is StateKind.MAP:
        return MapHandle(rows, current, nested=nested) if life is None else TtlMapHandle(rows, current, life)
    if descriptor.kind is not StateKind.VALUE:
        raise ConfigError(
            f"state {descriptor.name!r}: {type(descriptor).__name__} is no kind of state to keep"
        )
    if life is not None:
        return TtlValueHandle(rows, current, life)
    return (NestedValueHandle if nested else ValueHandle)(rows, current)


def _same(value: Any) -> Any:
    """Numbers and texts need no copy, and pickled objects no form."""
    return value
