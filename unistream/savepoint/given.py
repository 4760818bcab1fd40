"""What a user gives to be written: rows as tables of Arrow columns; what cannot be any is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import ListMode
from unistream.model.state import StateDescriptor

_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")  # what pyarrow calls it of a pandas frame


def table_of(rows: object, what: str) -> pa.Table:
    """A pyarrow Table as it is; a RecordBatch, a pandas DataFrame and all else as `pa.table` makes one of it.

    An unnamed index of a DataFrame is no column (a named one is); its NaN are nulls.

    Args:
        rows: As a user gave them.
        what: Whose rows they are, for the message.

    Raises:
        ConfigError: it is no table, or two of its columns have one name.

    >>> table_of({"user": [1], "value": [2]}, "state 'seen'").num_rows
    1
    """
    table = rows if isinstance(rows, pa.Table) else _made(rows, what)
    names = table.schema.names
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ConfigError(f"{what}: column {twice!r} comes twice; rename or drop one")
    return table


def _made(rows: object, what: str) -> pa.Table:
    try:
        table = pa.table(rows)
    except Exception as error:  # of whatever library made them
        told = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(
            f"{what}: its rows are a {type(rows).__name__}, of which pa.table() makes no table ({told}); "
            "give a pyarrow Table or RecordBatch, or a pandas DataFrame"
        ) from error
    columns = [name for name in table.schema.names if not _UNNAMED_INDEX.fullmatch(name)]
    return table if len(columns) == table.num_columns else table.select(columns)


def check_keyed(state: object, kind: object) -> None:
    """Raises ConfigError unless it can be state by key, of a kind that there is."""
    if not isinstance(state, str | StateDescriptor):
        raise ConfigError(
            f"state by key is named, or described by one such as ValueStateDescriptor, not by {state!r}"
        )
    if kind is not None and not isinstance(kind, StateKind):
        known = ", ".join(f"StateKind.{one.name}" for one in StateKind)
        raise ConfigError(f"kind is {kind!r}; it must be one of {known}")


def checked_items(name: object, items: Iterable[bytes], mode: object) -> tuple[bytes, ...]:
    """Items of a list, once.

    Raises:
        ConfigError: they are no pieces of bytes, or there is no such mode.
    """
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
    """Raises ConfigError if a name stands for two states of an operator."""
    both = sorted(set(tables) & set(lists))
    if both:
        raise ConfigError(
            f"operator uid {uid!r}: {both[0]!r} is written as state by key and as a list; rename one"
        )
