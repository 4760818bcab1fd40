"""A keyed operator in a bounded job: it gets its rows when all of a key are there, one key after the other.

So it has state and timers of a few keys at a time, whatever the number of keys, and no row is late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unistream.base.errors import Transient
from unistream.base.ids import CheckpointId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.operator.common import BaseOperator, describe
from unistream.port.batch import KeyedInput
from unistream.port.operator import OperatorContext, Output
from unistream.port.sorting import KeyedRows, RowSorter

KEYED_INPUT = 0


class InKeyOrder(BaseOperator):
    """Groups the rows of the first input of `inner` by key; rows of other inputs (broadcast) pass at once.

    Args:
        keys: The key columns.
        rows_together: Keys are ended together as soon as they have so many rows.
        keeps_state: In a bootstrap: the state of all keys is kept for the snapshot, whose barrier ends the
            input.
    """

    uses_managed_memory = True

    def __init__(
        self, inner: KeyedInput, keys: Sequence[str], rows_together: int, *, keeps_state: bool = False
    ) -> None:
        self._inner = inner
        self._keys = list(keys)
        self._rows_together = rows_together
        self._keeps_state = keeps_state
        self._processed = False
        self._rows = 0  # of keys that have not ended
        self._sorter: RowSorter | None = None
        self._first: Batch | None = None
        self.forwards_watermarks = inner.forwards_watermarks

    def bootstrap_form(self) -> InKeyOrder:
        """See `model.chain.HasBootstrapForm`."""
        return InKeyOrder(self._inner, self._keys, self._rows_together, keeps_state=True)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._inner.setup(context, output)

    def initialize_state(self, state: OperatorState) -> None:
        self._inner.initialize_state(state)

    def open(self) -> None:
        self._sorter = self.context.make_sorter(self._keys)
        self._inner.open()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if input_index != KEYED_INPUT:
            self._inner.process_batch(batch, input_index)
            return
        self._check_alike(batch)
        assert self._sorter is not None, "open comes first"
        try:
            self._sorter.add(batch)
        except OSError as error:
            raise self._spill_failed(error) from error

    def _check_alike(self, batch: Batch) -> None:
        """Rows of the same key are put into one order, so all need the same columns, and event times or
        none."""
        if self._first is None:
            self._first = batch.slice(0, 0)
        first, schema = self._first, batch.records.schema
        if schema is not first.records.schema and not schema.equals(first.records.schema):
            raise self.user_error(
                f"a BATCH job sorts rows of one kind, and gets columns {describe(schema)} after "
                f"{describe(first.records.schema)}; give the operator before it returns="
            )
        if (batch.timestamps is None) != (first.timestamps is None):
            raise self.user_error(
                "a BATCH job sorts rows by time, and gets some with and some without an event time; give all "
                "sources before it a watermark strategy with a timestamp column, or none"
            )

    def end_bucket(self, number: int, count: int) -> None:
        """See `model.chain.SortsInput`. In a bootstrap the watermark is not known yet."""
        assert self._sorter is not None, "open comes first"
        if not self._keeps_state:
            self._process(self._sorter.sorted_until(number, count))

    def process_watermark(self, timestamp: int) -> None:
        """Processes all rows when their end comes, which in a bounded job is the only watermark; in a
        bootstrap that may be an earlier time."""
        assert self._keeps_state or timestamp == MAX_WATERMARK, "a watermark before the end of a bounded job"
        if not self._processed:
            self._process_all(timestamp)
        self._inner.process_watermark(timestamp)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        """Processes all rows if there was no watermark: then the barrier is their end."""
        if not self._processed:
            self._process_all(MIN_WATERMARK)
        self._inner.prepare_snapshot_pre_barrier(checkpoint_id)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        return self._inner.snapshot_state(checkpoint_id)

    def process_watermark_status(self, idle: bool) -> None:
        self._inner.process_watermark_status(idle)

    def end_input(self, input_index: int) -> None:
        self._inner.end_input(input_index)

    def finish(self) -> None:
        self._inner.finish()

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            if self._sorter is not None:
                self._sorter.close()

    def _process_all(self, watermark: int) -> None:
        assert self._sorter is not None, "open comes first"
        self._processed = True
        if self._keeps_state:
            self._inner.pause_at(watermark)
        self._process(self._sorter.sorted())
        if self._rows:
            self._rows = 0
            self._inner.end_keys()

    def _process(self, parts: Iterator[KeyedRows]) -> None:
        try:
            for part in parts:
                self._inner.process_keys(part)
                self._rows += part.batch.num_rows
                if part.ends_key and self._rows >= self._rows_together:
                    self._inner.end_keys()
                    self._rows = 0
                self.context.await_room()
        except OSError as error:
            raise self._spill_failed(error) from error

    def _spill_failed(self, error: OSError) -> Transient:
        return Transient(
            f"operator {self.context.name!r}: its rows could not be sorted in the temporary folder: {error}"
        )
