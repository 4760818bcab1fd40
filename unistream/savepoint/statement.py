"""Which SQL may be asked of a savepoint: one SELECT over its own tables, and nothing else.

DuckDB parses the text, and its tree is walked here. What may stand in it is listed, so a kind of node that
nobody thought of is refused, too: a `WITH` that writes, a table that is a file or a view of the system, a
table function that reads files, takes an address in memory or runs another text. Functions of values reach
nothing outside of the statement but those that are named here.

    text ── json_serialize_sql ──► tree ── tables_of ──► the tables that are opened

A name belongs to a `WITH` only where DuckDB resolves it so: elsewhere it has to be a table of the savepoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

Node: TypeAlias = dict[str, Any]
Scope: TypeAlias = frozenset[str]

NODES: Final = frozenset(
    {
        *("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"),
        *(
            "BASE_TABLE",
            "SUBQUERY",
            "JOIN",
            "EMPTY",
            "EXPRESSION_LIST",
            "TABLE_FUNCTION",
            "PIVOT",
            "SHOW_REF",
        ),
        *("ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"),
        *("ORDER_DEFAULT", "ASCENDING", "DESCENDING"),
    }
)
EXPRESSIONS: Final = frozenset(
    {
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT"),
        *("DEFAULT", "FUNCTION", "LAMBDA", "LAMBDA_REF", "OPERATOR", "POSITIONAL_REFERENCE", "STAR"),
        *("SUBQUERY", "TYPE", "WINDOW"),
    }
)
TABLE_FUNCTIONS: Final = frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"})
"""They make rows of their arguments. All others read files, memory or the database itself."""

REFUSED_FUNCTIONS: Final = frozenset(
    {
        *("current_setting", "getenv", "getvariable", "in_search_path", "which_secret", "get_block_size"),
        *("current_connection_id", "current_query", "current_query_id", "current_transaction_id"),
        *("txid_current", "nextval", "currval", "setval", "setseed", "sleep_ms", "write_log", "query"),
        *("json_deserialize_sql", "json_execute_serialized_sql", "json_serialize_plan", "json_serialize_sql"),
        *("=", "!=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"),
        *("parse_duckdb_log_message", "stats", "vector_type", "combine", "finalize", "to_aggregate_state"),
    }
)
"""Functions of values that say something of the process, change the session, wait, or take bytes for memory.
Comparisons are no functions to the parser; called as such, they take values of one type for another's."""

_REFUSED_NAMES: Final = re.compile(
    r"^(__|pg_|inet_|has_.*privilege|read_|write_|duckdb_|pragma_|arrow_|pandas_|python_)"
)
_TYPE_INFO: Final = re.compile(r"^[A-Z_]+_TYPE_INFO$")
_NO_PLACE: Final = 2**31


class NotAllowed(Exception):
    """What of a statement may not be asked. `at`: byte of the text; None: it has no place."""

    def __init__(self, why: str, at: int | None = None) -> None:
        super().__init__(why)
        self.at = at


class Used(NamedTuple):
    """A table as the statement names it. `at`: byte of the text; None: not known."""

    name: str
    at: int | None


def tables_of(tree: Node) -> list[Used]:
    """The tables of the savepoint that a statement reads, in its order; `tree`: of `json_serialize_sql`.

    Raises:
        NotAllowed: it is not exactly one SELECT, or it would reach something else.
    """
    if tree.get("error"):
        raise _not_parsed(tree)
    statements = tree.get("statements", [])
    if len(statements) != 1:
        raise NotAllowed(f"one statement is asked at a time, and these are {len(statements)}")
    found: list[Used] = []
    waiting: list[tuple[Any, Scope]] = [(statements[0], frozenset())]
    while waiting:  # no recursion: a text may be nested as deeply as it likes
        node, scope = waiting.pop()
        if isinstance(node, list):
            waiting += [(child, scope) for child in reversed(node)]
        elif isinstance(node, dict):
            _check(node)
            if node.get("type") == "BASE_TABLE" and "class" not in node:
                found += _table(node, scope)
            waiting += reversed(list(_children(node, scope)))
    return found


def _not_parsed(tree: Node) -> NotAllowed:
    if tree.get("error_type") == "not implemented":
        return NotAllowed("only a SELECT is allowed here: a savepoint is read, and nothing else")
    text = str(tree.get("error_message", "it cannot be parsed")).partition("\n")[0]
    return NotAllowed(text, _number(tree.get("position")))


def _check(node: Node) -> None:
    """Raises NotAllowed: nodes of this kind are not known here, or name a function that is refused."""
    kind, expression = node.get("type"), node.get("class")
    if expression is not None:
        if expression not in EXPRESSIONS:
            raise NotAllowed(f"{str(expression).lower()} is not allowed here", _at(node))
        if expression == "FUNCTION" and _is_refused(str(node.get("function_name", ""))):
            raise NotAllowed(f"the function {node['function_name']} is not allowed here", _at(node))
    elif isinstance(kind, str) and kind not in NODES and _TYPE_INFO.match(kind) is None:
        raise NotAllowed(f"only a SELECT is allowed here, not {kind.lower().replace('_', ' ')}", _at(node))
    elif kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name", ""))
        if name.lower() not in TABLE_FUNCTIONS:
            raise NotAllowed(f"the table function {name} is not allowed here", _at(node))
    elif kind == "SHOW_REF" and not node.get("query"):
        raise NotAllowed("only a table can be described", _at(node))


def _is_refused(name: str) -> bool:
    """A function of values that reaches outside of the statement.

    >>> _is_refused("Current_Setting"), _is_refused("pg_sleep"), _is_refused("lower"), _is_refused("+")
    (True, True, False, False)
    """
    lower = name.lower()
    return lower in REFUSED_FUNCTIONS or _REFUSED_NAMES.match(lower) is not None


def _table(node: Node, scope: Scope) -> list[Used]:
    name = str(node.get("table_name", ""))
    if node.get("schema_name") or node.get("catalog_name"):
        raise NotAllowed("a table of a savepoint is in no schema: quote a name that has a dot", _at(node))
    return [] if folded(name) in scope else [Used(name, _at(node))]


def _children(node: Node, scope: Scope) -> Iterator[tuple[Any, Scope]]:
    """The parts of a node, each with the names that a `WITH` gives there."""
    ctes = (node.get("cte_map") or {}).get("map", [])
    for cte in ctes:
        yield cte.get("value"), scope  # it sees those before it, and not itself
        scope |= {folded(str(cte.get("key", "")))}
    own = folded(str(node.get("cte_name", "")))
    inside = {"RECURSIVE_CTE_NODE": "right", "CTE_NODE": "child"}.get(str(node.get("type")))
    for name, child in node.items():
        if name != "cte_map":
            yield child, scope | {own} if own and name == inside else scope


def folded(name: str) -> str:
    """A name as SQL compares it: without regard to the case of a-z alone.

    >>> folded("Töne/ÄB")
    'töne/Äb'
    """
    return re.sub("[A-Z]+", lambda letters: letters[0].lower(), name)


def place(sql: str, at: int | None) -> str:
    r"""A byte of the text for people; "" if it is not known.

    >>> place("SELECT 'ü',\n x FRM", 15), place("SELECT 1", None)
    ('line 2, column 3: ', '')
    """
    if at is None:
        return ""
    before = sql.encode()[:at].decode(errors="ignore")
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}: "


def _at(node: Node) -> int | None:
    return _number(node.get("query_location"))


def _number(found: object) -> int | None:
    number = int(str(found)) if str(found).isdecimal() else None
    return number if number is not None and number < _NO_PLACE else None
