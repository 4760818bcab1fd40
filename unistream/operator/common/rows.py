"""map, filter, flat_map and key_by with a function per row (a dict).

The result's schema is `returns`, or inferred from the first rows and then fixed. A failure names the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import GeneratorType
from typing import Any

import numpy as np
import pyarrow as pa

from unistream.model.column_forms import ColumnForm, ValueRefused
from unistream.model.column_values import row_values
from unistream.model.elements import Batch
from unistream.operator.common.base import BaseOperator, ForwardsColumns, function_name
from unistream.operator.common.functions import check_callable
from unistream.operator.common.row_schema import Place, Row, RowSchema

MapFunction = Callable[[Row], Mapping[str, Any]]
FlatMapFunction = Callable[[Row], Iterable[Mapping[str, Any]]]
FilterFunction = Callable[[Row], bool]


class MapRows(BaseOperator):
    """One dict in, one dict out."""

    def __init__(self, function: MapFunction, *, returns: pa.Schema | None = None) -> None:
        check_callable(function, "map")
        self._function = function
        self._rows = RowSchema(returns)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, results, what = self._function, self._rows.taken(), function_name(self._function)
        take = results.take
        try:
            for row in row_values(batch.records):
                take(function(row))
        except Exception as error:
            raise self.user_error(what, error, len(results)) from error
        records = self._rows.build(self, f"{what} returned", results, None)
        self.output.emit(Batch(records, batch.timestamps))


class FlatMapRows(BaseOperator):
    """One dict in, any number of dicts out, with the event time of their parent."""

    def __init__(self, function: FlatMapFunction, *, returns: pa.Schema | None = None) -> None:
        check_callable(function, "flat_map", may_yield=True)
        self._function = function
        self._rows = RowSchema(returns)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, what = self._function, function_name(self._function)
        place = Place()
        results = self._rows.taken(place)
        take = results.take
        try:
            for place.position, row in enumerate(row_values(batch.records)):
                made = function(row)
                if type(made) is not list and type(made) is not GeneratorType:
                    _check_rows(made)
                for one in made:
                    take(one)
        except Exception as error:
            raise self.user_error(what, error, place.position) from error
        if not results:
            return
        records = self._rows.build(self, f"{what} returned", results, results.parents)
        timestamps = batch.timestamps
        if timestamps is not None:
            timestamps = timestamps.take(pa.array(np.asarray(results.parents, dtype=np.int64)))
        self.output.emit(Batch(records, timestamps))


def _check_rows(made: object) -> None:
    """Raises TypeError for anything but rows, also for one row instead of a list."""
    if made is None or isinstance(made, Mapping | str | bytes) or not isinstance(made, Iterable):
        raise TypeError(
            f"it returned {made!r:.200}, wanted rows: a list of dicts, or yield each of them; [] for none"
        )


class FilterRows(ForwardsColumns):
    """Keeps the rows for which the function is true."""

    def __init__(self, function: FilterFunction) -> None:
        check_callable(function, "filter")
        self._function = function

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, what = self._function, function_name(self._function)
        mask: list[bool] = []
        try:
            for row in row_values(batch.records):
                mask.append(bool(function(row)))
        except Exception as error:
            raise self.user_error(what, error, len(mask)) from error
        if any(mask):
            self.output.emit(batch.filter(pa.array(mask, pa.bool_())))


class KeyRows(ForwardsColumns):
    """Appends the column `name` of type `data_type`: the function's result for each row."""

    def __init__(self, function: Callable[[Row], Any], name: str, data_type: pa.DataType) -> None:
        check_callable(function, "key_by")
        self._function = function
        self._name = name
        self._type = data_type
        self._form: ColumnForm | None = None

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, what = self._function, function_name(self._function)
        keys: list[Any] = []
        try:
            for row in row_values(batch.records):
                keys.append(function(row))
        except Exception as error:
            raise self.user_error(what, error, len(keys)) from error
        if self._form is None:
            self._form = ColumnForm(self._type)
        try:
            column = self._form.column(keys)
        except ValueRefused as refused:
            raise self.user_error(
                f"{what} returned a key that {self._type}, its type, cannot hold: {refused.reason};",
                row=refused.position,
            ) from refused
        records = batch.records.append_column(pa.field(self._name, self._type), column)
        self.output.emit(Batch(records, batch.timestamps))
