"""SQL over a savepoint, by DuckDB.

Every state is a table with two names: ``"operator uid/state name"``, quoted, and the same with ``_`` for all
but letters and digits, such as ``counts_seen``. Only tables that occur in the text are opened.

SQL ignores the case of a-z in names. States (and columns of one) that differ in nothing else are numbered, in
the order of the savepoint: ``"row/value#1"``, ``"row/Value#2"``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.savepoint.states import NATIVE_KIND

if TYPE_CHECKING:
    from unistream.savepoint.reading import Savepoint


def query(savepoint: Savepoint, sql: str) -> pa.Table:
    """The rows of one SQL statement. Of two columns with one name the second is called ``name_1``.

    Raises:
        ConfigError: DuckDB is not installed, the statement is wrong (the text names the tables), or DuckDB
            does not read the type of a state.
        CorruptSnapshot: a state file is damaged.
    """
    text = sql.lower()
    unreadable: dict[str, str] = {}
    with _connect() as connection:
        for name, state in table_names(savepoint).items():
            if name.lower() in text or _quoted(name).lower() in text:
                why = _register(connection, name, savepoint.table(*state))
                if why is not None:
                    unreadable[_folded(name)] = why
        return _result(connection, sql, _known(savepoint), unreadable)


def table_names(savepoint: Savepoint) -> dict[str, tuple[str, str]]:
    """Name in SQL -> (operator uid, state name): the quoted name of each, and its alias if that is unique.

    >>> alias("orders-2/last seen")
    'orders_2_last_seen'
    """
    quoted = _quoted_names(savepoint)
    taken = Counter(alias(name) for name in quoted)
    aliases = {alias(name): state for name, state in quoted.items() if taken[alias(name)] == 1}
    return {**aliases, **quoted}


def alias(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()
    return plain if plain and not plain[0].isdigit() else f"t_{plain}"


# --- names ----------------------------------------------------------------------------------------


def _quoted_names(savepoint: Savepoint) -> dict[str, tuple[str, str]]:
    states = savepoint.table_names
    names = _distinct([f"{uid}/{state}" for uid, state in states])
    return dict(zip(names, states, strict=True))


def _distinct(names: Sequence[str]) -> list[str]:
    """The same names, numbered where SQL would confuse them.

    >>> _distinct(["a", "B", "b", "b#2"])
    ['a', 'B#1', 'b#3', 'b#2']
    """
    often = Counter(map(_folded, names))
    taken = set(often)
    found = []
    for name in names:
        if often[_folded(name)] > 1:
            number = next(n for n in count(1) if _folded(f"{name}#{n}") not in taken)
            name = f"{name}#{number}"  # noqa: PLW2901
            taken.add(_folded(name))
        found.append(name)
    return found


def _folded(name: str) -> str:
    return re.sub("[A-Z]+", lambda letters: letters[0].lower(), name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _known(savepoint: Savepoint) -> str:
    """For messages: the tables, and why some are missing or numbered."""
    names = _quoted_names(savepoint)
    quoted = ", ".join(map(_quoted, names))
    alike: dict[str, list[str]] = {}
    for uid, state in names.values():
        alike.setdefault(_folded(f"{uid}/{state}"), []).append(_quoted(f"{uid}/{state}"))
    groups = (" and ".join(one) for one in alike.values() if len(one) > 1)
    same = "".join(f"; {group} are one name in SQL, so they are numbered" for group in groups)
    native = [
        repr(str(operator.uid))
        for operator in savepoint.operators
        if any(state.kind == NATIVE_KIND for state in operator.states)
    ]
    if not native:
        return f"the tables are {quoted or 'none: it has no state'}{same}"
    return (
        f"the tables are {quoted or 'none'}{same}; the state of operator uid {', '.join(native)} is in files "
        "that only its backend reads: take a savepoint in the canonical format, which consists of tables"
    )


# --- DuckDB ---------------------------------------------------------------------------------------


def _connect() -> Any:
    require("savepoint", "a query of a savepoint")
    import duckdb

    return duckdb.connect(":memory:")


def _register(connection: Any, name: str, table: pa.Table) -> str | None:
    """None, or why it cannot be queried."""
    import duckdb

    table = table.rename_columns(_distinct(table.schema.names))
    try:
        connection.register(name, table)
    except duckdb.Error:
        columns = ", ".join(f"{c.name} ({c.type})" for c in table.schema if not _reads(connection, c))
        return (
            f"{_quoted(name)} cannot be queried: DuckDB does not read the type of its column {columns}; "
            "read it in Python, by us.read_savepoint(PATH).table(UID, STATE)"
        )
    return None


def _reads(connection: Any, column: pa.Field) -> bool:
    import duckdb

    try:
        connection.register("a column alone", pa.schema([column]).empty_table())
    except duckdb.Error:
        return False
    connection.unregister("a column alone")
    return True


def _result(connection: Any, sql: str, known: str, unreadable: Mapping[str, str]) -> pa.Table:
    import duckdb

    try:
        result = connection.sql(sql)
        found = pa.table({}) if result is None else result.to_arrow_table()
    except duckdb.Error as error:
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        is_name = isinstance(error, duckdb.CatalogException)  # of a missing table
        missing = [why for name, why in unreadable.items() if is_name and f" {name} " in _folded(text)]
        raise ConfigError(missing[0] if missing else f"{text}; {known}") from error
    return found.rename_columns(_numbered(found.schema.names))


def _numbered(names: Iterable[str]) -> list[str]:
    """Each name once, as DuckDB itself names columns of a table.

    >>> _numbered(["a", "a", "a_1"])
    ['a', 'a_2', 'a_1']
    """
    given = list(names)
    taken = set(given)
    found: list[str] = []
    for place, name in enumerate(given):
        if name in given[:place]:
            name = next(f"{name}_{n}" for n in count(1) if f"{name}_{n}" not in taken)  # noqa: PLW2901
            taken.add(name)
        found.append(name)
    return found
