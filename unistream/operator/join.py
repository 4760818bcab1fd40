"""Enriches a stream with rows of a bounded dimension, of which every subtask has all rows.

A fact leaves once for each row of the dimension with its key, as in SQL, or with `latest_by` for the newest
version. So facts wait until the dimension is complete, and the result depends neither on which side is faster
nor on the order in which several channels bring the dimension (`operator.lookup_table`).

The dimension is complete at end_input(1): after its MAX_WATERMARK functions may still emit rows in `finish`.
But that watermark advances the combined one, the minimum over both inputs. (The API accepts only a dimension
without watermarks and idleness; until its end it holds the combined watermark back, so waiting facts are
never late.) Rows that are emitted after a watermark would be late. So the join keeps watermarks and idleness
until the dimension has ended, and emits them after the facts that have waited.

Facts that exceed the operator's managed memory are spilled to a file. If the join did not read facts
meanwhile, it would need no disk, but a barrier waits in the same channel after them; and a source of both
facts and dimension could not continue: neither the checkpoint nor the dimension would ever be complete.

Restored rows may have narrower types than new ones. A dimension of which only some rows of each key are
kept cannot be restored for another key (`model.own_state`); older versions kept one row of each key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIN_WATERMARK
from unistream.model.columns.column_names import refused_names
from unistream.model.elements import Batch
from unistream.model.own_state import OwnTable, converted_records, other_setting, own_table_migration
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot, OperatorState
from unistream.model.state_types import Incompatible
from unistream.operator.common import BaseOperator, conform, describe
from unistream.operator.lookup_table import LookupTable, Positions
from unistream.operator.waiting_rows import TIMESTAMP, WaitingRows, decode_batch, encode_batch
from unistream.port.lineage import Origins, same_columns

FACTS: Final = 0
DIMENSION: Final = 1
WAITING_STATE: Final = "waiting-facts"
DIMENSION_STATE: Final = "dimension"
KEYS_STATE: Final = "dimension-keys"


class JoinKind(Enum):
    INNER = "inner"  # drops facts without a match
    LEFT = "left"  # keeps them, with nulls


class BroadcastLookupJoin(BaseOperator):
    """Input 0: facts. Input 1: dimension rows, broadcast. Output: the columns of a fact, then those of a
    dimension row with its key, without the key; a row for each of them. Null matches nothing, not even null.

    Args:
        on: (fact column, dimension column) pairs.
        dimension: Schema of the dimension's rows.
        facts: Schema of the facts; None: not known.
        latest_by: Only dimension rows with the largest value of this column count, of each key.
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
        latest_by: str | None = None,
    ) -> None:
        self._fact_keys = [fact for fact, _ in on]
        self._keys = [key for _, key in on]
        self._added = [name for name in dimension.names if name not in self._keys]
        self._how = how
        self._schema = dimension
        self._facts = facts
        self._setting = _Setting(keys=self._keys, latest_by=latest_by)
        self._table = LookupTable(dimension, self._keys, latest_by)
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
        """A description of the dimension's key, and of which of its rows count."""
        return self._setting.text

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
        if isinstance(change, Incompatible):
            raise self._misfit(name, f"{change.reason}; give it another uid")
        return Batch(converted_records(rows.records, wanted.types), rows.timestamps)

    def _misfit(self, name: str, why: str) -> ConfigError:
        return ConfigError(f"operator {self.context.name!r}: state {name!r}: {why}")

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if input_index == DIMENSION:
            self._table.add(self._conform(batch.records))
            self._stored = None
            return
        self._check_columns(batch)
        if self._complete:
            self._join(batch)
        else:
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
        keys = (self._setting.encoded,)
        lists = {
            KEYS_STATE: OperatorListState(ListMode.BROADCAST, keys),
            DIMENSION_STATE: OperatorListState(ListMode.BROADCAST, self._stored),
        }
        for number, items in enumerate(self._waiting.snapshot()):
            name = f"{WAITING_STATE}.{number:06}" if number else WAITING_STATE
            lists[name] = OperatorListState(ListMode.SPLIT, items)
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
        keys = [self._column(facts, name) for name in self._fact_keys]
        rows, emitted = self._table.rows(), False
        try:
            for positions, matches in self._table.matches(keys, outer=self._how is JoinKind.LEFT):
                if emitted:
                    self.context.await_room()
                emitted = True
                self._emit(facts, positions, rows, matches)
        except TypeError as error:
            pairs = ", ".join(
                f"{fact!r} and {key!r}" for fact, key in zip(self._fact_keys, self._keys, strict=True)
            )
            raise self.user_error(f"keys of the join, {pairs}: {error}; cast one before the join") from error

    def _emit(self, facts: Batch, positions: Positions, rows: pa.RecordBatch, matches: pa.Array) -> None:
        """Pairs of a fact and a row."""
        every = len(positions) == facts.num_rows and bool((positions[1:] != positions[:-1]).all())
        chosen = facts if every else facts.take(pa.array(positions))
        records = chosen.records
        arrays = [*records.columns, *(rows.column(name).take(matches) for name in self._added)]
        widened = pa.RecordBatch.from_arrays(arrays, names=[*records.schema.names, *self._added])
        self.output.emit(Batch(widened, chosen.timestamps))

    def _check_columns(self, facts: Batch) -> None:
        """A fact without the key, or with a column of the dimension, is an error when it comes, not when it
        has waited. Where the columns of facts were known, the API has checked the latter."""
        for name in self._fact_keys:
            self._column(facts, name)
        if self._facts is not None:
            return
        names = facts.records.schema.names
        own = [TIMESTAMP] if TIMESTAMP in names else []  # waiting facts have their time in it
        why = refused_names([*names, *self._added, *own])
        if why is not None:
            raise self.user_error(f"a fact and its dimension row have {why} before the join;")

    def _column(self, facts: Batch, name: str) -> pa.Array:
        try:
            return facts.records.column(name)
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


class _Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The setting on which the meaning of stored dimension rows depends."""

    keys: Sequence[str]
    latest_by: str | None = None

    @property
    def text(self) -> str:
        version = "" if self.latest_by is None else f", the latest by {self.latest_by}"
        return f"a dimension by ({', '.join(sorted(self.keys))}){version}"

    @property
    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self.keys if self.latest_by is None else self)


def stored_setting(item: bytes) -> str:
    """`state_setting` of the operator that stored `item` under KEYS_STATE. Raises CorruptSnapshot."""
    try:
        stored = msgspec.msgpack.decode(item, type=list[str] | _Setting)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"the keys of state {DIMENSION_STATE!r} cannot be read: {error}") from error
    return (stored if isinstance(stored, _Setting) else _Setting(keys=stored)).text
