"""Checks of a join before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from unistream.api.graph import check_columns
from unistream.base.errors import ConfigError
from unistream.model.columns.key_codes import KeyIndex, meet
from unistream.operator.lookup_table import version_ranks
from unistream.operator.waiting_rows import TIMESTAMP

_UNITS: Final = ("s", "ms", "us", "ns")


def join_schema(
    facts: pa.Schema | None,
    dimension: pa.Schema | None,
    on: Sequence[tuple[str, str]],
    latest_by: str | None = None,
) -> tuple[pa.Schema | None, pa.Schema]:
    """Schema of the result (None if that of the facts is unknown), and of the dimension.

    Raises:
        ConfigError: the dimension's columns are unknown, a key is missing, of another type, or of one that is
            no key, both sides have a column of the same name, or the versions have no order.
    """
    if not on:
        raise ConfigError("join: on= needs at least one key column")
    if dimension is None:
        raise ConfigError(
            "join: the columns of the dimension are not known; pass returns= to the function before it"
        )
    check_columns(dimension, [key for _, key in on], "join, dimension")
    _check_dimension(dimension, [key for _, key in on], latest_by)
    if facts is None:
        return None, dimension
    check_columns(facts, [key for key, _ in on], "join")
    for left, right in on:
        fact_type, dimension_type = _plain(facts.field(left).type), _plain(dimension.field(right).type)
        if not meet(fact_type, dimension_type):
            raise ConfigError(
                f"join: key {left!r} is {fact_type}, that of the dimension, {right!r}, is {dimension_type}, "
                "and values of different types are never equal; cast one before the join: "
                f"{_cast_of(left, right, fact_type, dimension_type)}"
            )
    if TIMESTAMP in facts.names:
        raise ConfigError(
            f"join: a column {TIMESTAMP!r} is in the way of the time of waiting rows; rename it"
        )
    keys = {key for _, key in on}
    added = [field for field in dimension if field.name not in keys]
    for field in added:
        if field.name in facts.names:
            raise ConfigError(
                f"join: both sides have a column {field.name!r}; rename one with select(...) before the join"
            )
    return pa.schema([(f.name, f.type) for f in [*facts, *added]]), dimension


def _check_dimension(dimension: pa.Schema, keys: Sequence[str], latest_by: str | None) -> None:
    for key in keys:
        try:
            KeyIndex([pa.array([], dimension.field(key).type)])
        except (TypeError, pa.ArrowNotImplementedError):
            raise ConfigError(
                f"join: key {key!r} of the dimension is {dimension.field(key).type}, which cannot be a key; "
                "cast it to a number or a string"
            ) from None
    if latest_by is None:
        return
    check_columns(dimension, [latest_by], "join, latest_by")
    try:
        version_ranks(pa.array([], dimension.field(latest_by).type))
    except pa.ArrowNotImplementedError:
        raise ConfigError(
            f"join: latest_by={latest_by!r} is {dimension.field(latest_by).type}, which has no order; "
            "cast it to a number, a time or a string"
        ) from None


def _cast_of(left: str, right: str, fact: pa.DataType, dimension: pa.DataType) -> str:
    """How, as Python; of two timestamps the coarser one is cast, which loses nothing."""
    name, side, kind = right, "dimension", fact
    if pa.types.is_timestamp(fact) and pa.types.is_timestamp(dimension):
        if (fact.tz is None) != (dimension.tz is None):
            zone = "; a time without a time zone is then taken as UTC"
            if fact.tz is None:
                return f"stream{_cast(left, pa.timestamp(fact.unit, dimension.tz))}{zone}"
            return f"dimension{_cast(right, fact)}{zone}"
        if _UNITS.index(dimension.unit) > _UNITS.index(fact.unit):
            name, side, kind = left, "stream", dimension
    return f"{side}{_cast(name, kind)}"


def _cast(column: str, kind: pa.DataType) -> str:
    made = repr(str(kind))
    if pa.types.is_timestamp(kind):
        made = (
            f"pa.timestamp({kind.unit!r})" if kind.tz is None else f"pa.timestamp({kind.unit!r}, {kind.tz!r})"
        )
    return f".with_columns({column}=us.col({column!r}).cast({made}))"


def _plain(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type
