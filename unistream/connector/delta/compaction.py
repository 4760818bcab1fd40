"""Small files of a Delta table are rewritten as large ones, next to the stream that makes them.

    commits ──► enough new files? ──► a thread: enough small files in a partition? ──► OPTIMIZE, by deltalake

Delta calls it auto compaction. Its commit changes no row: readers that follow the table pass it over, appends
that come meanwhile stand next to it, and one that was killed leaves files that no version names (`vacuum`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.limits import MIB
from unistream.connector.delta.table import Conflict, LakeTable, Unknown

COMPACTED_BYTES: Final = 128 * MIB  # of a rewritten file
SMALL_BYTES: Final = COMPACTED_BYTES // 2
CLOSE_S: Final = 60.0  # deltalake cannot be interrupted, and a thread in it must not outlive the interpreter

_LOG: Final = logging.getLogger(__name__)


class Compactor:
    """Of one committer, on whose thread `committed` and `close` are called.

    Args:
        uri: Of the table.
        options: Of deltalake.
        files_min: Small files of one partition that are worth a compaction.
        tables: Opens the table.
    """

    def __init__(
        self, uri: str, options: Mapping[str, str], files_min: int, tables: type[LakeTable] = LakeTable
    ) -> None:
        self._uri = uri
        self._options = options
        self._files_min = files_min
        self._tables = tables
        self._new_files = files_min  # those of before are not known
        self._thread: threading.Thread | None = None

    def committed(self, files: int) -> None:
        """So many files are new in the table. Returns at once."""
        self._new_files += files
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or self._new_files < self._files_min:
            return
        self._new_files = 0
        self._thread = threading.Thread(target=self._run, name="delta-compaction", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for the one that is under way."""
        if self._thread is None:
            return
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            _LOG.error("event=compaction_not_ended table=%s waited_s=%.0f", self._uri, CLOSE_S)

    def _run(self) -> None:
        try:
            self._compact()
        except (Conflict, Unknown, ConfigError, Unreachable) as error:  # the table is as it was: next time
            _LOG.warning("event=compaction_failed table=%s reason=%r", self._uri, error)
        except Exception:
            _LOG.exception("event=compaction_defect table=%s", self._uri)

    def _compact(self) -> None:
        table = self._tables.open(self._uri, self._options)
        if table is None or table.small_files(SMALL_BYTES) < self._files_min:
            return
        crash_point("compaction.begins")
        removed, added = table.compact(COMPACTED_BYTES)
        crash_point("compaction.done")
        _LOG.info("event=compacted table=%s removed=%d added=%d", self._uri, removed, added)
