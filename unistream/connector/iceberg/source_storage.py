"""Opens the files of an Iceberg table for reading, by the file system that its catalog gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError, Unreachable
from unistream.base.os_failures import stays
from unistream.connector.iceberg.catalog import TableAddress, answering
from unistream.connector.iceberg.table import IcebergSinkTable


class LakeFiles:
    """The files of one table, wherever they are. The catalog is asked for them at the first one, and once
    more if a file may not be read: what a REST catalog gives for that is valid for some time."""

    def __init__(self, address: TableAddress) -> None:
        self._address = address
        self._io: Any = None

    def use(self, io: Any) -> None:
        """The `pyiceberg.io.FileIO` of the table, which somebody has just loaded."""
        self._io = io

    def open(self, path: str, size: int, what: str = "file") -> pa.NativeFile:
        """
        Args:
            path: As the table names it.
            size: In the manifest.
            what: For messages.

        Raises:
            ConfigError: it does not exist any more, may not be read, or has another size.
            Unreachable: the storage or the catalog does not answer.
        """
        where = f"table {self._address.text}: {what} {path}"
        try:
            try:
                file = self._open(path)
            except PermissionError:
                self._io = None
                file = self._open(path)
            stored_bytes = file.size()
        except FileNotFoundError as error:
            raise ConfigError(
                f"{where} does not exist: its snapshot has expired, or something else removed it before it "
                "was read; start again without the checkpoint, from a snapshot that has its files, and keep "
                "snapshots for longer than a job takes to read them (history.expire.max-snapshot-age-ms)"
            ) from error
        except OSError as error:
            if stays(error):
                raise ConfigError(f"{where} cannot be read: {error}") from error
            raise Unreachable(f"{where} could not be opened: {error}") from error
        if stored_bytes != size:
            file.close()
            raise ConfigError(f"{where} has {stored_bytes} B, and {size} B in the manifest: it is damaged")
        return file

    def _open(self, path: str) -> pa.NativeFile:
        if self._io is None:
            with IcebergSinkTable.opened(self._address) as lake:
                table = lake.load()
                if table is None:
                    raise ConfigError(f"table {self._address.text} does not exist")
                self._io = table.io
        with answering(f"table {self._address.text}", f"opening {path}", passing=OSError):
            file = self._io.new_input(path).open()
        return file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, "r")
