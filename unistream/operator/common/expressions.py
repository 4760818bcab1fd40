"""Evaluates `pyarrow.compute.Expression`s on record batches.

An Acero plan `table_source -> project` takes about 40 microseconds per batch; `Table.filter(expression)` and
dataset scanners take three to nine times as long, as they also copy or re-plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.model.expression import Expression, as_arrow, check_types, readable, why_not
from unistream.operator.common import acero
from unistream.operator.common.base import BaseOperator

_TEXTS: Final = re.compile(r'"(?:[^"\\]|\\.)*"')  # of an expression as it is shown
_NULL: Final = r"null\[[^\]]*\]"
_COMPARED: Final = r" (?:==|!=|<=?|>=?) "
_WITH_NULL: Final = re.compile(rf"{_COMPARED}{_NULL}\)|\({_NULL}{_COMPARED}")


class Projection:
    """Named expressions, evaluated together in one pass over a batch."""

    def __init__(self, expressions: Mapping[str, pc.Expression]) -> None:
        self._names = list(expressions)
        self._expressions = list(expressions.values())
        self._options: Any = None

    def __getstate__(self) -> dict[str, object]:
        return {"_names": self._names, "_expressions": self._expressions, "_options": None}

    def evaluate(self, records: pa.RecordBatch) -> dict[str, pa.Array]:
        """One array of `records.num_rows` values for every expression.

        Raises:
            pa.ArrowException: a value cannot be computed, or a column is missing.
        """
        if self._options is None:
            self._options = acero.engine.ProjectNodeOptions(self._expressions, self._names)
        table = acero.run_plan("project", self._options, pa.Table.from_batches([records]))
        return {name: _one_array(table.column(name)) for name in self._names}


def check_expressions(
    schema: pa.Schema, expressions: Mapping[str, Expression | pc.Expression], what: str
) -> pa.Schema:
    """Types of `expressions` over rows of `schema`.

    Raises:
        ConfigError: an unknown column, or types that do not match; `what` names the operation.
    """
    rows = empty_rows(schema)

    def type_of(arrow: pc.Expression) -> pa.DataType:
        return Projection({"it": arrow}).evaluate(rows)["it"].type

    fields = []
    for name, expression in expressions.items():
        try:
            check_types(expression, type_of)
            kind = type_of(as_arrow(expression))
            _check_for_each_row(as_arrow(expression), schema)
        except (pa.ArrowException, TypeError) as error:
            raise ConfigError(
                f"{what}: {name} = {readable(expression)} cannot be computed: {why_not(error)}; "
                f"columns here: {describe(schema)}"
            ) from None
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def check_comparisons(expression: Expression | pc.Expression, what: str) -> None:
    """Raises ConfigError: something is compared with null, which is null in each row and never true.

    >>> check_comparisons(pc.field("a") == "a == null[null]", "filter")
    >>> check_comparisons(pc.field("a") == pc.scalar(None), "filter")
    Traceback (most recent call last):
    unistream.base.errors.ConfigError: filter: (a == null[null]) is never true: use .is_null() or .is_valid()
    """
    if _WITH_NULL.search(_TEXTS.sub('""', str(as_arrow(expression)))) is not None:
        raise ConfigError(f"{what}: {readable(expression):.200} is never true: use .is_null() or .is_valid()")


def _check_for_each_row(expression: pc.Expression, schema: pa.Schema) -> None:
    """Arrow notices only with rows that a function needs all of them. What null has no value for, such as a
    text that is cast, is no matter of the pipeline."""
    row = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema.names)
    try:
        Projection({"value": expression}).evaluate(row)
    except pa.ArrowException as error:
        if "non-scalar expression" in str(error):
            raise TypeError(
                "it needs all rows, and a column is computed for each row by itself; aggregate in windows, "
                "or use a process function"
            ) from None


def expression_columns(expression: pc.Expression, schema: pa.Schema) -> frozenset[str]:
    """The columns that it reads: those without which it cannot be computed.

    >>> rows = pa.schema([("a", pa.int64()), ("ab", pa.int64()), ("b", pa.int64())])
    >>> sorted(expression_columns(pc.field("ab") + pc.field("b"), rows))
    ['ab', 'b']
    """
    text = str(expression)
    named = [name for name in schema.names if name in text]
    return frozenset(name for name in named if not _can_be_computed(expression, schema, without=name))


def _can_be_computed(expression: pc.Expression, schema: pa.Schema, without: str) -> bool:
    rest = pa.schema([field for field in schema if field.name != without])
    try:
        Projection({"value": expression}).evaluate(empty_rows(rest))
    except (pa.ArrowException, TypeError):
        return False
    return True


def describe(schema: pa.Schema) -> str:
    """``"a int64, b string"``, for messages."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def conform(records: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch | None:
    """`records` with exactly `schema`, without a copy; None if names or types differ. Nullability and
    metadata may vary from batch to batch, the schema of a channel may not."""
    if records.schema.equals(schema, check_metadata=True):
        return records
    if records.schema.names != schema.names or records.schema.types != schema.types:
        return None
    return pa.RecordBatch.from_arrays(records.columns, schema=schema)


def conformed(
    operator: BaseOperator, what: str, records: pa.RecordBatch, schema: pa.Schema
) -> pa.RecordBatch:
    """`records` with exactly `schema`.

    Raises:
        UserCodeError: names or types differ, or a column that is declared not nullable has a null; `what`
            names the function, such as ``"function 'f' returned"``.
    """
    found = conform(records, schema)
    if found is None:
        raise operator.user_error(f"{what} columns ({describe(records.schema)}), wanted ({describe(schema)})")
    for field, column in zip(schema, found.columns, strict=True):
        if not field.nullable and column.null_count:
            row = int(pc.index(column.is_null(), pa.scalar(value=True)).as_py())
            problem = f"{what} null in column {field.name!r}, which is declared not nullable;"
            raise operator.user_error(problem, row=row)
    return found


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """The schema with the value types of dictionaries."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    return pa.schema(list(zip(schema.names, types, strict=True)))


def empty_rows(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of `schema`."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)
