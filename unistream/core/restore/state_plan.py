"""The outcome of each stored state if a (possibly changed) pipeline started from a snapshot.

    stored states (of the snapshot) ─┐
    declared states (of operators) ──┼─► plan_restore ─► operator ─► state ─► kept, migrated, dropped, new,
    graph, options ──────────────────┘                                        unknown, refused

Nothing is started. The checks are those of a restore: `state_assignment` and `in_flight` for the graph,
`model.state_types` for types. If an operator does not declare a state before it runs, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.config.state import ALLOW_PICKLED_STATE
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.core.graph import adapt_max_parallelism
from unistream.core.restore.in_flight import with_in_flight
from unistream.core.restore.state_assignment import assign_state
from unistream.model.graph import JobGraph, OperatorInfo
from unistream.model.keyed_snapshot import StateKind
from unistream.model.own_state import OwnTable, other_setting, own_table_migration
from unistream.model.snapshot import KEY_GROUP_COLUMN, ListMode, Manifest, VertexSnapshot
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.state import EXPIRES_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN, StateDescriptor
from unistream.model.state_types import Incompatible, Migration, Same, Widened, key_migration, table_migration

_TIME_COLUMN: Final = "__timestamp"  # of timers
_OWN_COLUMNS: Final = frozenset(
    (KEY_GROUP_COLUMN, MAP_KEY_COLUMN, VALUE_COLUMN, EXPIRES_COLUMN, _TIME_COLUMN)
)


class StateOutcome(Enum):
    """The outcome of a state."""

    KEPT = "kept"
    MIGRATED = "migrated"  # converted, or found under a former name
    NEW = "new"  # nothing is stored of it
    DROPPED = "dropped"
    UNKNOWN = "unknown until it runs"
    REFUSED = "refused"  # the job would not start, or fail at once


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """One state in a snapshot.

    Attributes:
        kind: None: a list of operator state, or native files of a backend.
        mode: How a list is redistributed; None: it is not a list.
        setting: How its operator was set up, if this list stores that (`model.own_state`).
        schema: Of its table, or of the items of a list; None: it cannot be read.
        rows: None: unknown.
        is_native: Native files of a backend, whatever states are in them.
    """

    name: str
    kind: StateKind | None
    schema: pa.Schema | None = None
    pickled: bool = False
    rows: int | None = None
    is_native: bool = False
    mode: ListMode | None = None
    setting: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredList:
    """Operator state with a type: a list, or a broadcast map. `schema`: of its items."""

    name: str
    schema: pa.Schema
    mode: ListMode


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredState:
    """What an operator declares of its state before it runs.

    Attributes:
        states: Keyed states.
        keys: Its key columns; None: not known yet.
        lists: Operator state that it reads, in a form of its own.
        list_prefixes: The same, by the beginning of its name.
        typed_lists: Operator state of users, and broadcast maps.
        tables: Its own tables, and lists of rows, by name.
        settings: How it is set up, by the name of the list that stores it; its tables are of no use to an
            operator that is set up differently.
        is_whole: There is no other keyed state, and there are no timers. False: it may request more when it
            runs.
        has_all_lists: There is no other operator state. False: as above.
    """

    states: tuple[StateDescriptor, ...] = ()
    keys: pa.Schema | None = None
    lists: frozenset[str] = frozenset()
    list_prefixes: tuple[str, ...] = ()
    typed_lists: tuple[DeclaredList, ...] = ()
    tables: Mapping[str, OwnTable] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = True
    has_all_lists: bool = True


class StatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """`why`: how, or for what reason. `rows`: how many are stored."""

    state: str
    outcome: StateOutcome = msgspec.field(name="fate")  # of the JSON
    why: str = ""
    rows: int | None = None


class OperatorPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`outcome`: of the operator; each of its states has its own."""

    uid: OperatorUid
    name: str
    outcome: StateOutcome = msgspec.field(name="fate")  # of the JSON
    why: str = ""
    states: tuple[StatePlan, ...] = ()

    @property
    def is_refused(self) -> bool:
        return self.outcome is StateOutcome.REFUSED or any(
            state.outcome is StateOutcome.REFUSED for state in self.states
        )


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """`problems`: why the job would not start."""

    operators: tuple[OperatorPlan, ...]
    problems: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        return bool(self.problems) or any(operator.is_refused for operator in self.operators)


def plan_restore(
    manifest: Manifest,
    directory: str,
    graph: JobGraph,
    stored: Mapping[OperatorUid, tuple[StoredState, ...]],
    declared: Mapping[OperatorUid, DeclaredState],
    *,
    allow_non_restored: bool,
    allow_pickled: bool,
) -> RestorePlan:
    """The plan for a job that starts from a snapshot.

    Args:
        manifest: Of the snapshot.
        graph: The job.
        directory: Of the snapshot, for messages.
        stored: Operators with state -> their states.
        declared: Operators that declare their state; others are unknown until they run.
        allow_non_restored: State without an operator is dropped instead of refused.
        allow_pickled: State with pickled values may be read.
    """
    known = {uid: vertex for vertex in manifest.vertices for uid in vertex.operators}
    rules = _Rules(allow_pickled)
    plans = []
    wanted: set[OperatorUid] = set()
    for vertex in graph.vertices:
        for operator in vertex.operators:
            wanted.add(operator.uid)
            plans.append(
                rules.operator(
                    operator,
                    known.get(operator.uid),
                    stored.get(operator.uid, ()),
                    declared.get(operator.uid),
                )
            )
    gone = [uid for uid in known if uid not in wanted]
    plans += [_gone(uid, known[uid], stored.get(uid, ()), allow_non_restored) for uid in gone]
    problems = _problems(manifest, directory, graph, allow_non_restored=allow_non_restored)
    return RestorePlan(operators=tuple(plans), problems=problems)


def _problems(
    manifest: Manifest, directory: str, graph: JobGraph, *, allow_non_restored: bool
) -> tuple[str, ...]:
    """Why a submission would be refused."""
    if manifest.kind is SnapshotKind.TERMINATE:
        hint = "" if manifest.resumable is None else f"; resume from {manifest.resumable}, next to it"
        return (f"{directory} was taken after the end of a drained job and cannot be resumed from{hint}",)
    try:
        fitted = adapt_max_parallelism(graph, manifest)
        restores = assign_state(manifest, directory, fitted, allow_non_restored=allow_non_restored)
        with_in_flight(restores, manifest, directory, fitted, allow_non_restored=allow_non_restored)
    except ConfigError as error:
        return (str(error),)
    return ()


def _gone(
    uid: OperatorUid, vertex: VertexSnapshot, stored: tuple[StoredState, ...], allow_non_restored: bool
) -> OperatorPlan:
    """An operator that the job does not have."""
    lost = bool(stored) or bool(vertex.finished_subtasks)
    outcome = StateOutcome.REFUSED if lost and not allow_non_restored else StateOutcome.DROPPED
    why = "the job has no operator with this uid"
    if outcome is StateOutcome.REFUSED:
        why += "; give it to the operator, or allow non-restored state"
    return OperatorPlan(
        uid=uid,
        name=vertex.name,
        outcome=outcome,
        why=why,
        states=tuple(StatePlan(state=state.name, outcome=outcome, rows=state.rows) for state in stored),
    )


class _Rules:
    """The rules of one restore."""

    def __init__(self, allow_pickled: bool) -> None:
        self._allow_pickled = allow_pickled

    def operator(
        self,
        operator: OperatorInfo,
        old: VertexSnapshot | None,
        stored: tuple[StoredState, ...],
        declared: DeclaredState | None,
    ) -> OperatorPlan:
        if old is not None and old.fully_finished:
            why = "it had finished and does not run again"
            return OperatorPlan(uid=operator.uid, name=operator.name, outcome=StateOutcome.KEPT, why=why)
        if declared is None:
            states = tuple(_unknown(state, "the operator does not declare its state") for state in stored)
        else:
            states = tuple(self._states(stored, declared))
        outcome = StateOutcome.NEW if old is None else StateOutcome.KEPT
        return OperatorPlan(uid=operator.uid, name=operator.name, outcome=outcome, states=states)

    def _states(self, stored: tuple[StoredState, ...], declared: DeclaredState) -> Iterator[StatePlan]:
        left = {state.name: state for state in stored if state.mode is None}
        lists = {state.name: state for state in stored if state.mode is not None}
        for descriptor in declared.states:
            names = (descriptor.name, *descriptor.options.renamed_from)
            found = [
                left.pop(name) for name in names if name in left
            ]  # not all subtasks need have renamed it
            if not found:
                outcome = (
                    StateOutcome.UNKNOWN
                    if any(state.is_native for state in left.values())
                    else StateOutcome.NEW
                )
                yield StatePlan(state=descriptor.name, outcome=outcome)
            for one in found:
                yield self._declared(one, descriptor, declared.keys)
        for wanted in declared.typed_lists:
            yield _declared_list(lists.pop(wanted.name, None), wanted)
        misfit = _other_settings(stored, declared)
        for state in (*left.values(), *lists.values()):
            if misfit is not None and (state.name in declared.tables or state.name in declared.settings):
                yield StatePlan(state=state.name, outcome=StateOutcome.REFUSED, why=misfit, rows=state.rows)
            else:
                yield self._other(state, declared)

    def _declared(self, stored: StoredState, wanted: StateDescriptor, keys: pa.Schema | None) -> StatePlan:
        reason = self._why_not(stored, wanted) or _other_keys(stored, keys)
        if reason is not None:
            return _changed(stored, Incompatible(reason), wanted.name)
        assert stored.schema is not None, "a keyed state has a table"
        own = key_columns(stored.schema)
        change = table_migration(stored.schema, wanted.table_schema(own), tuple(own.names))
        return _changed(stored, change, wanted.name)

    def _why_not(self, stored: StoredState, wanted: StateDescriptor) -> str | None:
        if stored.kind is not wanted.kind:
            was = "operator state" if stored.kind is None else f"{stored.kind.value} state"
            return f"it was stored as {was}, and is declared as {wanted.kind.value} state"
        if stored.pickled != wanted.options.pickled:
            forms = ("pickled", "typed") if stored.pickled else ("typed", "pickled")
            return f"its values were stored {forms[0]}, and are declared {forms[1]}"
        return self._pickled(stored)

    def _pickled(self, stored: StoredState) -> str | None:
        if stored.pickled and not self._allow_pickled:
            return f"its values are pickled; {ALLOW_PICKLED_STATE.key} allows reading them"
        return None

    def _other(self, stored: StoredState, declared: DeclaredState) -> StatePlan:
        """A state that no descriptor names."""
        name, rows = stored.name, stored.rows
        table = declared.tables.get(name)
        if stored.is_native:
            return _unknown(stored, "in native files of the backend; a canonical savepoint shows its states")
        reason = self._pickled(stored) or _other_keys(stored, declared.keys)
        if reason is not None:
            return StatePlan(state=name, outcome=StateOutcome.REFUSED, why=reason, rows=rows)
        if table is not None and stored.schema is not None:
            return _own_table(stored, stored.schema, table)
        read = name in declared.lists or name in declared.settings or table is not None
        if read or name.startswith(declared.list_prefixes):
            return StatePlan(state=name, outcome=StateOutcome.KEPT, rows=rows)
        if stored.mode is not None and not declared.has_all_lists:
            return _unknown(stored, "dropped unless the operator requests it in open()")
        if stored.mode is None and not declared.is_whole:
            if stored.kind is StateKind.TIMERS:
                return StatePlan(state=name, outcome=StateOutcome.KEPT, rows=rows)
            return _unknown(stored, "kept until the operator requests it")
        return StatePlan(
            state=name, outcome=StateOutcome.DROPPED, why="the operator does not read it", rows=rows
        )


def _other_settings(stored: tuple[StoredState, ...], declared: DeclaredState) -> str | None:
    """Why the tables of an operator are of no use to one that is set up differently."""
    for state in stored:
        wanted = declared.settings.get(state.name)
        if wanted is not None and state.setting is not None and state.setting != wanted:
            return other_setting(state.setting, wanted)
    return None


def _own_table(stored: StoredState, schema: pa.Schema, wanted: OwnTable) -> StatePlan:
    match own_table_migration(schema, wanted):
        case Incompatible(why):
            return _changed(stored, Incompatible(f"{why}; give the operator another uid"))
        case Same() if wanted.types is None:
            return _unknown(stored, "kept if its rows have the same types; declare them with returns=")
        case change:
            return _changed(stored, change)


def _declared_list(stored: StoredState | None, wanted: DeclaredList) -> StatePlan:
    if stored is None:
        return StatePlan(state=wanted.name, outcome=StateOutcome.NEW)
    if stored.mode is not wanted.mode:
        assert stored.mode is not None, "a list has a mode"
        why = f"it was stored as {stored.mode.value} list, and is declared as {wanted.mode.value} list"
        return _changed(stored, Incompatible(why))
    return _changed(
        stored, Same() if stored.schema is None else table_migration(stored.schema, wanted.schema, ())
    )


def _changed(stored: StoredState, change: Migration, name: str | None = None) -> StatePlan:
    """The outcome of a state that is read by `name` (None: its own)."""
    name = name or stored.name
    if isinstance(change, Incompatible):
        return StatePlan(state=name, outcome=StateOutcome.REFUSED, why=change.reason, rows=stored.rows)
    changes = [] if stored.name == name else [f"renamed from {stored.name!r}"]
    changes += [change.what] if isinstance(change, Widened) else []
    outcome = StateOutcome.MIGRATED if changes else StateOutcome.KEPT
    return StatePlan(state=name, outcome=outcome, why=", ".join(changes), rows=stored.rows)


def key_columns(table: pa.Schema) -> pa.Schema:
    """The key columns of a table of keyed state or timers."""
    return pa.schema([column for column in table if column.name not in _OWN_COLUMNS])


def _other_keys(stored: StoredState, keys: pa.Schema | None) -> str | None:
    """Why state that is stored by one key is of no use to another."""
    is_backend = stored.kind not in {None, StateKind.TABLE}
    if keys is None or stored.schema is None or not is_backend:
        return None
    own = key_columns(stored.schema)
    if own.names == keys.names and not any(
        isinstance(key_migration(old.type, new.type), Incompatible)
        for old, new in zip(own, keys, strict=True)
    ):
        return None
    return f"it was kept by ({_described(own)}), and the key is now ({_described(keys)})"


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def _unknown(stored: StoredState, why: str) -> StatePlan:
    return StatePlan(state=stored.name, outcome=StateOutcome.UNKNOWN, why=why, rows=stored.rows)
