"""Rows that an operator could not process, as rows themselves: one schema for all operators.

A record that a source cannot decode is no row, so its schema is that of the source (`SendsDeadLetters`),
which alone can read it again (`ReadsLetters`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

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


@dataclass(frozen=True, slots=True)
class LetterRows:
    """What dead letters of a source give when they are read again.

    Attributes:
        rows: Of each letter, in their order: its rows, usually one; None: it is still no row.
        times: Of each: the event time, ms, that the source itself gives to its rows; None: none.
        reasons: Position of a letter -> why it is still no row.
    """

    rows: Sequence[pa.RecordBatch | None]
    times: Sequence[int | None]
    reasons: Mapping[int, str]


@runtime_checkable
class KeepsLetters(Protocol):
    """A sink whose table can be read back by what only the sink knows, such as a catalogue or a database."""

    @property
    def name(self) -> str:
        """See `Sink`."""

    def letters(self) -> pa.Table:
        """All rows of the table, in memory, in whatever types the target has for those of its columns.

        Raises:
            ConfigError: there is no table.
            Unreachable: its system does not answer.
        """

    def letters_folder(self) -> str | None:
        """URL of the folder of the table, in which replays are recorded; None: it has none.

        Raises:
            ConfigError, Unreachable: as `letters`.
        """


@runtime_checkable
class ReadsLetters(Protocol):
    """A source that reads its dead letters again, by its schema and format as they are now, whatever it does
    with bad records."""

    def own_letters(self, letters: pa.Table) -> pa.Array[Any]:
        """True for those of what it reads; for none if they have other columns than its own."""

    def read_letters(self, letters: pa.Table) -> LetterRows:
        """All of them.

        Raises:
            ConfigError, Unreachable: something else that it needs is not there, such as a registry of schemas
                or the header of a file.
        """
