"""Which columns may be cast to the declared type of a state: those whose values stay the same.

Arrow casts more than that: it parses numbers in texts, converts 5 to True, drops a field that a struct does
not declare, the zone of a timestamp and the hours of a day, and rounds floats to decimals, without an error.
What `model.state_values` refuses row by row is therefore refused here before the cast, by the types alone;
what depends on the values (1.5 to int64, a timestamp to a coarser unit) is refused by the cast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from unistream.model.columns.arrow_layouts import is_list

_TIMES: Final = frozenset({"moment", "moment with a time zone", "date", "time of day", "duration"})
_ACROSS: Final = (
    {("integer", time) for time in _TIMES}
    | {(time, "integer") for time in _TIMES}
    | {("integer", "float"), ("float", "integer"), ("integer", "decimal"), ("decimal", "integer")}
    | {("truth value", "integer"), ("truth value", "float")}
)


def refused_cast(old: pa.DataType, new: pa.DataType) -> str | None:
    """Why values of `old` cannot be values of `new`; None: they are, or the cast decides.

    >>> refused_cast(pa.int32(), pa.float64())
    >>> refused_cast(pa.string(), pa.int64())
    'a text is no integer'
    """
    if old.equals(new) or pa.types.is_null(old):
        return None
    if pa.types.is_dictionary(old):
        return refused_cast(old.value_type, new)
    if pa.types.is_dictionary(new):
        return refused_cast(old, new.value_type)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _refused_struct(old, new)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return refused_cast(old.key_type, new.key_type) or refused_cast(old.item_type, new.item_type)
    if is_list(old) and is_list(new):
        return refused_cast(old.value_type, new.value_type)
    one, other = _family(old), _family(new)
    if one == other or (one, other) in _ACROSS:
        return None
    return f"{'an' if one == 'integer' else 'a'} {one} is no {other}"


def _refused_struct(old: pa.StructType, new: pa.StructType) -> str | None:
    declared = {field.name: field for field in new}
    given = {field.name: field.type for field in old}
    for name, kind in given.items():
        if name not in declared:
            return f"it has a field {name!r}, which the type does not; declare it, or leave it out"
        inner = refused_cast(kind, declared[name].type)
        if inner is not None:
            return f"field {name!r}: {inner}"
    for name, field in declared.items():
        if name not in given and not field.nullable:
            return f"field {name!r} is missing, and is declared not nullable"
    return None


def _family(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "moment" if kind.tz is None else "moment with a time zone"
    return next((name for applies, name in _FAMILIES if applies(kind)), str(kind))


_FAMILIES: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (pa.types.is_boolean, "truth value"),
    (pa.types.is_integer, "integer"),
    (pa.types.is_floating, "float"),
    (pa.types.is_decimal, "decimal"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_string_view, "text"),
    (pa.types.is_fixed_size_binary, "piece of bytes"),
    (pa.types.is_binary, "piece of bytes"),
    (pa.types.is_large_binary, "piece of bytes"),
    (pa.types.is_binary_view, "piece of bytes"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time of day"),
    (pa.types.is_duration, "duration"),
)
