"""Small files of a Delta table are rewritten as large ones, next to the stream that makes them.

    commits ──► enough new files? ──► a thread: enough small files in a partition?
            ──► their rows in a new file ──► a commit on the newest version, if it still has all of the old

Delta calls it auto compaction. Its commit changes no row: readers that follow the table pass it over, appends
that come meanwhile stand next to it, and one that was killed leaves files that no version names (`vacuum`).

deltalake's own OPTIMIZE is not used: of two that were begun from one version it commits both (tried with
1.6.6), so a process that slept would double the rows. Here a version that has lost one of the files is never
committed to, however long ago they were read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, Unreachable, UserCodeError
from unistream.base.limits import MIB
from unistream.base.parquet_files import parquet_file
from unistream.connector.common import Conflict, StageFiles, Unknown
from unistream.connector.delta.compaction_watch import COMPACTED, SEALED, TAKEN_BACK, CompactionWatch
from unistream.connector.delta.rewriting import Rewrite, plan, rewrite
from unistream.connector.delta.schema import TableShape
from unistream.connector.delta.source_log import TableLog
from unistream.connector.delta.source_split import DataFile, whole_file
from unistream.connector.delta.source_storage import open_data_file, table_files
from unistream.connector.delta.stage import DeltaFile, Statistics
from unistream.connector.delta.table import DeltaSinkTable, Removed, logged_path

COMPACTED_BYTES: Final = 128 * MIB  # of a rewritten file
SMALL_BYTES: Final = COMPACTED_BYTES // 2
ATTEMPTS_MAX: Final = 20  # each conflict is another commit's success
CLOSE_S: Final = 60.0  # until the file that is being written is done
DOUBLED: Final = (
    "a commit of somebody else, begun before a compaction of this sink and made after it, has not noticed "
    "it, and its files are rewritten by now: look for rows that are twice, and restore a version before"
)
UNNOTICED: Final = "a commit of somebody else, begun before it, has removed its files once more"

_LOG: Final = logging.getLogger(__name__)


class CompactionStopped(Exception):
    """The committer is closed, so what was not committed is not."""


class Compactor:
    """Compacts the table of one committer, on whose thread `committed` and `close` are called.

    Args:
        uri: Of the table.
        options: Of deltalake.
        stage: The folder of the table.
        files_min: Small files of one partition that are worth a compaction.
        tables: Opens the table.
    """

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str],
        stage: StageFiles,
        files_min: int,
        tables: type[DeltaSinkTable] = DeltaSinkTable,
    ) -> None:
        self._uri = uri
        self._options = options
        self._stage = stage
        self._files_min = files_min
        self._tables = tables
        self._new_files = files_min  # those of before are not known
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()
        self._watch: CompactionWatch | None = None

    def committed(self, files: int) -> None:
        """Notes that so many files are new in the table, and begins a compaction that is due. Returns at
        once."""
        self._new_files += files
        is_busy = self._thread is not None and self._thread.is_alive()
        is_due = self._new_files >= self._files_min
        if is_busy or not (is_due or self._watch is not None):
            return
        if is_due:
            self._new_files = 0
        self._thread = threading.Thread(
            target=self._run, args=(is_due,), name="delta-compaction", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Waits for the compaction that is under way, `CLOSE_S` at most."""
        if self._thread is None:
            return
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            _LOG.error("event=compaction_not_ended table=%s waited_s=%.0f", self._uri, CLOSE_S)

    def close(self) -> None:
        """What is under way ends with the file that is being written. Then, for the last time, what others
        have done is looked at."""
        self._is_closed.set()
        self.wait()
        if self._watch is not None and self._thread is not None and not self._thread.is_alive():
            self._run(is_due=False)

    def _run(self, is_due: bool) -> None:
        try:
            self._look_and_compact(is_due=is_due)
        except CompactionStopped:
            _LOG.info("event=compaction_stopped table=%s", self._uri)
        except (Conflict, Unknown, Removed, ConfigError, Unreachable, UserCodeError) as error:
            # the table is as it was, or compacted: next time
            _LOG.warning("event=compaction_failed table=%s reason=%r", self._uri, error)
        except Exception:
            _LOG.exception("event=compaction_defect table=%s", self._uri)

    def _look_and_compact(self, *, is_due: bool) -> None:
        table = None
        if self._watch is None:
            table = self._tables.open(self._uri, self._options)
            if table is None:
                return
            log = TableLog(self._uri, table_files(self._uri, self._options))
            self._watch = CompactionWatch(self._uri, log, table.version)
        self._watch.look()
        if self._watch.taken_back() is not None or is_due:
            table = table or self._tables.open(self._uri, self._options)
            if table is None:
                return
            self._set_right(table, self._watch)
            if is_due:
                self._compact(table, self._watch)

    def _set_right(self, table: DeltaSinkTable, watch: CompactionWatch) -> None:
        """Takes back what a commit of somebody else has not noticed. Raises as `_commit`."""
        for _ in range(ATTEMPTS_MAX):
            table.refresh()
            watch.look()
            wrong = watch.taken_back()
            if wrong is None:
                return
            if not table.has_all(wrong.removed):
                watch.forget(wrong.removed)
                _LOG.error(
                    "event=compaction_doubled table=%s version=%d help=%r", self._uri, table.version, DOUBLED
                )
                return
            added = [_added_again(self._uri, self._options, file) for file in wrong.added]
            try:
                table.rewrite(wrong.removed, added, TAKEN_BACK)
            except (Conflict, Unknown):
                continue
            _LOG.warning(
                "event=compaction_taken_back table=%s removed=%d added=%d reason=%r",
                self._uri,
                len(wrong.removed),
                len(added),
                UNNOTICED,
            )
            self._seal(table, watch)
        raise Conflict(f"{ATTEMPTS_MAX} other commits were faster")

    def _compact(self, table: DeltaSinkTable, watch: CompactionWatch) -> None:
        if watch.is_left_to_others:
            _LOG.info("event=compaction_left_to_others table=%s version=%s", self._uri, watch.optimized)
            return
        planned = plan(table.small_files(SMALL_BYTES), self._files_min, COMPACTED_BYTES)
        if not planned:
            return
        crash_point("compaction.begins")
        files = table_files(self._uri, self._options)
        shape, version, table_id = table.shape, table.version, table.table_id
        for group in planned:
            if self._is_closed.is_set():
                raise CompactionStopped
            rewritten = rewrite(group, shape, version, files, self._stage)
            crash_point("compaction.written")
            self._commit(table, table_id, shape, group, rewritten)
            self._seal(table, watch)
            self._set_right(table, watch)
        crash_point("compaction.done")

    def _commit(
        self, table: DeltaSinkTable, table_id: str, shape: TableShape, planned: Rewrite, made: DeltaFile
    ) -> None:
        """
        Raises:
            Conflict: the table has changed so that this cannot be committed; the file is removed.
            Unknown: whether it was committed is unknown; nothing is removed.
            Removed, ConfigError, Unreachable: as `DeltaSinkTable.refresh` and `DeltaSinkTable.append`.
        """
        failure: Unknown | None = None
        for _ in range(ATTEMPTS_MAX):
            table.refresh()
            if failure is not None and logged_path(made.path) in table.active_paths():
                break
            changed = _changed(table, table_id, shape, planned)
            if changed:
                raise self._given_up(made, failure, changed)
            try:
                table.rewrite(planned.files, [made], COMPACTED)
            except Conflict:
                continue
            except Unknown as error:
                failure = error
                continue
            break
        else:
            raise self._given_up(made, failure, f"{ATTEMPTS_MAX} other commits were faster")
        _LOG.info(
            "event=compacted table=%s partition=%s removed=%d added=1 bytes=%d",
            self._uri,
            made.partition_values,
            len(planned.files),
            made.size,
        )

    def _seal(self, table: DeltaSinkTable, watch: CompactionWatch) -> None:
        """See `compaction_watch`. What it cannot prevent is found, and taken back."""
        for _ in range(ATTEMPTS_MAX):
            watch.look()
            if not watch.has_one_writer:
                return
            table.refresh()
            try:
                table.seal(SEALED)
            except (Conflict, Unknown):
                continue
            return

    def _given_up(self, made: DeltaFile, failure: Unknown | None, reason: str) -> Conflict | Unknown:
        """Removes the file, unless a version may have it."""
        if failure is not None:
            return failure
        self._stage.remove(made.path)
        return Conflict(reason)


def _changed(table: DeltaSinkTable, table_id: str, shape: TableShape, planned: Rewrite) -> str:
    """Why the file is of no use any more; empty: it is."""
    if table.table_id != table_id:
        return "it is another table now"
    if table.shape != shape:
        return "its columns or properties have changed"
    if not table.has_all(planned.files):
        return "somebody else has removed or rewritten some of the files"
    return ""


def _added_again(uri: str, options: Mapping[str, str], file: DataFile) -> DeltaFile:
    """A file that was removed a moment ago. Raises ConfigError: it is gone; Unreachable."""
    split = whole_file(file, 0, None)
    with open_data_file(uri, table_files(uri, options), split) as content:
        rows = parquet_file(content).metadata.num_rows
    return DeltaFile(
        path=file.path,
        size=file.size,
        rows=rows,
        partition_values=file.partition,
        stats=Statistics.of_rows(rows),
        modification_ms=time.time_ns() // 1_000_000,
    )
