"""pyiceberg's file system, with local files that survive a power cut.

pyiceberg does not sync what it writes. A catalogue in a database would then name metadata that a power cut
has emptied, and the table could not be read any more. A catalogue loads this class by its name
(``py-io-impl``), so that manifests and metadata are written by it as well as data files. Object stores keep
what they have acknowledged; there nothing changes.
"""

from __future__ import annotations

import io
import os
from typing import Any

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from unistream.base import durable_files


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc]  # pyiceberg is not read by mypy
    """A `PyArrowFileIO` whose local files are durable, content and name, when they are closed."""

    def new_output(self, location: str) -> Any:
        """A file to be written."""
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return LocalOutputFile(location, path, self)


class LocalOutputFile(OutputFile):  # type: ignore[misc]
    """A file on this machine. Its folder is created.

    Args:
        location: As the table names it.
        path: On the disk.
        files: The file system that it is of.
    """

    def __init__(self, location: str, path: str, files: DurableFileIO) -> None:
        super().__init__(location)
        self._path = path
        self._files = files

    def __len__(self) -> int:
        return os.stat(self._path).st_size

    def exists(self) -> bool:
        return os.path.exists(self._path)

    def to_input_file(self) -> Any:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> io.BufferedWriter:
        """A stream; closing it makes the file durable. Raises FileExistsError, OSError."""
        durable_files.make_folders(os.path.dirname(self._path), shared=True)
        return io.BufferedWriter(_Synced(self._path, "wb" if overwrite else "xb"))


class _Synced(io.FileIO):
    def close(self) -> None:
        if self.closed:
            return
        try:
            os.fsync(self.fileno())
        finally:
            super().close()
        durable_files.sync(os.path.dirname(os.path.abspath(str(self.name))))
