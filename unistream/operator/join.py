"""Enriches a stream with rows of a bounded dimension, of which every subtask has all rows.

Facts wait until the dimension is complete, so the result does not depend on which side is faster: a row of
the dimension may replace an earlier one of the same key, and a fact that had left would have the older one.

The dimension is complete at end_input(1): after its MAX_WATERMARK functions may still emit rows in `finish`.
But that watermark advances the combined one, the minimum over both inputs. (The API accepts only a dimension
without watermarks and idleness; until its end it holds the combined watermark back, so waiting facts are
never late.) Rows that are emitted after a watermark would be late. So the join keeps watermarks and idleness
until the dimension has ended, and emits them after the facts that have waited.

Facts that exceed the operator's managed memory are spilled to a file. If the join did not read facts
meanwhile, it would need no disk, but a barrier waits in the same channel after them; and a source of both
facts and dimension could not continue: neither the checkpoint nor the dimension would ever be complete.

Restored rows may have narrower types than new ones. The dimension has one row for each key, so it cannot be
restored for another key (`model.own_state`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.key_groups import canonical_keys
from unistream.model.own_state import OwnTable, converted_records, other_setting, own_table_migration
from unistream.model.snapshot import ListMode, ListState, OperatorSnapshot, OperatorState
from unistream.model.state_types import Refused
from unistream.operator.common import BaseOperator, conform, describe, empty_rows, group
from unistream.operator.waiting_rows import WaitingRows, decode_batch, encode_batch
from unistream.operator.window import decoded
from unistream.port.lineage import Origins, same_columns

FACTS: Final = 0
DIMENSION: Final = 1
WAITING_STATE: Final = "waiting-facts"
DIMENSION_STATE: Final = "dimension"
KEYS_STATE: Final = "dimension-keys"
_ROW: Final = "__row"


class JoinKind(Enum):
    INNER = "inner"  # drops facts without a match
    LEFT = "left"  # keeps them, with nulls


class BroadcastLookupJoin(BaseOperator):
    """Input 0: facts. Input 1: dimension rows, broadcast. Output: the columns of a fact, then those of its
    dimension row without the key. Null matches nothing, not even null; of equal dimension keys the
    last wins.

    Args:
        on: (fact column, dimension column) pairs.
        dimension: Schema of the dimension's rows.
        facts: Schema of the facts; None: not known.
    """

    forwards_watermarks = False
    uses_managed_memory = True

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        dimension: pa.Schema,
        how: JoinKind,
        *,
        facts: pa.Schema | None = None,
    ) -> None:
        self._fact_keys = [fact for fact, _ in on]
        self._keys = [key for _, key in on]
        self._added = [name for name in dimension.names if name not in self._keys]
        self._how = how
        self._schema = dimension
        self._facts = facts
        self._table = LookupTable(dimension, self._keys)
        self._complete = False
        self._watermark = self._emitted = MIN_WATERMARK
        self._idle = self._emitted_idle = False
        self._waiting = WaitingRows(0, None)
        self._stored: tuple[bytes, ...] | None = None

    def column_origins(self, inputs: Sequence[pa.Schema], tag: str | None) -> Origins:
        """See `unistream.port.lineage`."""
        added = {name: frozenset({(DIMENSION, name)}) for name in self._added}
        return same_columns(inputs[FACTS], FACTS) | added

    @property
    def state_tables(self) -> Mapping[str, OwnTable]:
        """The required columns of restored rows, by state; of the facts only if they are known."""
        known = {DIMENSION_STATE: self._schema}
        if self._facts is not None:
            known[WAITING_STATE] = self._facts
        return {
            name: OwnTable(keys=(), columns=tuple(schema.names), types=schema)
            for name, schema in known.items()
        }

    @property
    def state_setting(self) -> str:
        """A description of the dimension's key."""
        return _setting(self._keys)

    def initialize_state(self, state: OperatorState) -> None:
        for item in state.lists.get(KEYS_STATE, []):
            setting = stored_setting(item)
            if setting != self.state_setting:
                raise self._misfit(DIMENSION_STATE, other_setting(setting, self.state_setting))
        self._waiting = WaitingRows(self.context.managed_memory_bytes, self.context.tmp_dir)
        for name in sorted(state.lists):
            if name.partition(".")[0] == WAITING_STATE:
                for item in state.lists[name]:
                    self._waiting.add(self._restored(WAITING_STATE, decode_batch(item)))
        for item in state.lists.get(DIMENSION_STATE, []):
            self._table.add(self._restored(DIMENSION_STATE, decode_batch(item)).records)

    def _restored(self, name: str, rows: Batch) -> Batch:
        wanted = self.state_tables.get(name)
        if wanted is None or wanted.types is None:
            return rows
        change = own_table_migration(rows.records.schema, wanted)
        if isinstance(change, Refused):
            raise self._misfit(name, f"{change.reason}; give it another uid")
        return Batch(converted_records(rows.records, wanted.types), rows.timestamps)

    def _misfit(self, name: str, why: str) -> ConfigError:
        return ConfigError(f"operator {self.context.name!r}: state {name!r}: {why}")

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if input_index == DIMENSION:
            self._table.add(self._conform(batch.records))
            self._stored = None
        elif self._complete:
            self._join(batch)
        else:
            self._check_keys(batch)
            self._waiting.add(batch)

    def process_watermark(self, timestamp: int) -> None:
        self._watermark = timestamp
        self._forward()

    def process_watermark_status(self, idle: bool) -> None:
        self._idle = idle
        self._forward()

    def end_input(self, input_index: int) -> None:
        if input_index == DIMENSION and not self._complete:
            self._complete = True
            for batch in self._waiting.drain():
                self._join(batch)
                self.context.await_room()
            self._forward()

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        if self._stored is None:
            rows = self._table.rows()
            self._stored = (encode_batch(Batch(rows)),) if rows.num_rows else ()
        keys = (msgspec.msgpack.encode(self._keys),)
        lists = {
            KEYS_STATE: ListState(ListMode.BROADCAST, keys),
            DIMENSION_STATE: ListState(ListMode.BROADCAST, self._stored),
        }
        for number, items in enumerate(self._waiting.snapshot()):
            name = f"{WAITING_STATE}.{number:06}" if number else WAITING_STATE
            lists[name] = ListState(ListMode.SPLIT, items)
        return OperatorSnapshot(lists=lists)

    def _forward(self) -> None:
        """Emits the kept watermark and idleness, once the dimension is complete."""
        if not self._complete:
            return
        if self._watermark > self._emitted:
            self._emitted = self._watermark
            self.output.emit_watermark(self._watermark)
        if self._idle != self._emitted_idle:
            self._emitted_idle = self._idle
            self.output.emit_watermark_status(self._idle)

    def _join(self, facts: Batch) -> None:
        matches = self._table.find([self._column(facts, name) for name in self._fact_keys])
        if matches.null_count and self._how is JoinKind.INNER:
            known = matches.is_valid()
            facts, matches = facts.filter(known), matches.filter(known)
        if not facts.num_rows:
            return
        rows, records = self._table.rows(), facts.records
        arrays = [*records.columns, *(rows.column(name).take(matches) for name in self._added)]
        widened = pa.RecordBatch.from_arrays(arrays, names=[*records.schema.names, *self._added])
        self.output.emit(Batch(widened, facts.timestamps))

    def _check_keys(self, facts: Batch) -> None:
        """A fact without the key is an error when it comes, not when it has waited."""
        for name in self._fact_keys:
            self._column(facts, name)

    def _column(self, facts: Batch, name: str) -> pa.Array:
        try:
            return decoded(facts.records.column(name))
        except KeyError:
            have = ", ".join(facts.records.schema.names)
            raise self.user_error(f"there is no join key {name!r} among {have}") from None

    def _conform(self, records: pa.RecordBatch) -> pa.RecordBatch:
        conformed = conform(records, self._schema)
        if conformed is None:
            raise self.user_error(
                f"a dimension row has columns {describe(records.schema)}, wanted {describe(self._schema)}"
            )
        return conformed


def stored_setting(item: bytes) -> str:
    """`state_setting` of the operator that stored `item` under KEYS_STATE. Raises CorruptSnapshot."""
    try:
        return _setting(msgspec.msgpack.decode(item, type=list[str]))
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(f"the keys of state {DIMENSION_STATE!r} cannot be read: {error}") from error


def _setting(keys: Sequence[str]) -> str:
    return f"a dimension by ({', '.join(sorted(keys))})"


class LookupTable:
    """Rows by key; of equal keys the last one added. Equal is what is equal behind `key_by`: Arrow looks for
    bits, of which -0.0 and 0.0 have different ones, and so have two NaN."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._schema = schema
        self._keys = list(keys)
        self._parts: list[pa.RecordBatch] = []
        self._rows: pa.RecordBatch | None = None
        self._index: _KeyIndex | None = None

    def add(self, records: pa.RecordBatch) -> None:
        self._parts.append(canonical_keys(records, self._keys))
        self._rows = self._index = None

    def rows(self) -> pa.RecordBatch:
        """One row for each key."""
        if self._rows is None:
            self._rows = self._distinct()
            self._parts = [self._rows]
        return self._rows

    def find(self, keys: Sequence[pa.Array]) -> pa.Int32Array:
        """Position in `rows()` of every key; null: there is none."""
        if self._index is None:
            self._index = _KeyIndex([decoded(self.rows().column(key)) for key in self._keys])
        names = [str(number) for number in range(len(keys))]
        wanted = canonical_keys(pa.RecordBatch.from_arrays(list(keys), names), names)
        return self._index.find(wanted.columns)

    def _distinct(self) -> pa.RecordBatch:
        table = pa.Table.from_batches(self._parts, schema=self._schema).combine_chunks()
        if not table.num_rows:
            return empty_rows(self._schema)
        keyed = pa.table(
            [*(decoded(table.column(k).combine_chunks()) for k in self._keys), np.arange(table.num_rows)],
            names=[*self._keys, _ROW],
        )
        last = group(keyed, self._keys, [([_ROW], "hash_max", None, _ROW)])
        kept = table.take(np.sort(last.column(_ROW).to_numpy()))
        return kept.combine_chunks().to_batches()[0]


class _KeyIndex:
    """Finds keys by `index_in`. Several columns become one: the positions of the values among the distinct
    values of their columns are digits of one number."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._digits = [pc.unique(column) for column in columns]
        self._set = columns[0] if len(columns) == 1 else self._number(columns)

    def find(self, columns: Sequence[pa.Array]) -> pa.Int32Array:
        wanted = columns[0] if len(columns) == 1 else self._number(columns)
        return pc.index_in(wanted, value_set=self._set.cast(wanted.type), skip_nulls=True)

    def _number(self, columns: Sequence[pa.Array]) -> pa.Int64Array:
        number = pa.scalar(0, pa.int64())
        for column, digits in zip(columns, self._digits, strict=True):
            digit = pc.index_in(column, value_set=digits.cast(column.type), skip_nulls=True)
            number = pc.add(pc.multiply(number, max(1, len(digits))), digit.cast(pa.int64()))
        return number
