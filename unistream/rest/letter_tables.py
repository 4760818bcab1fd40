"""Which tables of letters are looked at and replayed by the web UI: those that sinks of the job write."""

from __future__ import annotations

from typing import Final

from unistream.base.config import DEAD_LETTER_ROWS
from unistream.base.errors import ConfigError, NotFound
from unistream.base.ids import JobId
from unistream.master.cluster import Dispatcher

LOCAL: Final = "file://"
READABLE: Final = (LOCAL, "/", "s3://", "s3a://", "gs://", "abfss://", "abfs://", "hdfs://")
WORD_CHARACTERS_MAX: Final = 300


class LetterTables:
    """The tables of letters that the jobs of one cluster write."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def checked(self, job: JobId, table: str) -> str:
        """The path or URL of `table`, which a sink of the job writes.

        Raises:
            ConfigError: that is turned off here, or only the sink itself can read it.
            NotFound: there is no such job, or no sink of it writes there.
        """
        if not self._dispatcher.config.get(DEAD_LETTER_ROWS):
            raise ConfigError(f"rows of dead letters are not shown in this cluster ({DEAD_LETTER_ROWS.key})")
        written = {uri for uris in self._dispatcher.job(job).writes.values() for uri in uris}
        if table not in written:
            raise NotFound(f"no sink of job {job} writes {table[:WORD_CHARACTERS_MAX]!r}")
        if not table.startswith(READABLE):
            raise ConfigError(
                f"only its sink can read {table[:WORD_CHARACTERS_MAX]!r}: `unistream dead-letters show "
                "MODULE:FUNCTION#SINK`"
            )
        return table.removeprefix(LOCAL)


def checked_word(name: str, text: str) -> str:
    """The name of an operator or of an error, as it was given. Raises ConfigError: it cannot be one."""
    if len(text) > WORD_CHARACTERS_MAX or "\x00" in text:
        raise ConfigError(f"{name}: at most {WORD_CHARACTERS_MAX} characters, without NUL")
    return text
