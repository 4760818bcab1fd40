"""The operators and states of a snapshot for people who look at it, with the tables that SQL finds."""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.errors import CorruptSnapshot
from unistream.base.ids import OperatorUid
from unistream.model.keyed_snapshot import StateKind
from unistream.operator.process import TIMESTAMP_COLUMN
from unistream.savepoint.bounded_query import ResultColumn
from unistream.savepoint.query import quoted_tables
from unistream.savepoint.reading import Savepoint
from unistream.savepoint.states import OperatorContent, StateContent, WatermarkSpan
from unistream.state.common import OWN_COLUMNS

COLUMNS_READ_MAX: Final = 64  # states; of each the ends of a file are read

_WITH_KEYS: Final = frozenset({kind.value for kind in StateKind} - {StateKind.TABLE.value})


class StateShown(msgspec.Struct, frozen=True, kw_only=True):
    """One state.

    Attributes:
        kind, rows, size, files, key_groups, pickled: See `StateContent`.
        table: Its name in SQL, in quotes; None: it is in files that only its backend reads.
        columns: Of its table; None: they are not known before it is read.
        keys: Columns of the key; None: it has none, or it is not known which they are.
    """

    name: str
    kind: str
    rows: int | None
    size: int
    files: int
    key_groups: int | None
    pickled: bool
    table: str | None
    columns: tuple[ResultColumn, ...] | None
    keys: tuple[str, ...] | None


class OperatorStates(msgspec.Struct, frozen=True, kw_only=True):
    """One operator. `finished`: number of its subtasks that do not run again."""

    uid: OperatorUid
    vertex: str
    parallelism: int
    max_parallelism: int
    finished: int
    watermark: WatermarkSpan | None
    states: tuple[StateShown, ...]


def operators_shown(savepoint: Savepoint) -> tuple[OperatorStates, ...]:
    """All operators, in the order of the job. A file that is damaged has no columns here."""
    tables = {state: name for name, state in quoted_tables(savepoint).items()}
    left = COLUMNS_READ_MAX

    def shown(operator: OperatorContent, state: StateContent) -> StateShown:
        nonlocal left
        left -= 1
        schema = _columns(savepoint, operator.uid, state.name) if left >= 0 else None
        return _state(state, tables.get((str(operator.uid), state.name)), schema)

    return tuple(
        OperatorStates(
            uid=operator.uid,
            vertex=operator.vertex,
            parallelism=operator.parallelism,
            max_parallelism=operator.max_parallelism,
            finished=len(operator.finished_subtasks),
            watermark=operator.watermark,
            states=tuple(shown(operator, state) for state in operator.states),
        )
        for operator in savepoint.operators
    )


def _state(state: StateContent, table: str | None, schema: pa.Schema | None) -> StateShown:
    columns = None if schema is None else tuple(ResultColumn(name=f.name, type=str(f.type)) for f in schema)
    own = OWN_COLUMNS | {TIMESTAMP_COLUMN}
    keys = None
    if schema is not None and state.kind in _WITH_KEYS:
        keys = tuple(name for name in schema.names if name not in own)
    return StateShown(
        name=state.name,
        kind=state.kind,
        rows=state.rows,
        size=state.size,
        files=state.files,
        key_groups=state.key_groups,
        pickled=state.pickled,
        table=table,
        columns=columns,
        keys=keys,
    )


def _columns(savepoint: Savepoint, uid: str, state: str) -> pa.Schema | None:
    try:
        return savepoint.columns(uid, state)
    except CorruptSnapshot:
        return None  # a query of its rows says why
