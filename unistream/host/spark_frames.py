"""Rows of Spark's DataFrames in folders of Parquet files, through which Spark and jobs exchange them.

    <home>/frames/frame-…/rows/part-….parquet    by default; the folder's lock lives as long as this process
    <home>/frames/frame-…/elsewhere              the URL of a folder below the user's `staging`

A folder of a process that was killed is removed by the next one that makes a folder, with what `elsewhere`
names.

Rows that are lost on the way are found: Spark counts what it writes, the sink what it commits, and both
numbers are compared with the footers of the files. So a folder that not all machines see is an error, not
fewer rows.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MIB
from unistream.base.object_stores import file_system
from unistream.base.os_failures import failure
from unistream.host.spark_types import spark_schema
from unistream.net.folder import PrivateFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame  # noqa: PLC0414  # for the API, which does not import pyspark
    from pyspark.sql import SparkSession as SparkSession  # noqa: PLC0414
    from pyspark.sql.types import StructType

PREFIX: Final = "frame-"
ROW_GROUP_BYTES: Final = 32 * MIB  # subtasks share a file by row groups
REASON_CHARS: Final = 500  # of Spark's errors
_ELSEWHERE: Final = "elsewhere"
_EXACT: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has no zone
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_READ: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
_WRITING: Final = threading.Lock()  # settings of a session are changed while it writes

_log = logging.getLogger(__name__)


class FrameFolder:
    """A new, empty folder, removed by `close`, at the end of this process, or after it.

    Args:
        root: Folder of this machine, created if it does not exist.
        staging: Folder below which it is created, for Spark and workers on other machines; None: `root`.

    Attributes:
        path: Local path or URL.

    Raises:
        ConfigError: it cannot be created.
    """

    def __init__(self, root: Path, staging: str | None) -> None:
        root.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._closed = False
        self._private = PrivateFolder(root, PREFIX, before_removal=_remove_elsewhere)
        self._is_elsewhere = staging is not None
        self.path = str(self._private.path / "rows")
        if staging is not None:
            base = staging if "://" in staging else os.path.abspath(staging)
            self.path = f"{base.rstrip('/')}/{PREFIX}{uuid.uuid4().hex}"
            (self._private.path / _ELSEWHERE).write_text(self.path, encoding="utf-8")
        atexit.register(self.close)

    @property
    def url(self) -> str:
        """The folder's URL for Spark, which takes a path without a scheme for one of its own file system."""
        return self.path if "://" in self.path else f"file://{self.path}"

    def files(self) -> list[str]:
        """Paths or URLs of the files, sorted.

        Raises:
            ConfigError: the storage cannot be used.
            Unreachable: it failed.
        """
        try:
            system, inner = file_system(self.path)
            names = system.find(inner) if system.exists(inner) else []
            found = [name for name in names if _is_part(name.removeprefix(inner))]
            return sorted(system.unstrip_protocol(name) if "://" in self.path else name for name in found)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"the rows of a DataFrame in {self.path} cannot be listed: {error}") from error
        except OSError as error:
            raise failure(f"the rows of a DataFrame in {self.path} cannot be listed", error) from error

    def close(self) -> None:
        """May be called again, from any thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self.close)
            try:
                if self._is_elsewhere:
                    _remove(self.path)
            except (OSError, ImportError, ValueError) as error:
                _log.warning("event=frame_not_removed path=%s reason=%r", self.path, error)
                return  # the next process tries again
            self._private.close()


def _is_part(name: str) -> bool:
    parts = name.strip("/").split("/")
    return name.endswith(".parquet") and not any(part.startswith((".", "_")) for part in parts)


def _remove_elsewhere(folder: Path) -> None:
    """Raises OSError if it cannot be removed now."""
    named = folder / _ELSEWHERE
    if not named.exists():
        return
    path = named.read_text(encoding="utf-8")
    try:
        _remove(path)
    except (OSError, ImportError, ValueError) as error:
        _log.warning("event=frame_not_removed path=%s reason=%r", path, error)
        raise OSError(str(error)) from error


def _remove(path: str) -> None:
    system, inner = file_system(path)
    if system.exists(inner):
        system.rm(inner, recursive=True)


# --- with Spark -------------------------------------------------------------------------------------


def check_sees_folders(session: SparkSession, staging: str | None, what: str) -> None:
    """Raises ConfigError: Spark runs on other machines, which cannot use a folder of this one."""
    remote = type(session).__module__.startswith("pyspark.sql.connect")
    master = "a Spark Connect server" if remote else str(session.conf.get("spark.master"))
    if staging is None and not master.startswith("local"):
        raise ConfigError(
            f"{what}: the session runs on {master}, which cannot use a folder of this machine: pass "
            'staging="URL" of a folder that Spark, the workers and this program can all use'
        )


def active_session(what: str) -> SparkSession:
    """Raises ConfigError if there is none."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException as error:
        raise ConfigError(
            f"{what}: there is no Spark session; create one with SparkSession.builder.getOrCreate(), or pass "
            "spark="
        ) from error


def is_case_sensitive(session: SparkSession) -> bool:
    """Whether Spark distinguishes column names by case."""
    return str(session.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def write_frame(frame: DataFrame, folder: FrameFolder, what: str) -> list[str]:
    """Evaluates the DataFrame once and writes its rows; returns the files.

    Raises:
        UserCodeError: Spark could not evaluate or write it.
        ConfigError: not all that Spark has written is in the folder.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import Observation
    from pyspark.sql import functions as spark

    counted = Observation()
    try:
        with _settings(frame.sparkSession, _EXACT):
            writer = frame.observe(counted, spark.count(spark.lit(1)).alias("rows")).write
            writer.option("parquet.block.size", ROW_GROUP_BYTES).parquet(folder.url)
        expected = int(counted.get["rows"])
    except Exception as error:
        if not isinstance(error, PySparkException) and type(error).__module__.split(".")[0] != "py4j":
            raise
        reason = str(error).strip()[:REASON_CHARS]
        raise UserCodeError(f"{what}: Spark could not evaluate the DataFrame: {reason}") from error
    files = folder.files()
    _check_complete(files, expected, folder, what)
    return files


def read_frame(
    session: SparkSession, folder: FrameFolder, schema: pa.Schema | None, expected: int, what: str
) -> DataFrame:
    """The rows that a job has written. `schema` None: as in the files; `expected`: the number of rows.

    Raises:
        ConfigError: not all rows are in the folder, or the types of the columns are not known, differ
            between files, or have none in Spark.
    """
    files = folder.files()
    _check_complete(files, expected, folder, what)
    if schema is None:
        schema = _schema_of(files, what)
    types = spark_schema(schema, what, case_sensitive=is_case_sensitive(session))
    return _rows(session, files, folder, types)


def _rows(session: SparkSession, files: list[str], folder: FrameFolder, types: StructType) -> DataFrame:
    if not files:
        return session.createDataFrame([], types)
    return session.read.schema(types).options(**_READ).parquet(folder.url)


def _schema_of(files: list[str], what: str) -> pa.Schema:
    found: pa.Schema | None = None
    for file in files:
        schema = _footer(file).schema.to_arrow_schema().remove_metadata()
        if found is not None and not schema.equals(found):
            raise ConfigError(
                f"{what}: the columns differ between rows ({found.to_string()} and {schema.to_string()}): "
                "declare them with returns=... of the function that makes them"
            )
        found = schema
    if found is None:
        raise ConfigError(
            f"{what}: there are no rows, and their columns are not declared: pass returns=... to the "
            "function that makes them"
        )
    return found


def _check_complete(files: list[str], expected: int, folder: FrameFolder, what: str) -> None:
    found = sum(_footer(file).num_rows for file in files)
    if found != expected:
        raise ConfigError(
            f"{what}: {expected} rows were written, and {found} are in {folder.path}: is it one folder for "
            'Spark, the workers and this program? Pass staging="URL" of one that is'
        )


def _footer(file: str) -> Any:
    try:
        system, inner = file_system(file)
        with system.open(inner, "rb") as opened:
            return pq.read_metadata(opened)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"file {file} of a DataFrame is no Parquet file: {error}") from error
    except OSError as error:
        raise failure(f"file {file} of a DataFrame cannot be read", error) from error


@contextlib.contextmanager
def _settings(session: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    with _WRITING:
        before = {key: session.conf.get(key) for key in wanted}
        try:
            for key, value in wanted.items():
                session.conf.set(key, value)
            yield
        finally:
            for key, found in before.items():
                session.conf.set(key, str(found))
