"""Files as a bounded source: Parquet, CSV and JSON lines, on any file system that fsspec supports.

The files are listed once, when the job starts; a later change is an error. Several subtasks read a large
file: by row groups (Parquet), or by ranges of whole lines (text).
"""

from __future__ import annotations

import copy
import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, get_args

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError
from unistream.base.limits import MIB
from unistream.base.os_failures import failure
from unistream.connector.common import (
    ListedSplits,
    RowGroupRange,
    discovery_options,
    row_group_ranges,
    time_ranges,
)
from unistream.connector.file.bad_lines import DEAD_LETTER_SCHEMA
from unistream.connector.file.folders import (
    TableSearch,
    below,
    check_no_table_below,
    fixed_part,
    is_hidden,
    lost_columns,
)
from unistream.connector.file.format import (
    FORMATS,
    ON_BAD_RECORD,
    FileFormat,
    FileSpec,
    OnBadRecord,
)
from unistream.connector.file.inference import infer_schema
from unistream.connector.file.letters import own_letters, read_letters
from unistream.connector.file.reader import file_reader
from unistream.connector.file.split import FileSplit, encode_split, file_system, open_file
from unistream.model.given_schema import Returns, as_schema
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset, dataset_at
from unistream.model.messages import Split
from unistream.model.time_range import TimeRange
from unistream.port.dead_letters import LetterRows
from unistream.port.projection import Selection
from unistream.port.source import SourceReader, SplitDiscovery

SPLIT_BYTES: Final = 32 * MIB  # limits what is decoded again after a restart; large compared to one request
BLOCK_BYTES: Final = 4 * MIB  # about 35,000 JSON lines; parsing is not faster with more
SPLITS_MAX: Final = 1_000_000
COMPRESSED: Final = (".gz", ".bz2", ".zst", ".lz4", ".br")  # cannot be split

assert get_args(FileFormat) == FORMATS, "the type and the table of formats differ"


class FileSource:
    """Rows of one or many files.

    Args:
        path: A file, a folder (all files below it, except names that begin with ``.`` or ``_``), a glob
            pattern, or a list of these; local or an fsspec URL. The folder of a Delta, Iceberg or Hudi table
            is refused.
        format: ``"parquet"``, ``"csv"`` (first line = column names) or ``"json"`` (one object per line).
        schema: Schema of the rows; None: inferred from the first file at its first use.
        columns: Only these, in this order; the others are not decoded. Required if columns are only in the
            names of folders (``year=2013/``), which cannot be read.
        delimiter: Delimiter of CSV values.
        quoted_newlines: CSV values may contain line breaks; then one subtask reads the whole file. False lets
            several subtasks share a CSV file.
        split_bytes: Minimum size of a part that one subtask reads; also the most that is read again after a
            restart.
        block_bytes: Text is parsed in pieces of about this size, at least one line.
        in_order: The rows follow event time, up to the disorder that the watermark strategy allows: files by
            their paths (numbers in them by value), rows by their positions. Then results come while the
            files are read, and windows need no more memory than for a stream. Without it each split has an
            order of its own, and a split that is not yet read holds back the watermark of the source: by the
            least event time in the statistics of a Parquet file, or entirely. Rows that show the declaration
            to be wrong are counted by file (`JobResult.out_of_order_rows`).
        on_bad_record: What to do with a line of JSON, or of CSV with ``quoted_newlines=False``, that is no
            row: "fail" the job, with file, line and byte; "skip" (counted); or "dead-letter": it goes to the
            side output "dead-letters", which `DataStream.dead_letters_to` writes to a sink.
        options: Options of the fsspec file system (credentials, endpoint). Text may be ``${env:NAME}`` or
            ``${file:PATH}``, or a `Secret`.

    Raises:
        ConfigError: at `schema` or when the job starts: a path does not exist or matches no file, a file's
            columns do not fit, a folder is a table, or a column is only in the names of folders.

    >>> FileSource("flights/*.parquet", columns=["origin", "carrier"]).name
    'file'
    """

    def __init__(
        self,
        path: str | Sequence[str],
        *,
        format: FileFormat = "parquet",
        schema: Returns = None,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        quoted_newlines: bool = True,
        split_bytes: int = SPLIT_BYTES,
        block_bytes: int = BLOCK_BYTES,
        in_order: bool = False,
        on_bad_record: OnBadRecord = "fail",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        paths = [path] if isinstance(path, str) else list(path)
        if not paths or not all(paths):
            raise ConfigError("a file source needs at least one path, and none may be empty")
        self._paths = [one if "://" in one else os.path.abspath(one) for one in paths]
        if format not in FORMATS:
            raise ConfigError(f"format of a file source must be one of {', '.join(FORMATS)}, not {format!r}")
        if split_bytes < 1 or block_bytes < 1:
            raise ConfigError(
                f"split_bytes and block_bytes must be above 0, not {split_bytes}, {block_bytes}"
            )
        self._format = format
        self._full_schema = as_schema(schema, "schema=")
        self._columns = None if columns is None else list(columns)
        self._delimiter = delimiter
        self._quoted_newlines = quoted_newlines
        self._split_bytes = split_bytes
        self._block_bytes = block_bytes
        self._in_order = in_order
        _check_on_bad_record(on_bad_record, format, quoted_newlines=quoted_newlines)
        self._on_bad_record = on_bad_record
        self._options = dict(options or {})
        self._within: _Within | None = None
        self._used: tuple[str, ...] | None = None
        self._selection: Selection | None = None
        self._times: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "file"

    @property
    def dead_letter_schema(self) -> pa.Schema | None:
        """Schema of the side output "dead-letters"; None: there is none."""
        return DEAD_LETTER_SCHEMA if self._on_bad_record == "dead-letter" else None

    @property
    def schema(self) -> pa.Schema:
        declared = self._declared()
        if self._used is None:
            return declared
        return pa.schema([field for field in declared if field.name in self._used])

    def _declared(self) -> pa.Schema:
        if self._full_schema is None:
            found = [path for path, _ in list_files(self._paths, self._options)]
            schema = infer_schema(found[0], self._format, self._delimiter, self._options)
            twice = [name for name, count in Counter(schema.names).items() if count > 1]
            for name in twice:
                if self._columns is None or name in self._columns:
                    raise ConfigError(f"file {found[0]} has more than one column {name!r}")
            if self._columns is None:
                self._check_partitions(found, schema)
            self._full_schema = schema
        if self._columns is None:
            return self._full_schema
        for column in self._columns:
            if column not in self._full_schema.names:
                raise ConfigError(
                    f"file source {self._paths[0]}: no column {column!r}; "
                    f"there are {', '.join(self._full_schema.names)}"
                )
        return pa.schema([self._full_schema.field(column) for column in self._columns])

    def _check_partitions(self, found: Sequence[str], schema: pa.Schema) -> None:
        lost = [
            column
            for column in lost_columns(found, [fixed_part(path) for path in self._paths])
            if column not in schema.names
        ]
        if lost:
            raise ConfigError(
                f"file source {self._paths[0]}: columns of its rows are only in the names of folders "
                f"({', '.join(f'{column}=…' for column in lost)}), and would be lost: {found[0]} has "
                f"{', '.join(schema.names)}. To read without them, set columns=[…]; or read each folder with "
                "a separate source; or write these columns into the files"
            )

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`; of a pattern the folder above its first wildcard."""
        return [dataset_at(fixed_part(path), self._format) for path in self._paths]

    def info(self) -> SourceInfo:
        listing = _Listing(
            paths=self._paths,
            format=self._format,
            whole=self._format == "csv" and self._quoted_newlines,
            split_bytes=self._split_bytes,
            options=self._options,
            within=self._within,
        )
        options: dict[str, object] = msgspec.to_builtins(listing)
        return SourceInfo(connector="file", options=options, bounded=True, pull=True, in_order=self._in_order)

    def event_time_span(self, column: str) -> tuple[int, int] | None:
        """The least and the greatest time in the footers of Parquet files; None: they do not say."""
        if self._format != "parquet" or column not in self.schema.names:
            return None
        declared = str(self.schema.field(column).type)
        found: list[tuple[int, int]] = []
        for path, size in list_files(self._paths, self._options):
            for one in time_ranges(_footer(path, size, self._options), column, declared):
                if one is None:
                    return None
                found.append((one.least, one.greatest))
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None

    def within(self, column: str, range_: TimeRange) -> FileSource:
        """The same source without the row groups whose statistics say that no time is in the range."""
        found = copy.copy(self)
        found._within = _Within(
            column=column,
            type=str(self.schema.field(column).type),
            begin_ms=range_.begin_ms,
            end_ms=range_.end_ms,
        )
        return found

    def reading(self, columns: frozenset[str]) -> FileSource:
        """See `unistream.port.projection`."""
        found = copy.copy(self)
        found._used = tuple(sorted(columns))  # in pickled code a set has another order in each process
        return found

    def reading_rows(self, selection: Selection) -> FileSource:
        """See `unistream.port.projection`: row groups of Parquet whose statistics say that no row is
        selected."""
        found = copy.copy(self)
        found._selection = selection
        return found

    def timed_by(self, column: str) -> FileSource:
        """See `unistream.port.source.ChecksEventTimes`."""
        found = copy.copy(self)
        found._times = tuple(dict.fromkeys((*self._times, column)))  # a hybrid source names its own, too
        return found

    def own_letters(self, letters: pa.Table) -> pa.Array[Any]:
        """See `unistream.port.dead_letters.ReadsLetters`: those of the paths."""
        return own_letters(letters, self._paths)

    def read_letters(self, letters: pa.Table) -> LetterRows:
        """See `unistream.port.dead_letters.ReadsLetters`."""
        return read_letters(letters, self._spec())

    def create_reader(self) -> SourceReader:
        return file_reader(self._spec())

    def _spec(self) -> FileSpec:
        return FileSpec(
            format=self._format,
            schema=self._declared(),
            used=self._used,
            delimiter=self._delimiter,
            block_bytes=self._block_bytes,
            options=self._options,
            on_bad_record=self._on_bad_record,
            selection=self._selection,
            times=self._times,
        )


def _check_on_bad_record(on_bad_record: str, file_format: str, *, quoted_newlines: bool) -> None:
    """Raises ConfigError."""
    if on_bad_record not in ON_BAD_RECORD:
        raise ConfigError(
            f"on_bad_record of a file source must be one of {', '.join(ON_BAD_RECORD)}, not {on_bad_record!r}"
        )
    if on_bad_record == "fail":
        return
    if file_format == "parquet":
        raise ConfigError(
            f"on_bad_record={on_bad_record!r} is for lines of text; a Parquet file is read, or is damaged"
        )
    if file_format == "csv" and quoted_newlines:
        raise ConfigError(
            f"on_bad_record={on_bad_record!r} of CSV needs quoted_newlines=False: where values may have line "
            "breaks, it is not known where the row behind a bad one begins"
        )


# --- in the master --------------------------------------------------------------------------------


class _Within(msgspec.Struct, frozen=True, kw_only=True):
    """Event times that are needed. `type`: of the column, as in `SourceInfo`."""

    column: str
    type: str
    begin_ms: int
    end_ms: int


class _Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the discovery; JSON values only."""

    paths: list[str]
    format: FileFormat
    whole: bool
    split_bytes: int
    options: dict[str, Any]
    within: _Within | None = None


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Raises ConfigError if the options are not those of `FileSource.info`."""
    listing = discovery_options(info, _Listing, "file")
    return ListedSplits(lambda: _list_splits(listing, info))


def _list_splits(listing: _Listing, info: SourceInfo) -> list[Split]:
    splits: list[Split] = []
    divide = partial(_row_group_parts, info=info) if listing.format == "parquet" else _byte_parts
    for path, size in list_files(listing.paths, listing.options):
        if listing.format != "parquet" and path.endswith(COMPRESSED):
            raise ConfigError(f"file {path}: compressed text cannot be split; decompress it first")
        splits += map(encode_split, divide(path, size, listing))
        if len(splits) > SPLITS_MAX:
            raise ConfigError(f"more than {SPLITS_MAX} splits: increase split_bytes of the file source")
    return splits


def list_files(paths: Sequence[str], options: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(path, size in bytes) of every file, sorted by path, each once.

    Raises:
        ConfigError: a path does not exist or matches no file.
        Unreachable: the storage failed.
    """
    found: dict[str, int] = {}
    for path in paths:
        matched = _list_path(path, options)
        if not matched:
            raise ConfigError(f"no files match {path!r}")
        found.update(matched)
    return sorted(found.items())


def _list_path(path: str, options: Mapping[str, Any]) -> dict[str, int]:
    system, inner = file_system(path, options)
    try:
        if any(char in inner for char in "*?[") and not system.exists(inner):
            names = [name for name in system.glob(inner) if system.isfile(name)]
            names = [name for name in names if not is_hidden(below(name, fixed_part(inner)))]
            tables = TableSearch(system)
            for name in names:
                tables.check(name.rpartition("/")[0])
        elif system.isdir(inner):
            TableSearch(system).check(inner.rstrip("/"))
            every = system.find(inner)
            check_no_table_below(every, inner)
            names = [name for name in every if not is_hidden(below(name, inner))]
        elif system.exists(inner):
            names = [inner]
        else:
            raise ConfigError(f"path {path!r} does not exist")
        is_url = "://" in path
        return {system.unstrip_protocol(n) if is_url else n: int(system.size(n)) for n in names}
    except OSError as error:
        raise failure(f"path {path!r} could not be listed", error) from error


def _row_group_parts(path: str, size: int, listing: _Listing, info: SourceInfo) -> list[FileSplit]:
    """Unless the rows are declared to be in order, only row groups that follow each other in time are
    together."""
    metadata = _footer(path, size, listing.options)
    column = "" if info.in_order else info.timestamp_column
    return [
        FileSplit(
            path=path,
            size=size,
            start=found.start,
            stop=found.stop,
            unit=found.start,
            length=found.length,
            min_timestamp=found.least,
        )
        for found in row_group_ranges(metadata, listing.split_bytes, column, info.timestamp_type)
        if _is_needed(metadata, found, listing.within)
    ]


def _is_needed(metadata: pq.FileMetaData, found: RowGroupRange, within: _Within | None) -> bool:
    """Unless statistics say that no row is in the range."""
    if within is None:
        return True
    times = time_ranges(metadata, within.column, within.type)[found.start : found.stop]
    return any(
        one is None or (one.least < within.end_ms and one.greatest >= within.begin_ms) for one in times
    )


def _footer(path: str, size: int, options: Mapping[str, Any]) -> pq.FileMetaData:
    try:
        with open_file(path, options, size) as file:
            return pq.read_metadata(file)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"file {path} is no Parquet file: {error}") from error


def _byte_parts(path: str, size: int, listing: _Listing) -> list[FileSplit]:
    """Even ranges of at least `split_bytes`; readers extend them to the next line."""
    count = 1 if listing.whole else max(1, size // listing.split_bytes)
    bounds = [size * i // count for i in range(count + 1)]
    return [
        FileSplit(
            path=path, size=size, start=low, stop=high, unit=low, whole=listing.whole, length=high - low
        )
        for low, high in itertools.pairwise(bounds)
    ]
