"""Parts of files: how a split is stored, and how a file is opened.

A split is a range of one file: row groups of a Parquet file, bytes of a text file, or a whole CSV file whose
values may contain line breaks. Its position is (unit, skip): the row group or byte offset to read from, and
how many of its rows were already returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from unistream.base.errors import ConfigError
from unistream.base.object_stores import file_system as file_system_of
from unistream.base.os_failures import failure
from unistream.base.secrets import resolved_options
from unistream.connector.common import encoded_split
from unistream.connector.file.compression import Codec, decompressed
from unistream.connector.file.watch import FoundFile, mark_of, short_mark
from unistream.model.messages import Split

SCHEMES: Final = frozenset(
    {"file", "local", "memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs", "oss"}
)
"""Storage systems only: a job's options must not make the master fetch web addresses."""
OBJECT_STORES: Final = SCHEMES - {"file", "local", "hdfs"}


class FileSplit(msgspec.Struct, frozen=True, kw_only=True):
    """[start, stop) of a file of `size` bytes: row groups (Parquet) or bytes (text): the lines whose first
    byte is in the range. `whole`: a CSV file read from its header to its end. `unit` and `skip`: see
    above. `length`: stored bytes in the range. `min_timestamp`: see `Split`. `mark`: of a file that is found
    in a watched folder (`short_mark`). `rows`: in the range; None: not known."""

    path: str
    size: int
    start: int
    stop: int
    unit: int
    skip: int = 0
    whole: bool = False
    length: int = 0
    min_timestamp: int | None = None
    mark: str = ""
    rows: int | None = None
    v: int = 1


def encode_split(split: FileSplit) -> Split:
    """The id names the range, so it does not depend on the position; and which file it was that had this
    path, if there may be several one after the other."""
    path = f"{split.path}@{split.mark}" if split.mark else split.path
    name = f"{path}:{split.start}-{split.stop}"
    return encoded_split(name, split, split.min_timestamp, split.length, split.rows)


def bytes_left(split: FileSplit, *, is_stream: bool) -> int | None:
    """Stored bytes behind its position; None: not known, as it has begun and is one stream: compressed text
    (`is_stream`), or CSV that is read as a whole.

    >>> part = FileSplit(path="a", size=90, start=0, stop=90, unit=30, length=90)
    >>> bytes_left(part, is_stream=False), bytes_left(part, is_stream=True)
    (60, None)
    """
    has_begun = split.skip > 0 or split.unit > split.start
    if is_stream or split.whole:
        return None if has_begun else split.length
    width = max(1, split.stop - split.start)
    return split.length * max(0, split.stop - split.unit) // width


def is_object_store(path: str) -> bool:
    """Whether the path is one of an object store, which has no folders, and shows an object when all of it is
    there."""
    return path.partition("://")[0] in OBJECT_STORES if "://" in path else False


def file_system(path: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Opens the file system of a path: (fsspec file system, path within it).

    Raises:
        ConfigError: the scheme is unknown, its package is not installed, or an option cannot be resolved.
    """
    scheme = path.partition("://")[0] if "://" in path else "file"
    if scheme not in SCHEMES or "::" in path:
        raise ConfigError(f"{path}: files are read from {', '.join(sorted(SCHEMES))}, not from {scheme!r}")
    plain = resolved_options("option of a file system", options)
    try:
        system, inner = file_system_of(path, plain)
    except (ImportError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: cannot use this file system: {error}") from error
    return system, inner


def file_mark(path: str, options: Mapping[str, Any]) -> str:
    """The `short_mark` of a file now; empty: it is not there. Raises ConfigError, Unreachable."""
    system, inner = file_system(path, options)
    try:
        system.invalidate_cache()
        facts = system.info(inner)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise failure(f"file {path} could not be found", error) from error
    return short_mark(FoundFile(path, int(facts["size"]), mark_of(facts)))


@contextmanager
def open_text(
    path: str,
    options: Mapping[str, Any],
    codec: Codec | None,
    size: int | None = None,
    at_most: int | None = None,
) -> Iterator[pa.NativeFile]:
    """The text of a file. `size`: of the file as it is stored, in the listing; `at_most`: see `decompressed`.

    Raises:
        UserCodeError: it is compressed, and damaged or cut off. Else as `open_file`.
    """
    with open_file(path, options, size) as file:
        if codec is None:
            yield file
            return
        with decompressed(file, codec, path, at_most) as text:
            yield text


def open_file(path: str, options: Mapping[str, Any], size: int | None = None) -> pa.NativeFile:
    """A seekable file; local files do not go through Python. `size`: in the listing; None: any.

    Raises:
        ConfigError: it does not exist, may not be read, or its size has changed.
        Unreachable: the storage failed otherwise.
    """
    system, inner = file_system(path, options)
    try:
        local = isinstance(system, LocalFileSystem)
        file = pa.OSFile(inner) if local else pa.PythonFile(system.open(inner, "rb"), "r")
        found = file.size()
    except FileNotFoundError as error:
        raise ConfigError(f"file {path} does not exist or was removed") from error
    except OSError as error:
        raise failure(f"file {path} could not be opened", error) from error
    if size is not None and found != size:
        file.close()
        raise ConfigError(
            f"file {path} had {size} B when the job listed it and has {found} B now: "
            "a file source reads files that do not change"
        )
    return file
