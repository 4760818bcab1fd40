"""Checks of new state: against the savepoint that is changed, and of what a user gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.core.restore import key_columns
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import ListMode
from unistream.model.state import EXPIRES_COLUMN, StateDescriptor
from unistream.model.state_types import Incompatible, key_migration
from unistream.savepoint.inspection import resumable_path
from unistream.savepoint.reading import Savepoint
from unistream.savepoint.state_rows import Former
from unistream.savepoint.states import NATIVE_KIND, StateContent
from unistream.state.common import described

_KEYED: Final = frozenset(kind.value for kind in StateKind)
_BY_KEY: Final = _KEYED - {StateKind.TABLE.value}  # whose key is the operator's
_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")  # pyarrow's name for that of a pandas DataFrame

NamedKey = tuple[str, pa.Schema]
"""State, and its key columns."""


def check_changeable(old: Savepoint) -> None:
    """Raises ConfigError: no job can resume from it, or it is in files that only a backend reads."""
    if not old.can_resume:
        earlier = resumable_path(old) or "an earlier savepoint"
        raise ConfigError(
            f"{old.path} was taken after the end of a drained job, no job can resume from it; "
            f"change {earlier}"
        )
    native = [op for op in old.operators if any(state.kind == NATIVE_KIND for state in op.states)]
    if native:
        raise ConfigError(
            f"{old.path} holds the state of operator uid {native[0].uid!r} in files of its "
            "backend; take a savepoint of the job in the canonical format and change that"
        )


def check_runs(old: Savepoint | None, uid: str) -> None:
    """Raises ConfigError for an operator that had finished."""
    for operator in old.operators if old is not None else ():
        if old is not None and operator.uid == uid and operator.is_finished:
            raise ConfigError(
                f"operator uid {uid!r} had finished when {old.path} was taken: it does not run again, so its "
                "state would never be read"
            )


def former_of(old: Savepoint | None, uid: str, name: str) -> Former | None:
    """The former keyed state of that name. Raises CorruptSnapshot."""
    found = next((state for state in states_in(old, uid) if state.name == name), None)
    if old is None or found is None or found.kind not in _KEYED:
        return None
    schema, _ = old.batches(uid, name)
    return Former(StateKind(found.kind), found.pickled, EXPIRES_COLUMN in schema.names)


def list_mode_of(old: Savepoint | None, uid: str, name: str) -> ListMode | None:
    """The mode of its list of that name."""
    kinds = [state.kind for state in states_in(old, uid) if state.name == name]
    return next((mode for mode in ListMode if kinds and kinds[0] == f"list-{mode.value}"), None)


def states_in(old: Savepoint | None, uid: str) -> tuple[StateContent, ...]:
    """The states of an operator of `old`, if there is one."""
    operators = () if old is None else old.operators
    return next((operator.states for operator in operators if operator.uid == uid), ())


def keys_of(old: Savepoint | None, uid: str, is_replaced: Callable[[str], bool]) -> Iterator[NamedKey]:
    """Keys of an operator's states that are kept. Raises CorruptSnapshot."""
    for state in states_in(old, uid):
        if old is not None and state.kind in _BY_KEY and not is_replaced(state.name):
            yield state.name, key_columns(old.batches(uid, state.name)[0])


def check_one_key(uid: str, keyed: Sequence[NamedKey]) -> None:
    """Raises ConfigError unless all these states of one operator have the same key."""
    for name, keys in keyed[1:]:
        first, wanted = keyed[0]
        if not _is_same(keys, wanted):
            raise ConfigError(
                f"operator uid {uid!r}: the key of state {first!r} is ({described(wanted)}), that of state "
                f"{name!r} is ({described(keys)}); all states of an operator have one key"
            )


def _is_same(one: pa.Schema, other: pa.Schema) -> bool:
    return one.names == other.names and not any(
        isinstance(key_migration(a.type, b.type), Incompatible) for a, b in zip(one, other, strict=True)
    )


# --- what a user gives -----------------------------------------------------------------------------


def table_of(rows: object, what: str) -> pa.Table:
    """A pyarrow Table as it is; anything else by `pa.table`. `what`: whose rows they are, for the message.

    The unnamed index of a DataFrame is not a column (a named one is); its NaN are nulls.

    >>> table_of({"user": [1], "value": [2]}, "state 'seen'").num_rows
    1
    """
    table = rows if isinstance(rows, pa.Table) else _made(rows, what)
    names = table.schema.names
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ConfigError(f"{what}: column {twice!r} appears twice; rename or drop one")
    return table


def _made(rows: object, what: str) -> pa.Table:
    try:
        table = pa.table(rows)
    except Exception as error:  # of whatever library made them
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(
            f"{what}: its rows are a {type(rows).__name__}, which pa.table() cannot convert ({reason}); "
            "give a pyarrow Table or RecordBatch, or a pandas DataFrame"
        ) from error
    columns = [name for name in table.schema.names if not _UNNAMED_INDEX.fullmatch(name)]
    return table if len(columns) == table.num_columns else table.select(columns)


def check_keyed(state: object, kind: object) -> None:
    """Raises ConfigError unless these are a keyed state and a kind of it."""
    if not isinstance(state, str | StateDescriptor):
        raise ConfigError(
            f"keyed state is given by name, or by a descriptor such as ValueStateDescriptor, not by {state!r}"
        )
    if kind is not None and not isinstance(kind, StateKind):
        known = ", ".join(f"StateKind.{one.name}" for one in StateKind)
        raise ConfigError(f"kind is {kind!r}; it must be one of {known}")


def checked_items(name: object, items: Iterable[bytes], mode: object) -> tuple[bytes, ...]:
    """Items of a list. Raises ConfigError if one is not bytes, or there is no such mode."""
    if not isinstance(mode, ListMode):
        known = ", ".join(f"ListMode.{one.name}" for one in ListMode)
        raise ConfigError(f"list {name!r}: mode is {mode!r}; it must be one of {known}")
    found = tuple(items)
    wrong = next((item for item in found if not isinstance(item, bytes)), None)
    if wrong is not None:
        raise ConfigError(
            f"list {name!r}: an item is a {type(wrong).__name__}, not bytes; rows of a list that a function "
            "declares are written by with_rows"
        )
    return found


def check_names(uid: str, tables: Iterable[str], lists: Iterable[str]) -> None:
    """Raises ConfigError if two states of an operator have one name."""
    both = sorted(set(tables) & set(lists))
    if both:
        raise ConfigError(
            f"operator uid {uid!r}: {both[0]!r} is written as keyed state and as a list; rename one"
        )
