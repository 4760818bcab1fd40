"""Rows of Avro files: each file by its own schema, in the columns of the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector import common
from unistream.connector.file.avro import (
    AvroHeader,
    Block,
    Damaged,
    Window,
    as_one,
    blocks,
    decompressor,
    read_header,
    row_in,
    units,
)
from unistream.connector.file.file_columns import FileColumns
from unistream.connector.file.format import FileSpec, untimed_rows
from unistream.connector.file.split import FileSplit
from unistream.model.columns.event_time import ASSIGN_LATER

_NAMED: Final = "its schema"


def avro_schema(file: pa.NativeFile) -> str:
    """The schema as the file has it, in JSON. Raises Damaged."""
    return read_header(Window(file)).schema


def avro_units(split: FileSplit, columns: FileColumns, file: pa.NativeFile) -> Iterator[common.UnitRows]:
    """
    Raises:
        ConfigError: it is no Avro file, or its fields are not those of the columns.
        UserCodeError: a block is damaged, or a value does not fit.
    """
    spec, window = columns.in_file, Window(file)
    header, rows = _opened(split.path, columns, window)
    try:
        for unit in units(blocks(window, header, split.start, split.stop, split.unit), spec.block_bytes):
            table = pa.Table.from_batches([rows.of(unit)])
            _check_times(unit, table, spec)
            yield common.UnitRows(table, unit[0].at, 0, unit[-1].following)
    except Damaged as damaged:
        raise UserCodeError(f"file {split.path}, {damaged}") from damaged


def _check_times(unit: Sequence[Block], table: pa.Table, spec: FileSpec) -> None:
    for row, reason in untimed_rows(table, spec).items():
        raise Damaged(f"{row_in(unit, row)}: {reason}. {ASSIGN_LATER}")


def _opened(path: str, columns: FileColumns, window: Window) -> tuple[AvroHeader, AvroRows]:
    spec = columns.in_file
    try:
        header = read_header(window)
    except Damaged as damaged:
        raise ConfigError(f"file {path} is no Avro file: {damaged}") from damaged
    try:
        writer = common.parsed(_NAMED, header.schema)
        columns.check_not_in_file([one["name"] for one in writer.root["fields"]])
        decompressor(header.codec)
        reader = common.parsed("schema=", spec.avro_schema) if spec.avro_schema else None
        resolve(writer, reader, spec.schema)
        wanted = pa.schema([spec.schema.field(name) for name in spec.names])
        return header, resolve(writer, reader, wanted)
    except common.UnknownSchema as error:
        raise ConfigError(f"file {path}: {error}") from error


def resolve(writer: common.ParsedSchema, reader: common.ParsedSchema | None, wanted: pa.Schema) -> AvroRows:
    """How records of `writer` become the columns that are wanted.

    Args:
        writer: The schema of a file.
        reader: With defaults and other names of fields; None: there are none.
        wanted: Columns.

    Raises:
        UnknownSchema: they do not fit.
    """
    written = {one["name"]: one["type"] for one in writer.root["fields"]}
    reader_fields = {} if reader is None else {one["name"]: one for one in reader.root["fields"]}
    absent: list[pa.Field] = []
    nested = _lacking(writer, written, wanted, has_defaults=reader is not None)
    for field in wanted:
        if field.name in written:
            continue
        if field.name not in reader_fields:
            raise common.UnknownSchema(_lacks(field.name, written))
        if not written.keys().isdisjoint(reader_fields[field.name].get("aliases", ())):
            nested = True
        elif "default" in reader_fields[field.name]:
            absent.append(field)
        else:
            raise common.UnknownSchema(
                f"it has no field {field.name!r}, which has no default in the schema that files are read by "
                "(of the first file, or schema=)"
            )
    if reader is None or not (nested or absent):
        return AvroRows(common.planned(writer, wanted), wanted, {})
    if nested:
        return AvroRows(common.resolved_by_record(writer, reader, wanted), wanted, {})
    defaults, kinds = common.Defaults(reader), common.read_as(reader, pa.schema(absent))
    values = {
        one.name: pa.array([defaults.of(reader_fields[one.name])], kinds[one.name]).cast(one.type)
        for one in absent
    }
    return AvroRows(common.planned(writer, wanted), wanted, values)


def _lacking(
    writer: common.ParsedSchema, written: Mapping[str, Any], wanted: pa.Schema, *, has_defaults: bool
) -> bool:
    """Whether records inside of records lack a field. Raises UnknownSchema: a type does not fit, or there are
    no defaults."""
    types, lacks = common.Types(writer), False
    for field in wanted:
        if field.name not in written:
            continue
        for name, reason in common.unfit_fields(types, written[field.name], field.type, field.name):
            if reason:
                raise common.UnknownSchema(f"field {name!r} of {writer.called} {reason}")
            if not has_defaults:
                raise common.UnknownSchema(_lacks(name, written))
            lacks = True
    return lacks


def _lacks(name: str, written: Iterable[str]) -> str:
    return (
        f"it has no field {name!r}, and its default is not known; its fields are {', '.join(written)}. "
        "schema=us.AvroRecord(schema=…) says which default a field has in older files"
    )


@dataclass(frozen=True, slots=True)
class AvroRows:
    """Makes the rows of one file. `values`: arrays of the one value of columns that it does not have."""

    plan: common.AvroPlan
    wanted: pa.Schema
    values: dict[str, pa.Array]

    def of(self, unit: Sequence[Block]) -> pa.RecordBatch:
        """The rows of some blocks. Raises Damaged: one is not of the file's schema."""
        others = {name: _repeating(value) for name, value in self.values.items()}
        try:
            found: common.Decoded = self.plan.blocks(*as_one(unit), self.wanted, others)
        except common.NotOfIt as wrong:
            reason = wrong.reason or "it is not one of the schema of the file, or the block ends elsewhere"
            raise Damaged(f"{row_in(unit, wrong.row)}: {reason}") from wrong
        if len(found.bad):
            raise Damaged(f"{row_in(unit, int(found.bad[0]))}: {found.reasons[0].as_py()}")
        return found.records


def _repeating(value: pa.Array) -> common.Build:
    return lambda low, high: value.take(pa.array(np.zeros(high - low, np.int64)))
