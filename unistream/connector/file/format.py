"""Infers the schema of a file and parses it, format by format, without splits.

Parsing uses the calling thread only (`use_threads=False`): a job is parallel by its subtasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MIB
from unistream.base.parquet_files import parquet_schema
from unistream.connector.common import PADDING
from unistream.connector.file.split import open_file
from unistream.port.projection import Selection

FileFormat = Literal["parquet", "csv", "json"]
FORMATS: Final = ("parquet", "csv", "json")
OnBadRecord = Literal["fail", "skip", "dead-letter"]
ON_BAD_RECORD: Final = ("fail", "skip", "dead-letter")

INFERENCE_BYTES: Final = MIB  # of the first file; Arrow's own block size
BLANK: Final = 0x20
_LINE_END: Final = 0x0A
_LAST_BYTES: Final = 4_096  # of a block: most lines are shorter
LINE_BYTES_MAX: Final = 64 * MIB  # one record of a text file
SAMPLE_CHARS: Final = 200  # of a bad line, in an error
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t\r\n"  # of JSON
_CSV_NULLS: Final = ["", "NULL", "null", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A"]
"""Those of Arrow without its spellings of NaN, which is a number; a text is never null."""
_CSV_VALUES: Final = pa_csv.ConvertOptions(null_values=_CSV_NULLS, strings_can_be_null=False)
_BARE_NULL: Final = re.compile(rb"\n[ \t\r]*null")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSpec:
    """How to read the files of one source; picklable.

    Attributes:
        schema: Schema of the rows: projected, in order.
        block_bytes: Text is parsed in pieces of about this size.
        on_bad_record: What to do with a line that cannot be parsed.
        options: Options of the fsspec file system.
        used: Columns of `schema` that are returned; None: all. Files have to have the others, and JSON and
            CSV have to be right there.
        selection: Rows that are needed; None: all.
    """

    format: FileFormat
    schema: pa.Schema
    delimiter: str = ","
    block_bytes: int
    options: Mapping[str, Any]
    on_bad_record: OnBadRecord = "fail"
    used: tuple[str, ...] | None = None
    selection: Selection | None = None

    @property
    def names(self) -> list[str]:
        """Of the columns that are returned."""
        return [name for name in self.schema.names if self.used is None or name in self.used]


def infer_schema(path: str, file_format: FileFormat, delimiter: str, options: Mapping[str, Any]) -> pa.Schema:
    """Schema of one file: Parquet footer, CSV header and first rows, first JSON lines.

    Raises:
        ConfigError: it is not such a file, or has no row (JSON).
    """
    with open_file(path, options) as file:
        try:
            match file_format:
                case "parquet":
                    return parquet_schema(file)
                case "csv":
                    read = pa_csv.ReadOptions(use_threads=False, block_size=INFERENCE_BYTES)
                    parse = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
                    with pa_csv.open_csv(file, read, parse, _CSV_VALUES) as reader:
                        return reader.schema
                case "json":
                    sample = whole_lines(file, 0, INFERENCE_BYTES)
                    _refuse_bare_nulls(sample)
                    return pa_json.read_json(pa.BufferReader(sample), _json_blocks(sample)).schema
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ConfigError(f"file {path}: no schema can be inferred as {file_format}: {error}") from error


def whole_lines(file: pa.NativeFile, offset: int, wanted: int, end: int | None = None) -> bytes:
    """See `LineBuffer.fill`; `end`: None: of the file."""
    buffer = LineBuffer(wanted)
    size = buffer.fill(file, offset, file.size() if end is None else end)
    return bytes(buffer.data[:size])


class LineBuffer:
    """Whole lines of a file, in memory that is used again: fresh memory costs more than reading.

    Args:
        wanted: Bytes to read at once; at least one line is read.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.data = np.zeros(wanted + PADDING, np.uint8)
        """Padded; valid up to the next `fill`."""

    def fill(self, file: pa.NativeFile, offset: int, end: int) -> int:
        """Reads lines from `offset` on, at most to `end`, where a line ends; how many bytes are whole lines.

        Raises:
            UserCodeError: a line exceeds LINE_BYTES_MAX.
        """
        while True:
            wanted = min(len(self.data) - PADDING, end - offset)
            file.seek(offset)
            size = file.readinto(self.data[:wanted])
            if offset + size >= end:
                return int(size)
            if not size:
                raise UserCodeError(f"it ended at byte {offset} of {end}: it was changed while it was read")
            line_ends = np.flatnonzero(self.data[_last_block(size) : size] == _LINE_END)
            if len(line_ends):
                return _last_block(size) + int(line_ends[-1]) + 1
            whole = bytes(self.data[:size]).rfind(b"\n") + 1
            if whole:
                return whole
            if size >= LINE_BYTES_MAX:
                raise UserCodeError(f"the line at byte {offset} is longer than {LINE_BYTES_MAX} B")
            self.data = np.zeros(2 * wanted + PADDING, np.uint8)


def _last_block(size: int) -> int:
    return max(0, size - _LAST_BYTES)


# --- text -----------------------------------------------------------------------------------------

Parser = Callable[[bytes], pa.Table]
"""Whole lines -> rows in the schema of the spec. Raises pa.ArrowInvalid, or KeyError for a missing column."""


def _refuse_bare_nulls(lines: bytes) -> None:
    """Arrow 26 crashes on a block whose lines are all a bare null, with or without blanks before it, and
    reads one among other lines as a row of nulls. One search with a fixed first character takes 8 % of the
    parsing time; one for each kind of blank would take 45 %."""
    if (
        lines.removeprefix(BYTE_ORDER_MARK).lstrip(_BLANKS).startswith(b"null")
        or _BARE_NULL.search(lines) is not None
    ):
        raise pa.ArrowInvalid("a line that is a bare null is not a JSON object")


def _json_blocks(lines: bytes) -> pa_json.ReadOptions:
    """One block: Arrow refuses a record that is longer than a block."""
    return pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)


def csv_header(file: pa.NativeFile, spec: FileSpec) -> tuple[list[str], int]:
    """(column names, offset of the first row) of a CSV file without line breaks in its header."""
    lines = whole_lines(file, 0, 64 * 1024)
    line, newline, _ = lines.partition(b"\n")
    if not line.strip():
        return [], len(lines)
    parse = pa_csv.ParseOptions(delimiter=spec.delimiter)
    names = pa_csv.read_csv(pa.BufferReader(line + b"\n"), parse_options=parse).schema.names
    return names, len(line) + len(newline)


def csv_parser(spec: FileSpec, names: list[str]) -> Parser:
    """For lines without the header."""
    convert = _csv_convert(spec)
    parse = pa_csv.ParseOptions(delimiter=spec.delimiter)

    def parser(lines: bytes) -> pa.Table:
        if not lines.strip():
            return spec.schema.empty_table()
        read = pa_csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=names)
        return pa_csv.read_csv(pa.BufferReader(lines), read, parse, convert)

    return parser


def _csv_convert(spec: FileSpec) -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(
        column_types=spec.schema,
        include_columns=spec.schema.names,
        null_values=_CSV_NULLS,
        strings_can_be_null=False,
    )


def stream_csv(file: pa.NativeFile, spec: FileSpec) -> Iterator[pa.Table]:
    """The rows of a whole CSV file, block by block."""
    read = pa_csv.ReadOptions(use_threads=False, block_size=spec.block_bytes)
    parse = pa_csv.ParseOptions(delimiter=spec.delimiter, newlines_in_values=True)
    if file.size() == 0:
        return
    file.seek(0)
    with pa_csv.open_csv(file, read, parse, _csv_convert(spec)) as reader:
        for records in reader:
            yield pa.Table.from_batches([records], spec.schema)


# --- columns --------------------------------------------------------------------------------------


def check_columns(path: str, found: pa.Schema, wanted: pa.Schema) -> None:
    """Raises ConfigError unless every wanted column can be read from `found`."""
    for field in wanted:
        at = found.get_all_field_indices(field.name)
        if len(at) != 1:
            what = "has no column" if not at else "has more than one column"
            raise ConfigError(f"file {path} {what} {field.name!r}; its columns are {', '.join(found.names)}")
        if not widens(found.field(at[0]).type, field.type):
            raise ConfigError(
                f"file {path}: column {field.name!r} is {found.field(at[0]).type}, expected {field.type}"
            )


def check_nulls(column: pa.ChunkedArray, wanted: pa.Field) -> None:
    """Raises ArrowInvalid: a column that is declared without nulls has one."""
    if column.null_count and not wanted.nullable:
        raise pa.ArrowInvalid(f"column {wanted.name!r} is null, and is declared as never null")


def widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of `found` is one of `wanted`: int32 of int64, a dictionary of its values and the
    reverse, … Parquet has no durations: writers without Arrow's own metadata store them as int64."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_dictionary(wanted):
        wanted = wanted.value_type
    if found.equals(wanted) or pa.types.is_null(found):
        return True
    if pa.types.is_integer(found) and pa.types.is_integer(wanted):
        signs = pa.types.is_signed_integer(found), pa.types.is_signed_integer(wanted)
        return found.bit_width < wanted.bit_width and signs != (True, False)
    if pa.types.is_floating(found) and pa.types.is_floating(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        units = ["s", "ms", "us", "ns"]
        return found.tz == wanted.tz and units.index(found.unit) <= units.index(wanted.unit)
    if pa.types.is_duration(wanted):
        return bool(pa.types.is_int64(found))
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if any(test(found) for test in texts):
        return any(test(wanted) for test in texts)
    return {found, wanted} <= {pa.binary(), pa.large_binary()}
