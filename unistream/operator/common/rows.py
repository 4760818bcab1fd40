"""map, filter, flat_map and key_by with a function per row (a dict).

The result's schema is `returns`, or inferred from the first rows and then fixed. A failure names the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import GeneratorType
from typing import Any

import pyarrow as pa

from unistream.base.bisection import bisected
from unistream.base.errors import UserCodeError
from unistream.model.columns.column_forms import ColumnForm, ValueRefused
from unistream.model.columns.column_values import row_values
from unistream.model.elements import Batch
from unistream.operator.common.base import function_name
from unistream.operator.common.functions import check_callable
from unistream.operator.common.row_errors import RowErrors
from unistream.operator.common.row_operator import ForwardsRows, RowOperator
from unistream.operator.common.row_schema import CurrentRow, Row, RowSchema
from unistream.port.dead_letters import OnError

MapFunction = Callable[[Row], Mapping[str, Any]]
FlatMapFunction = Callable[[Row], Iterable[Mapping[str, Any]]]
FilterFunction = Callable[[Row], bool]


class MapRows(RowOperator):
    """One dict in, one dict out."""

    def __init__(
        self, function: MapFunction, *, returns: pa.Schema | None = None, on_error: OnError = "fail"
    ) -> None:
        check_callable(function, "map")
        self._function = function
        self._rows = RowSchema(returns)
        self.errors = RowErrors(on_error)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, results = self._function, self._rows.taken()
        take, rows, failed = results.take, row_values(batch.records), dict[int, BaseException]()
        while True:
            try:
                for row in rows:
                    take(function(row))
                break
            except Exception as error:  # the iterator goes on behind the row
                self.refuse_row(failed, function, error, len(results) + len(failed), rows)
        parents = self.send_failed(batch, failed)
        self.emit_built(self._rows, f"{function_name(function)} returned", results, parents, batch)


class FlatMapRows(RowOperator):
    """One dict in, any number of dicts out, with the event time of their parent."""

    def __init__(
        self, function: FlatMapFunction, *, returns: pa.Schema | None = None, on_error: OnError = "fail"
    ) -> None:
        check_callable(function, "flat_map", may_yield=True)
        self._function = function
        self._rows = RowSchema(returns)
        self.errors = RowErrors(on_error)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, place = self._function, CurrentRow()
        results = self._rows.taken(place)
        values = row_values(batch.records)
        take, rows, failed = results.take, enumerate(values), dict[int, BaseException]()
        while True:
            try:
                for place.position, row in rows:
                    made = function(row)
                    if type(made) is not list and type(made) is not GeneratorType:
                        _check_rows(made)
                    for one in made:
                        take(one)
                break
            except Exception as error:
                self.refuse_row(failed, function, error, place.position, values)
                results.take_back(place.position)
        self.send_failed(batch, failed)
        self.emit_built(self._rows, f"{function_name(function)} returned", results, results.parents, batch)


def _check_rows(made: object) -> None:
    """Raises TypeError for anything but rows, also for one row instead of a list."""
    if made is None or isinstance(made, Mapping | str | bytes) or not isinstance(made, Iterable):
        raise TypeError(
            f"it returned {made!r:.200}, wanted rows: a list of dicts, or yield each of them; [] for none"
        )


class FilterRows(ForwardsRows):
    """Keeps the rows for which the function is true."""

    def __init__(self, function: FilterFunction, *, on_error: OnError = "fail") -> None:
        check_callable(function, "filter")
        self._function = function
        self.errors = RowErrors(on_error)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, mask = self._function, list[bool]()
        rows, failed = row_values(batch.records), dict[int, BaseException]()
        while True:
            try:
                for row in rows:
                    mask.append(bool(function(row)))
                break
            except Exception as error:
                self.refuse_row(failed, function, error, len(mask), rows)
                mask.append(False)
        self.send_failed(batch, failed)
        if any(mask):
            self.output.emit(batch.filter(pa.array(mask, pa.bool_())))


class KeyRows(ForwardsRows):
    """Appends the column `name` of type `data_type`: the function's result for each row."""

    def __init__(
        self,
        function: Callable[[Row], Any],
        name: str,
        data_type: pa.DataType,
        *,
        on_error: OnError = "fail",
    ) -> None:
        check_callable(function, "key_by")
        self._function = function
        self._name = name
        self._type = data_type
        self._form: ColumnForm | None = None
        self.errors = RowErrors(on_error)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, keys = self._function, list[Any]()
        rows, failed = row_values(batch.records), dict[int, BaseException]()
        while True:
            try:
                for row in rows:
                    keys.append(function(row))
                break
            except Exception as error:
                self.refuse_row(failed, function, error, len(keys) + len(failed), rows)
        parents = self.send_failed(batch, failed)
        if parents is not None:
            batch = batch.take(pa.array(parents, pa.int64()))
        form = self._form = self._form or ColumnForm(self._type)
        try:
            column = form.column(keys)
        except ValueRefused as refused:
            if self.errors.fails:
                raise self.user_error(self._no_key(refused), row=refused.position) from refused
            _, bad = bisected(len(keys), lambda i, j: form.column(keys[i:j]), lambda _: True)
            failures = {row: UserCodeError(self._no_key(error)) for row, error in bad.items()}
            fitting = pa.array(self.send_failed(batch, failures, parents), pa.int64())
            batch, column = batch.take(fitting), form.column([keys[row] for row in fitting.to_pylist()])
        if batch.num_rows:
            if self._name in batch.records.schema.names:
                raise self.user_error(
                    f"rows have a column {self._name!r} already, which key_by with a function adds; rename it"
                )
            records = batch.records.append_column(pa.field(self._name, self._type), column)
            self.output.emit(Batch(records, batch.timestamps))

    def _no_key(self, refused: BaseException) -> str:
        name = function_name(self._function)
        return f"{name} returned a key that {self._type}, its type, cannot hold: {refused};"
