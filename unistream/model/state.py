"""Names and types of state: the descriptors of users, and the tables of a snapshot.

Every kind of keyed state is a table in a snapshot, one row per key (or per entry of a map):

    value, reducing   KEY_GROUP_COLUMN, key columns…, value: T
    aggregating       KEY_GROUP_COLUMN, key columns…, value: accumulator
    list              KEY_GROUP_COLUMN, key columns…, value: list<T>
    map               KEY_GROUP_COLUMN, key columns…, map_key: K, value: V

With a time to live there is one more column, EXPIRES_COLUMN: int64 (a list has list<int64>), ms since the
epoch, when the row (the element) expires. A state whose values are pickled has the type binary, and says so
in the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

import pyarrow as pa

from unistream.base.config.parsing import DurationLike, duration_ms
from unistream.base.errors import ConfigError
from unistream.model.columns.state_values import refused_key_type, refused_type
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import KEY_GROUP_COLUMN, ListMode

VALUE_COLUMN: Final = "value"
MAP_KEY_COLUMN: Final = "map_key"
EXPIRES_COLUMN: Final = "__expires_at"


class TtlUpdate(Enum):
    """What extends the life of a value (Flink's `StateTtlConfig.UpdateType`)."""

    ON_CREATE_AND_WRITE = "on-create-and-write"
    ON_READ_AND_WRITE = "on-read-and-write"


class TtlVisibility(Enum):
    """Whether an expired value is returned until it is removed."""

    NEVER_RETURN_EXPIRED = "never-return-expired"
    RETURN_IF_NOT_CLEANED_UP = "return-if-not-cleaned-up"


@dataclass(frozen=True, slots=True)
class StateTtl:
    """How long a value (an element of a list, an entry of a map) lives, by the clock of the worker.

    Expired values are removed at the next access, and are not part of snapshots.

    Args:
        time_to_live: As text, "1 h", a whole number of milliseconds, or a `timedelta`; at least 1 ms.

    >>> StateTtl("90 s").time_to_live_ms
    90000

    Raises:
        ConfigError: not a positive duration.
    """

    time_to_live: DurationLike
    update: TtlUpdate = TtlUpdate.ON_CREATE_AND_WRITE
    visibility: TtlVisibility = TtlVisibility.NEVER_RETURN_EXPIRED

    def __post_init__(self) -> None:
        if isinstance(self.time_to_live, bool) or not isinstance(self.time_to_live, DurationLike):
            raise ConfigError(
                f"time_to_live is {self.time_to_live!r}; it must be text such as '1 h', whole milliseconds, "
                "or a timedelta"
            )
        if self.time_to_live_ms < 1:
            raise ConfigError(f"time_to_live is {self.time_to_live!r}; it must be at least 1 ms")

    @property
    def time_to_live_ms(self) -> int:
        if isinstance(self.time_to_live, int):
            return self.time_to_live
        return duration_ms(self.time_to_live)


class AggregateFunction(Protocol):
    """A user's aggregate over the values added under a key; the accumulator is stored."""

    def create_accumulator(self) -> Any: ...

    def add(self, value: Any, accumulator: Any) -> Any:
        """The new accumulator."""

    def get_result(self, accumulator: Any) -> Any: ...

    def merge(self, one: Any, other: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """Common to all descriptors.

    Attributes:
        ttl: None: values live until they are removed.
        renamed_from: Former names: state stored under one of them is restored under the new name.
        pickled: Values are pickled Python objects (type binary). Only this program reads such a snapshot, and
            restores it only with `execution.state-recovery.allow-pickled-state`.
    """

    ttl: StateTtl | None = None
    renamed_from: tuple[str, ...] = ()
    pickled: bool = False

    def __post_init__(self) -> None:
        if self.ttl is not None and not isinstance(self.ttl, StateTtl):
            raise ConfigError(f"ttl is {self.ttl!r}; it must be a time to live, such as StateTtl('1 h')")
        names = self.renamed_from
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"renamed_from is {names!r}; it must be a tuple of names, such as ('old',)")


@dataclass(frozen=True)
class StateDescriptor:
    """Name, Arrow type and options of one state of an operator. Use one of the subclasses.

    Attributes:
        name: Unique in its operator; letters, digits, "-", "_" and "."; "__" at the start is reserved.
        type: Arrow type of a value (of an element, of a map's value, of the accumulator).
    """

    name: str
    type: pa.DataType
    options: StateOptions = field(default_factory=StateOptions, kw_only=True)

    kind = StateKind.VALUE

    def __post_init__(self) -> None:
        _check_declared(self.name, self.type)
        if not self.options.pickled:
            _check_storable(self.name, "a value", refused_type(self.type))

    @property
    def stored_type(self) -> pa.DataType:
        """Type of the column `value`."""
        one = pa.binary() if self.options.pickled else self.type
        return pa.list_(one) if self.kind is StateKind.LIST else one

    def table_schema(self, key_schema: pa.Schema) -> pa.Schema:
        """Columns of its table in a snapshot (see the head of this module)."""
        fields = [pa.field(KEY_GROUP_COLUMN, pa.uint16()), *key_schema]
        if isinstance(self, MapStateDescriptor):
            fields.append(pa.field(MAP_KEY_COLUMN, self.key_type))
        fields.append(pa.field(VALUE_COLUMN, self.stored_type))
        if self.options.ttl is not None:
            time = pa.list_(pa.int64()) if self.kind is StateKind.LIST else pa.int64()
            fields.append(pa.field(EXPIRES_COLUMN, time))
        return pa.schema(fields)


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """One value per key."""


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor):
    """A list per key; `type` is that of an element."""

    kind = StateKind.LIST


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor):
    """A map per key; `type` is that of its values, `key_type` (one without types inside) of its keys."""

    key_type: pa.DataType = field(kw_only=True)

    kind = StateKind.MAP

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_declared(self.name, self.key_type, "key type")
        _check_storable(self.name, "a key", refused_key_type(self.key_type))


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value per key: all added values, combined by `reduce(one, other)`."""

    reduce: Callable[[Any, Any], Any] = field(kw_only=True)

    kind = StateKind.REDUCING


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator per key; `type` is the accumulator's."""

    aggregate: AggregateFunction = field(kw_only=True)

    kind = StateKind.AGGREGATING


@dataclass(frozen=True)
class OperatorListDescriptor:
    """A list of an operator without keys, which is redistributed when the parallelism changes.

    As an attribute of a `ProcessFunction` it is known before the job runs.

    Attributes:
        name: Unique in its operator, as for keyed state.
        type: Arrow type of an element.
        mode: SPLIT: one subtask gets each element; UNION: all subtasks get all; BROADCAST: all subtasks get
            the list of one.
    """

    name: str
    type: pa.DataType
    mode: ListMode = ListMode.SPLIT

    def __post_init__(self) -> None:
        _check_declared(self.name, self.type)
        _check_storable(self.name, "an element", refused_type(self.type))
        if not isinstance(self.mode, ListMode):
            raise ConfigError(f"operator state {self.name!r}: its mode must be one of us.ListMode")


def check_declarations(owner: str, states: Iterable[StateDescriptor | OperatorListDescriptor]) -> None:
    """Checks that all states of one operator can be restored together, in any order.

    Args:
        owner: The operator, for the message.
        states: The same one may occur several times.

    Raises:
        ConfigError: two states have one name, or would be restored from the same stored state.
    """
    named: dict[str, StateDescriptor | OperatorListDescriptor] = {}
    for state in states:
        first = named.setdefault(state.name, state)
        if not is_same_state(first, state):
            raise ConfigError(
                f"{owner}: state {state.name!r} is declared twice, as {_described(first)} and as "
                f"{_described(state)}; give each a name of its own"
            )
    heirs: dict[str, str] = {}
    for state in named.values():
        for former in state.options.renamed_from if isinstance(state, StateDescriptor) else ():
            if former == state.name:
                continue
            if former in named:
                raise ConfigError(
                    f"{owner}: state {state.name!r} is renamed from {former!r}, which is still declared: "
                    "only one of them can be restored from it; give the other a new name"
                )
            heir = heirs.setdefault(former, state.name)
            if heir != state.name:
                raise ConfigError(
                    f"{owner}: states {heir!r} and {state.name!r} are both renamed from {former!r}: only "
                    "one of them can be restored from it"
                )


def is_same_state(
    one: StateDescriptor | OperatorListDescriptor, other: StateDescriptor | OperatorListDescriptor
) -> bool:
    """Both declare the same (their `reduce` or `aggregate` may differ)."""
    if not isinstance(one, StateDescriptor) or not isinstance(other, StateDescriptor):
        return one == other
    empty = pa.schema([])
    same_tables = one.table_schema(empty).equals(other.table_schema(empty))
    return one.kind is other.kind and same_tables and one.options == other.options


def _described(state: StateDescriptor | OperatorListDescriptor) -> str:
    if not isinstance(state, StateDescriptor):
        return f"{state.mode.value} list of {state.type}"
    keys = f"{state.key_type} to " if isinstance(state, MapStateDescriptor) else ""
    options = "" if state.options == StateOptions() else f" with {state.options}"
    return f"{state.kind.value} state of {keys}{state.type}{options}"


def _check_storable(name: str, what: str, refused: str | None) -> None:
    if refused is not None:
        raise ConfigError(f"state {name!r}: {what} cannot be {refused}")


def _check_declared(name: str, of: object, what: str = "type") -> None:
    if not isinstance(name, str):
        raise ConfigError(f"state name {name!r} is not text")
    allowed = all(c.isalnum() or c in "-_." for c in name)
    if not name or not allowed or name.startswith((".", "__")):
        raise ConfigError(
            f"state name {name!r}: use letters, digits, '-', '_' and '.', not beginning with '.' or '__'"
        )
    if not isinstance(of, pa.DataType):
        raise ConfigError(f"state {name!r}: its {what} must be an Arrow type such as pa.int64()")
