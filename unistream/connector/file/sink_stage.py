"""The folder that a file sink writes to: staged files, finished files, and records of what was committed.

    <root>/<bucket>/part-<sink>-<writer>-<counter>-<random>.parquet     finished: readers see it
    <root>/_staged/<the same name>.staged                                staged
    (a multipart upload to the final name)                               staged, on S3 (`sink_uploads`)
    <root>/_unistream/line.json                                          which line of jobs writes the folder
    <root>/_unistream/<lineage>-<sink>/<number>.json                     what a checkpoint committed, and its
                                                                         job; the newest identifies the folder
    <root>/_unistream/<lineage>-<sink>/<number>.finished                 on S3: all its uploads are completed

No reader takes a staged file for one of the folder: Spark, Hive, pyarrow and `FileSource` ignore names that
begin with a dot or an underscore; the globs of DuckDB and polars match such names, but not this suffix. A
staged file is renamed when it is finished (on remote systems: copied and removed). Earlier versions staged
files next to the finished ones (`.<name>`, or `_staged/<bucket>/<name>`); these are found there.

The sink never removes the newest record, so a folder without the record of the last commit was removed,
emptied, or put back from an older backup.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from unistream.base import durable_files
from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.base.object_stores import is_s3
from unistream.base.os_failures import failure
from unistream.base.s3_upload import Upload
from unistream.connector.common import StageFiles
from unistream.connector.file.sink_parts import ADJACENT, APART, PartFile, short_name
from unistream.connector.file.sink_uploads import FolderUploads

STATE_FORMAT: Final = 1
R = TypeVar("R")

STAGED: Final = "_staged"
SUFFIX: Final = ".staged"  # readers look for .parquet and .jsonl
RECORDS_KEPT: Final = 2  # the newest shows what is committed


class FileCommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The decision that these files belong to the output. Written before they are renamed.

    Attributes:
        job: That decided it; empty in records of earlier versions.
        snapshot: Directory from which a job can go on behind it; empty: not known.
        committed_us: Wall clock, microseconds since the epoch.
        lineage: Of its line.
    """

    checkpoint_id: int
    files: tuple[PartFile, ...]
    job: str = ""
    snapshot: str = ""
    committed_us: int = 0
    lineage: str = ""


class FirstLine(msgspec.Struct, frozen=True, kw_only=True):
    """The line of jobs that writes the folder."""

    lineage: str
    sink_uid: str


class FileTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The folder after the last commit; see `CommittedTarget`. `job`: that made
    it; empty: not recorded. `until`: the checkpoint up to which its commits are followed."""

    address: str = msgspec.field(name="root")
    checkpoint_id: int
    job: str = ""
    until: int = 0
    format: int = STATE_FORMAT


_RECORD: Final = msgspec.json.Decoder(FileCommitRecord)
_LINE: Final = msgspec.json.Decoder(FirstLine)


class FileStage:
    """All that touches the file system.

    Args:
        root: Absolute local path or URL.
        options: Options of the fsspec file system.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self._where = f"file sink: {root}"
        self._files = StageFiles(root, options, self._where, remote_folders=True)
        self._system, self._root = self._files.system, self._files.root
        self._local = self._files.is_local
        self._uploads = FolderUploads(self._system, self._root, self._where) if is_s3(root) else None
        self._options = options

    def of(self, root: str) -> FileStage:
        """The stage of another folder, with the same options. Raises ConfigError."""
        return FileStage(root, self._options)

    @property
    def has_uploads(self) -> bool:
        """Staged files are multipart uploads."""
        return self._uploads is not None

    def write(self, bucket: str, name: str, rows: int, write: Callable[[Any], None]) -> PartFile:
        """Writes a durable staged file of `rows`. Raises ConfigError, Unreachable."""
        if self._uploads is None:
            size = self._files.write(_apart(name), write)[0]
            return PartFile(bucket=bucket, name=name, size=size, rows=rows, place=APART)
        file = self._uploads.write(f"{self._root}/{bucket}{name}", write)
        return PartFile(
            bucket=bucket,
            name=name,
            size=file.size,
            rows=rows,
            upload=file.upload.id,
            tags=tuple(file.tags),
        )

    def discard(self, file: PartFile) -> None:
        """Removes a staged file. Best effort: readers never see it."""
        if self._uploads is not None and file.upload:
            self._uploads.abort(self._upload(file))
        else:
            self._files.remove(self._staged(file))

    def staged(self, owner: str) -> Iterator[PartFile]:
        """All staged files of one writer, or of all, by any attempt; without their sizes. Raises
        Unreachable."""
        if self._uploads is not None:
            for path, upload in self._uploads.found():
                folder, _, name = path.rpartition("/")
                if name.startswith(owner):
                    yield _named(folder, name, upload.id)
        yield from self._staged_files(owner)

    def _staged_files(self, owner: str) -> Iterator[PartFile]:
        """Yields the files of an owner in `_staged`, and where earlier versions staged them."""
        for path in self._found(f"{self._root}/{STAGED}"):
            folder, _, name = path.rpartition("/")
            if name.removesuffix(SUFFIX).startswith(owner):
                apart = name.endswith(SUFFIX)
                yield _named(folder, name.removesuffix(SUFFIX), place=APART if apart else ADJACENT)
        for path in self._found(self._root) if self._local else ():
            folder, _, name = path.rpartition("/")
            if name.startswith(f".{owner}"):
                yield _named(folder, name[1:])

    def _found(self, top: str) -> list[str]:
        """The relative paths of all files below a folder. Raises Unreachable."""
        try:
            return [path[len(top) + 1 :] for path in self._system.find(top) if isinstance(path, str)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failure(f"{self._where}: could not list it", error) from error

    def tidy(self) -> None:
        """Removes the folder of staged files if it is empty. Best effort."""
        if self._local:
            with suppress(OSError):
                os.rmdir(f"{self._root}/{STAGED}")

    def staged_size(self, file: PartFile) -> int | None:
        """Bytes of the staged file; None: there is none. Raises Unreachable."""
        if self._uploads is not None and file.upload:
            return file.size if self._uploads.has(self._upload(file)) else None
        return self._files.size(self._staged(file))

    def finished_size(self, file: PartFile) -> int | None:
        """Bytes of the finished file; None: there is none. Raises Unreachable."""
        return self._files.size(file.path)

    def finish(self, file: PartFile, *, checked: bool = False) -> bool:
        """Renames a staged file of a record, unless that is done already. Safe to repeat. `checked`: it was
        there a moment ago.

        False: neither file exists. Only committers remove staged files, by renaming them, so readers have
            moved
        or removed the finished file since.

        Raises:
            Unreachable: the storage failed.
        """
        if self._uploads is not None and file.upload:
            if not checked and self.staged_size(file) is None:
                return self.finished_size(file) is not None
            return self._uploads.complete(self._upload(file), file.tags)
        found = self.finished_size(file)
        if self.staged_size(file) is None:
            return found is not None
        if found == file.size and not self._local:
            self.discard(file)  # copied, but not removed
        else:
            self._move(file)
        return True

    def _move(self, file: PartFile) -> None:
        source, target = f"{self._root}/{self._staged(file)}", f"{self._root}/{file.path}"
        try:
            self._files.make_folders(target)
            if self._local:
                os.rename(source, target)
                durable_files.sync_folders(os.path.dirname(target), self._root)
            else:
                self._system.mv(source, target)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.staged_size(file) is None:
                return  # another committer of the same record has renamed it meanwhile
            raise failure(f"{self._where}: could not rename {source} to {target}", error) from error

    # --- records ----------------------------------------------------------------------------------

    def numbers(self, lineage: str, sink_uid: str) -> list[int]:
        """The numbers of a sink's records, ascending. Raises Unreachable."""
        names = self._files.names(self.records_folder(lineage, sink_uid))
        return sorted(int(n[:-5]) for n in names if n.endswith(".json") and n[:-5].isdecimal())

    def newest(self, lineage: str, sink_uid: str) -> tuple[int, FileCommitRecord | None]:
        """The number of the newest record of a sink, and the record; 0: there is none. Raises
        CorruptSnapshot, Unreachable."""
        numbers = self.numbers(lineage, sink_uid)
        if not numbers:
            return 0, None
        path = self._record_path(lineage, sink_uid, numbers[-1])
        return numbers[-1], self._read(path, _RECORD)

    def newest_of_lines(self, sink_uid: str) -> list[FileCommitRecord]:
        """The newest record of each line of a sink with this uid. Raises CorruptSnapshot, Unreachable."""
        return list(self._newest_records(f"-{short_name(sink_uid)}"))

    def decided(self) -> frozenset[str]:
        """Names of the files that the newest commit of any sink has taken into the output, finished or not.
        Raises CorruptSnapshot, Unreachable."""
        return frozenset(file.name for record in self._newest_records("") for file in record.files)

    def _newest_records(self, end: str) -> Iterator[FileCommitRecord]:
        """Yields the newest record of each folder of records whose name ends so."""
        folder = f"{self._root}/_unistream"
        for name in self._files.names(folder):
            if name.endswith(end) and not name.endswith(".json"):
                files = self._files.names(f"{folder}/{name}")
                records = [file for file in files if file.endswith(".json")]
                if records:
                    yield self._read(f"{folder}/{name}/{max(records)}", _RECORD)

    def decide(self, lineage: str, sink_uid: str, number: int, record: FileCommitRecord) -> bool:
        """Writes a record atomically and durably. False: others have decided something behind the record that
        was the newest. (On a file system that cannot create a file only if it is absent, two concurrent
        committers could both get True.)"""
        if not self._files.create(self._record_path(lineage, sink_uid, number), msgspec.json.encode(record)):
            return False
        if self.numbers(lineage, sink_uid)[-1] == number:
            return True
        self.forget(lineage, sink_uid, [number])  # its number was given out before, and is old
        return False

    def forget(self, lineage: str, sink_uid: str, numbers: Sequence[int]) -> None:
        """Removes records. Best effort: an old one does no harm."""
        for number in numbers:
            path = self._record_path(lineage, sink_uid, number)
            for one in (path, _mark(path)) if self.has_uploads else (path,):
                with suppress(OSError):
                    self._system.rm_file(one)

    def is_finished(self, lineage: str, sink_uid: str, number: int, record: FileCommitRecord) -> bool:
        """The files of a record need not be looked up: they were finished, or (the mark is empty) a user says
        so. Raises Unreachable."""
        if self._uploads is None:
            return False
        found = self._uploads.read(_mark(self._record_path(lineage, sink_uid, number)))
        return found in (b"", _marked(record))

    def set_finished(self, lineage: str, sink_uid: str, number: int, record: FileCommitRecord) -> None:
        """Marks a record: all its files are finished. Raises Unreachable."""
        assert self._uploads is not None, "marks are of uploads"
        self._uploads.write_over(_mark(self._record_path(lineage, sink_uid, number)), _marked(record))

    def mark(self, lineage: str, sink_uid: str, number: int) -> str:
        """The URL of what `set_finished` makes."""
        return str(self._system.unstrip_protocol(_mark(self._record_path(lineage, sink_uid, number))))

    def begin_line(self, line: FirstLine) -> None:
        """Records that this line writes the folder, unless another one does.

        Raises:
            ConfigError: the store is not one on which of two committers one decides.
        """
        self._files.create_first(self._line_path, msgspec.json.encode(line))

    def lines(self) -> list[FirstLine | str]:
        """The line that writes the folder, and the folders of records of sinks of any line. Raises
        CorruptSnapshot, Unreachable."""
        names = self._files.names(f"{self._root}/_unistream")
        folders = (name for name in names if not name.startswith(".") and not name.endswith(".json"))
        found: list[FirstLine | str] = list(folders)  # hidden: a file that a kill kept from its name
        return [self._read(self._line_path, _LINE), *found] if "line.json" in names else found

    def _read(self, path: str, decoder: msgspec.json.Decoder[R]) -> R:
        try:
            return decoder.decode(self._content(path))
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"{self._where}: the record {path} is unreadable: {error}") from error
        except OSError as error:
            raise failure(f"{self._where}: could not read the record {path}", error) from error

    def _content(self, path: str) -> bytes:
        """Raises OSError, Unreachable."""
        found = self._system.cat_file(path) if self._uploads is None else self._uploads.read(path)
        if found is None:
            raise FileNotFoundError("it was removed")
        return bytes(found)

    def records_folder(self, lineage: str, sink_uid: str) -> str:
        """The folder of the records of one sink."""
        return f"{self._root}/_unistream/{self.records_prefix(lineage)}{short_name(sink_uid)}"

    def records_prefix(self, lineage: str) -> str:
        """What the names of the folders of records of one line begin with."""
        return f"{short_name(lineage)}-"

    def _record_path(self, lineage: str, sink_uid: str, number: int) -> str:
        return f"{self.records_folder(lineage, sink_uid)}/{number:012d}.json"

    @property
    def _line_path(self) -> str:
        return f"{self._root}/_unistream/line.json"

    def _upload(self, file: PartFile) -> Upload:
        return Upload(f"{self._root}/{file.path}", file.upload)

    def _staged(self, file: PartFile) -> str:
        """The path of a staged file, relative to the root."""
        if file.place == APART:
            return _apart(file.name)
        return f"{file.bucket}.{file.name}" if self._local else f"{STAGED}/{file.path}"


def _apart(name: str) -> str:
    return f"{STAGED}/{name}{SUFFIX}"


def _named(folder: str, name: str, upload: str = "", place: int = ADJACENT) -> PartFile:
    bucket = f"{folder}/" if folder else ""
    return PartFile(bucket=bucket, name=name, size=-1, rows=-1, upload=upload, place=place)


def _mark(record: str) -> str:
    return f"{record.removesuffix('.json')}.finished"


def _marked(record: FileCommitRecord) -> bytes:
    """The content of a record's mark. It says whose it is, so that the mark of a record that was removed by
    hand is not taken for that of a later one."""
    return f"{record.checkpoint_id} {record.job} {record.committed_us}".encode()
