"""Staged files of a file sink on S3: multipart uploads to the final names, as of Flink's RecoverableWriter.

The writer uploads the parts; what names the upload and its parts is in the committable. To commit is to
complete the upload: nothing is copied or renamed, and readers see nothing before. The parts of an upload cost
storage until it is completed or aborted, and no listing of objects shows them.

An upload may be completed once. If it is gone, the object says whether it was completed, unless a reader has
taken the object away since; so a record gets a mark when all its uploads are completed, and with a mark
nothing is asked any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.object_stores import part_bytes
from unistream.base.s3_upload import Upload


class UploadFile:
    """What a format writes to: a part is sent when it is full.

    Args:
        system: `unistream.base.s3_files.S3Files`.
        path: Of the object, with the bucket.
    """

    closed = False

    def __init__(self, system: Any, path: str, part_size: int) -> None:
        self._system = system
        self._part_size = part_size
        self._pending = bytearray()
        self.size = 0
        self.tags: list[str] = []
        self.upload: Upload = system.begin_upload(path)

    def write(self, content: bytes | memoryview) -> int:
        """Adds content, and sends each part that is full. Raises OSError: a part was not sent."""
        count = len(memoryview(content).cast("B"))
        self._pending += content
        self.size += count
        while len(self._pending) >= self._part_size:
            self._send(self._part_size)
        return count

    def finish(self) -> None:
        """Sends the last part. Raises OSError."""
        self._send(len(self._pending))

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Does nothing: parts have a least size."""

    def close(self) -> None:
        """Does nothing: Parquet's writer closes what it has written."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def _send(self, count: int) -> None:
        content = bytes(self._pending[:count])
        del self._pending[:count]
        self.tags.append(self._system.upload_part(self.upload, len(self.tags) + 1, content))
        crash_point("upload.part_stored")


class FolderUploads:
    """The uploads below one folder. Paths are of objects, with the bucket."""

    def __init__(self, system: Any, root: str, where: str) -> None:
        self._system = system
        self._root = root
        self._where = where

    def write(self, path: str, write: Callable[[Any], None]) -> UploadFile:
        """Uploads all parts; durable when it returns.

        Raises:
            ConfigError: no permission, or no bucket.
            Unreachable: the store failed; the upload is aborted, unless that fails, too.
        """
        try:
            file = UploadFile(self._system, path, part_bytes())
            write(file)
            file.finish()
        except PermissionError as error:
            raise ConfigError(f"{self._where}: no permission to write {path}: {error}") from error
        except OSError as error:
            if self._system.lacks_bucket(error):
                raise ConfigError(
                    f"{self._where}: could not write {path}: its bucket does not exist"
                ) from error
            with suppress(OSError):
                self._system.abort_uploads(path)
            raise Unreachable(f"{self._where}: could not write {path}: {error}") from error
        return file

    def has(self, upload: Upload) -> bool:
        """Whether an upload can be completed. (Its parts are compared by their tags when it is.) Raises
        Unreachable."""
        try:
            return bool(self._system.has_upload(upload))
        except OSError as error:
            raise Unreachable(f"{self._where}: could not look up {upload.path}: {error}") from error

    def object_size(self, path: str) -> int | None:
        """The size of an object in bytes; None: there is no such object. Raises Unreachable."""
        try:
            size: int | None = self._system.object_size(path)
        except OSError as error:
            raise Unreachable(f"{self._where}: could not look up {path}: {error}") from error
        return size

    def read(self, path: str) -> bytes | None:
        """The content of a small object; None: there is none. Raises Unreachable."""
        try:
            return bytes(self._system.cat_file(path, max_concurrency=1))  # else its size is asked first
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreachable(f"{self._where}: could not read {path}: {error}") from error

    def write_over(self, path: str, content: bytes) -> None:
        """Replaces an object; may be repeated. Raises Unreachable."""
        try:
            self._system.pipe_file(path, content)
        except OSError as error:
            raise Unreachable(f"{self._where}: could not write {path}: {error}") from error

    def complete(self, upload: Upload, tags: tuple[str, ...]) -> bool:
        """Makes the object. False: the upload is gone, and there is no object. Raises Unreachable: it may or
        may not have been made."""
        try:
            self._system.complete_upload(upload, tags)
        except FileNotFoundError:  # of a request that was repeated, or by another committer of the record
            return self.object_size(upload.path) is not None
        except OSError as error:
            raise Unreachable(f"{self._where}: could not complete {upload.path}: {error}") from error
        return True

    def abort(self, upload: Upload) -> None:
        """Aborts an upload as far as the store allows it: readers never see it."""
        try:
            self._system.abort_upload(upload)
        except OSError:
            return

    def found(self) -> Iterator[tuple[str, Upload]]:
        """Yields (path below the folder, upload) of all that are neither completed nor aborted. Raises
        Unreachable."""
        inside = f"{self._root}/"
        try:
            for upload in self._system.uploads(inside):
                yield upload.path.removeprefix(inside), upload
        except OSError as error:
            raise Unreachable(f"{self._where}: could not list its uploads: {error}") from error
