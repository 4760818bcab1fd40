"""What operators and sources may say so that a source reads only the columns and rows that are used. All of
it is optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from unistream.port.source import Source

UsedColumns: TypeAlias = frozenset[str] | None
"""Names of columns; None: all there are."""


@runtime_checkable
class UsesColumns(Protocol):
    """An operator that knows which columns of its inputs it needs, and that does its work also where the
    others are missing."""

    def used_columns(
        self, inputs: Sequence[pa.Schema], wanted: Mapping[str | None, UsedColumns]
    ) -> Sequence[UsedColumns]:
        """The columns that are used of each logical input.

        Args:
            inputs: Columns of each, all of them.
            wanted: Of the main output (None), and of each side output that has a reader: the columns that
                are used there.
        """
        ...


@runtime_checkable
class ReadsColumns(Protocol):
    """A source that can leave out columns."""

    def reading(self, columns: frozenset[str]) -> Source:
        """The same source with only these columns, in the order of its schema. Its rows, splits and positions
        are the same; a record that is bad because of another column is as bad.

        Args:
            columns: At least one; names of its schema.
        """
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows that are needed. `expression`: true for them; `columns`: those of the source that it reads, in
    order."""

    expression: pc.Expression
    columns: tuple[str, ...]


@runtime_checkable
class SelectsRows(Protocol):
    """An operator that forwards rows as they are, and drops the others without a trace."""

    @property
    def selection(self) -> pc.Expression | None:
        """True for the rows that it forwards; None: nobody but itself knows which those are."""
        ...


@runtime_checkable
class ReadsSelectedRows(Protocol):
    """A source that can leave out rows."""

    def reading_rows(self, selection: Selection) -> Source:
        """The same source, which may leave out rows that are not selected, and need not. Its splits and
        positions are the same."""
        ...


def together(*used: UsedColumns) -> UsedColumns:
    """All columns of all.

    >>> together(frozenset("a"), frozenset("b")) == frozenset("ab"), together(frozenset("a"), None)
    (True, None)
    """
    found: frozenset[str] = frozenset()
    for one in used:
        if one is None:
            return None
        found |= one
    return found
