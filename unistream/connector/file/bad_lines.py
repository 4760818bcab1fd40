"""Lines of a text file that are no rows: left out, or kept as dead letters with their place in the file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from unistream.base.bisection import bisected
from unistream.base.limits import MIB
from unistream.connector.common import UnitRows
from unistream.connector.file.csv_text import Parser, count_line_ends, lines_of
from unistream.connector.file.format import FileFormat, FileSpec

DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("line", pa.int64()),  # from 1; null beyond COUNTED_BYTES_MAX
        ("byte", pa.int64()),  # where the line begins
        ("reason", pa.string()),
        ("raw", pa.binary()),
    ]
)
"""A line that is no row: its place, the reason, and the line without its end."""

COUNTED_BYTES_MAX: Final = 256 * MIB  # to number a line, what is before it has to be read again
SCAN_BYTES: Final = MIB


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no row. `byte`: where it begins in the file; `raw`: with or without its end."""

    byte: int
    raw: bytes
    reason: str | None


@dataclass(slots=True)
class BadLines:
    """Makes units of one split, in the order of its lines, and dead letters of those that are no rows."""

    path: str
    spec: FileSpec
    file: pa.NativeFile
    _counted: tuple[int, int] = field(default=(0, 0), init=False)  # bytes, and line breaks in them

    def unit(self, table: pa.Table, bad: Sequence[BadLine], at: int, end: int) -> UnitRows:
        """The unit at `at` with the rows `table`, up to byte `end` of the file."""
        if self.spec.on_bad_record == "skip":
            return UnitRows(table, at, 0, end, skipped=len(bad))
        columns = [
            pa.array([self.path] * len(bad)),
            pa.array([self._line(one.byte) for one in bad], pa.int64()),
            pa.array([one.byte for one in bad], pa.int64()),
            pa.array([one.reason for one in bad], pa.string()),
            pa.array([one.raw.rstrip(b"\r\n") for one in bad], pa.binary()),
        ]
        letters = pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTER_SCHEMA)
        return UnitRows(table, at, 0, end, dead_letters=letters)

    def _line(self, byte: int) -> int | None:
        if byte > COUNTED_BYTES_MAX:
            return None
        start, count = self._counted
        if byte < start:
            start = count = 0
        self._counted = (byte, count + count_lines(self.file, start, byte, self.spec.format))
        return self._counted[1] + 1


def parsed_apart(
    lines: bytes, offset: int, parse: Parser, schema: pa.Schema
) -> tuple[pa.Table, list[BadLine]]:
    """The rows of the lines that can be parsed, and the other lines; `offset`: of `lines` in the file."""
    rows = lines_of(lines)
    good, bad = bisected(
        len(rows),
        lambda start, stop: parse(b"".join(rows[start:stop])),
        lambda error: isinstance(error, pa.ArrowInvalid),
    )
    starts = list(itertools.accumulate(map(len, rows), initial=offset))
    table = pa.concat_tables([schema.empty_table(), *(part for _, part in good)])
    return table, [BadLine(starts[row], rows[row], str(bad[row])) for row in sorted(bad)]


def count_lines(file: pa.NativeFile, start: int, end: int, file_format: FileFormat) -> int:
    """Line breaks in the bytes [start, end), which begin and end between lines. In JSON, CR is a blank."""
    file.seek(start)
    count, read, after_cr = 0, start, False
    while read < end:
        content = bytes(file.read(min(SCAN_BYTES, end - read)))
        if file_format == "csv":
            count += count_line_ends(content) - (after_cr and content.startswith(b"\n"))
            after_cr = content.endswith(b"\r")
        else:
            count += content.count(b"\n")
        read += len(content)
    return count
