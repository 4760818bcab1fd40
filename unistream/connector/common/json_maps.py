"""Objects of JSON as maps: any names, in their order, each once.

Arrow's parser reads lists of pairs, and no maps. So the text of a value is written again, with a list of
``{"key": …, "value": …}`` for each object that a map is made of; then the parser reads it by the rules that
nested values have, and the lists become maps. A compiled loop writes the usual ones (`json_map_kernels`), and
Python those with maps inside, with escapes in names, or with a mistake, whose reason it gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import UserCodeError
from unistream.connector.common.buffers import PADDING, Int64s, UInt8s, padded
from unistream.connector.common.json_codes import MAP_GROWTH, MAP_NAMES_MAX
from unistream.connector.common.machine_code import loops
from unistream.model.columns.map_types import has_maps

TWICE: Final = "a map in {!r} that has a key twice, where a JSON object has each name once"
_KEY, _VALUE = "key", "value"
_DEPTH: Final = "it is not valid: it is nested too deep"


class NoMap(ValueError):
    """A value that is none, as a clause."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """An object with all its fields, also those that come twice."""

    __slots__ = ()


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Object, parse_float=_Number, parse_int=_Number, parse_constant=_Number
)


def parsed_type(kind: pa.DataType) -> pa.DataType:
    """The type that the parser reads.

    >>> print(parsed_type(pa.map_(pa.string(), pa.int8())))
    list<item: struct<key: string, value: int8>>
    """
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([(_KEY, kind.key_type), (_VALUE, parsed_type(kind.item_type))]))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(parsed_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(parsed_type(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(parsed_type(kind.value_type)))
    return kind


def pairs_of(
    data: UInt8s, starts: Int64s, lengths: Int64s, name: str, kind: pa.DataType
) -> tuple[tuple[UInt8s, Int64s, Int64s], dict[int, str]]:
    """Values in JSON as the parser reads them in `parsed_type`: their bytes, and where each is; and those
    that are none, which are null there, with the reasons.

    Args:
        data: Padded.
        starts: Where each value begins.
        lengths: Its bytes.
        name: Of the field, for reasons.
        kind: Of the values.
    """
    texts: dict[int, bytes] = {}
    bad: dict[int, str] = {}
    out, bounds = np.zeros(0, np.uint8), np.zeros(len(starts) + 1, np.int64)
    done = np.zeros(len(starts), np.uint8)
    if pa.types.is_map(kind) and not has_maps(kind.item_type):
        out = np.empty(MAP_GROWTH * int(lengths.sum()) + 2 * len(starts) + PADDING, np.uint8)
        stack = np.empty(int(lengths.max(initial=0)) + 1, np.uint8)
        names = np.empty(2 * MAP_NAMES_MAX, np.int64)
        _map_kernels().rewrite_objects(data, starts, lengths, out, bounds, done, stack, names)
    for place in np.flatnonzero(done == 0).tolist():
        start = int(starts[place])
        try:
            texts[place] = rewritten(data[start : start + int(lengths[place])].tobytes(), name, kind)
        except NoMap as problem:
            texts[place], bad[place] = b"null", str(problem)
    if not texts:
        return (out, bounds[:-1], np.diff(bounds)), bad
    places = np.array(list(texts), np.int64)
    sizes = np.array([len(text) for text in texts.values()], np.int64)
    starts, lengths = bounds[:-1].copy(), np.diff(bounds)
    starts[places], lengths[places] = bounds[-1] + np.cumsum(sizes) - sizes, sizes
    return (padded(out[: bounds[-1]].tobytes(), *texts.values()), starts, lengths), bad


def _map_kernels() -> SimpleNamespace:
    return loops("unistream.connector.common.json_map_kernels")


def rewritten(text: bytes, name: str, kind: pa.DataType) -> bytes:
    """JSON as the parser reads it in `parsed_type`.

    >>> rewritten(b'{"a": 1.50, "b": null}', "m", pa.map_(pa.string(), pa.float64()))
    b'[{"key":"a","value":1.50},{"key":"b","value":null}]'

    Raises:
        NoMap: it is no value of the type.
    """
    try:
        value = _DECODER.decode(text.decode())
        return "".join(_text(value, name, kind)).encode()
    except UnicodeDecodeError:
        raise NoMap(f"field {name!r} has text that is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NoMap(f"it is not valid: {error}") from None
    except RecursionError:
        raise NoMap(_DEPTH) from None


def _text(value: Any, name: str, kind: pa.DataType | None) -> Iterator[str]:
    """Yields the JSON of a value as the parser reads it. `kind`: None: of a value that is not read, or not
    looked at here."""
    if isinstance(value, _Object):
        if kind is not None and pa.types.is_map(kind):
            yield from _pairs(value, name, kind.item_type)
            return
        fields = {one.name: one.type for one in kind} if kind is not None and pa.types.is_struct(kind) else {}
        yield "{"
        for place, (key, inner) in enumerate(value):
            yield f"{',' if place else ''}{json.dumps(key)}:"
            yield from _text(inner, f"{name}.{key}", fields.get(key))
        yield "}"
        return
    if kind is not None and pa.types.is_map(kind) and value is not None:
        raise NoMap(f"field {name!r} is of JSON type {_json_type(value)}, where the schema needs an object")
    if isinstance(value, list):
        is_list = kind is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        yield "["
        for place, inner in enumerate(value):
            if place:
                yield ","
            yield from _text(inner, name, kind.value_type if is_list and kind is not None else None)
        yield "]"
        return
    yield value if isinstance(value, _Number) else json.dumps(value)


def _pairs(value: _Object, name: str, kind: pa.DataType) -> Iterator[str]:
    seen: set[str] = set()
    yield "["
    for place, (key, inner) in enumerate(value):
        if key in seen:
            raise NoMap(f"field {name!r} has {key!r} twice")
        seen.add(key)
        yield f'{"," if place else ""}{{"{_KEY}":{json.dumps(key)},"{_VALUE}":'
        yield from _text(inner, f"{name}.{key}", kind)
        yield "}"
    yield "]"


def _json_type(value: Any) -> str:
    if isinstance(value, _Number):
        return "number"
    return {bool: "boolean", str: "string"}.get(type(value), "array")


def with_maps(array: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """What the parser has read in `parsed_type`, as it is wanted."""
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        children = [with_maps(array.field(place), one.type) for place, one in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    valid, offsets = array.buffers()[:2]
    if pa.types.is_map(kind):
        entries = array.values
        keys = entries.field(0).cast(kind.key_type)
        items = with_maps(entries.field(1), kind.item_type)
        values = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    else:
        values = with_maps(array.values, kind.value_type)
    return pa.Array.from_buffers(kind, len(array), [valid, offsets], offset=array.offset, children=[values])


# --- writing --------------------------------------------------------------------------------------


def as_objects(column: pa.Array[Any]) -> list[Any]:
    """Values of Python, with a dictionary for each map.

    Raises:
        UserCodeError: a map has a key twice.
    """
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except KeyError as error:
        raise UserCodeError(
            f"a map cannot be written as a JSON object, which has each name once: {error}"
        ) from error


def repeated_keys(column: pa.Array[Any]) -> pa.Array[Any] | None:
    """Rows in which a map has a key twice; None: there is none.

    >>> twice = pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8()))
    >>> repeated_keys(twice).to_pylist(), repeated_keys(twice.slice(0, 1))
    ([False, True], None)
    """
    if not has_maps(column.type):
        return None
    bad = np.zeros(len(column), np.bool_)
    for rows in _repeated(column, np.arange(len(column))):
        bad[rows] = True
    return pa.array(bad) if bad.any() else None


def with_single_keys(column: pa.Array[Any]) -> pa.Array[Any]:
    """The column with null where a map has a key twice."""
    twice = repeated_keys(column)
    if twice is None:
        return column
    return column.take(pa.array(np.arange(len(column)), mask=twice.to_numpy(zero_copy_only=False)))


def _repeated(array: pa.Array[Any], rows: Int64s) -> Iterator[Int64s]:
    """Yields the rows with a map that has a key twice, at any depth; value k is in row ``rows[k]``."""
    kind = array.type
    if pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _repeated(child, rows)
        return
    if not (pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return
    width = np.int64 if pa.types.is_large_list(kind) else np.int32
    bounds = np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1]
    counts = np.where(array.is_valid().to_numpy(zero_copy_only=False), np.diff(bounds), 0)
    parents = np.repeat(np.arange(len(array)), counts)
    first = np.repeat(bounds[:-1] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    places = pa.array(np.arange(len(parents)) + first)
    if pa.types.is_map(kind):
        keys = pa.table({"map": parents, "key": array.keys.take(places)})
        counted = keys.group_by(["map", "key"]).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted["count_all"], 1))
        yield rows[twice["map"].to_numpy()]
        yield from _repeated(array.items.take(places), rows[parents])
    else:
        yield from _repeated(array.values.take(places), rows[parents])
