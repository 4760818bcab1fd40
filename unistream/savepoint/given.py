"""Checks of what a user gives to be written; rows become Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.keyed_snapshot import StateKind
from unistream.model.snapshot import ListMode
from unistream.model.state import StateDescriptor

_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")  # pyarrow's name for that of a pandas DataFrame


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
