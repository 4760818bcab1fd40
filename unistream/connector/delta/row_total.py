"""Rows of a whole table, commit by commit: its log is counted once, and again where others have written."""

from __future__ import annotations

from typing import Protocol


class Counted(Protocol):
    """A snapshot of a table, as `DeltaSinkTable`."""

    @property
    def version(self) -> int: ...

    def row_count(self) -> int | None:
        """The number of rows; None: not known."""


class RowTotal:
    """The number of rows of one table, which is kept up to date from commit to commit.

    >>> class Snapshot:
    ...     version = 4
    ...     def row_count(self):
    ...         return 100
    >>> total = RowTotal()
    >>> total.appended(Snapshot(), 5, 20), total.appended(Snapshot(), 6, 1)
    (120, 121)
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._rows: int | None = None

    def appended(self, before: Counted, version: int, rows: int) -> int | None:
        """The rows after a commit that has added `rows`, as `version`. `before`: the snapshot that it was
        made on; it is counted unless that is the last version that was."""
        if self._version != version - 1:
            self._rows = before.row_count()
        return self._set(version, None if self._rows is None else self._rows + rows)

    def replaced(self, after: Counted) -> int | None:
        """The rows after a commit that has also removed some; `after`: its own snapshot."""
        return self._set(after.version, after.row_count())

    def _set(self, version: int, rows: int | None) -> int | None:
        self._version, self._rows = version, rows
        return rows
