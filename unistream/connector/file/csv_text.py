"""CSV: the header, the rows of some lines, and the rows of a whole file. Both ways of reading give the same
rows of the same text, or refuse it.

Lines end with LF, CRLF or CR, whatever the others of the file end with; empty lines are none. In a range of
lines (``quoted_newlines=False``) each line is one row, so a line break in quotes is refused: else it would
depend on the ends of blocks. A quote that does not end is refused: it would swallow the rows behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from unistream.base.errors import UserCodeError
from unistream.base.limits import KIB
from unistream.connector.common import text_times
from unistream.connector.common.machine_code import loops
from unistream.connector.file.format import (
    BYTE_ORDER_MARK,
    CSV_NULLS,
    LINE_BYTES_MAX,
    FileSpec,
    check_nulls,
    untimed_rows,
)

HEADER_BYTES: Final = 64 * KIB  # read at first
LINE_END: Final = re.compile(rb"\n|\r(?!\n)")
_LINE: Final = re.compile(rb"[^\r\n]+")
_LINE_ENDS: Final = b"\r\n"
_QUOTE: Final = 0x22
_LF: Final = 0x0A
_OPEN_QUOTE: Final = "a quoted value does not end, and would swallow the rows behind it"

Parser = Callable[[bytes], pa.Table]
"""Whole lines -> rows in the schema of the spec. Raises pa.ArrowInvalid."""


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """The header of a file. `names`: of the columns; empty: the file has nothing. `end`: byte at which the
    rows begin."""

    names: list[str]
    end: int


def read_header(file: pa.NativeFile, delimiter: str) -> CsvHeader:
    """Raises UserCodeError: it is longer than LINE_BYTES_MAX; pa.ArrowInvalid: it cannot be parsed."""
    size, wanted = file.size(), HEADER_BYTES
    while True:
        file.seek(0)
        text = bytes(file.read(min(wanted, size)))
        begin = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
        begin += len(text) - begin - len(text[begin:].lstrip(_LINE_ENDS))
        end = _record_end(text, begin, ord(delimiter))
        if end is not None or len(text) == size:
            break
        if wanted >= LINE_BYTES_MAX:
            raise UserCodeError(f"the header is longer than {LINE_BYTES_MAX} B")
        wanted *= 16
    header = text[begin : len(text) if end is None else end]
    if not header:
        return CsvHeader([], size)
    parse = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    return CsvHeader(
        pa_csv.read_csv(pa.BufferReader(header + b"\n"), parse_options=parse).schema.names,
        begin + len(header),
    )


def _record_end(text: bytes, at: int, delimiter: int) -> int | None:
    """Finds where the row that begins at `at` ends, with its line end; None: behind the text. As for Arrow, a
    quote counts where a value begins, and a doubled one within quotes does not."""
    starts, quoted = True, False
    while at < len(text):
        char = text[at]
        if quoted:
            if char == _QUOTE and text[at + 1 : at + 2] == b'"':
                at += 1
            elif char == _QUOTE:
                quoted = False
        elif char == _QUOTE and starts:
            quoted = True
        elif char in _LINE_ENDS:
            return None if at + 1 == len(text) else at + 1 + (text[at : at + 2] == b"\r\n")
        starts = char == delimiter and not quoted
        at += 1
    return None


def count_line_ends(text: bytes) -> int:
    """The number of line ends: LF, CRLF and CR."""
    count = int(np.count_nonzero(np.frombuffer(text, np.uint8) == _LF))  # faster than bytes.count
    return count + text.count(b"\r") - text.count(b"\r\n") if b"\r" in text else count


def lines_of(text: bytes) -> list[bytes]:
    """The lines of a text with their ends."""
    return text.splitlines(keepends=True)  # of bytes: CR, LF and CRLF only


# --- rows -----------------------------------------------------------------------------------------


class _Values:
    """Converts values by the columns of the spec. Times are left to Arrow until it refuses one, and then are
    read as texts in the forms of JSON (`text_times`)."""

    def __init__(self, spec: FileSpec) -> None:
        self._schema = spec.schema
        self._text_nulls = spec.text_nulls
        self._times = [field.name for field in spec.schema if text_times.is_read(field.type)]
        self.as_texts = False

    @property
    def options(self) -> pa_csv.ConvertOptions:
        types = {
            field.name: pa.string() if self.as_texts and field.name in self._times else field.type
            for field in self._schema
        }
        return pa_csv.ConvertOptions(
            column_types=types, include_columns=self._schema.names, **null_options(self._text_nulls)
        )

    def can_be_texts(self) -> bool:
        """Switches to times that are texts, from now on. False: there are none, or they are texts already."""
        if self.as_texts or not self._times:
            return False
        self.as_texts = True
        return True

    def rows(self, table: pa.Table) -> pa.Table:
        """Raises ArrowInvalid for a value that is no time, or a null where none may be."""
        columns = []
        for field, column in zip(self._schema, table.columns, strict=True):
            found = column
            if found.type != field.type:
                found = text_times.parsed(_without_nulls(column), field.type, field.name)
            check_nulls(found, field)
            columns.append(found)
        return pa.Table.from_arrays(columns, schema=self._schema)


def _without_nulls(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.is_in(texts, pa.array(CSV_NULLS)), pa.scalar(None, pa.string()), texts)


def csv_parser(spec: FileSpec, names: list[str], *, row_is_line: bool) -> Parser:
    """A parser of whole rows without the header. `row_is_line`: a value with a line break is refused, and so
    is a row without an event time."""
    values = _Values(spec)
    parse = pa_csv.ParseOptions(delimiter=spec.delimiter)
    # a row of empty values, which is not found again if a quote is open before it
    end = b'\n""' + spec.delimiter.encode() * (len(names) - 1) + b"\n" if row_is_line else b""

    def parser(lines: bytes) -> pa.Table:
        if not lines.strip(_LINE_ENDS):
            return spec.schema.empty_table()
        # behind an empty line, or else a mark of the byte order is left out, which is a part of a value here
        text = (b"\n" + lines if lines.startswith(BYTE_ORDER_MARK) else lines) + end
        read = pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names)
        try:
            table = pa_csv.read_csv(pa.BufferReader(text), read, parse, values.options)
        except pa.ArrowInvalid:
            if not values.can_be_texts():
                raise
            return parser(lines)
        if row_is_line:
            table = table.slice(0, table.num_rows - 1)
            if table.num_rows != _count_lines(lines, table.num_rows):
                raise pa.ArrowInvalid(f"CSV parse error: a value has a line break, or {_OPEN_QUOTE}")
        rows = values.rows(table)
        if row_is_line:
            for reason in untimed_rows(rows, spec).values():
                raise pa.ArrowInvalid(reason)
        return rows

    return parser


def _count_lines(lines: bytes, expected: int) -> int:
    """The number of lines that are not empty."""
    count = count_line_ends(lines) + (not lines.endswith((b"\n", b"\r")))
    return count if count == expected else len(_LINE.findall(lines))


def whole_blocks(file: pa.NativeFile, delimiter: str, begin: int, block_bytes: int) -> Iterator[bytes]:
    """The rows of a file from `begin` on, some MB after some MB.

    Raises:
        UserCodeError: a row exceeds LINE_BYTES_MAX, or a quote does not end.
    """
    size, at, wanted = file.size(), begin, block_bytes
    while at < size:
        file.seek(at)
        text = bytes(file.read(wanted))
        end, is_open = _last_row_end(text, delimiter)
        if at + len(text) >= size:
            if is_open:
                raise UserCodeError(_OPEN_QUOTE)
            yield text
            return
        if end:
            yield text[:end]
            at, wanted = at + end, block_bytes
        elif wanted >= LINE_BYTES_MAX:
            raise UserCodeError(f"the row at byte {at} is longer than {LINE_BYTES_MAX} B, or {_OPEN_QUOTE}")
        else:
            wanted = min(4 * wanted, LINE_BYTES_MAX)


def _last_row_end(text: bytes, delimiter: str) -> tuple[int, bool]:
    if b'"' in text:
        end = _kernels().last_row_end(np.frombuffer(text, np.uint8), ord(delimiter))
        return (end, False) if end >= 0 else (-1 - end, True)
    return last_line_end(text), False


def last_line_end(text: bytes) -> int:
    """The position behind the last line end; 0: there is none. A CR that is the last byte may be half of
    one."""
    if text.endswith(b"\r"):
        text = text[:-1]
    return max(text.rfind(b"\n"), text.rfind(b"\r")) + 1


def _kernels() -> SimpleNamespace:
    return loops("unistream.connector.file.csv_kernels")


def null_options(text_nulls: bool) -> dict[str, Any]:
    """The arguments of `ConvertOptions` about nulls. `text_nulls`: nothing between two delimiters is null,
    and nothing else is."""
    if text_nulls:
        return {"null_values": [""], "strings_can_be_null": True, "quoted_strings_can_be_null": False}
    return {"null_values": CSV_NULLS, "strings_can_be_null": False}


def csv_schema(file: pa.NativeFile, delimiter: str, sample_bytes: int, *, text_nulls: bool) -> pa.Schema:
    """The schema that Arrow infers from the first rows. Raises pa.ArrowInvalid, UserCodeError."""
    file.seek(0)
    begin = len(BYTE_ORDER_MARK) if file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
    text = next(whole_blocks(file, delimiter, begin, sample_bytes), b"").lstrip(_LINE_ENDS)
    if not text:
        raise pa.ArrowInvalid("it is empty")
    read = pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 2)
    parse = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    values = pa_csv.ConvertOptions(**null_options(text_nulls))
    return pa_csv.read_csv(pa.BufferReader(text + b"\n"), read, parse, values).schema


def named(names: list[str], schema: pa.Schema) -> pa.Schema:
    """The columns of a file: those of the schema have its types."""
    types: dict[str, Any] = {field.name: field.type for field in schema}
    return pa.schema([(name, types.get(name, pa.string())) for name in names])
