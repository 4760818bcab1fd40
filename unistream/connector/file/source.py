"""Files as a source: Parquet, ORC, Avro, CSV and JSON lines, on any file system that fsspec supports.

The files are listed once, when the job starts, or again and again (`watch`); a change of one is an error.
Several subtasks read a large file: by row groups (Parquet), stripes (ORC), ranges of blocks (Avro) or of
whole lines (text).
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec
import pyarrow as pa

from unistream.base.config import DurationLike, duration_ms
from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.limits import MIB
from unistream.connector.common import AvroRecord, time_ranges
from unistream.connector.file.bad_lines import DEAD_LETTER_SCHEMA
from unistream.connector.file.compression import Compression, check_compression
from unistream.connector.file.folders import fixed_part
from unistream.connector.file.format import (
    FORMATS,
    ON_BAD_RECORD,
    TEXTS,
    FileFormat,
    FileSpec,
    OnBadRecord,
)
from unistream.connector.file.inference import avro_columns, avro_text, check_avro, infer_schema
from unistream.connector.file.letters import own_letters, read_letters
from unistream.connector.file.listing import (
    FolderWatch,
    Listing,
    Within,
    given_folders,
    has_changed,
    list_files,
    read_footer,
    written_schema,
)
from unistream.connector.file.partition_columns import (
    Folders,
    Values,
    check_alike,
    check_not_in_file,
    inferred,
    lost_columns,
)
from unistream.connector.file.reader import file_reader
from unistream.connector.file.split import is_object_store
from unistream.connector.file.watch import FoundFile
from unistream.model.columns.given_schema import Returns, as_schema
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset, dataset_at
from unistream.model.time_range import TimeRange
from unistream.port.dead_letters import LetterRows
from unistream.port.projection import Selection
from unistream.port.source import SourceReader

OnChange = Literal["fail", "skip"]
DISCOVERY_INTERVAL_MS: Final = 5_000  # as of a Delta source
MIN_AGE_MS: Final = 10_000  # who copies a file rarely stops for longer
SPLIT_BYTES: Final = 32 * MIB  # limits what is decoded again after a restart; large compared to one request
BLOCK_BYTES: Final = 4 * MIB  # about 35,000 JSON lines; parsing is not faster with more

assert get_args(FileFormat) == FORMATS, "the type and the table of formats differ"


class FileSource:
    """Rows of one or many files.

    Args:
        path: A file, a folder (all files below it, except names that begin with ``.`` or ``_``), a glob
            pattern, or a list of these; local or an fsspec URL. The folder of a Delta, Iceberg or Hudi table
            is refused. Folders ``year=2013/`` below it are columns, see `partitions`.
        format: ``"parquet"``, ``"orc"``, ``"avro"`` (object container files), ``"csv"`` (first line = column
            names) or ``"json"`` (one object per line).
        schema: Schema of the rows, also of the columns in names of folders; None: inferred from the first
            file, and all names of folders, at its first use. Of Avro also an `AvroRecord`, with the defaults
            of fields that older files do not have.
        columns: Only these, in this order; the others are not decoded.
        delimiter: Delimiter of CSV values.
        quoted_newlines: CSV values may contain line breaks; then one subtask reads the whole file. False lets
            several subtasks share a CSV file.
        text_nulls: In CSV, what has nothing between its delimiters is null, also a text, and nothing else is
            (``""`` is the empty text): as `FileSink` writes it. False: no text is null. Not with
            ``quoted_newlines=False``.
        split_bytes: Minimum size of a part that one subtask reads, 32 MiB if it is not given; also the most
            that is read again after a restart.
        block_bytes: Text is parsed in pieces of about this size, at least one line; Avro at least one block.
        in_order: The rows follow event time, up to the disorder that the watermark strategy allows: files by
            their paths (numbers in them by value), rows by their positions. Then results come while the
            files are read, and windows need no more memory than for a stream. Without it each split has an
            order of its own, and a split that is not yet read holds back the watermark of the source: by the
            least event time in the statistics of a Parquet file, or entirely. Rows that show the declaration
            to be wrong are counted by file (`JobResult.out_of_order_rows`).
        on_bad_record: What to do with a line of JSON, or of CSV with ``quoted_newlines=False``, that is no
            row: "fail" the job, with file, line and byte; "skip" (counted); or "dead-letter": it goes to the
            side output "dead-letters", which `DataStream.dead_letters_to` writes to a sink.
        partitions: A folder ``column=value`` below a path is a column of its files, as Hive, Spark and
            `FileSink` write it. Without a schema its type is int64, date32 or ``timestamp[us]`` if all
            values are written as such, and text otherwise; Parquet files of a `FileSink` say which it was.
            False: names of folders mean nothing.
        compression: Of CSV and JSON lines: ``"gzip"``, ``"zstd"``, ``"bz2"``, None, or ``"infer"``: by the
            suffix of each file (``.gz``, ``.zst``, ``.bz2``). One subtask reads such a file, and its text
            takes room in the temporary folder while it does.
        continuous: The source never ends: files that come later are read, each once, whatever restarts and
            rescales. A file is the same one if its path, its size, and its ETag or time of change are.
        interval: How often to look for new files, such as ``"30 s"``; 5 s if it is not given.
        min_age: A file is read when it has not changed for this long, as it may still be written. None: 0 in
            object stores, where an object appears as a whole, and 10 s elsewhere.
        ignore_suffixes: Names that end so are passed over, such as ``[".tmp"]``.
        on_change: A file that changes, or is removed before it was read, fails the job (``"fail"``) or is
            left out with a warning (``"skip"``). What was read of it before stays.
        options: Options of the fsspec file system (credentials, endpoint). Text may be ``${env:NAME}`` or
            ``${file:PATH}``, or a `Secret`.

    Raises:
        ConfigError: at `schema` or when the job starts: a path does not exist or matches no file, a file's
            columns do not fit, a folder is a table, a column is in the files and in the names of their
            folders, or only some files are in such a folder.

    >>> FileSource("flights/*.parquet", columns=["origin", "carrier"]).name
    'file'
    """

    def __init__(
        self,
        path: str | Sequence[str],
        *,
        format: FileFormat = "parquet",
        schema: Returns | AvroRecord = None,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        quoted_newlines: bool = True,
        text_nulls: bool = False,
        split_bytes: int | None = None,
        block_bytes: int = BLOCK_BYTES,
        in_order: bool = False,
        on_bad_record: OnBadRecord = "fail",
        partitions: bool = True,
        compression: Compression = "infer",
        continuous: bool = False,
        interval: DurationLike = DISCOVERY_INTERVAL_MS,
        min_age: DurationLike | None = None,
        ignore_suffixes: Sequence[str] = (),
        on_change: OnChange = "fail",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._paths = _checked_paths(path)
        self._must_divide = split_bytes is not None
        split_bytes = SPLIT_BYTES if split_bytes is None else split_bytes
        _check_text(format, split_bytes, block_bytes)
        self._format = format
        self._avro_schema = _checked_avro(schema, format)
        self._full_schema = None if isinstance(schema, AvroRecord) else as_schema(schema, "schema=")
        self._columns = None if columns is None else list(columns)
        self._delimiter = delimiter
        self._quoted_newlines = quoted_newlines
        _check_text_nulls(text_nulls, format, quoted_newlines)
        self._text_nulls = text_nulls
        self._split_bytes = split_bytes
        self._block_bytes = block_bytes
        self._in_order = in_order
        _check_on_bad_record(on_bad_record, format, quoted_newlines=quoted_newlines)
        self._on_bad_record = on_bad_record
        self._partitions = partitions
        check_compression(compression, format)
        self._compression = compression
        self._ignored = _checked_suffixes(ignore_suffixes)
        self._interval_ms, self._watch = _watch(continuous, interval, min_age, on_change, self._paths)
        self._options = dict(options or {})
        self._within: Within | None = None
        self._used: tuple[str, ...] | None = None
        self._selection: Selection | None = None
        self._times: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "file"

    @property
    def dead_letter_schema(self) -> pa.Schema | None:
        """The schema of the side output "dead-letters"; None: there is none."""
        return DEAD_LETTER_SCHEMA if self._on_bad_record == "dead-letter" else None

    @property
    def schema(self) -> pa.Schema:
        declared = self._declared()
        if self._used is None:
            return declared
        return pa.schema([field for field in declared if field.name in self._used])

    def _declared(self) -> pa.Schema:
        if self._full_schema is None:
            self._full_schema = self._inferred()
        if self._columns is None:
            return self._full_schema
        for column in self._columns:
            if column not in self._full_schema.names:
                raise ConfigError(
                    f"file source {self._paths[0]}: no column {column!r}; "
                    f"there are {', '.join(self._full_schema.names)}"
                )
        return pa.schema([self._full_schema.field(column) for column in self._columns])

    def _inferred(self) -> pa.Schema:
        listed = list_files(self._paths, self._options, ignored=self._ignored)
        paths, schema, remembered = self._of_first(listed)
        twice = [name for name, count in Counter(schema.names).items() if count > 1]
        for name in twice:
            if self._columns is None or name in self._columns:
                raise ConfigError(f"file {paths[0]} has more than one column {name!r}")
        if not self._partitions:
            return schema
        if self._columns is None:
            self._check_partitions(paths, schema)
        folders = Folders(given_folders(self._paths))
        values: list[Values] = [folders.values(path) for path in paths]
        named = {name for one in values for name in one}
        read = named if self._columns is None else named & set(self._columns)
        if not read:
            return schema
        check_alike(list(zip(paths, values, strict=True)), read)
        check_not_in_file(paths[0], read, schema.names)
        of_folders = inferred(
            [{name: one[name] for name in one if name in read} for one in values], remembered
        )
        return pa.schema([*schema, *of_folders])

    def _of_first(self, listed: Sequence[FoundFile]) -> tuple[list[str], pa.Schema, pa.Schema | None]:
        """The files from the first one on that is still as it was listed; its columns, and what it says of
        those of folders."""
        try:
            return [file.path for file in listed], *self._of_files(listed[0].path)
        except ConfigError:
            if len(listed) == 1 or not self._is_left_out(listed[0]):
                raise
            return self._of_first(listed[1:])

    def _is_left_out(self, file: FoundFile) -> bool:
        """Whether a file is left out: it is not any more as it was listed, in a watched folder whose files
        may change."""
        watch = self._watch
        return watch is not None and not watch.fails and has_changed(file, watch, self._options)

    def _of_files(self, first: str) -> tuple[pa.Schema, pa.Schema | None]:
        """The columns that are in files, and what a file says of the others."""
        if self._format == "avro":
            text = self._avro_schema or avro_text(first, self._options)
            self._avro_schema = text
            return avro_columns(first, text, self._columns), None
        return infer_schema(
            first,
            self._format,
            self._delimiter,
            self._options,
            self._compression,
            text_nulls=self._text_nulls,
        )

    def _check_partitions(self, found: Sequence[str], schema: pa.Schema) -> None:
        lost = [name for name in lost_columns(given_folders(self._paths), found) if name not in schema.names]
        if lost:
            raise ConfigError(
                f"file source {self._paths[0]}: its paths are folders of different "
                f"{', '.join(f'{column}=…' for column in lost)}, and that would be lost: {found[0]} has "
                f"{', '.join(schema.names)}. Give the folder above them, or a pattern, and it becomes a "
                "column; to read without it, set columns=[…] or partitions=False"
            )

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`; of a pattern the folder above its first wildcard."""
        return [dataset_at(fixed_part(path), self._format) for path in self._paths]

    def info(self) -> SourceInfo:
        listing = Listing(
            paths=self._paths,
            format=self._format,
            whole=self._format == "csv" and self._quoted_newlines,
            split_bytes=self._split_bytes,
            options=self._options,
            within=self._within,
            partitions=self._partitions,
            compression=self._compression,
            must_divide=self._must_divide,
            ignored=self._ignored,
            watch=self._watch,
            schema=written_schema(None if self._full_schema is None else self._declared()),
        )
        options: dict[str, object] = msgspec.to_builtins(listing)
        return SourceInfo(
            connector="file",
            options=options,
            bounded=self._watch is None,
            pull=True,
            in_order=self._in_order,
            discovery_interval_ms=self._interval_ms,
        )

    def event_time_span(self, column: str) -> tuple[int, int] | None:
        """The least and the greatest time in the footers of Parquet files; None: they do not say."""
        if self._format != "parquet" or column not in self.schema.names:
            return None
        declared = str(self.schema.field(column).type)
        spans: list[tuple[int, int]] = []
        for file in list_files(self._paths, self._options, ignored=self._ignored):
            try:
                footer = read_footer(file, self._options)
            except ConfigError:
                if not self._is_left_out(file):
                    raise
                continue
            for bounds in time_ranges(footer, column, declared):
                if bounds is None:
                    return None
                spans.append((bounds.least, bounds.greatest))
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None

    def within(self, column: str, range_: TimeRange) -> FileSource:
        """A copy of the source without the row groups whose statistics say that no time is in the range."""
        found = copy.copy(self)
        found._within = Within(
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
            given=tuple(given_folders(self._paths)) if self._partitions else None,
            full=self._full_schema,
            avro_schema=self._avro_schema,
            compression=self._compression,
            text_nulls=self._text_nulls,
            skips_changed=self._watch is not None and not self._watch.fails,
            delimiter=self._delimiter,
            block_bytes=self._block_bytes,
            options=self._options,
            on_bad_record=self._on_bad_record,
            selection=self._selection,
            times=self._times,
        )


def _checked_paths(path: str | Sequence[str]) -> list[str]:
    """The paths, made absolute. Raises ConfigError."""
    paths = [path] if isinstance(path, str) else list(path)
    if not paths or not all(paths):
        raise ConfigError("a file source needs at least one path, and none may be empty")
    return [one if "://" in one else os.path.abspath(one) for one in paths]


def _checked_avro(schema: object, file_format: str) -> str:
    """The schema that files are read by; empty: none is given. Raises ConfigError."""
    if file_format == "avro":
        require("avro", 'a file source with format="avro"')
    if not isinstance(schema, AvroRecord):
        return ""
    if file_format != "avro":
        raise ConfigError(f'schema=AvroRecord(…) is for format="avro", not {file_format!r}')
    check_avro(schema.schema)
    return schema.schema


def _check_text(file_format: str, split_bytes: int, block_bytes: int) -> None:
    """Checks the format and the sizes of a source. Raises ConfigError: one has a value that there is not."""
    if file_format not in FORMATS:
        raise ConfigError(f"format of a file source must be one of {', '.join(FORMATS)}, not {file_format!r}")
    if split_bytes < 1 or block_bytes < 1:
        raise ConfigError(f"split_bytes and block_bytes must be above 0, not {split_bytes}, {block_bytes}")


def _check_text_nulls(text_nulls: bool, file_format: str, quoted_newlines: bool) -> None:
    """Checks the argument `text_nulls`. Raises ConfigError: the files are not read by it."""
    if text_nulls and not (file_format == "csv" and quoted_newlines):
        raise ConfigError("text_nulls=True is for CSV, and not with quoted_newlines=False")


def _checked_suffixes(given: Sequence[str]) -> list[str]:
    """The argument `ignore_suffixes` as a list. Raises ConfigError: a suffix is empty."""
    suffixes = [given] if isinstance(given, str) else list(given)
    if not all(suffixes):
        raise ConfigError("ignore_suffixes of a file source has an empty suffix, which every file has")
    return suffixes


def _watch(
    continuous: bool,
    interval: DurationLike,
    min_age: DurationLike | None,
    on_change: str,
    paths: Sequence[str],
) -> tuple[int, FolderWatch | None]:
    """The interval, and how the paths are watched. Raises ConfigError."""
    if on_change not in get_args(OnChange):
        raise ConfigError(f"on_change of a file source must be fail or skip, not {on_change!r}")
    if not continuous:
        if min_age is not None or on_change != "fail" or duration_ms(interval) != DISCOVERY_INTERVAL_MS:
            raise ConfigError("interval, min_age and on_change are for a file source with continuous=True")
        return 0, None
    interval_ms = duration_ms(interval)
    if interval_ms < 1:
        raise ConfigError(f"interval of a file source must be above 0, not {interval!r}")
    whole = all(is_object_store(path) for path in paths)
    least = (0 if whole else MIN_AGE_MS) if min_age is None else duration_ms(min_age)
    return interval_ms, FolderWatch(min_age_ms=least, fails=on_change == "fail")


def _check_on_bad_record(on_bad_record: str, file_format: str, *, quoted_newlines: bool) -> None:
    """Checks the argument `on_bad_record`. Raises ConfigError: it is none, or not for files of this
    format."""
    if on_bad_record not in ON_BAD_RECORD:
        raise ConfigError(
            f"on_bad_record of a file source must be one of {', '.join(ON_BAD_RECORD)}, not {on_bad_record!r}"
        )
    if on_bad_record == "fail":
        return
    if file_format not in TEXTS:
        raise ConfigError(
            f"on_bad_record={on_bad_record!r} is for lines of text; a Parquet, ORC or Avro file is read, or "
            "is damaged"
        )
    if file_format == "csv" and quoted_newlines:
        raise ConfigError(
            f"on_bad_record={on_bad_record!r} of CSV needs quoted_newlines=False: where values may have line "
            "breaks, it is not known where the row behind a bad one begins"
        )
