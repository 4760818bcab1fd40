"""Values of a database as a position keeps them. Pure.

A position is compared by the database itself, so it has to be what the database has given, to the last digit.
PostgreSQL gives the text of any value, and takes it back; SQLite gives one of its four kinds of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from unistream.base.errors import CorruptSnapshot


class Cell(NamedTuple):
    """A value as text, with a letter for its kind (see `_KINDS`)."""

    kind: str
    text: str


class _CellCodec(NamedTuple):
    type: type
    write: Callable[[Any], str]
    read: Callable[[str], Any]


_KINDS: Final = {
    "s": _CellCodec(str, str, str),
    "i": _CellCodec(int, str, int),
    "f": _CellCodec(float, repr, float),
    "x": _CellCodec(bytes, bytes.hex, bytes.fromhex),
}


def cell(value: Any) -> Cell:
    """The value as it is compared.

    >>> cell(7), cell("2026-01-02"), cell(b"A")
    (Cell(kind='i', text='7'), Cell(kind='s', text='2026-01-02'), Cell(kind='x', text='41'))
    """
    for letter, kind in _KINDS.items():
        if isinstance(value, kind.type):
            return Cell(letter, kind.write(value))
    raise AssertionError(f"{type(value).__name__} is no value of a database")


def cells(values: Sequence[Any]) -> tuple[Cell, ...]:
    return tuple(map(cell, values))


def value(found: Cell) -> Any:
    """Raises CorruptSnapshot.

    >>> [value(cell(one)) for one in (2**70, "ü", b"A", 0.1)]
    [1180591620717411303424, 'ü', b'A', 0.1]
    """
    try:
        return _KINDS[found.kind].read(found.text)
    except (KeyError, ValueError) as error:
        raise CorruptSnapshot(f"position of a SQL source: {found} is no value") from error


def shown(found: Cell | None) -> str:
    """The text of a cell, for people, and in the ids of splits.

    >>> shown(cell("a b")), shown(None)
    ('a b', '')
    """
    return "" if found is None else found.text
