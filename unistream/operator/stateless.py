"""Operators without state over whole batches: map, filter, project, split.

Rows keep their event times. The forms per row are in `unistream.operator.common.rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import UserCodeError
from unistream.model.columns.column_names import refused_names
from unistream.model.elements import Batch
from unistream.operator import common
from unistream.port.dead_letters import OnError
from unistream.port.lineage import Origins, same_columns
from unistream.port.projection import UsedColumns, together

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
MaskFunction = Callable[[pa.RecordBatch], pa.BooleanArray]
Predicate: TypeAlias = pc.Expression | MaskFunction

_MASK = "mask"


class MapBatches(common.RowOperator):
    """Calls `function` once per batch.

    Args:
        function: n rows in, m rows out.
        returns: Schema of the result; None: that of the first result, then fixed.
        timestamp_column: The column of the result with the event times. Without it, the function must return
            as many rows as it got: row i of the result gets the time of row i.
        on_error: For all rows of a batch that fails.
        row_wise: The result for a row does not depend on the other rows of its batch, so that parts of a
            batch that fails may be tried again, until the rows that fail are apart.
    """

    def __init__(
        self,
        function: BatchFunction,
        *,
        returns: pa.Schema | None = None,
        timestamp_column: str | None = None,
        on_error: OnError = "fail",
        row_wise: bool = False,
    ) -> None:
        common.check_callable(function, "map_batches")
        self._function = function
        self._returns = returns
        self._timestamp_column = timestamp_column
        self._row_wise = row_wise
        self.errors = common.RowErrors(on_error)

    @property
    def timestamp_column(self) -> str | None:
        """The column with new event times; None: rows keep theirs."""
        return self._timestamp_column

    def process_batch(self, batch: Batch, input_index: int) -> None:
        try:
            made = self._mapped(batch)
        except Exception as error:
            if not self.errors.takes(error):
                self.fail(common.function_name(self._function), error)
            for part in self.apart(batch, error, self._mapped, row_wise=self._row_wise)[1]:
                self.output.emit(part)
            return
        self.output.emit(made)

    def _mapped(self, batch: Batch) -> Batch:
        what, records = common.function_name(self._function), self._function(batch.records)
        if not isinstance(records, pa.RecordBatch):
            raise self.user_error(f"{what} returned {type(records).__name__}, wanted pyarrow.RecordBatch")
        if self._returns is None:
            self._check_names(what, records.schema.names)
            self._returns = records.schema
        fixed = common.conformed(self, f"{what} returned", records, self._returns)
        records = common.owned(fixed, common.addresses([batch.records]))
        return Batch(records, self._timestamps(what, batch, records))

    def _check_names(self, what: str, names: Sequence[str]) -> None:
        why = refused_names(names)
        if why is not None:
            raise self.user_error(f"{what} returned rows with {why};")

    def _timestamps(self, what: str, batch: Batch, records: pa.RecordBatch) -> pa.Int64Array | None:
        if self._timestamp_column is not None:
            return common.timestamps_of(self, records, self._timestamp_column)
        if batch.timestamps is not None and records.num_rows != batch.num_rows:
            raise self.user_error(
                f"{what} returned {records.num_rows} rows for {batch.num_rows}, so their event times are "
                "unknown; name the column that has them (timestamp_column=) or use filter or flat_map"
            )
        return batch.timestamps


class _Masking(common.ForwardsRows):
    """Evaluates a predicate: an expression, or a function from batch to boolean array."""

    def __init__(self, predicate: Predicate, *, on_error: OnError = "fail", row_wise: bool = False) -> None:
        if not isinstance(predicate, pc.Expression):
            common.check_callable(predicate, "a predicate")
        self._predicate = predicate
        self._projection = (
            common.Projection({_MASK: predicate}) if isinstance(predicate, pc.Expression) else None
        )
        self._row_wise = row_wise or self._projection is not None
        self.errors = common.RowErrors(on_error)

    def used_columns(
        self, inputs: Sequence[pa.Schema], wanted: Mapping[str | None, UsedColumns]
    ) -> Sequence[UsedColumns]:
        """See `unistream.port.projection`."""
        if not isinstance(self._predicate, pc.Expression):
            return [None]
        return [self.with_letters(common.expression_columns(self._predicate, inputs[0]), wanted)]

    def masked(self, batch: Batch) -> tuple[Batch, pa.BooleanArray]:
        """The rows for which the predicate can be computed: true, false or null for each of them."""
        try:
            return batch, self._mask(batch)
        except Exception as error:
            if not self.errors.takes(error) or not self._is_computable(batch):
                self.fail(self._what(), error)
            rest, masks = self.apart(batch, error, self._mask, row_wise=self._row_wise)
            return rest, pa.concat_arrays([pa.array([], pa.bool_()), *masks])

    def _mask(self, batch: Batch) -> pa.BooleanArray:
        if self._projection is not None:
            mask = self._projection.evaluate(batch.records)[_MASK]
        else:
            assert not isinstance(self._predicate, pc.Expression)
            mask = self._predicate(batch.records)
        if isinstance(mask, pa.ChunkedArray):
            mask = mask.combine_chunks()
        if not isinstance(mask, pa.BooleanArray) or len(mask) != batch.num_rows:
            raise self.user_error(
                f"{self._what()} must return one boolean for each of the {batch.num_rows} rows, "
                f"not {getattr(mask, 'type', type(mask).__name__)} of length "
                f"{len(mask) if hasattr(mask, '__len__') else '?'}"
            )
        return mask

    def _is_computable(self, batch: Batch) -> bool:
        return self._projection is None or common.computes_anything(self._mask, batch)

    def _what(self) -> str:
        if isinstance(self._predicate, pc.Expression):
            return f"expression {self._predicate}"
        return common.function_name(self._predicate)


class FilterBatches(_Masking):
    """Keeps the rows for which the predicate is true; false and null are dropped."""

    @property
    def selection(self) -> pc.Expression | None:
        """See `unistream.port.projection.SelectsRows`. Rows that are letters or are counted have a trace."""
        found = self._predicate
        return found if isinstance(found, pc.Expression) and self.errors.fails else None

    def process_batch(self, batch: Batch, input_index: int) -> None:
        batch, mask = self.masked(batch)
        kept = mask.true_count
        if kept == batch.num_rows:
            self.output.emit(batch)
        elif kept:
            self.output.emit(batch.filter(mask))


class SideSplit(_Masking):
    """Emits rows for which the predicate is true on the side output `tag`, all others on the main output."""

    def __init__(
        self, tag: str, predicate: Predicate, *, on_error: OnError = "fail", row_wise: bool = False
    ) -> None:
        super().__init__(predicate, on_error=on_error, row_wise=row_wise)
        self._tag = tag

    def process_batch(self, batch: Batch, input_index: int) -> None:
        batch, found = self.masked(batch)
        mask = pc.fill_null(found, fill_value=False)
        matched = mask.true_count
        if matched:
            self.output.emit_side(self._tag, batch if matched == batch.num_rows else batch.filter(mask))
        if matched < batch.num_rows:
            self.output.emit(batch if matched == 0 else batch.filter(pc.invert(mask)))


class Project(common.RowOperator):
    """Selects and computes columns.

    Args:
        columns: Output column -> input column (without a copy) or expression.
        keep: True: all input columns, of which `columns` replaces some, or adds others (with_columns). False:
            only `columns`, in this order (select).
        on_error: For rows for which a column cannot be computed.
    """

    def __init__(
        self, columns: Mapping[str, str | pc.Expression], *, keep: bool, on_error: OnError = "fail"
    ) -> None:
        self._columns = dict(columns)
        self._keep = keep
        computed = {name: c for name, c in self._columns.items() if isinstance(c, pc.Expression)}
        self._projection = common.Projection(computed) if computed else None
        self.errors = common.RowErrors(on_error)

    def column_origins(self, inputs: Sequence[pa.Schema], tag: str | None) -> Origins:
        """See `unistream.port.lineage`."""
        origins = same_columns(inputs[0]) if self._keep else {}
        for name, column in self._columns.items():
            named = {column} if isinstance(column, str) else common.expression_columns(column, inputs[0])
            origins[name] = frozenset((0, one) for one in named)
        return origins

    def used_columns(
        self, inputs: Sequence[pa.Schema], wanted: Mapping[str | None, UsedColumns]
    ) -> Sequence[UsedColumns]:
        """See `unistream.port.projection`. All of `columns` are computed, whether they are used or not."""
        named = [
            frozenset({column}) if isinstance(column, str) else common.expression_columns(column, inputs[0])
            for column in self._columns.values()
        ]
        kept = wanted.get(None, frozenset()) if self._keep else frozenset()
        used = together(*named, None if kept is None else kept - set(self._columns))
        return [None if self.has_letters(wanted) else used]

    def process_batch(self, batch: Batch, input_index: int) -> None:
        try:
            projected = self._projected(batch)
        except (pa.ArrowException, KeyError) as error:
            if not self.errors.takes(error) or not common.computes_anything(self._projected, batch):
                raise self._not_computed(batch, error) from error
            for part in self.apart(batch, error, self._projected)[1]:
                self.output.emit(part)
            return
        self.output.emit(projected)

    def _not_computed(self, batch: Batch, error: Exception) -> UserCodeError:
        """Names the column, and its first row that fails: half of the rows, and half of those, …"""
        columns = {name: c for name, c in self._columns.items() if isinstance(c, pc.Expression)}
        for name, column in columns.items():
            alone = common.Projection({name: column})
            if _fails(alone, batch.records):
                start, stop = 0, batch.num_rows
                while stop - start > 1:
                    middle = (start + stop) // 2
                    in_first = _fails(alone, batch.records.slice(start, middle - start))
                    start, stop = (start, middle) if in_first else (middle, stop)
                row = None if _fails(alone, batch.records.slice(0, 0)) else start
                return self.user_error(f"column {name!r} could not be computed; this", error, row=row)
        return self.user_error("a column could not be computed; this", error)

    def _projected(self, batch: Batch) -> Batch:
        records = batch.records
        computed = self._projection.evaluate(records) if self._projection is not None else {}
        arrays: dict[str, pa.Array] = (
            dict(zip(records.schema.names, records.columns, strict=True)) if self._keep else {}
        )
        for name, column in self._columns.items():
            arrays[name] = records.column(column) if isinstance(column, str) else computed[name]
        return Batch(pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)), batch.timestamps)


def _fails(column: common.Projection, records: pa.RecordBatch) -> bool:
    try:
        column.evaluate(records)
    except pa.ArrowException:
        return True
    return False
