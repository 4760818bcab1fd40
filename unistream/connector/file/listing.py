"""Which files a file source has, and how they are divided into splits; runs in the master."""

from __future__ import annotations

import base64
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError
from unistream.base.os_failures import failure
from unistream.connector.common import (
    RowGroupRange,
    row_group_ranges,
    time_ranges,
)
from unistream.connector.file.compression import Compression, codec_of
from unistream.connector.file.folders import (
    TableSearch,
    below,
    check_no_table_below,
    fixed_part,
    is_hidden,
)
from unistream.connector.file.format import TEXTS, FileFormat
from unistream.connector.file.orc import stripe_ranges
from unistream.connector.file.partition_columns import Folders, Values, check_alike, constants
from unistream.connector.file.split import (
    FileSplit,
    encode_split,
    file_mark,
    file_system,
    is_object_store,
    open_file,
)
from unistream.connector.file.watch import FoundFile, changed_file, mark_of, modified_ms, short_mark
from unistream.model.columns.event_time import event_times, is_event_time
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split

SPLITS_MAX: Final = 1_000_000
_log = logging.getLogger(__name__)


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """Event times that are needed. `type`: of the column, as in `SourceInfo`."""

    column: str
    type: str
    begin_ms: int
    end_ms: int


class FolderWatch(msgspec.Struct, frozen=True, kw_only=True):
    """How a folder is watched. `min_age_ms`: how long a file must not have changed; `fails`: a file that
    changes fails the job."""

    min_age_ms: int
    fails: bool


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the discovery; JSON values only.

    Attributes:
        partitions: Names of folders are columns.
        schema: Of the rows, in base64; empty: not known yet.
        must_divide: A file that is larger than `split_bytes` has to be divided.
        ignored: Suffixes of files that are passed over.
        watch: How a folder is watched; None: it is listed once.
    """

    paths: list[str]
    format: FileFormat
    whole: bool
    split_bytes: int
    options: dict[str, Any]
    within: Within | None = None
    partitions: bool = False
    schema: str = ""
    compression: Compression = "infer"
    must_divide: bool = False
    ignored: list[str] = []
    watch: FolderWatch | None = None

    @property
    def folders(self) -> Folders:
        return Folders(given_folders(self.paths) if self.partitions else None)

    def read_schema(self) -> pa.Schema:
        """Reads the schema of the source. Raises ConfigError: it is unreadable."""
        try:
            content = base64.b64decode(self.schema)
            return pa.ipc.read_schema(pa.py_buffer(content)) if content else pa.schema([])
        except (ValueError, OSError) as error:
            raise ConfigError(f"options of a file source: its schema is unreadable: {error}") from error


def written_schema(schema: pa.Schema | None) -> str:
    return "" if schema is None else base64.b64encode(schema.serialize()).decode()


def given_folders(paths: Iterable[str]) -> list[str]:
    """The part of each path that has no wildcards."""
    return [fixed_part(path) for path in paths]


# --- files ----------------------------------------------------------------------------------------


def list_files(
    paths: Sequence[str],
    options: Mapping[str, Any],
    *,
    ignored: Sequence[str] = (),
    may_be_empty: bool = False,
) -> list[FoundFile]:
    """Every file, sorted by path, each once.

    Args:
        paths: Files, folders and patterns.
        options: Of the file system.
        ignored: Suffixes of files that are passed over.
        may_be_empty: They may come later.

    Raises:
        ConfigError: a path does not exist, or matches no file.
        Unreachable: the storage failed.
    """
    found: dict[str, FoundFile] = {}
    for path in paths:
        matched = _list_path(path, options, may_be_empty=may_be_empty)
        matched = [file for file in matched if not file.path.endswith(tuple(ignored))]
        if not matched and not may_be_empty:
            raise ConfigError(f"no files match {path!r}")
        found.update((file.path, file) for file in matched)
    return [found[path] for path in sorted(found)]


def _list_path(path: str, options: Mapping[str, Any], *, may_be_empty: bool) -> list[FoundFile]:
    system, inner = file_system(path, options)
    try:
        system.invalidate_cache()
        if any(char in inner for char in "*?[") and not system.exists(inner):
            every = system.glob(inner, detail=True)
            hidden = {name for name in every if is_hidden(below(name, fixed_part(inner)))}
            tables = TableSearch(system)
            for name in every.keys() - hidden:
                tables.check(name.rpartition("/")[0])
        elif system.isdir(inner):
            TableSearch(system).check(inner.rstrip("/"))
            every = system.find(inner, detail=True)
            check_no_table_below(every, inner)
            hidden = {name for name in every if is_hidden(below(name, inner))}
        elif system.exists(inner):
            every, hidden = {inner: system.info(inner)}, set()
        elif may_be_empty and is_object_store(path):
            every, hidden = {}, set()  # it has no folders, and no files yet
        else:
            raise ConfigError(f"path {path!r} does not exist")
        is_url = "://" in path
        return [
            FoundFile(
                system.unstrip_protocol(name) if is_url else name,
                int(facts["size"]),
                mark_of(facts),
                modified_ms(facts),
            )
            for name, facts in every.items()
            if facts["type"] == "file" and name not in hidden
        ]
    except OSError as error:
        raise failure(f"path {path!r} could not be listed", error) from error


# --- splits ---------------------------------------------------------------------------------------


def list_splits(listing: Listing, info: SourceInfo) -> list[Split]:
    """The splits of all files that there are. Raises as `list_files`, and ConfigError: a file does not
    fit."""
    found = list_files(listing.paths, listing.options, ignored=listing.ignored)
    return splits_of(found, found[:1], listing, info)


def splits_of(
    found: Sequence[FoundFile], others: Sequence[FoundFile], listing: Listing, info: SourceInfo
) -> list[Split]:
    """The splits of these files. `others`: one with which they have to agree about the columns of their
    folders."""
    folders, schema = listing.folders, listing.read_schema()
    if len(schema):
        check_alike([(file.path, folders.values(file.path)) for file in (*others, *found)], schema.names)
    splits: list[Split] = []
    for file in found:
        known = _known(file.path, folders.values(file.path), schema)
        splits += map(encode_split, _splits_if_same(file, listing, info, known))
        if len(splits) > SPLITS_MAX:
            raise ConfigError(f"more than {SPLITS_MAX} splits: increase split_bytes of the file source")
    return splits


def _known(path: str, values: Values, schema: pa.Schema) -> dict[str, pa.Array[Any]]:
    """Columns of event times that are the same in the whole file."""
    times = pa.schema([field for field in schema if is_event_time(field.type)])
    return constants(path, values, times)


def _splits_if_same(
    file: FoundFile, listing: Listing, info: SourceInfo, known: Mapping[str, pa.Array[Any]]
) -> list[FileSplit]:
    """Divides a file into splits: none if it is one of a watched folder that is not any more as it was
    listed, and such files are left out.

    Raises:
        ConfigError: it does not fit, or it is not as it was and that fails the job.
    """
    try:
        return _file_splits(file, listing, info, known)
    except (ConfigError, OSError) as error:
        if not has_changed(file, listing.watch, listing.options):
            raise
        assert listing.watch is not None, "the folder is not watched"
        if listing.watch.fails:
            raise ConfigError(changed_file(file.path)) from error
        _log.warning("event=watched_file_changed files=%s: it is not read", file.path)
        return []


def has_changed(file: FoundFile, watch: FolderWatch | None, options: Mapping[str, Any]) -> bool:
    """A file of a watched folder is another one than that which was listed, or is not there any more."""
    return watch is not None and file_mark(file.path, options) != short_mark(file)


def _file_splits(
    file: FoundFile, listing: Listing, info: SourceInfo, known: Mapping[str, pa.Array[Any]]
) -> list[FileSplit]:
    within = listing.within
    if within is not None and within.column in known:
        at = _event_time(known[within.column])
        if at is None or not within.begin_ms <= at < within.end_ms:
            return []
        within = None
    least = _event_time(known[info.timestamp_column]) if info.timestamp_column in known else None
    column = "" if info.in_order or info.timestamp_column in known else info.timestamp_column
    if listing.format == "parquet":
        parts = _row_group_parts(file, listing, column, info.timestamp_type, within)
    elif listing.format == "orc":
        parts = _stripe_parts(file, listing)
    else:
        parts = _byte_parts(file, listing)
    mark = short_mark(file) if listing.watch is not None else ""
    more = {"mark": mark} if least is None else {"mark": mark, "min_timestamp": least}
    return [msgspec.structs.replace(part, **more) for part in parts]


def _event_time(value: pa.Array[Any]) -> int | None:
    return None if value.null_count else int(event_times(value)[0].as_py())


def _row_group_parts(
    file: FoundFile, listing: Listing, column: str, declared: str, within: Within | None
) -> list[FileSplit]:
    """Unless the rows are declared to be in order, only row groups that follow each other in time are
    together."""
    metadata = read_footer(file, listing.options)
    return [
        FileSplit(
            path=file.path,
            size=file.size,
            start=found.start,
            stop=found.stop,
            unit=found.start,
            length=found.length,
            rows=found.rows,
            min_timestamp=found.least,
        )
        for found in row_group_ranges(metadata, listing.split_bytes, column, declared)
        if _is_needed(metadata, found, within)
    ]


def _is_needed(metadata: pq.FileMetaData, found: RowGroupRange, within: Within | None) -> bool:
    """Unless statistics say that no row is in the range."""
    if within is None:
        return True
    times = time_ranges(metadata, within.column, within.type)[found.start : found.stop]
    return any(
        one is None or (one.least < within.end_ms and one.greatest >= within.begin_ms) for one in times
    )


def read_footer(file: FoundFile, options: Mapping[str, Any]) -> pq.FileMetaData:
    """Raises ConfigError: it is no Parquet file."""
    try:
        with open_file(file.path, options, file.size) as content:
            return pq.read_metadata(content)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"file {file.path} is no Parquet file: {error}") from error


def _stripe_parts(file: FoundFile, listing: Listing) -> list[FileSplit]:
    try:
        with open_file(file.path, listing.options, file.size) as content:
            ranges = stripe_ranges(content, listing.split_bytes)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"file {file.path} is no ORC file: {error}") from error
    length = file.size // max(1, len(ranges))
    return [
        FileSplit(path=file.path, size=file.size, start=low, stop=high, unit=low, length=length)
        for low, high in ranges
    ]


def _byte_parts(file: FoundFile, listing: Listing) -> list[FileSplit]:
    """Divides a file into even ranges of at least `split_bytes`; readers extend them to the next line, or the
    next block."""
    is_whole = listing.whole
    if listing.format in TEXTS and codec_of(file.path, listing.compression) is not None:
        if listing.must_divide and file.size > listing.split_bytes:
            raise ConfigError(
                f"file {file.path}: compressed text is read by one subtask, and split_bytes="
                f"{listing.split_bytes} asks for parts; leave split_bytes out, or decompress the file"
            )
        is_whole = True
    count = 1 if is_whole else max(1, file.size // listing.split_bytes)
    bounds = [file.size * i // count for i in range(count + 1)]
    return [
        FileSplit(
            path=file.path,
            size=file.size,
            start=low,
            stop=high,
            unit=low,
            whole=listing.whole,
            length=high - low,
        )
        for low, high in itertools.pairwise(bounds)
    ]
