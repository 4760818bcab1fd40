"""SQL over a savepoint, by DuckDB.

Every state is a table by two names: ``"operator uid/state name"``, to be quoted, and the same with ``_`` for
all but letters and digits, such as ``counts_seen``. Only tables that the text names are opened.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.savepoint.states import NATIVE_KIND

if TYPE_CHECKING:
    from unistream.savepoint.reading import Savepoint


def query(savepoint: Savepoint, sql: str) -> pa.Table:
    """The rows of one SQL statement.

    Raises:
        ConfigError: DuckDB is not installed, or the statement is wrong; the text says which tables there are.
        CorruptSnapshot: a state file is damaged.
    """
    names = table_names(savepoint)
    with _connect() as connection:
        for name, state in names.items():
            if name.lower() in sql.lower():
                connection.register(name, savepoint.table(*state))
        return _result(connection, sql, _known(savepoint, names))


def table_names(savepoint: Savepoint) -> dict[str, tuple[str, str]]:
    """Name in SQL -> (operator uid, state name): the quoted form of each, and its alias if that is unique.

    >>> alias("orders-2/last seen")
    'orders_2_last_seen'
    """
    states = savepoint.table_names
    quoted = {f"{uid}/{state}": (uid, state) for uid, state in states}
    taken = Counter(alias(name) for name in quoted)
    aliases = {alias(name): state for name, state in quoted.items() if taken[alias(name)] == 1}
    return {**aliases, **quoted}


def alias(name: str) -> str:
    """A name that SQL does not need quoted."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()
    return plain if plain and not plain[0].isdigit() else f"t_{plain}"


def _connect() -> Any:
    try:
        import duckdb
    except ImportError:
        raise ConfigError(
            "queries need DuckDB, which is not installed: pip install 'unistream[savepoint]'"
        ) from None
    return duckdb.connect(":memory:")


def _known(savepoint: Savepoint, names: Iterable[str]) -> str:
    """Which tables there are, and why some are not."""
    quoted = [f'"{name}"' for name in names if "/" in name]
    native = [
        repr(str(operator.uid))
        for operator in savepoint.operators
        if any(state.kind == NATIVE_KIND for state in operator.states)
    ]
    if not native:
        return f"the tables are {', '.join(quoted) or 'none: it has no state'}"
    return (
        f"the tables are {', '.join(quoted) or 'none'}; the state of operator uid {', '.join(native)} is in "
        "files that only its backend reads: take a savepoint in the canonical format, which is tables"
    )


def _result(connection: Any, sql: str, known: str) -> pa.Table:
    import duckdb

    try:
        result = connection.sql(sql)
        return pa.table({}) if result is None else result.to_arrow_table()
    except duckdb.Error as error:
        told = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(f"{told}; {known}") from error
