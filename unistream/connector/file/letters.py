"""Dead letters as lines again, which a source reads by its schema as it is now."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec.utils import glob_translate

from unistream.base.bisection import bisected
from unistream.base.errors import ConfigError
from unistream.connector.common import JsonReader, padded, untimed
from unistream.connector.file.bad_lines import DEAD_LETTER_SCHEMA
from unistream.connector.file.csv_text import csv_parser, read_header
from unistream.connector.file.file_columns import FileColumns
from unistream.connector.file.format import LINE_BYTES_MAX, FileSpec
from unistream.connector.file.split import open_text
from unistream.port.dead_letters import LetterRows


def own_letters(letters: pa.Table, paths: Sequence[str]) -> pa.Array[Any]:
    """See `unistream.port.dead_letters.ReadsLetters`. `paths`: files, folders and glob patterns."""
    if not set(DEAD_LETTER_SCHEMA.names) <= set(letters.schema.names):
        return pa.repeat(pa.scalar(False), letters.num_rows)
    found = letters["path"].to_pylist()
    own = {one for one in set(found) if any(covers(path, one) for path in paths)}
    return pa.array([one in own for one in found], pa.bool_())


def covers(path: str, file: str) -> bool:
    """A source of `path` reads `file`, or did when that was there.

    >>> [covers("/in/2013-*/*.json", f"/in/{name}") for name in ("2013-01/a.json", "a.json", "2013-01/a.csv")]
    [True, False, False]
    >>> covers("s3://lake/in", "s3://lake/in/01/a.json"), covers("/in", "/input/a.json")
    (True, False)
    """
    if file == path or file.startswith(f"{path.rstrip('/')}/"):
        return True
    return any(char in path for char in "*?[") and bool(re.fullmatch(glob_translate(path), file))


def read_letters(letters: pa.Table, spec: FileSpec) -> LetterRows:
    """See `unistream.port.dead_letters.ReadsLetters`; `letters` in the columns of `DEAD_LETTER_SCHEMA`.

    Raises:
        ConfigError: CSV, and the file whose header names the columns is gone.
    """
    lines = letters["raw"].to_pylist()
    rows: list[pa.RecordBatch | None] = [None] * len(lines)
    reasons: dict[int, str] = {}
    files = defaultdict(list)
    for at, path in enumerate(letters["path"].to_pylist()):
        files[path].append(at)
    for path, places in files.items():
        of_file = [lines[at] for at in places]
        columns = FileColumns(path, spec)
        read = (
            _read_json(of_file, columns.in_file)
            if spec.format == "json"
            else _read_csv(of_file, path, columns.in_file)
        )
        for at, found in zip(places, read, strict=True):
            if isinstance(found, str):
                reasons[at] = found
            else:
                [rows[at]] = columns.rows(pa.Table.from_batches([found])).combine_chunks().to_batches()
    return LetterRows(rows, [None] * len(lines), reasons)


def _read_json(lines: Sequence[bytes], spec: FileSpec) -> list[pa.RecordBatch | str]:
    """Reads each line of JSON as its row, or as the reason why it is none."""
    lengths = np.array(list(map(len, lines)), np.int64)
    found = JsonReader(spec.schema, spec.used).read(padded(*lines), np.cumsum(lengths) - lengths, lengths)
    read: list[Any] = [None] * len(lines)
    without = untimed(found.records, spec.times)
    for row, at in enumerate(found.rows.tolist()):
        read[at] = without.get(row) or found.records.slice(row, 1)
    for at, reason in zip(found.bad.tolist(), found.reasons.to_pylist(), strict=True):
        read[at] = reason
    return read


def _read_csv(lines: Sequence[bytes], path: str, spec: FileSpec) -> list[pa.RecordBatch | str]:
    try:
        with open_text(path, spec.options, spec.codec_of(path), at_most=LINE_BYTES_MAX) as file:
            parse = csv_parser(spec, read_header(file, spec.delimiter).names, row_is_line=True)
    except ConfigError as error:
        raise ConfigError(
            f"the header of {path} names the columns of its lines, and cannot be read: {error}"
        ) from error

    def attempt(start: int, stop: int) -> pa.Table:
        table = parse(b"".join(line + b"\n" for line in lines[start:stop])).select(spec.names)
        if table.num_rows != stop - start:
            raise pa.ArrowInvalid(f"it gives {table.num_rows} rows instead of one")
        return table

    good, bad = bisected(len(lines), attempt, lambda error: isinstance(error, pa.ArrowInvalid))
    read: list[Any] = [str(bad.get(at)) for at in range(len(lines))]
    for start, table in good:
        [records] = table.combine_chunks().to_batches()
        read[start : start + table.num_rows] = [records.slice(row, 1) for row in range(table.num_rows)]
    return read
