"""Decodes a split into batches of rows, each with the position that follows it: row groups of a Parquet file,
or some MB of whole lines (or of blocks of Avro) at a byte offset. See `connector.common.row_groups`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MIB
from unistream.base.parquet_files import int96_columns, parquet_file
from unistream.connector.common import (
    JsonReader,
    RowChunk,
    UnitRows,
    chunks,
    line_spans,
    row_groups,
    selected_groups,
    untimed,
)
from unistream.connector.file.avro_rows import avro_units
from unistream.connector.file.bad_lines import BadLine, BadLines, count_lines, parsed_apart
from unistream.connector.file.csv_text import LINE_END as CSV_LINE_END
from unistream.connector.file.csv_text import (
    CsvHeader,
    Parser,
    csv_parser,
    lines_of,
    named,
    read_header,
    whole_blocks,
)
from unistream.connector.file.file_columns import FileColumns
from unistream.connector.file.format import (
    BLANK,
    BYTE_ORDER_MARK,
    SAMPLE_CHARS,
    FileSpec,
    LineBuffer,
    LineTooLong,
    check_columns,
    check_nulls,
    untimed_rows,
)
from unistream.connector.file.orc import as_declared, orc_file, stripes
from unistream.connector.file.split import FileSplit, file_mark, open_text
from unistream.connector.file.watch import changed_file
from unistream.model.columns.event_time import ASSIGN_LATER

SCAN_BYTES: Final = MIB
LINE_END: Final = re.compile(rb"\n")
_log = logging.getLogger(__name__)


def decode(split: FileSplit, spec: FileSpec) -> Iterator[RowChunk[FileSplit]]:
    """The remaining rows of the split.

    Raises:
        ConfigError: the file was removed, has changed, or its columns do not fit.
        UserCodeError: its content cannot be parsed; names file, line and byte.
        Unreachable: the storage failed.
    """
    columns = FileColumns(split.path, spec)
    if not columns.are_needed():
        return
    if not split.mark:
        yield from _rows(split, spec, columns)
    elif _is_same(split, spec):
        try:
            yield from _rows(split, spec, columns)
        except (ConfigError, UserCodeError, OSError):
            if _is_same(split, spec):  # else that is the reason, whatever was found in it
                raise


def _rows(split: FileSplit, spec: FileSpec, columns: FileColumns) -> Iterator[RowChunk[FileSplit]]:
    with open_text(split.path, spec.options, spec.codec_of(split.path), split.size) as file:
        units = _units(_of_text(split, spec, file), columns, file)
        yield from chunks(split, (replace(unit, table=columns.rows(unit.table)) for unit in units))


def _is_same(split: FileSplit, spec: FileSpec) -> bool:
    """Whether a file is still the one that was found in a watched folder. False: it is not, and is left out.

    Raises:
        ConfigError: it is not, and that fails the job.
    """
    if file_mark(split.path, spec.options) == split.mark:
        return True
    if not spec.skips_changed:
        raise ConfigError(changed_file(split.path))
    _log.warning("event=watched_file_changed files=%s: the rest of it is not read", split.path)
    return False


def _of_text(split: FileSplit, spec: FileSpec, file: pa.NativeFile) -> FileSplit:
    """The split in the text of its file: of an archive it is the whole text, whose size is not known
    before."""
    if spec.codec_of(split.path) is None:
        return split
    size = file.size()
    return msgspec.structs.replace(split, size=size, start=0, stop=size)


def _units(split: FileSplit, columns: FileColumns, file: pa.NativeFile) -> Iterator[UnitRows]:
    match columns.in_file.format:
        case "parquet":
            return _parquet_units(split, columns, file)
        case "orc":
            return _orc_units(split, columns, file)
        case "avro":
            return avro_units(split, columns, file)
        case "json":
            return _json_units(split, columns, file)
        case "csv":
            return _csv_units(split, columns, file)


def _csv_units(split: FileSplit, columns: FileColumns, file: pa.NativeFile) -> Iterator[UnitRows]:
    """Reads the units of a CSV file. One without a header has none: it is empty."""
    spec = columns.in_file
    try:
        header = read_header(file, spec.delimiter)
    except (pa.ArrowInvalid, UserCodeError) as error:
        raise UserCodeError(f"file {split.path}, line 1: {error}") from error
    if not header.names:
        return iter(())
    columns.check_not_in_file(header.names)
    check_columns(split.path, named(header.names, spec.schema), spec.schema)
    if split.whole:
        return _whole_csv_units(split, spec, file, header)
    parser = csv_parser(spec, header.names, row_is_line=True)
    return _text_units(split, spec, file, parser, header.end)


# --- Parquet --------------------------------------------------------------------------------------


def _parquet_units(split: FileSplit, columns: FileColumns, file: pa.NativeFile) -> Iterator[UnitRows]:
    spec = columns.in_file
    try:
        parquet = parquet_file(file, pre_buffer=True)
        columns.check_not_in_file(parquet.schema_arrow.names)
        check_columns(split.path, parquet.schema_arrow, spec.schema)
        wanted = pa.schema([spec.schema.field(name) for name in spec.names])
        exact = _Nanoseconds(file, parquet.metadata, wanted)
        needed = selected_groups(
            file,
            range(split.unit, split.stop),
            begun=split.skip > 0,
            found=parquet.schema_arrow,
            selection=spec.selection,
            schema=columns.with_known(spec.schema),
            constants={name: value[0] for name, value in columns.known.items()},
        )
        for unit in row_groups(parquet, needed, spec.names):
            table = _conform(unit.table, wanted)
            for row, reason in untimed_rows(table, spec).items():
                where = f"row group {unit.at}, row {unit.base + row + 1}"
                raise UserCodeError(f"file {split.path}, {where}: {reason}. {ASSIGN_LATER}")
            yield replace(unit, table=exact.added(unit, table))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the storage; Arrow reports damaged pages as an OSError without a number
        groups = f"row groups {split.start} to {split.stop - 1}"
        raise UserCodeError(f"file {split.path}, {groups}: unreadable Parquet: {error}") from error


def _orc_units(split: FileSplit, columns: FileColumns, file: pa.NativeFile) -> Iterator[UnitRows]:
    spec = columns.in_file
    try:
        orc = orc_file(file)
        columns.check_not_in_file(orc.schema.names)
        check_columns(split.path, as_declared(orc.schema, spec.schema), spec.schema)
        wanted = pa.schema([spec.schema.field(name) for name in spec.names])
        for unit in stripes(orc, range(split.unit, split.stop), spec.names):
            table = _conform(unit.table, wanted)
            for row, reason in untimed_rows(table, spec).items():
                where = f"stripe {unit.at}, row {row + 1}"
                raise UserCodeError(f"file {split.path}, {where}: {reason}. {ASSIGN_LATER}")
            yield replace(unit, table=table)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the storage
        where = f"stripes {split.start} to {split.stop - 1}"
        raise UserCodeError(f"file {split.path}, {where}: unreadable ORC: {error}") from error


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, in its order and types. Raises ArrowInvalid for values that do not fit."""
    table = table.select(schema.names)
    if table.schema.equals(schema):
        return table.replace_schema_metadata(None)
    columns = [_as_field(table.column(index), field) for index, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def _as_field(column: pa.ChunkedArray, wanted: pa.Field) -> pa.ChunkedArray:
    check_nulls(column, wanted)
    try:
        if not pa.types.is_dictionary(wanted.type) or pa.types.is_dictionary(column.type):
            return column.cast(wanted.type)
        # by way of its values: Arrow makes dictionaries of texts only
        return column.cast(wanted.type.value_type).dictionary_encode().cast(wanted.type)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {wanted.name!r}: {error}") from error


class _Nanoseconds:
    """Times that are stored as INT96 and declared in nanoseconds, with the digits below a microsecond.

    They are read twice: in microseconds, which holds them all, and shows that they fit; then in nanoseconds.
    """

    def __init__(self, file: pa.NativeFile, metadata: pq.FileMetaData, wanted: pa.Schema) -> None:
        stored = int96_columns(metadata)
        self._names = [
            field.name
            for field in wanted
            if field.name in stored and pa.types.is_timestamp(field.type) and field.type.unit == "ns"
        ]
        self._file = parquet_file(file, int96_unit="ns") if self._names else None
        self._group, self._rows = -1, pa.table({})

    def added(self, unit: UnitRows, table: pa.Table) -> pa.Table:
        """Gives times their digits below a microsecond. `table`: the rows of the unit; all times fit."""
        if self._file is None:
            return table
        if unit.at != self._group:
            self._rows = self._file.read_row_group(unit.at, columns=self._names, use_threads=False)
            self._group = unit.at
        rows = self._rows.slice(unit.base, table.num_rows)
        for name in self._names:
            at = table.schema.get_field_index(name)
            table = table.set_column(
                at, table.schema.field(at), rows.column(name).cast(table.column(at).type)
            )
        return table


# --- lines ----------------------------------------------------------------------------------------


def _json_units(split: FileSplit, columns: FileColumns, file: pa.NativeFile) -> Iterator[UnitRows]:
    spec = columns.in_file
    reader = JsonReader(spec.schema, spec.used)
    block, bad_lines = LineBuffer(spec.block_bytes), BadLines(split.path, spec, file)
    for at, offset, size, long in _blocks(split, spec, file, block):
        if long is not None:
            yield bad_lines.unit(_no_rows(spec), [long], at, offset + size)
            continue
        if offset == 0 and bytes(block.data[: len(BYTE_ORDER_MARK)]) == BYTE_ORDER_MARK:
            block.data[: len(BYTE_ORDER_MARK)] = BLANK
        if offset == 0 and columns.known:
            columns.check_not_in_file(_names_in(bytes(block.data[:size])))
        starts, lengths = line_spans(block.data, size)
        json_rows = reader.read(block.data, starts, lengths)
        without = untimed(json_rows.records, spec.times)
        table = pa.Table.from_batches([json_rows.records])
        if not len(json_rows.bad) and not without:
            yield UnitRows(table, at, 0, offset + size)
            continue
        table = table.take(pa.array(np.delete(np.arange(table.num_rows), list(without))))
        reasons = dict(zip(json_rows.bad.tolist(), json_rows.reasons.to_pylist(), strict=True))
        reasons |= {int(json_rows.rows[row]): reason for row, reason in without.items()}
        bad = [
            BadLine(offset + start, bytes(block.data[start : start + length]), reasons[row])
            for row in sorted(reasons)
            for start, length in [(int(starts[row]), int(lengths[row]))]
        ]
        if spec.on_bad_record == "fail":
            raise _bad_line(split, spec, file, bad[0])
        yield bad_lines.unit(table, bad, at, offset + size)


def _names_in(lines: bytes) -> list[str]:
    """The names of the fields of the first object."""
    try:
        found = json.loads(lines.lstrip().partition(b"\n")[0])
    except ValueError:
        return []
    return list(found) if isinstance(found, dict) else []


def _text_units(
    split: FileSplit, spec: FileSpec, file: pa.NativeFile, parse: Parser, data_start: int
) -> Iterator[UnitRows]:
    block = LineBuffer(spec.block_bytes, ends_with_cr=True)
    bad_lines = BadLines(split.path, spec, file)
    for at, offset, size, long in _blocks(split, spec, file, block, data_start):
        if long is not None:
            yield bad_lines.unit(_no_rows(spec), [long], at, offset + size)
            continue
        lines = bytes(block.data[:size])
        try:
            table = parse(lines)
        except pa.ArrowInvalid as error:
            if spec.on_bad_record == "fail":
                row, line, reason = _first_bad_line(lines, parse)
                raise _bad_line(split, spec, file, BadLine(offset + row, line, reason)) from error
            table, bad = parsed_apart(lines, offset, parse, spec.schema)
            yield bad_lines.unit(table.select(spec.names), bad, at, offset + size)
            continue
        yield UnitRows(table.select(spec.names), at, 0, offset + size)


def _no_rows(spec: FileSpec) -> pa.Table:
    return pa.schema([spec.schema.field(name) for name in spec.names]).empty_table()


def _blocks(
    split: FileSplit, spec: FileSpec, file: pa.NativeFile, block: LineBuffer, data_start: int = 0
) -> Iterator[tuple[int, int, int, BadLine | None]]:
    """Fills `block` with the lines of the split, some MB after some MB: (unit, offset in the file, bytes, a
    line that is too long, which is not in the block). `split.unit` is where a line starts, except at the
    start of a split."""
    at = split.unit
    line_end = CSV_LINE_END if block.ends_with_cr else LINE_END
    offset = at if at > split.start else _line_start(file, split.start, split.size, data_start, line_end)
    end = _line_start(file, split.stop, split.size, data_start, line_end)
    while offset < end:
        long = None
        try:
            size = block.fill(file, offset, end)
        except LineTooLong as error:
            if spec.on_bad_record == "fail":
                raise UserCodeError(f"file {split.path}: {error}") from error
            long, size = _too_long(file, offset, end, str(error), line_end)
        except UserCodeError as error:
            raise UserCodeError(f"file {split.path}: {error}") from error
        yield at, offset, size, long
        offset += size
        at = offset


def _too_long(
    file: pa.NativeFile, offset: int, end: int, reason: str, line_end: re.Pattern[bytes]
) -> tuple[BadLine, int]:
    """The beginning of the line at `offset`, and its bytes."""
    size = _line_start(file, offset + 1, end, 0, line_end) - offset
    file.seek(offset)
    return BadLine(offset, bytes(file.read(min(SCAN_BYTES, size))), reason), size


def _bad_line(split: FileSplit, spec: FileSpec, file: pa.NativeFile, bad: BadLine) -> UserCodeError:
    sample = bad.raw.decode(errors="replace").strip()[:SAMPLE_CHARS]
    number = count_lines(file, 0, bad.byte, spec.format) + 1
    return UserCodeError(f"file {split.path}, line {number} (byte {bad.byte}): {bad.reason}: {sample!r}")


def _line_start(file: pa.NativeFile, at: int, size: int, data_start: int, line_end: re.Pattern[bytes]) -> int:
    """The first offset >= `at` where a line starts."""
    if at <= data_start or at >= size:
        return min(max(at, data_start), size)
    scanned = at - 1
    while scanned < size:
        file.seek(scanned)
        content = bytes(file.read(SCAN_BYTES))
        found = line_end.search(content)
        if found is None:
            scanned += len(content)
        elif found[0] == b"\r" and found.end() == len(content) and scanned + len(content) < size:
            scanned += found.start()  # LF may follow
        else:
            return int(scanned + found.end())
    return size


def _first_bad_line(lines: bytes, parse: Parser) -> tuple[int, bytes, str | None]:
    """Finds the first line that cannot be parsed, by bisection: (offset in `lines`, the line, reason)."""
    rows = lines_of(lines)
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        if _parse_error(b"".join(rows[low:middle]), parse) is None:
            low = middle
        else:
            high = middle
    return sum(len(row) for row in rows[:low]), rows[low], _parse_error(rows[low], parse)


def _parse_error(lines: bytes, parse: Parser) -> str | None:
    try:
        parse(lines)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _whole_csv_units(
    split: FileSplit, spec: FileSpec, file: pa.NativeFile, header: CsvHeader
) -> Iterator[UnitRows]:
    parse, base = csv_parser(spec, header.names, row_is_line=False), 0
    without: dict[int, str] = {}
    try:
        for rows in whole_blocks(file, spec.delimiter, header.end, spec.block_bytes):
            table = parse(rows)
            without = untimed_rows(table, spec)
            if without:
                break
            yield UnitRows(table.select(spec.names), split.unit, base, None)
            base += table.num_rows
    except (pa.ArrowInvalid, UserCodeError) as error:
        raise UserCodeError(f"file {split.path}, after row {base}: {error}") from error
    for row, reason in without.items():
        raise UserCodeError(f"file {split.path}, row {base + row + 1}: {reason}. {ASSIGN_LATER}")
