"""Rows as a table for people."""

from __future__ import annotations

import sys
from typing import Final

import pyarrow as pa

NUMBERS: Final = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
CELL_CHARS: Final = 60
WIDTH_OF_FILES: Final = 200  # columns where there is no terminal


def print_table(rows: pa.Table) -> None:
    """Prints to standard output; null is ``null``, and a long value ends with ``…``. What does not fit the
    width of the terminal is shortened, and no word is cut into two lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for field in rows.schema:
        is_number = any(is_one(field.type) for is_one in NUMBERS)
        shown.add_column(
            Text(_line(field.name)),
            justify="right" if is_number else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        shown.add_row(*(Text(_text(value)) for value in row))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)
    with console.capture() as captured:
        console.print(shown)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _text(value: object) -> str:
    return "null" if value is None else _line(str(value))


def _line(text: str) -> str:
    """A text in one line: without line breaks and what else would move the cursor."""
    seen = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return seen if len(seen) <= CELL_CHARS else f"{seen[: CELL_CHARS - 1]}…"
