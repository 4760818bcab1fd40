"""Compares the state that operators declare with the state in a savepoint (`core.restore.state_plan`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from unistream.base.config import Configuration
from unistream.base.config.state import ALLOW_PICKLED_STATE, IGNORE_UNCLAIMED_STATE
from unistream.base.ids import OperatorUid
from unistream.core.graph import check_restores
from unistream.core.restore import DeclaredList, DeclaredState, RestorePlan, StoredState, plan_restore
from unistream.model.chain import JobCode
from unistream.model.graph import JobGraph
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import ListMode
from unistream.model.state import StateDescriptor
from unistream.operator import join
from unistream.operator.common import BaseOperator
from unistream.operator.join import KEYS_STATE, WAITING_STATE, BroadcastLookupJoin
from unistream.operator.process import (
    BroadcastProcessOperator,
    ProcessOperator,
    item_schema,
    list_schema,
    map_schema,
)
from unistream.operator.sink import (
    COMMITTER_STATE,
    TARGET_STATE,
    WRITER_STATE,
    CommitterOperator,
    SinkWriterOperator,
)
from unistream.operator.waiting_rows import decode_batch
from unistream.operator.window import (
    FIRED,
    FIRED_TABLE,
    STATE,
    WINDOWS,
    WindowAggregate,
    stored_window_setting,
)
from unistream.port.operator import SourceOperatorSpec
from unistream.savepoint.contents import SPLITS_STATE
from unistream.savepoint.reading import Savepoint
from unistream.savepoint.states import NATIVE_KIND, StateContent

_SETTINGS: Final = {WINDOWS: stored_window_setting, KEYS_STATE: join.stored_setting}


@runtime_checkable
class DeclaresStates(Protocol):
    """An operator that declares keyed state before it runs; it may request more when it does."""

    def declared_states(self) -> tuple[StateDescriptor, ...]: ...

    def declared_keys(self) -> pa.Schema | None:
        """Names and types of the key columns; None: not known yet."""


def plan(
    savepoint: Savepoint,
    graph: JobGraph,
    code: JobCode,
    config: Configuration,
    *,
    allow_non_restored: bool = False,
) -> RestorePlan:
    """The state of `savepoint` in a job of `graph`. Raises CorruptSnapshot, or ConfigError: a BATCH job."""
    check_restores(graph, savepoint.path)
    declared = declared_states(code)
    return plan_restore(
        savepoint.manifest,
        savepoint.path,
        graph,
        stored_states(savepoint, declared),
        declared,
        allow_non_restored=allow_non_restored or config.get(IGNORE_UNCLAIMED_STATE),
        allow_pickled=config.get(ALLOW_PICKLED_STATE),
    )


def stored_states(
    savepoint: Savepoint, declared: Mapping[OperatorUid, DeclaredState]
) -> Mapping[OperatorUid, tuple[StoredState, ...]]:
    """The stored states by operator. Reads only the columns of tables, and of lists the first item, if they
    are declared with a type or hold settings of the operator. Raises CorruptSnapshot."""
    nothing = DeclaredState()
    return {
        op.uid: tuple(_stored(savepoint, op.uid, s, declared.get(op.uid, nothing)) for s in op.states)
        for op in savepoint.operators
        if op.states
    }


def declared_states(code: JobCode) -> Mapping[OperatorUid, DeclaredState]:
    """The states of all operators that declare them."""
    nodes = (node for chain in code.chains.values() for node in chain.nodes)
    found = ((node.uid, declared_by(node.operator)) for node in nodes)
    return {uid: declared for uid, declared in found if declared is not None}


def declared_by(operator: object) -> DeclaredState | None:
    """None: it declares nothing."""
    match operator:
        case SourceOperatorSpec():
            return DeclaredState(lists=frozenset((SPLITS_STATE,)))
        case SinkWriterOperator():
            return DeclaredState(lists=frozenset((WRITER_STATE,)))
        case CommitterOperator():
            return DeclaredState(lists=frozenset((COMMITTER_STATE, TARGET_STATE)))
        case WindowAggregate():
            return DeclaredState(
                lists=frozenset((FIRED,)),  # of older versions
                tables={STATE: operator.state_table, FIRED: FIRED_TABLE},
                settings={WINDOWS: operator.state_setting},
            )
        case BroadcastLookupJoin():
            return DeclaredState(
                list_prefixes=(WAITING_STATE,),
                tables=operator.state_tables,
                settings={KEYS_STATE: operator.state_setting},
            )
        case ProcessOperator():
            lists = tuple(
                DeclaredList(name=one.name, schema=list_schema(one), mode=one.mode)
                for one in operator.declared_lists()
            )
            return DeclaredState(typed_lists=lists, has_all_lists=False)
        case BroadcastProcessOperator():
            maps = tuple(
                DeclaredList(name=one.name, schema=map_schema(one), mode=ListMode.BROADCAST)
                for one in operator.declared_maps()
            )
            return DeclaredState(
                states=operator.declared_states(),
                keys=operator.declared_keys(),
                typed_lists=maps,
                is_whole=False,
            )
        case DeclaresStates():
            return DeclaredState(
                states=operator.declared_states(), keys=operator.declared_keys(), is_whole=False
            )
        case BaseOperator() if type(operator).snapshot_state is BaseOperator.snapshot_state:
            return DeclaredState()
    return None


def _stored(
    savepoint: Savepoint, uid: OperatorUid, state: StateContent, declared: DeclaredState
) -> StoredState:
    if state.kind == NATIVE_KIND:
        return StoredState(name=state.name, kind=None, pickled=state.pickled, is_native=True)
    if state.kind.startswith("list-"):
        return _stored_list(savepoint, uid, state, declared)
    schema, _ = savepoint.batches(uid, state.name)
    kind = StateKind(state.kind)
    return StoredState(name=state.name, kind=kind, schema=schema, pickled=state.pickled, rows=state.rows)


def _stored_list(
    savepoint: Savepoint, uid: OperatorUid, state: StateContent, declared: DeclaredState
) -> StoredState:
    schema, setting = None, None

    def first() -> bytes:
        return savepoint.items(uid, state.name)[0][1]

    if state.rows and any(one.name == state.name for one in declared.typed_lists):
        schema = item_schema(first())
    elif state.rows and state.name in declared.tables and state.name not in declared.lists:
        schema = decode_batch(first()).records.schema
    elif state.rows and state.name in declared.settings:
        setting = _SETTINGS[state.name](first())
    mode = ListMode(state.kind.removeprefix("list-"))
    return StoredState(name=state.name, kind=None, schema=schema, rows=state.rows, mode=mode, setting=setting)
