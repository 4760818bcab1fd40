"""The folder that a file sink writes to: staged files, finished files, and the record of what was committed.

    <root>/<bucket>/part-<sink>-<writer>-<counter>-<random>.parquet     finished: readers see it
    <root>/<bucket>/.<the same name>                                     staged, on a local disk
    <root>/_staged/<bucket>/<the same name>                              staged, elsewhere
    <root>/_unistream/<lineage>-<sink>/<checkpoint>.json                 what a checkpoint committed; the
                                                                         newest proves that it is the folder

Readers of such folders (Spark, Hive, DuckDB, pyarrow, `FileSource`) pass over names that begin with a dot or
an underscore. A finished file is made by renaming a staged one (elsewhere by copying and removing).
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import fsspec
import msgspec
from fsspec.implementations.local import LocalFileSystem

from unistream.base import durable_files
from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable
from unistream.base.ids import JobId, LineageId, OperatorUid
from unistream.connector.common import decode_formatted

COMMITTABLE_FORMAT: Final = 1
RECORDS_KEPT: Final = 2  # of committed checkpoints; the newest tells what is done


class PartFile(msgspec.Struct, frozen=True, kw_only=True):
    """One closed file. `bucket`: folder below the root, ending in ``/`` unless empty."""

    bucket: str
    name: str
    size: int
    rows: int

    @property
    def path(self) -> str:
        return f"{self.bucket}{self.name}"


class FileCommittable(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask staged for one checkpoint."""

    root: str
    files: tuple[PartFile, ...]
    format: int = COMMITTABLE_FORMAT


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The decision that these files belong to the output. Made before they are renamed."""

    checkpoint_id: int
    files: tuple[PartFile, ...]


_COMMITTABLE: Final = msgspec.msgpack.Decoder(FileCommittable)
_RECORD: Final = msgspec.json.Decoder(CommitRecord)


def decode_committable(content: bytes) -> FileCommittable:
    """Raises CorruptSnapshot for anything else, another format, or a path that leads out of the root."""
    committable = decode_formatted(_COMMITTABLE, content, sink="file", expected=COMMITTABLE_FORMAT)
    for file in committable.files:
        if not file.name.startswith("part-") or set(file.path.split("/")) & {"", ".", ".."}:
            raise CorruptSnapshot(f"a committable of a file sink names {file.path!r}")
    return committable


def staging_owner(job: JobId, sink_uid: OperatorUid, name: int) -> str:
    """How the names of one writer's files begin, whatever its attempt."""
    return f"part-{_short(sink_uid)}-{job[:16]}-{name}-"


def part_name(owner: str, counter: int, suffix: str) -> str:
    """Unique also among attempts that do not know of each other."""
    return f"{owner}{counter}-{uuid.uuid4().hex[:12]}{suffix}"


def counter_of(owner: str, name: str) -> int | None:
    """The counter in the name of one of `owner`'s files; None: it is another's."""
    if not name.startswith(owner):
        return None
    text = name[len(owner) :].partition("-")[0]
    return int(text) if text.isdecimal() else None


def _short(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", text)[:64]


class FileStage:
    """All that touches the file system.

    Args:
        root: Absolute local path or URL.
        options: Of the fsspec file system.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        try:
            self._system, path = fsspec.core.url_to_fs(root, **options)
        except (ImportError, ValueError, TypeError) as error:
            raise ConfigError(f"file sink: cannot use the file system of {root}: {error}") from error
        self._root = path.rstrip("/")
        self._uri = root
        self._options = options
        self._local = isinstance(self._system, LocalFileSystem)

    def of(self, root: str) -> FileStage:
        """Another folder, with the same options. Raises ConfigError."""
        return FileStage(root, self._options)

    def write(self, bucket: str, name: str, write: Callable[[Any], None]) -> int:
        """A durable staged file -> its bytes.

        Raises:
            ConfigError: no right to write there.
            Unreachable: the storage failed; what was written of it is removed.
        """
        path = self._staged(bucket, name)
        try:
            self._make_folders(_folder(path))
            with open(path, "xb") if self._local else self._system.open(path, "wb") as file:
                write(file)
                if self._local:
                    file.flush()
                    os.fsync(file.fileno())
            if self._local:
                durable_files.sync_folders(_folder(path), self._root)
            return int(self._system.size(path))
        except PermissionError as error:
            raise ConfigError(
                f"file sink: no right to write {bucket}{name} in {self._uri}: {error}"
            ) from error
        except OSError as error:
            self.discard(bucket, name)
            raise Unreachable(f"file sink: could not write {bucket}{name} in {self._uri}: {error}") from error

    def _make_folders(self, folder: str) -> None:
        if self._local:
            durable_files.make_folders(folder)
        else:
            self._system.makedirs(folder, exist_ok=True)

    def discard(self, bucket: str, name: str) -> None:
        """Removes a staged file. Best effort: what stays is never seen."""
        try:
            self._system.rm_file(self._staged(bucket, name))
        except OSError:
            return

    def staged(self, owner: str) -> Iterator[tuple[str, str]]:
        """(bucket, name) of all staged files of one writer, of whatever attempt. Raises Unreachable."""
        top = self._root if self._local else f"{self._root}/_staged"
        try:
            found = [path for path in self._system.find(top) if isinstance(path, str)]
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unreachable(f"file sink: could not list {self._uri}: {error}") from error
        for path in found:
            folder, _, name = path[len(top) + 1 :].rpartition("/")
            if self._local and not name.startswith("."):
                continue
            name = name.removeprefix(".")
            if name.startswith(owner):
                yield (f"{folder}/" if folder else ""), name

    def staged_size(self, file: PartFile) -> int | None:
        """Bytes of the staged file; None: there is none. Raises Unreachable."""
        return self._size(self._staged(file.bucket, file.name))

    def finished_size(self, file: PartFile) -> int | None:
        """Bytes of the finished file; None: there is none. Raises Unreachable."""
        return self._size(f"{self._root}/{file.path}")

    def finish(self, file: PartFile) -> bool:
        """The staged file, which a record names, becomes a finished one; done already if it is there.

        False: there is neither. Only a committer takes a staged file away, and it has made a finished one of
        it; that is the readers', who may have moved or removed it since.

        Raises:
            Unreachable: the storage failed; safe to repeat.
        """
        found = self.finished_size(file)
        if self.staged_size(file) is None:
            return found is not None
        if found == file.size and not self._local:
            self.discard(file.bucket, file.name)  # a move that was cut off in between
        else:
            self._move(self._staged(file.bucket, file.name), f"{self._root}/{file.path}")
        return True

    def _move(self, source: str, target: str) -> None:
        try:
            if self._local:
                os.rename(source, target)
                durable_files.sync_folders(_folder(target), self._root)
            else:
                self._system.mv(source, target)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._size(source) is None:
                return  # it was there just now: another committer of the same record has moved it
            raise Unreachable(f"file sink: could not rename {source} to {target}: {error}") from error

    # --- records ----------------------------------------------------------------------------------

    def committed(self, lineage: LineageId, sink_uid: OperatorUid) -> list[int]:
        """Checkpoints that have a record, ascending. Raises Unreachable."""
        folder = self.records_folder(lineage, sink_uid)
        try:
            self._system.invalidate_cache(folder)
            names = [path.rpartition("/")[2] for path in self._system.ls(folder, detail=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Unreachable(f"file sink: could not list {folder}: {error}") from error
        return sorted(int(n[:-5]) for n in names if n.endswith(".json") and n[:-5].isdecimal())

    def record(self, lineage: LineageId, sink_uid: OperatorUid, checkpoint_id: int) -> CommitRecord:
        """Raises CorruptSnapshot if it is unreadable, Unreachable if the storage is."""
        path = f"{self.records_folder(lineage, sink_uid)}/{checkpoint_id:012d}.json"
        try:
            return _RECORD.decode(self._system.cat_file(path))
        except msgspec.MsgspecError as error:
            raise CorruptSnapshot(f"file sink: the record {path} is unreadable: {error}") from error
        except OSError as error:
            raise Unreachable(f"file sink: could not read the record {path}: {error}") from error

    def decide(self, lineage: LineageId, sink_uid: OperatorUid, record: CommitRecord) -> bool:
        """Writes the record, durable and whole. False: there is one already. (Elsewhere than on a local
        disk two committers at once could both be told True; with checkpoints both name the same files.)"""
        path = f"{self.records_folder(lineage, sink_uid)}/{record.checkpoint_id:012d}.json"
        content = msgspec.json.encode(record)
        try:
            self._make_folders(_folder(path))
            if self._local:
                return durable_files.create(path, content, self._root)
            if self._system.exists(path):
                return False
            self._system.pipe_file(path, content)
        except OSError as error:
            raise Unreachable(f"file sink: could not write the record {path}: {error}") from error
        return True

    def forget(self, lineage: LineageId, sink_uid: OperatorUid, checkpoint_ids: Sequence[int]) -> None:
        """Removes records. Best effort: an old one does no harm."""
        for checkpoint_id in checkpoint_ids:
            try:
                self._system.rm_file(f"{self.records_folder(lineage, sink_uid)}/{checkpoint_id:012d}.json")
            except OSError:
                continue

    def records_folder(self, lineage: LineageId, sink_uid: OperatorUid) -> str:
        """Where the records of one sink are."""
        return f"{self._root}/_unistream/{_short(lineage)}-{_short(sink_uid)}"

    def _staged(self, bucket: str, name: str) -> str:
        return f"{self._root}/{bucket}.{name}" if self._local else f"{self._root}/_staged/{bucket}{name}"

    def _size(self, path: str) -> int | None:
        try:
            self._system.invalidate_cache(_folder(path))
            return int(self._system.info(path)["size"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreachable(f"file sink: could not look up {path}: {error}") from error


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
