"""Aggregates that decompose: rows -> partials -> merged partials -> result.

A partial is a row of key columns and partial columns. Partial columns have descriptive names
(``sum(delay)``), for readers of a savepoint, and are shared between aggregates: `sum(delay)` and
`mean(delay)` need `sum(delay)` once. Nulls are ignored as in SQL: the sum, mean, min and max of nothing is
null, the count of nothing is 0.

Partial sums of integers and decimals are exact (`window.exact`), so results do not depend on what was summed
with what: a mean is that of the true sum, and a sum that does not fit its type is refused, however far it was
merged before. NaN is the largest float. Of -0.0 and 0.0 both min and max are 0.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.model.columns.column_names import refused_keys
from unistream.model.no_value import NoValue
from unistream.operator.window.exact import Spec, as_floats, exact_groups, fitting, rule_type
from unistream.port.sorting import Starts

ROW_COUNT = "count(*)"
"""Partial column (int64) of every plan: the number of rows of a partial."""

RUN = "__run"
"""Column (int64): number of the run of equal keys."""

_NULL_IF_EMPTY = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
_VALID = pc.CountOptions(mode="only_valid")


class Kind(Enum):
    COUNT = "count"
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Aggregate(NoValue):
    """An aggregate of one column; `column` is None only for the count of rows. It has a value behind its
    windows alone, so that nothing is computed of it."""

    kind: Kind
    column: str | None = None

    def __post_init__(self) -> None:
        wanted = isinstance(self.column, str) or (self.column is None and self.kind is Kind.COUNT)
        if not wanted:
            raise ConfigError(
                f"{self.kind.value} takes the name of a column, not {self.column!s:.200}; what is computed "
                "needs a name first: with_columns(name=…)"
            )

    def __str__(self) -> str:
        return f"{self.kind.value}({'*' if self.column is None else self.column})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Aggregate):
            return (self.kind, self.column) == (other.kind, other.column)
        raise ConfigError(f"({self} == {other!r:.200}): {self.why_no_value('__eq__')}")

    def __hash__(self) -> int:
        return hash((self.kind, self.column))

    def __bool__(self) -> bool:
        raise ConfigError(f"{self} as true or false: {self.why_no_value('__bool__')}")

    def why_no_value(self, operator: str) -> str:
        """See `unistream.model.no_value`."""
        return (
            "an aggregate is a column behind windows: name it there and go on with the name, "
            f"….aggregate(n=us.{self if self.column is None else f'{self.kind.value}({self.column!r})'})"
            ".filter(us.col('n') > 3).with_columns(double=us.col('n') * 2)"
        )


def count(column: str | None = None) -> Aggregate:
    """Number of rows, or of those where `column` is not null; int64.

    >>> str(count()), str(count("delay"))
    ('count(*)', 'count(delay)')
    """
    return Aggregate(Kind.COUNT, column)


def sum(column: str) -> Aggregate:
    """Sum of `column`: int64 of integers, uint64 of unsigned ones and booleans, decimal128(38, scale) of
    decimals, float64 of floats. A sum that does not fit fails the job, with the window and its key; cast the
    column to decimal128(38, 0) for sums of 38 digits."""
    return Aggregate(Kind.SUM, column)


def mean(column: str) -> Aggregate:
    """Arithmetic mean of `column`; float64. The sum of integers or decimals is exact, whatever its size."""
    return Aggregate(Kind.MEAN, column)


def min(column: str) -> Aggregate:
    """Smallest value of `column`, in its type; NaN only where there is nothing else."""
    return Aggregate(Kind.MIN, column)


def max(column: str) -> Aggregate:
    """Largest value of `column`, in its type. NaN is the largest, as in SQL."""
    return Aggregate(Kind.MAX, column)


@dataclass(frozen=True, slots=True)
class _Partial:
    """One partial column: `function` over `column` makes it, `merge` over itself merges it."""

    name: str
    function: str
    column: str | None
    merge: str


def _partials(aggregate: Aggregate) -> tuple[_Partial, ...]:
    column = aggregate.column
    match aggregate.kind:
        case Kind.COUNT if column is None:
            return (_Partial(ROW_COUNT, "count_all", None, "sum"),)
        case Kind.COUNT:
            return (_Partial(f"count({column})", "count", column, "sum"),)
        case Kind.SUM:
            return (_Partial(f"sum({column})", "sum", column, "sum"),)
        case Kind.MEAN:
            return (
                _Partial(f"sum({column})", "sum", column, "sum"),
                _Partial(f"count({column})", "count", column, "sum"),
            )
        case Kind.MIN | Kind.MAX:
            name = aggregate.kind.value
            return (_Partial(f"{name}({column})", name, column, name),)


class SumLeavesType(Exception):
    """A sum that does not fit the type of its column.

    Attributes:
        row: Of the result.
    """

    def __init__(self, what: str, total: Decimal, kind: pa.DataType, row: int) -> None:
        super().__init__(what)
        self.what = what
        self.total = total
        self.kind = kind
        self.row = row

    @property
    def wider(self) -> pa.DataType:
        """A type whose sums hold more."""
        if pa.types.is_decimal(self.kind):
            return pa.decimal256(76, self.kind.scale)
        return pa.decimal128(38, 0)


class AggregatePlan:
    """How rows with `keys` become the columns of `aggregates` (output name -> aggregate).

    Raises:
        ConfigError: there are no aggregates, or two columns would have one name, or one of ours.
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        if not aggregates:
            raise ConfigError("aggregate needs at least one aggregate, such as count=us.count()")
        for name in aggregates:
            if name in keys:
                raise ConfigError(f"the aggregate {name!r} has the name of a key column; rename it")
        why = refused_keys([*keys, *aggregates])
        if why is not None:
            raise ConfigError(f"the result of the window would have {why}")
        self.keys = list(keys)
        self.aggregates = dict(aggregates)
        found = {ROW_COUNT: _partials(count())[0]}
        for aggregate in aggregates.values():
            found.update({partial.name: partial for partial in _partials(aggregate)})
        for name in keys:
            if name in found:
                raise ConfigError(
                    f"the key column {name!r} has the name of what windows keep for {name}; rename it before "
                    f"key_by: select(…, other_name={name!r})"
                )
        self._partials = list(found.values())
        self.partial_columns = [*self.keys, *found]
        self.sums = frozenset(partial.name for partial in self._partials if partial.function == "sum")
        self._grouping: tuple[list[Spec], list[Spec]] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_grouping": None}

    @property
    def input_columns(self) -> list[str]:
        """The columns that the plan reads, keys first."""
        return list(dict.fromkeys([*self.keys, *(p.column for p in self._partials if p.column is not None)]))

    def check(self, schema: pa.Schema) -> pa.Schema:
        """Schema of the result (keys and aggregates) over rows of `schema`.

        Raises:
            ConfigError: a column is missing, or the aggregate does not support its type.
        """
        names = ", ".join(schema.names)
        reads = [(f"aggregate {n}={a}", a.column) for n, a in self.aggregates.items() if a.column is not None]
        for what, column in [*(("key", k) for k in self.keys), *reads]:
            if column not in schema.names:
                raise ConfigError(f"{what}: there is no column {column!r} among {names}")
        empty = pa.Table.from_batches([], schema=_decoded(schema))
        for name, aggregate in self.aggregates.items():
            try:
                AggregatePlan(self.keys, {name: aggregate}).partial(empty)
            except pa.ArrowException:
                of = schema.names[0] if aggregate.column is None else aggregate.column
                column_type = schema.field(of).type
                raise ConfigError(
                    f"aggregate {name}={aggregate}: cannot take the {aggregate.kind.value} of a column "
                    f"of type {column_type}"
                ) from None
        return self.final(self.partial(empty)).schema

    def partial_schema(self, schema: pa.Schema) -> pa.Schema:
        """Names and types of the partial columns over rows of `schema`, which `check` has accepted."""
        partials = self.partial(pa.Table.from_batches([], schema=_decoded(schema))).schema
        return pa.schema([(field.name, field.type) for field in partials])

    def partial(self, rows: pa.Table, extra_keys: Sequence[str] = ()) -> pa.Table:
        """One partial per distinct key (and value of `extra_keys`); any order."""
        found = exact_groups(rows, [*self.keys, *extra_keys], self._specs()[0])
        return found.select([*self.partial_columns, *extra_keys])

    def merge(self, partials: pa.Table, extra_keys: Sequence[str] = ()) -> pa.Table:
        """Partials with equal keys become one."""
        found = exact_groups(partials, [*self.keys, *extra_keys], self._specs()[1], self.sums)
        return found.select([*self.partial_columns, *extra_keys])

    def has_wide_sums(self, partials: pa.Table) -> bool:
        """A sum does not fit its type as a rule (`window.exact`)."""
        return any(rule_type(partials.schema.field(name).type) is not None for name in self.sums)

    def merge_runs(self, partials: pa.Table, starts: Starts, extra_keys: Sequence[str] = ()) -> pa.Table:
        """Merges partials as `merge`, where they are in the order of their keys, which stays. `starts`: of
        each key (and value of `extra_keys`); the first is 0."""
        if len(starts) == partials.num_rows:
            return partials
        sizes = np.diff(starts, append=partials.num_rows)
        numbered = partials.append_column(RUN, pa.array(np.repeat(np.arange(len(starts)), sizes)))
        merged = exact_groups(numbered, [RUN], self._specs()[1], self.sums)
        order = np.empty(len(starts), np.int64)
        order[merged.column(RUN).to_numpy()] = np.arange(len(starts))
        found = merged.take(pa.array(order))
        keys = partials.select([*self.keys, *extra_keys]).take(pa.array(starts))
        for name in keys.column_names:
            found = found.append_column(name, keys.column(name))
        return found.select([*self.partial_columns, *extra_keys])

    def lift(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Every row as a partial, without grouping: the result of `partial` if all keys differ."""
        arrays = [decoded(rows.column(key)) for key in self.keys]
        for part in self._partials:
            if part.column is None:
                arrays.append(pa.array(np.ones(rows.num_rows, dtype=np.int64)))
            else:
                arrays.append(_lift(part.function, rows.column(part.column)))
        return pa.RecordBatch.from_arrays(arrays, names=self.partial_columns)

    def final(self, partials: pa.Table) -> pa.Table:
        """Keys and results of merged partials, in their order. Raises SumLeavesType."""
        columns = {key: partials.column(key) for key in self.keys}
        for name, aggregate in self.aggregates.items():
            parts = [partials.column(part.name) for part in _partials(aggregate)]
            columns[name] = _result(f"{name}={aggregate}", aggregate.kind, *parts)
        return pa.table(columns)

    def _specs(self) -> tuple[list[Spec], list[Spec]]:
        if self._grouping is None:
            self._grouping = (
                [_spec(p.column, p.function, p.name) for p in self._partials],
                [_spec(p.name, p.merge, p.name) for p in self._partials],
            )
        return self._grouping


def decoded(column: pa.Array) -> pa.Array:
    """Decodes a dictionary column; groups of several batches would need one dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _decoded(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    )


def _spec(column: str | None, function: str, name: str) -> Spec:
    options = {"sum": _NULL_IF_EMPTY, "min": _NULL_IF_EMPTY, "max": _NULL_IF_EMPTY, "count": _VALID}
    return Spec([] if column is None else [column], f"hash_{function}", options.get(function), name)


def _lift(function: str, column: pa.Array) -> pa.Array:
    column = decoded(column)
    if function == "count":
        return column.is_valid().cast(pa.int64())
    if function == "sum":
        return column.cast(pc.sum(pa.array([], column.type)).type)
    return column


def _result(what: str, kind: Kind, part: pa.ChunkedArray, *more: pa.ChunkedArray) -> pa.ChunkedArray:
    match kind:
        case Kind.MEAN:
            return _quotient(part, *more)
        case Kind.SUM:
            return _fitting(what, part)
        case Kind.MIN | Kind.MAX if pa.types.is_float32(part.type) or pa.types.is_float64(part.type):
            return pc.add(part, pa.scalar(0.0, part.type))  # -0.0 becomes 0.0
    return part


def _fitting(what: str, sums: pa.ChunkedArray) -> pa.ChunkedArray:
    found = fitting(sums)
    if found.null_count > sums.null_count:
        lost = pc.and_(found.is_null(), sums.is_valid())
        row = pc.index(lost, pa.scalar(value=True)).as_py()
        raise SumLeavesType(what, sums[row].as_py(), found.type, row)
    return found


def _quotient(total: pa.ChunkedArray, number: pa.ChunkedArray) -> pa.ChunkedArray:
    counted = pc.if_else(pc.greater(number, 0), number, pa.scalar(None, pa.int64()))
    return pc.divide(as_floats(total), counted.cast(pa.float64()))
