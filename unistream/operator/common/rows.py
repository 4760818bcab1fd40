"""Per-record forms of map, filter and flat_map: rows as dicts, in a loop over the user's function.

The result's schema is `returns`, or inferred from the first rows and then fixed, so that consumers
see one schema. A failure names the exact row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from unistream.model.column_values import row_values
from unistream.model.elements import Batch
from unistream.operator.common.base import BaseOperator, function_name
from unistream.operator.common.expressions import describe
from unistream.operator.common.functions import check_callable

Row = dict[str, Any]
MapFunction = Callable[[Row], Mapping[str, Any]]
FlatMapFunction = Callable[[Row], Iterable[Mapping[str, Any]]]
FilterFunction = Callable[[Row], bool]


class RowSchema:
    """Builds record batches from dicts of one schema.

    A row must have exactly the columns of the schema; None stands for null.
    """

    def __init__(self, schema: pa.Schema | None) -> None:
        self.schema = schema

    def build(
        self, operator: BaseOperator, what: str, rows: list[Mapping[str, Any]], parents: list[int] | None
    ) -> pa.RecordBatch:
        """A batch of `rows`; `parents[i]` is the input row that row i comes from (None: the same).

        Raises:
            UserCodeError: a row does not fit, named by the position of its parent.
        """
        if self.schema is None:
            self.schema = self._infer(operator, what, rows)
        built = _build_columns(rows, self.schema)
        if built is not None:
            return built
        wanted = set(self.schema.names)
        for position, row in enumerate(rows):
            if not isinstance(row, Mapping) or row.keys() != wanted:
                got = ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
                raise operator.user_error(
                    f"{what} returned columns ({got}), wanted ({', '.join(self.schema.names)})",
                    None,
                    position if parents is None else parents[position],
                )
        try:
            return pa.RecordBatch.from_pylist(rows, schema=self.schema)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            position = _first_misfit(rows, self.schema)
            raise operator.user_error(
                f"{what} returned a value that is not of the type of its column ({describe(self.schema)}; "
                "give returns= to set the types); building the batch",
                error,
                position if parents is None else parents[position],
            ) from error

    @staticmethod
    def _infer(operator: BaseOperator, what: str, rows: list[Mapping[str, Any]]) -> pa.Schema:
        first = rows[0]
        if not isinstance(first, Mapping) or not first:
            raise operator.user_error(f"{what} returned {first!r}, wanted a dict of columns", None, 0)
        fields = []
        for name in first:
            values = [row.get(name) for row in rows if isinstance(row, Mapping)]
            try:
                fields.append(pa.field(name, _infer_type(values)))
            except (pa.ArrowException, TypeError, OverflowError) as error:
                problem = f"{what} returned a value for column {name!r} that has no Arrow type; it"
                raise operator.user_error(problem, error, 0) from error
        return pa.schema(fields)


class MapRows(BaseOperator):
    """One dict in, one dict out."""

    def __init__(self, function: MapFunction, *, returns: pa.Schema | None = None) -> None:
        check_callable(function, "map")
        self._function = function
        self._rows = RowSchema(returns)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, what = self._function, function_name(self._function)
        results: list[Mapping[str, Any]] = []
        try:
            for row in row_values(batch.records):
                results.append(function(row))
        except Exception as error:
            raise self.user_error(what, error, len(results)) from error
        self.output.emit(Batch(self._rows.build(self, what, results, None), batch.timestamps))


class FlatMapRows(BaseOperator):
    """One dict in, any number of dicts out; each takes its parent's event time."""

    def __init__(self, function: FlatMapFunction, *, returns: pa.Schema | None = None) -> None:
        check_callable(function, "flat_map", may_yield=True)
        self._function = function
        self._rows = RowSchema(returns)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, what = self._function, function_name(self._function)
        results: list[Mapping[str, Any]] = []
        parents: list[int] = []
        position = 0
        try:
            for position, row in enumerate(row_values(batch.records)):
                before = len(results)
                results.extend(function(row))
                parents.extend([position] * (len(results) - before))
        except Exception as error:
            raise self.user_error(what, error, position) from error
        if not results:
            return
        records = self._rows.build(self, what, results, parents)
        timestamps = batch.timestamps
        if timestamps is not None:
            timestamps = timestamps.take(pa.array(np.asarray(parents, dtype=np.int64)))
        self.output.emit(Batch(records, timestamps))


class FilterRows(BaseOperator):
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


def _build_columns(rows: list[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch | None:
    """A batch of plain dicts that all fit; None: look at them one by one."""
    if set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(schema)}:
        return None
    try:
        arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, KeyError, TypeError, OverflowError):
        return None  # whoever builds it row by row finds the row that does not fit


def _infer_type(values: list[Any]) -> pa.DataType:
    try:
        return pa.array(values).type
    except (pa.ArrowException, TypeError, OverflowError):
        return pa.array(values[:1]).type  # the batch is then refused at the row that differs


def _first_misfit(rows: list[Mapping[str, Any]], schema: pa.Schema) -> int:
    for position, row in enumerate(rows):
        try:
            pa.RecordBatch.from_pylist([row], schema=schema)
        except (pa.ArrowException, TypeError, OverflowError):
            return position
    return 0


class KeyRows(BaseOperator):
    """Appends the column `name`: what the function gives for each row, as `data_type`."""

    def __init__(self, function: Callable[[Row], Any], name: str, data_type: pa.DataType) -> None:
        check_callable(function, "key_by")
        self._function = function
        self._name = name
        self._type = data_type

    def process_batch(self, batch: Batch, input_index: int) -> None:
        function, what = self._function, function_name(self._function)
        keys: list[Any] = []
        try:
            for row in row_values(batch.records):
                key = function(row)
                pa.scalar(key, self._type)
                keys.append(key)
        except Exception as error:
            raise self.user_error(what, error, len(keys)) from error
        column = pa.array(keys, self._type)
        records = batch.records.append_column(pa.field(self._name, self._type), column)
        self.output.emit(Batch(records, batch.timestamps))
