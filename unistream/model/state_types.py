"""Whether state that was stored with one Arrow type may be restored as another.

    migration(old, new)          one type: Same, Widened or Incompatible
    key_migration(old, new)      a column of the key: its hash, and so its key group, must not change
    table_migration(old, new)    all columns of a state's table
    converted(array, new)        converts values where the result is `Widened`

A change is allowed if every value of the old type *is* a value of the new one; nothing is rounded, truncated
or lost, and nothing is reinterpreted (a number does not become text, text not bytes, a date not a timestamp):

    integers     to a wider one; to a float or a decimal that holds all of them
    floats       to a wider one
    decimals     with as many digits before the point and after it, or more
    text, bytes  between the layouts (string, large_string, string_view); fixed_size_binary to binary
    time         of day, timestamp or duration: to a finer unit; timestamps and durations not to nanoseconds
                 (which hold 1677 to 2262 only); the time zone of a timestamp must not change
    dictionary   to its values' type
    null         to anything
    list, map    if their elements may be changed; a fixed size may become variable
    struct       fields are found by name, in any order; new ones must be nullable; none may be removed

Prior art: Flink's `TypeSerializerSchemaCompatibility` (same, after migration, incompatible), Iceberg's type
promotion. Unlike there, a field of a struct cannot be dropped: to lose values, rewrite the savepoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from unistream.model.columns.arrow_layouts import cast, is_list, relaid, remapped, restructured
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.model.state import EXPIRES_COLUMN


@dataclass(frozen=True, slots=True)
class Same:
    """Stored values are used as they are."""


@dataclass(frozen=True, slots=True)
class Widened:
    """Stored values are converted (`converted`). `what`: the change in a few words."""

    what: str


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Stored values cannot be used. `reason`: why, to follow a colon."""

    reason: str


Migration = Same | Widened | Incompatible

_TEXT_TESTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES_TESTS: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_UNITS: Final = ("s", "ms", "us", "ns")
_MANTISSA_BITS: Final = {16: 11, 32: 24, 64: 53}


def migration(old: pa.DataType, new: pa.DataType) -> Migration:
    """What happens to values of type `old` if `new` is declared.

    >>> migration(pa.int32(), pa.int64())
    Widened(what='int32 to int64')
    >>> migration(pa.int64(), pa.string())
    Incompatible(reason='int64 cannot become string')
    """
    if old.equals(new):
        return Same()
    for applies, decide in _NESTED:
        if applies(old) and applies(new):
            return decide(old, new)
    if pa.types.is_dictionary(old) and not pa.types.is_dictionary(new):
        inner = migration(old.value_type, new)
        return inner if isinstance(inner, Incompatible) else Widened(f"dictionary to {new}")
    if pa.types.is_null(old) or any(rule(old, new) for rule in _FLAT):
        return Widened(f"{old} to {new}")
    return Incompatible(f"{old} cannot become {new}")


def key_migration(old: pa.DataType, new: pa.DataType) -> Migration:
    """How a column of a key may change: only text and bytes may change their layout.

    >>> key_migration(pa.int32(), pa.int64())
    Incompatible(reason='a key of int32 cannot become int64: it would belong to another key group')
    """
    if old.equals(new):
        return Same()
    plain = old.value_type if pa.types.is_dictionary(old) else old
    target = new.value_type if pa.types.is_dictionary(new) else new
    if plain.equals(target) or _same_text(plain, target):
        return Widened(f"{old} to {new}")
    return Incompatible(f"a key of {old} cannot become {new}: it would belong to another key group")


def table_migration(old: pa.Schema, new: pa.Schema, keys: tuple[str, ...]) -> Migration:
    """What happens to a stored state's table if a state with the table `new` is declared.

    A time to live may be added (it begins at the restore) or removed. `keys`: the operator's key columns.
    """
    skipped = {KEY_GROUP_COLUMN, EXPIRES_COLUMN}
    before = {field.name: field for field in old if field.name not in skipped}
    after = {field.name: field for field in new if field.name not in skipped}
    if set(before) != set(after):
        return Incompatible(f"its columns were ({', '.join(before)}) and are now ({', '.join(after)})")
    changes = []
    for name, field in after.items():
        judge = key_migration if name in keys else migration
        match judge(before[name].type, field.type):
            case Incompatible(reason):
                return Incompatible(f"column {name!r}: {reason}" if name in keys else reason)
            case Widened(what):
                changes.append(what)
            case Same():
                pass
    had, has = (EXPIRES_COLUMN in schema.names for schema in (old, new))
    if had != has:
        changes.append("now with a time to live" if has else "now without a time to live")
    return Widened("; ".join(changes)) if changes else Same()


def common_table(tables: Sequence[pa.Schema]) -> pa.Schema | None:
    """The table of a state to which all of these may be converted; None: there is none. A time to live that
    some have is kept.

    >>> one = pa.schema([("k", pa.string()), ("value", pa.int64())])
    >>> common_table([one, one.set(1, pa.field("value", pa.int32()))]).field("value").type
    DataType(int64)
    """
    found = tables[0]
    for table in tables[1:]:
        before, after = found, table
        if isinstance(table_migration(before, after, ()), Incompatible):
            before, after = table, found
        if isinstance(table_migration(before, after, ()), Incompatible):
            return None
        lives = EXPIRES_COLUMN in before.names and EXPIRES_COLUMN not in after.names
        found = after.append(before.field(EXPIRES_COLUMN)) if lives else after
    return found


def converted(array: pa.Array, new: pa.DataType) -> pa.Array:
    """`array` as `new`, where `migration` or `key_migration` allows it.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit after all (a moment before year 1 in a finer unit).

    >>> point = pa.array([{"x": 1}], pa.struct({"x": pa.int32()}))
    >>> converted(point, pa.struct({"y": pa.string(), "x": pa.int64()})).to_pylist()
    [{'y': None, 'x': 1}]
    """
    old = array.type
    if old.equals(new):
        return array
    if pa.types.is_dictionary(old):
        return converted(array.dictionary_decode(), new)
    if pa.types.is_dictionary(new):
        return converted(array, new.value_type).dictionary_encode().cast(new)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return restructured(array, new, converted)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return remapped(array, new, converted)
    if is_list(old) and is_list(new) and not _is_left_to_arrow(old):
        return relaid(array, new, converted)
    return cast(array, new)


# --- types with types inside -----------------------------------------------------------------------


def _list_migration(old: pa.DataType, new: pa.DataType) -> Migration:
    if pa.types.is_fixed_size_list(new) and getattr(old, "list_size", None) != new.list_size:
        return Incompatible(f"{old} cannot become {new}: a list of it may have another length")
    return _of_parts([("elements", old.value_field, new.value_field)], old, new)


def _map_migration(old: pa.DataType, new: pa.DataType) -> Migration:
    parts = [("keys", old.key_field, new.key_field), ("values", old.item_field, new.item_field)]
    return _of_parts(parts, old, new)


def _struct_migration(old: pa.DataType, new: pa.DataType) -> Migration:
    before = {field.name: field for field in old}
    after = {field.name: field for field in new}
    if len(before) < old.num_fields or len(after) < new.num_fields:
        return Incompatible("a struct has two fields of one name")
    removed = [name for name in before if name not in after]
    if removed:
        return Incompatible(f"field {removed[0]!r} was removed, and its values would be lost")
    added = [field for field in after.values() if field.name not in before]
    for field in added:
        if not field.nullable:
            return Incompatible(f"new field {field.name!r} is not nullable, and stored values do not have it")
    parts = [(f"field {name!r}", before[name], after[name]) for name in before]
    judged = _of_parts(parts, old, new)
    if isinstance(judged, Incompatible):
        return judged
    changes = [f"new field {field.name!r}" for field in added]
    if any(not before[name].equals(after[name]) for name in before):
        assert isinstance(judged, Widened)
        changes.append(judged.what)
    return Widened(", ".join(changes) or "fields in another order")


def _of_parts(parts: list[tuple[str, pa.Field, pa.Field]], old: pa.DataType, new: pa.DataType) -> Migration:
    changes = []
    for what, before, after in parts:
        if before.nullable and not after.nullable:
            return Incompatible(f"{what} may be null in the stored state, but must not be null any more")
        match migration(before.type, after.type):
            case Incompatible(reason):
                return Incompatible(f"{what}: {reason}")
            case Widened(change):
                changes.append(f"{what}: {change}")
            case Same():
                pass
    return Widened(", ".join(changes) or f"{old} to {new}")


_NESTED: Final[
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], Migration]], ...]
] = (
    (is_list, _list_migration),
    (pa.types.is_map, _map_migration),
    (pa.types.is_struct, _struct_migration),
)


# --- plain types -----------------------------------------------------------------------------------


def _wider_integer(old: pa.DataType, new: pa.DataType) -> bool:
    if not (pa.types.is_integer(old) and pa.types.is_integer(new)):
        return False
    if pa.types.is_signed_integer(old) == pa.types.is_signed_integer(new):
        return bool(new.bit_width > old.bit_width)
    return bool(pa.types.is_signed_integer(new) and new.bit_width > old.bit_width)


def _wider_float(old: pa.DataType, new: pa.DataType) -> bool:
    if not pa.types.is_floating(new):
        return False
    if pa.types.is_floating(old):
        return bool(new.bit_width > old.bit_width)
    return bool(pa.types.is_integer(old) and old.bit_width <= _MANTISSA_BITS[new.bit_width])


def _integer_as_decimal(old: pa.DataType, new: pa.DataType) -> bool:
    """It has as many digits before the point as the integer may have."""
    if not (pa.types.is_integer(old) and pa.types.is_decimal(new)):
        return False
    bits = int(old.bit_width) - (0 if pa.types.is_unsigned_integer(old) else 1)
    return int(new.precision - new.scale) >= len(str(2**bits))


def _wider_decimal(old: pa.DataType, new: pa.DataType) -> bool:
    if not (pa.types.is_decimal(old) and pa.types.is_decimal(new)):
        return False
    return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)


def _same_text(old: pa.DataType, new: pa.DataType) -> bool:
    return (_is_text(old) and _is_text(new)) or (_is_bytes(old) and _is_bytes(new))


def _is_text(of: pa.DataType) -> bool:
    return any(test(of) for test in _TEXT_TESTS)


def _is_bytes(of: pa.DataType) -> bool:
    return any(test(of) for test in _BYTES_TESTS)


def _freed_bytes(old: pa.DataType, new: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(old)) and _is_bytes(new)


def _finer_time(old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_time(old) and pa.types.is_time(new):
        return _UNITS.index(new.unit) > _UNITS.index(old.unit)
    moments = pa.types.is_timestamp(old) and pa.types.is_timestamp(new) and old.tz == new.tz
    lengths = pa.types.is_duration(old) and pa.types.is_duration(new)
    if moments or lengths:
        return new.unit != "ns" and _UNITS.index(new.unit) > _UNITS.index(old.unit)
    return bool(pa.types.is_date32(old) and pa.types.is_date64(new))


_FLAT: Final = (
    *(_wider_integer, _wider_float, _integer_as_decimal, _wider_decimal),
    *(_same_text, _freed_bytes, _finer_time),
)


# --- converting ------------------------------------------------------------------------------------


def _is_left_to_arrow(of: pa.DataType) -> bool:
    """Arrow's cast finds fields of structs by position, ours by name; dictionaries are decoded here."""
    if pa.types.is_struct(of) or pa.types.is_dictionary(of):
        return False
    return all(_is_left_to_arrow(of.field(number).type) for number in range(of.num_fields))
