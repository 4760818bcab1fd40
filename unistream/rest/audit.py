"""Who has changed what, from where, with which outcome: a line for each request that is no mere look.

    <folder of the cluster>/audit/audit.jsonl      the newest; 0600, and 10 MB at most
    <folder of the cluster>/audit/audit.jsonl.1…9  the ones before

Only requests that were let in stand there, so nobody without a token can push them out. Of several masters
each has its own: those that it has answered as the leader. What cannot be written, on a full disk say, is
logged, and the request is answered.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

import msgspec

from unistream.base.errors import UNDECODABLE

FILE: Final = "audit.jsonl"
FILE_BYTES_MAX: Final = 10_000_000
FORMER_FILES: Final = 9
PATH_CHARS_MAX: Final = 500

logger = logging.getLogger(__name__)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One request.

    Attributes:
        at_ms: When it was answered, ms since 1970.
        token, name: Of who has asked; the id is "" where no token is needed.
        method, path: What was asked for, without a query.
        client: Address of the connection; a proxy's, if there is one.
        status: Of the answer; 0: there was none, since the client has gone.
    """

    at_ms: int
    token: str
    name: str
    method: str
    path: str
    client: str
    status: int


class AuditPage(msgspec.Struct, frozen=True):
    """The newest entries first."""

    entries: list[AuditEntry]


class AuditLog:
    """See the module. Thread-safe. Between two entries no file is open: a request that is answered while its
    server ends is noted, too, and changes are rare. `folder`: made when the first entry comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def add(self, entry: AuditEntry) -> None:
        """Appends the entry; it does not raise."""
        line = msgspec.json.encode(entry).decode()
        record = logging.LogRecord("audit", logging.INFO, "", 0, line, None, None)
        try:
            with self._lock, contextlib.closing(self._open()) as handler:
                handler.handle(record)
        except OSError as error:
            logger.warning("event=audit_not_written reason=%r entry=%s", str(error), line)

    def newest(self, limit: int) -> list[AuditEntry]:
        """The last entries, the newest first; at most those of the newest two files."""
        found: list[AuditEntry] = []
        for name in (FILE, f"{FILE}.1"):
            try:
                lines = (self._folder / name).read_bytes().splitlines()
            except FileNotFoundError:
                break
            found += [entry for line in reversed(lines) if (entry := _decoded(line)) is not None]
            if len(found) >= limit:
                break
        return found[:limit]

    def _open(self) -> RotatingFileHandler:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _PrivateFiles(
            self._folder / FILE, maxBytes=FILE_BYTES_MAX, backupCount=FORMER_FILES, encoding="utf-8"
        )


class _PrivateFiles(RotatingFileHandler):
    """Its files are for their owner only, and what goes wrong is raised."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_RDWR | os.O_CLOEXEC, 0o600)
        file = os.fdopen(descriptor, "a", encoding=self.encoding)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            file.write("\n")  # ends a line that a full disk has cut off
        return file

    def handleError(self, record: logging.LogRecord) -> None:
        raise  # noqa: PLE0704  # called while the exception is handled


def _decoded(line: bytes) -> AuditEntry | None:
    """None: a line of which a full disk has taken a part."""
    try:
        return msgspec.json.decode(line, type=AuditEntry)
    except UNDECODABLE:
        return None
