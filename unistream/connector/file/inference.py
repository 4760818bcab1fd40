"""Infers the schema of a file."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MIB
from unistream.base.parquet_files import parquet_schema
from unistream.connector.common import NoColumn, UnknownSchema, arrow_schema, parsed, with_values
from unistream.connector.file.avro import Damaged
from unistream.connector.file.avro_rows import avro_schema
from unistream.connector.file.compression import Compression, codec_of
from unistream.connector.file.csv_text import csv_schema
from unistream.connector.file.format import BYTE_ORDER_MARK, LINE_BYTES_MAX, FileFormat, whole_lines
from unistream.connector.file.orc import orc_schema
from unistream.connector.file.partition_columns import remembered_in
from unistream.connector.file.split import open_file, open_text

INFERENCE_BYTES: Final = MIB  # of the first file; Arrow's own block size
_BLANKS: Final = b" \t\r\n"  # of JSON
_BARE_NULL: Final = re.compile(rb"\n[ \t\r]*null")


def infer_schema(
    path: str,
    file_format: FileFormat,
    delimiter: str,
    options: Mapping[str, Any],
    compression: Compression = "infer",
    *,
    text_nulls: bool = False,
) -> tuple[pa.Schema, pa.Schema | None]:
    """Schema of one file: Parquet footer, CSV header and first rows, first JSON lines. And what its writer
    says of the columns in the names of its folders. See `avro_columns` for Avro.

    Raises:
        ConfigError: it is not such a file, or has no row (JSON) or header (CSV).
    """
    try:
        if file_format == "parquet":
            with open_file(path, options) as file:
                return parquet_schema(file), remembered_in(pq.read_metadata(file).metadata)
        if file_format == "orc":
            with open_file(path, options) as file:
                return orc_schema(file), None
        with open_text(path, options, codec_of(path, compression), at_most=LINE_BYTES_MAX) as text:
            if file_format == "csv":
                return csv_schema(text, delimiter, INFERENCE_BYTES, text_nulls=text_nulls), None
            sample = whole_lines(text, 0, INFERENCE_BYTES)
            _refuse_bare_nulls(sample)
            return pa_json.read_json(pa.BufferReader(sample), _json_blocks(sample)).schema, None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UserCodeError) as error:
        raise ConfigError(
            f"file {path}: no schema can be inferred as {file_format}: {error}; or pass schema="
        ) from error


def avro_text(path: str, options: Mapping[str, Any]) -> str:
    """The schema in the header of a file, as JSON. Raises ConfigError: it has none."""
    try:
        with open_file(path, options) as file:
            return avro_schema(file)
    except Damaged as damaged:
        raise ConfigError(f"file {path} is no Avro file: {damaged}") from damaged


def check_avro(text: str) -> None:
    """Raises ConfigError: what a user gives is no schema of Avro, or a default is none of its field."""
    try:
        with_values(parsed("schema=", text))
    except UnknownSchema as error:
        raise ConfigError(f"file source: {error}") from error


def avro_columns(path: str, text: str, columns: Collection[str] | None) -> pa.Schema:
    """The columns of a schema of Avro. `columns`: those that are read; None: all. Raises ConfigError: one is
    none."""
    try:
        return arrow_schema(parsed("its schema", text), columns)
    except NoColumn as error:
        raise ConfigError(f"file {path}: {error}; leave it out with columns=[…], or pass schema=") from error
    except UnknownSchema as error:
        raise ConfigError(f"file {path}: {error}") from error


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
