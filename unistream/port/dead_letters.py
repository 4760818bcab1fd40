"""Rows that an operator could not process, as rows themselves: one schema for all operators.

A record that a source cannot decode is no row, so its schema is that of the source (`SendsDeadLetters`).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import pyarrow as pa

OnError: TypeAlias = Literal["fail", "skip", "dead-letter"]
"""What an operator does with a row that its function, or expression, cannot process."""

ON_ERROR: Final = ("fail", "skip", "dead-letter")

LETTER_SCHEMA: Final = pa.schema(
    [
        ("letter", pa.string()),  # id, unlike that of any other letter
        ("row", pa.string()),  # JSON, to be read; what JSON cannot hold is text
        ("row_ipc", pa.binary()),  # an Arrow IPC stream with exactly the row, which a replay reads
        ("event_time", pa.timestamp("ms", tz="UTC")),  # null: the row has none
        ("error_type", pa.string()),  # class of the exception
        ("error", pa.string()),  # its message
        ("error_at", pa.string()),  # last line of the user's code in the traceback: file:line
        ("operator_uid", pa.string()),
        ("operator", pa.string()),  # name
        ("subtask", pa.int32()),
        ("attempt", pa.int32()),  # 1; each replay that fails again counts one more
        ("replay_of", pa.string()),  # the letter that was replayed, if it was
        ("job", pa.string()),
        ("lineage", pa.string()),  # the line of jobs
        ("time", pa.timestamp("ms", tz="UTC")),  # when it failed, by the worker's clock
    ]
)
"""A dead letter of an operator."""

TEXT_CHARS_MAX: Final = 10_000  # of an error's message; a library may put a whole document into it
