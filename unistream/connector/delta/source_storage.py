"""Opens the files of a Delta table for reading, the log and the data, by the storage options of deltalake."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.fs as pa_fs

from unistream.base.errors import ConfigError, Unreachable
from unistream.base.extras import require
from unistream.base.os_failures import stays
from unistream.connector.delta.access import brief
from unistream.connector.delta.source_split import DeltaSplit


def table_files(uri: str, options: Mapping[str, str]) -> pa_fs.FileSystem:
    """The folder of the table. Local files do not go through Python."""
    if "://" not in uri:
        return pa_fs.SubTreeFileSystem(uri, pa_fs.LocalFileSystem())
    require("delta", "a Delta table on another file system than the local one")
    from deltalake.fs import DeltaStorageHandler

    return pa_fs.PyFileSystem(DeltaStorageHandler(uri, dict(options) or None))


def open_data_file(uri: str, files: pa_fs.FileSystem, split: DeltaSplit) -> pa.NativeFile:
    """
    Raises:
        ConfigError: it does not exist any more, may not be read, or has another size than in the log.
        Unreachable: the storage failed otherwise.
    """
    where = f"table {uri}: file {split.path} of version {split.version}"
    try:
        file = files.open_input_file(split.path)
        found = file.size()
    except FileNotFoundError as error:
        raise ConfigError(
            f"{where} does not exist: VACUUM, or something else, removed it before it was read; start again "
            "without the checkpoint, from a version that has its files, and keep removed files for longer "
            "than a job takes to read them (delta.deletedFileRetentionDuration)"
        ) from error
    except OSError as error:
        if stays(error):
            raise ConfigError(f"{where} cannot be read: {brief(error)}") from error
        raise Unreachable(f"{where} could not be opened: {brief(error)}") from error
    if found != split.size:
        file.close()
        raise ConfigError(f"{where} has {found} B, and {split.size} B in the log: it is damaged")
    return file
