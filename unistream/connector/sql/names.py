"""Names of users that a database would change, or take for one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from unistream.base.errors import ConfigError
from unistream.connector.sql.statements import SqlTableName

NAME_BYTES_MAX: Final = 63  # PostgreSQL cuts longer ones off, and says so in a notice alone


def check_names(dialect: str, target: SqlTableName, columns: Sequence[str]) -> None:
    """Raises ConfigError.

    >>> check_names("sqlite", SqlTableName("t"), ["a", "A"])
    Traceback (most recent call last):
    unistream.base.errors.ConfigError: SQL sink: columns 'a' and 'A' are one for SQLite; rename one
    """
    for what, name in _named(target, columns):
        if not name or "\0" in name:
            raise ConfigError(f"SQL sink: {name!r} cannot be the name of a {what}")
        size = len(name.encode())
        if dialect == "postgresql" and size > NAME_BYTES_MAX:
            raise ConfigError(
                f"SQL sink: the name of {what} {name!r} has {size} bytes, and PostgreSQL would keep "
                f"{NAME_BYTES_MAX} of them; rename it"
            )
    if dialect == "sqlite" and target.schema not in (None, "", "main"):
        raise ConfigError(
            f"SQL sink: table {str(target)!r} is in schema {target.schema!r}, of which SQLite has none: "
            "a dot in the name divides the two"
        )
    seen: dict[str, str] = {}
    for name in columns if dialect == "sqlite" else ():
        other = seen.setdefault(_folded(name), name)
        if other != name:
            raise ConfigError(f"SQL sink: columns {other!r} and {name!r} are one for SQLite; rename one")


def _named(target: SqlTableName, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "table", target.name
    if target.schema:
        yield "schema", target.schema
    for name in columns:
        yield "column", name


def _folded(name: str) -> str:
    """SQLite knows upper case of ASCII only."""
    return "".join(one.lower() if one.isascii() else one for one in name)
