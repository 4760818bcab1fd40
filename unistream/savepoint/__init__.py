"""Savepoints as tables: read them, query them, write them, judge a changed pipeline against one.

    read_savepoint(path) ─► Savepoint ── table(uid, state) ─► pa.Table
    SavepointWriter ── with_state(...), with_timers(...), with_rows(...) ── write(path) ─► a savepoint

No cluster is needed: a savepoint is a directory of Arrow files and a manifest
(`docs/reference/savepoint-format.md`).
"""

from __future__ import annotations

from unistream.savepoint.contents import PendingCommit, RowsInFlight, SplitPosition
from unistream.savepoint.reading import Savepoint, read_savepoint
from unistream.savepoint.states import OperatorContent, StateContent, WatermarkSpan
from unistream.savepoint.writing import SavepointWriter, write_savepoint
