"""What operators do differently in a bounded job (BATCH): their own form there, and rows that come by key.

translation   `model.chain.HasBatchForm` takes the place of an operator
first row     rows of a keyed input are given to a `RowSorter`
end of input  they come back key by key (`process_keys`), and `end_keys` ends the keys;
              in a bootstrap it keeps their state (`pause_at`), and a snapshot follows
"""

from __future__ import annotations

from typing import Protocol

from unistream.port.operator import Operator
from unistream.port.sorting import KeyedRows


class KeyedInput(Operator, Protocol):
    """An operator whose first input is keyed, as it is in a bounded job."""

    def process_keys(self, rows: KeyedRows) -> None:
        """Rows of the keyed input."""

    def end_keys(self) -> None:
        """All rows of the keys so far were processed: fires their timers up to the end of time, in order, and
        forgets their state. The next rows are of other keys, and for them no watermark has come yet."""

    def pause_at(self, watermark: int) -> None:
        """Called before the rows, in a bootstrap: the input goes on later, with rows after `watermark`. From
        now on `end_keys` fires timers up to it and keeps what is left for the snapshot. MIN_WATERMARK: that
        is not known, so nothing fires."""
