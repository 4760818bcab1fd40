"""SQL over a savepoint, by DuckDB.

Every state is a table with two names: ``"operator uid/state name"``, quoted, and the same with ``_`` for all
but letters and digits, such as ``counts_seen``. Only tables that a statement reads are opened, and it can
read nothing else (`unistream.savepoint.statement`).

SQL ignores the case of a-z in names. States (and columns of one) that differ in nothing else are numbered, in
the order of the savepoint: ``"row/value#1"``, ``"row/Value#2"``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.core.memory import describe_bytes
from unistream.savepoint.statement import NotAllowed, Used, folded, place, tables_of
from unistream.savepoint.states import NATIVE_KIND

if TYPE_CHECKING:
    from unistream.savepoint.reading import Savepoint

T = TypeVar("T")
Table: TypeAlias = tuple[str, tuple[str, str]]  # name, (operator uid, state name)

CLOSED: Final = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "temp_directory": "",
}
"""DuckDB opens no file and loads no extension; without them variables of Python are no tables either."""


class OutOfMemory(ConfigError):
    """A query takes more memory than it may have."""


def query(savepoint: Savepoint, sql: str) -> pa.Table:
    """The rows of one SELECT. Of two columns with one name the second is called ``name_1``.

    It reads nothing but the savepoint: no file, no store, no other database, no setting of this machine.

    Raises:
        ConfigError: DuckDB is not installed, the statement is wrong, is no SELECT or reads anything else (the
            text names the tables), or DuckDB does not read the type of a state.
        CorruptSnapshot: a state file is damaged.
    """
    with opened(savepoint, sql) as connection:
        found = reported(connection, sql, savepoint, lambda: connection.sql(sql).to_arrow_table())
    return found.rename_columns(_numbered(found.schema.names))


@contextmanager
def opened(
    savepoint: Savepoint, sql: str, *, state_bytes_max: int | None = None, **options: str
) -> Iterator[Any]:
    """A connection that has the tables of one statement, which may be run there.

    Args:
        savepoint: Whose tables they are.
        sql: The statement.
        state_bytes_max: Of the states' files together.
        options: Settings of DuckDB.

    Raises:
        ConfigError, CorruptSnapshot: as `query`.
    """
    with connected(**options) as connection:
        names = tables_read(connection, savepoint, sql)
        _check_size(savepoint, names.values(), state_bytes_max)
        for name, state in names.items():
            _register(connection, name, savepoint.table(*state))
        connection.execute("SET errors_as_json = true")
        connection.execute("SET lock_configuration = true")
        yield connection


def table_names(savepoint: Savepoint) -> dict[str, tuple[str, str]]:
    """Name in SQL -> (operator uid, state name): the quoted name of each, and its alias if that is unique.

    >>> alias("orders-2/last seen")
    'orders_2_last_seen'
    """
    quoted = _quoted_names(savepoint)
    taken = Counter(alias(name) for name in quoted)
    aliases = {alias(name): state for name, state in quoted.items() if taken[alias(name)] == 1}
    return {**aliases, **quoted}


def quoted_tables(savepoint: Savepoint) -> dict[str, tuple[str, str]]:
    """The quoted name of each table, with its quotes -> (operator uid, state name)."""
    return {_quoted(name): state for name, state in _quoted_names(savepoint).items()}


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
    often = Counter(map(folded, names))
    taken = set(often)
    found = []
    for name in names:
        if often[folded(name)] > 1:
            number = next(n for n in count(1) if folded(f"{name}#{n}") not in taken)
            name = f"{name}#{number}"  # noqa: PLW2901
            taken.add(folded(name))
        found.append(name)
    return found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _known(savepoint: Savepoint) -> str:
    """The tables of the savepoint for messages, and why some are missing or numbered."""
    names = _quoted_names(savepoint)
    quoted = ", ".join(map(_quoted, names))
    alike: dict[str, list[str]] = {}
    for uid, state in names.values():
        alike.setdefault(folded(f"{uid}/{state}"), []).append(_quoted(f"{uid}/{state}"))
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


def connected(**options: str) -> Any:
    """A database in memory that reads nothing outside of it. Raises ConfigError: DuckDB is not installed."""
    require("savepoint", "a query of a savepoint")
    import duckdb

    connection = duckdb.connect(":memory:", config={**CLOSED, **options})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def tables_read(connection: Any, savepoint: Savepoint, sql: str) -> dict[str, tuple[str, str]]:
    """The tables that a statement reads, which is not run: name -> (operator uid, state name).

    Raises:
        ConfigError: it may not be asked.
    """
    names = {folded(name): (name, state) for name, state in table_names(savepoint).items()}
    try:
        return dict(_found(used, names) for used in tables_of(_parsed(connection, sql)))
    except NotAllowed as refused:
        raise ConfigError(f"{place(sql, refused.at)}{refused}; {_known(savepoint)}") from None


def _found(used: Used, names: Mapping[str, Table]) -> Table:
    if folded(used.name) not in names:
        raise NotAllowed(f"there is no table {_quoted(used.name)}", used.at)
    return names[folded(used.name)]


def _parsed(connection: Any, sql: str) -> dict[str, Any]:
    import duckdb

    try:
        rows = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
        tree: dict[str, Any] = json.loads(rows[0][0])
    except (duckdb.Error, RecursionError, UnicodeError):
        raise NotAllowed("the statement is nested too deeply, or is no text that DuckDB reads") from None
    return tree


def _check_size(savepoint: Savepoint, used: Iterable[tuple[str, str]], limit: int | None) -> None:
    """Raises ConfigError: the states are larger than `limit`; nothing has been read."""
    wanted = set(used)
    size = sum(
        state.size
        for operator in savepoint.operators
        for state in operator.states
        if (operator.uid, state.name) in wanted
    )
    if limit is not None and size > limit:
        raise ConfigError(
            f"the states of this query have {describe_bytes(size)}, and at most {describe_bytes(limit)} are "
            "read here; `unistream savepoint query` reads larger ones"
        )


def _register(connection: Any, name: str, table: pa.Table) -> None:
    """Raises ConfigError: it has a type that DuckDB does not read."""
    import duckdb

    table = table.rename_columns(_distinct(table.schema.names))
    try:
        connection.register(name, table)
    except duckdb.Error:
        columns = ", ".join(f"{c.name} ({c.type})" for c in table.schema if not _reads(connection, c))
        raise ConfigError(
            f"{_quoted(name)} cannot be queried: DuckDB does not read the type of its column {columns}; "
            "read it in Python, by us.read_savepoint(PATH).table(UID, STATE)"
        ) from None


def _reads(connection: Any, column: pa.Field) -> bool:
    import duckdb

    try:
        connection.register("a column alone", pa.schema([column]).empty_table())
    except duckdb.Error:
        return False
    connection.unregister("a column alone")
    return True


def reported(connection: Any, sql: str, savepoint: Savepoint, run: Callable[[], T]) -> T:
    """What `run` gives; errors of DuckDB as one sentence, with their place in the statement.

    Raises:
        ConfigError: DuckDB refuses the statement; the text names the tables.
        OutOfMemory: it takes more memory than DuckDB may have.
    """
    import duckdb

    try:
        return run()
    except duckdb.OutOfMemoryException as error:
        raise OutOfMemory("the query takes more memory than it may have") from error
    except duckdb.Error as error:
        text, at = _story(str(error))[0], _place_of(connection, sql)
        raise ConfigError(f"{place(sql, at)}{text}; {_known(savepoint)}") from error


def _story(message: str) -> tuple[str, int | None]:
    r"""First line of an error, and its byte in the statement.

    >>> _story('Binder Error: {"exception_message": "no column x\\nwhy", "position": "7"}')
    ('no column x', 7)
    >>> _story("Catalog Error: no function f")
    ('no function f', None)
    """
    start, at = message.find("{"), None
    try:
        found = json.loads(message[start:]) if start >= 0 else {}
    except ValueError:
        found = {}
    if isinstance(found, dict) and "exception_message" in found:
        message = str(found["exception_message"])
        at = int(found["position"]) if str(found.get("position", "")).isdecimal() else None
    line = next((line for line in message.splitlines() if line.strip()), "it failed")
    return re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", line), at


def _place_of(connection: Any, sql: str) -> int | None:
    """The place in a statement of what keeps it from being planned; it is not run. What an error of a
    relation says is the place in a text of its own."""
    import duckdb

    try:
        connection.execute(f"EXPLAIN {sql}").fetchall()
    except duckdb.Error as error:
        at = _story(str(error))[1]
        return None if at is None else max(0, at - len("EXPLAIN "))
    return None


def _numbered(names: Iterable[str]) -> list[str]:
    """Each name once, as DuckDB itself names columns of a table.

    >>> _numbered(["a", "a", "a_1"])
    ['a', 'a_2', 'a_1']
    """
    given = list(names)
    taken = set(given)
    found: list[str] = []
    for index, name in enumerate(given):
        if name in given[:index]:
            name = next(f"{name}_{n}" for n in count(1) if f"{name}_{n}" not in taken)  # noqa: PLW2901
            taken.add(name)
        found.append(name)
    return found
