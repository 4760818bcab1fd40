"""How the files of one source are read: the format, lines of text, and which columns fit the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MIB
from unistream.connector.common import PADDING, untimed
from unistream.connector.file.compression import Codec, Compression, codec_of
from unistream.port.projection import Selection

FileFormat = Literal["parquet", "csv", "json", "orc", "avro"]
FORMATS: Final = ("parquet", "csv", "json", "orc", "avro")
TEXTS: Final = ("csv", "json")
OnBadRecord = Literal["fail", "skip", "dead-letter"]
ON_BAD_RECORD: Final = ("fail", "skip", "dead-letter")

BLANK: Final = 0x20
_LAST_BYTES: Final = 4_096  # of a block: most lines are shorter
LINE_BYTES_MAX: Final = 64 * MIB  # one record of a text file
SAMPLE_CHARS: Final = 200  # of a bad line, in an error
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
CSV_NULLS: Final = ["", "NULL", "null", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A"]
"""The texts that are null in CSV: those of Arrow without its spellings of NaN, which is a number; a text is
never null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSpec:
    """How to read the files of one source; picklable.

    Attributes:
        schema: Schema of the rows: projected, in order.
        block_bytes: Text, and blocks of Avro, are parsed in pieces of about this size.
        on_bad_record: What to do with a line that cannot be parsed.
        options: Options of the fsspec file system.
        used: Columns of `schema` that are returned; None: all. Files have to have the others, and JSON and
            CSV have to be right there.
        selection: Rows that are needed; None: all.
        times: Columns with event times, which every row has to have.
        given: The parts without wildcards of the paths that the user gives; folders below are columns. None:
            no folder is.
        compression: Of text; see `FileSource`.
        text_nulls: Of CSV; see `FileSource`.
        skips_changed: A file of a watched folder that has changed or was removed is left out.
        full: Schema of all columns that there are; None: the same.
        avro_schema: By which Avro files are read, in JSON, with the defaults of fields; empty: none is known.
    """

    format: FileFormat
    schema: pa.Schema
    delimiter: str = ","
    block_bytes: int
    options: Mapping[str, Any]
    on_bad_record: OnBadRecord = "fail"
    used: tuple[str, ...] | None = None
    selection: Selection | None = None
    times: tuple[str, ...] = ()
    given: tuple[str, ...] | None = None
    full: pa.Schema | None = None
    compression: Compression = "infer"
    skips_changed: bool = False
    text_nulls: bool = False
    avro_schema: str = ""

    def codec_of(self, path: str) -> Codec | None:
        """The codec by which the text of a file is compressed; None: it is not."""
        return codec_of(path, self.compression) if self.format in TEXTS else None

    @property
    def names(self) -> list[str]:
        """The names of the columns that are returned."""
        return [name for name in self.schema.names if self.used is None or name in self.used]


def whole_lines(file: pa.NativeFile, offset: int, wanted: int) -> bytes:
    """See `LineBuffer.fill`."""
    buffer = LineBuffer(wanted)
    size = buffer.fill(file, offset, file.size())
    return bytes(buffer.data[:size])


class LineTooLong(UserCodeError):
    """A line is longer than a source reads, so it is not read."""


class LineBuffer:
    """Whole lines of a file, in memory that is used again: fresh memory costs more than reading.

    Args:
        wanted: Bytes to read at once; at least one line is read.
        ends_with_cr: CR ends a line, too, as in CSV; in JSON it is a blank.
    """

    def __init__(self, wanted: int, *, ends_with_cr: bool = False) -> None:
        self._wanted = wanted
        self.ends_with_cr = ends_with_cr
        self.data = np.zeros(wanted + PADDING, np.uint8)
        """The bytes of the lines, padded; valid up to the next `fill`."""

    def fill(self, file: pa.NativeFile, offset: int, end: int) -> int:
        """Reads lines from `offset` on, at most to `end`, where a line ends; how many bytes are whole lines.

        Raises:
            LineTooLong: a line exceeds LINE_BYTES_MAX.
            UserCodeError: the file was changed.
        """
        while True:
            wanted = min(len(self.data) - PADDING, end - offset)
            file.seek(offset)
            size = file.readinto(self.data[:wanted])
            if offset + size >= end:
                return int(size)
            if not size:
                raise UserCodeError(f"it ended at byte {offset} of {end}: it was changed while it was read")
            first = _last_block(size)
            whole = self._line_end(first, size) or self._line_end(0, size)
            if whole:
                return whole
            if size >= LINE_BYTES_MAX:
                raise LineTooLong(f"the line at byte {offset} is longer than {LINE_BYTES_MAX} B")
            self.data = np.zeros(2 * wanted + PADDING, np.uint8)

    def _line_end(self, start: int, size: int) -> int:
        """The position behind the last line end in these bytes; 0: there is none. A CR that is the last byte
        may be half of one."""
        text = bytes(self.data[start:size])
        found = text.rfind(b"\n")
        if self.ends_with_cr:
            found = max(found, text.rfind(b"\r", 0, len(text) - 1))
        return start + found + 1 if found >= 0 else 0


def _last_block(size: int) -> int:
    return max(0, size - _LAST_BYTES)


def untimed_rows(table: pa.Table, spec: FileSpec) -> dict[int, str]:
    """See `untimed`."""
    times = [name for name in spec.times if name in table.column_names]
    if not times or not table.num_rows:
        return {}
    [records] = table.select(times).combine_chunks().to_batches()
    return untimed(records, times)


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
