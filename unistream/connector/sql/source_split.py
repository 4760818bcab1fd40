"""Parts of a table or query: how a split is stored, and what its position means.

after   the last row that was returned, by the columns that rows are ordered by: what follows is greater
tie     rows of one value that are more than a page: `skip` of them were returned, in the order of all
        columns
"""

from __future__ import annotations

import msgspec

from unistream.connector.common import encoded_split
from unistream.connector.sql.ranges import Range
from unistream.connector.sql.source_cells import Cell
from unistream.model.messages import Split


class SqlSplit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """See above. `number`: of those that were found at once, in the order of their values.
    `column`: of the range; None: it has none. `key`: of the table; (): it has none.
    `origin`: which table it is, where the database says so.
    `min_timestamp`: see `Split`."""

    range: Range
    number: int = 0
    column: str | None = None
    key: tuple[str, ...] = ()
    origin: str = ""
    after: tuple[Cell, ...] = ()
    tie: tuple[Cell, ...] | None = None
    skip: int = 0
    min_timestamp: int | None = None
    v: int = 1

    @property
    def order(self) -> tuple[str, ...]:
        """Columns by which its rows are ordered, if there are any but all.

        >>> SqlSplit(range=Range(), column="day", key=("id",)).order
        ('day', 'id')
        >>> SqlSplit(range=Range(nulls=True), column="day").order
        ()
        """
        ranged = () if self.column is None or self.range.nulls or self.range.all else (self.column,)
        return tuple(dict.fromkeys((*ranged, *self.key)))


def encode_split(split: SqlSplit) -> Split:
    """The id names the range, so it does not depend on the position."""
    return encoded_split(f"{split.number} {split.range.name}", split, split.min_timestamp)
