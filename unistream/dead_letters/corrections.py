"""Rows that somebody has corrected before they are replayed.

A file of corrections has a JSON object in each line:

    {"letter": ID, "row": {"fare": 120}}     of an operator: columns to change; the others stay as they are
    {"letter": ID, "row": "{…}"}             the same as text, whole as `row` of the letter is: what differs
    {"letter": ID, "raw": "…"}               of a source: the record's value, as text

Only letters that it names are replayed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.dead_letters.table import Letters
from unistream.model.columns.map_types import keys_are_text
from unistream.operator.common import decoded_row, encoded_row

BYTES_MAX: Final = 256 * 2**20  # of the file
_FORM: Final = '{"letter": ID, "row": {COLUMN: VALUE}}, or {"letter": ID, "raw": TEXT} of a source'


@dataclass(frozen=True, slots=True)
class Corrections:
    """The corrected rows by the id of the letter: its row, or the value of its record."""

    rows: Mapping[str, Mapping[str, Any] | str]
    raw: Mapping[str, str]

    @property
    def letters(self) -> list[str]:
        return [*self.rows, *self.raw]


def corrections_of(given: Iterable[tuple[str, str | None, str | None]]) -> Corrections | None:
    """The corrections in (letter, row, raw), with one of both; None: there are none. Raises ConfigError."""
    rows: dict[str, Mapping[str, Any] | str] = {}
    raw_ones: dict[str, str] = {}
    for letter, row, raw in given:
        if (row is None) == (raw is None):
            raise ConfigError(f"the correction of letter {letter} is its row or the value of its record")
        if letter in rows or letter in raw_ones:
            raise ConfigError(f"letter {letter} is corrected twice")
        if row is not None:
            rows[letter] = row
        elif raw is not None:
            raw_ones[letter] = raw
    return Corrections(rows, raw_ones) if rows or raw_ones else None


def read_corrections(path: Path) -> Corrections:
    """Raises ConfigError: the file cannot be read, or a line of it is none; names the line."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise ConfigError(f"{path} has more than the {BYTES_MAX:,} bytes that corrections may have")
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"the corrections in {path} cannot be read: {error}") from error
    rows: dict[str, Mapping[str, Any] | str] = {}
    raw: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        letter, name, value = _correction(line, f"{path}, line {number}")
        if letter in rows or letter in raw:
            raise ConfigError(f"{path}, line {number}: letter {letter} is corrected twice")
        (rows if name == "row" else raw)[letter] = value
    if not rows and not raw:
        raise ConfigError(f"{path} has no correction; a line is {_FORM}")
    return Corrections(rows, raw)


def _correction(line: str, where: str) -> tuple[str, str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}; a line is {_FORM}") from error
    match found:
        case {"letter": str(letter), "row": dict() | str() as row, **rest} if not rest:
            return letter, "row", row
        case {"letter": str(letter), "raw": str(raw), **rest} if not rest:
            return letter, "raw", raw
    raise ConfigError(f"{where} is no correction; a line is {_FORM}")


def corrected(letters: Letters, corrections: Corrections) -> Letters:
    """The letters that are named, with what is corrected in them.

    Raises:
        ConfigError: there is no letter of that id, or it is one of the other kind; a row has no such column,
            or the value does not fit into it. Names the letter.
    """
    ids = letters.rows["letter"].to_pylist()
    places = {letter: place for place, letter in enumerate(ids)}
    missing = [letter for letter in corrections.letters if letter not in places]
    if missing:
        raise ConfigError(f"there is no letter {missing[0]}, which is corrected")
    wrong = corrections.rows if letters.records is not None else corrections.raw
    if wrong:
        wanted = '"raw", the value of its record' if letters.records is not None else '"row"'
        raise ConfigError(f"letter {next(iter(wrong))} is corrected by {wanted}")
    chosen = pa.array([places[letter] for letter in corrections.letters], pa.int64())
    rows = letters.rows.take(chosen)
    if letters.records is not None:
        values = pa.array([text.encode() for text in corrections.raw.values()], pa.binary())
        records = letters.records.take(chosen)
        return Letters(rows, records.set_column(records.schema.get_field_index("raw"), "raw", values))
    changed = [
        _changed(letter, text, content, corrections.rows[letter])
        for letter, text, content in zip(
            *(rows[name].to_pylist() for name in ("letter", "row", "row_ipc")), strict=True
        )
    ]
    at = rows.schema.get_field_index("row_ipc")
    return Letters(rows.set_column(at, rows.schema.field(at), pa.array(changed, pa.binary())))


def _changed(letter: str, text: str, content: bytes, correction: Mapping[str, Any] | str) -> bytes:
    row = decoded_row(content)
    if isinstance(correction, str):
        correction = _differing(letter, text, correction)
    unknown = [name for name in correction if name not in row.schema.names]
    if unknown:
        raise ConfigError(
            f"the row of letter {letter} has no column {unknown[0]!r}; its columns are "
            f"{', '.join(row.schema.names[:20])}"
        )
    for name, value in correction.items():
        at = row.schema.get_field_index(name)
        field = row.schema.field(at)
        row = row.set_column(at, field, _array(letter, field, value))
    return encoded_row(row)


def _differing(letter: str, before: str, after: str) -> Mapping[str, Any]:
    """The columns of the text that are not as they were."""
    try:
        was, now = json.loads(before), json.loads(after)
    except ValueError as error:
        raise ConfigError(f"the row of letter {letter} is no JSON: {error}") from error
    if not isinstance(now, dict):
        raise ConfigError(f"the row of letter {letter} is no JSON object")
    left_out = [name for name in was if name not in now]
    if left_out:
        raise ConfigError(f"the row of letter {letter} lacks column {left_out[0]!r}; null is written as null")
    return {name: value for name, value in now.items() if name not in was or not _alike(was[name], value)}


def _alike(one: object, other: object) -> bool:
    """True is not 1 here."""
    return json.dumps(one) == json.dumps(other)


def _array(letter: str, field: pa.Field, value: Any) -> pa.Array:
    """An array of one value of JSON. Raises ConfigError: the column cannot have it."""
    if value is None and not field.nullable:
        raise ConfigError(f"the row of letter {letter}: column {field.name!r} takes no null")
    try:
        return _of_type(value, field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"the row of letter {letter}: {json.dumps(value)[:200]} is no {field.type}, which column "
            f"{field.name!r} has: {why}"
        ) from error


def _of_type(value: Any, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(type_):
        return _of_type(value, type_.value_type).dictionary_encode().cast(type_)
    return pa.array([_exact(value, type_)], type_)


def _exact(value: Any, type_: pa.DataType) -> Any:
    """A value of JSON as Arrow takes it without cutting anything off. Raises ValueError, ArrowException."""
    match value:
        case str():
            return _of_text(value, type_)
        case bool():
            if not pa.types.is_boolean(type_):
                raise ValueError("true and false are of columns of type bool")
        case int() | float():
            return _of_number(value, type_)
        case list() if pa.types.is_list(type_) or pa.types.is_large_list(type_):
            return [_exact(one, type_.value_type) for one in value]
        case dict() if pa.types.is_struct(type_):
            unknown = [name for name in value if type_.get_field_index(name) < 0]
            if unknown:
                raise ValueError(f"it has no field {unknown[0]!r}")
            return {name: _exact(one, type_.field(name).type) for name, one in value.items()}
        case dict() if pa.types.is_map(type_) and keys_are_text(type_):
            return [(name, _exact(one, type_.item_type)) for name, one in value.items()]
    return value


def _of_text(value: str, type_: pa.DataType) -> Any:
    if _is_binary(type_):
        return base64.b64decode(value, validate=True)
    if pa.types.is_time(type_):
        return pa.array([time.fromisoformat(value)]).cast(type_)[0]
    return value if pa.types.is_nested(type_) else pa.array([value], pa.string()).cast(type_)[0]


def _of_number(value: float, type_: pa.DataType) -> Any:
    if pa.types.is_temporal(type_):
        raise ValueError("times are text")
    if isinstance(value, float) and pa.types.is_integer(type_):
        if not value.is_integer():
            raise ValueError("it is no whole number")
        return int(value)
    if isinstance(value, float) and pa.types.is_decimal(type_):
        return pa.array([repr(value)], pa.string()).cast(type_)[0]
    return value


_BINARY: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)


def _is_binary(type_: pa.DataType) -> bool:
    return any(is_one(type_) for is_one in _BINARY)
